//! The training loop: data, schedule, optimizer, evaluation, exact state.
//!
//! Read `trainer` first: it is the loop. What it is given is in `job`, and what it calls is one file each: `data` (which windows), `schedule` (the
//! learning rate, a pure function of the step), `optimizer` (`AdamW` over flat buffers), `evaluate` (the loss over
//! a whole split), `masking` (which tokens the masked objective hides), `spikes` (losses that jump), `state` (what resume needs) and `events` (what is written and told).
//!
//! A run is exact: everything random is a pure function of the seed and of counters in [`State`], evaluation
//! touches neither, and a checkpoint holds weights, moments and counters. So k steps and a resume give the same
//! bytes as one go.

mod data;
mod error;
mod evaluate;
mod events;
mod job;
mod masking;
mod optimizer;
mod schedule;
mod settings;
mod spikes;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trainer;

pub use data::Cursor;
pub use error::{Result, TrainError};
pub use evaluate::{Evaluation, evaluate, is_evaluated};
pub use events::{Best, EndReason, Event, MOST_METRICS, MetricsFile, Observer};
pub use job::{Job, Outcome, Probe};
pub use masking::Masking;
pub use optimizer::Optimizer;
pub use schedule::{Schedule, learning_rate};
pub use settings::{Dtype, Objective, Sampling, TrainSettings};
pub use spikes::Spikes;
pub use state::{State, first_difference};
pub use trainer::Trainer;
