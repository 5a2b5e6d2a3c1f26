//! Tests that drive the binary as users do: what it prints, what it writes, how it ends.
//!
//! Each test has a folder of its own and trains models that take a moment. `support` runs the binary.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bench;
mod checkpoint;
mod circuits;
mod configs;
mod copies;
mod export;
mod faults;
mod formats;
mod inspect;
mod masked;
mod overwrite;
#[cfg(target_os = "linux")]
mod pty;
mod repository;
mod resume;
mod sample;
mod settings;
mod strangers;
mod support;
mod terminal;
mod tokenizer;
mod train;
