//! Tests that drive the binary as users do.
