//! What the training loop needs of a model: losses and gradients over flat buffers.

use crate::block::DropoutPass;
use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use crate::parameters::Parameters;

/// Sequences of equal length and what follows each of their tokens.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Token ids, one sequence after the other.
    pub inputs: &'a [u32],
    /// What is to be predicted at each place; [`softdict_kernels::cross_entropy::IGNORE`] takes no part.
    pub targets: &'a [u32],
    /// Length of a sequence.
    pub time: usize,
}

impl Batch<'_> {
    /// # Errors
    /// When the parts do not agree, or a sequence is longer than the context.
    pub(crate) fn check(&self, config: &ModelConfig) -> Result<()> {
        let Self { inputs, targets, time } = *self;
        if time == 0 || inputs.len() != targets.len() || !inputs.len().is_multiple_of(time) {
            return Err(ModelError::Batch { inputs: inputs.len(), targets: targets.len(), time });
        }
        if time > config.context() {
            return Err(ModelError::TooLong { length: time, context: config.context() });
        }
        Ok(())
    }
}

/// A way to compute losses and gradients of a model.
pub trait Engine: Send {
    /// Adds scale · ∂(sum of the losses)/∂parameters to `gradient`; returns the sum of the losses in nats.
    ///
    /// # Errors
    /// When the batch does not fit the model, or the device fails.
    fn accumulate(
        &mut self,
        parameters: &Parameters,
        batch: Batch<'_>,
        scale: f32,
        dropout: Option<DropoutPass>,
        gradient: &mut [f32],
    ) -> Result<f64>;

    /// The sum of the losses in nats, without dropout.
    ///
    /// # Errors
    /// As [`Engine::accumulate`].
    fn loss(&mut self, parameters: &Parameters, batch: Batch<'_>) -> Result<f64>;
}
