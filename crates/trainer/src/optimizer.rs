//! AdamW over the flat buffers: matrices decay, biases and norms do not; the global norm is clipped.

use crate::settings::TrainSettings;
use softdict_kernels::adamw::{self, Update};
use softdict_kernels::memory;
use softdict_model::{ParameterTable, Parameters};

/// ε of AdamW, PyTorch's default.
const EPS: f64 = 1e-8;

/// The moments of every parameter, laid out like the parameters.
#[derive(Debug, Clone)]
pub struct Optimizer {
    /// Decaying mean of the gradients.
    pub mean: Vec<f32>,
    /// Decaying mean of their squares.
    pub square: Vec<f32>,
}

impl Optimizer {
    /// No gradient seen yet.
    pub fn new(table: &ParameterTable) -> Self {
        Self { mean: memory::zeros(table.len()), square: memory::zeros(table.len()) }
    }

    /// Makes update number `step` and clears the gradient; `norm` is the gradient's global norm.
    pub fn update(
        &mut self,
        settings: &TrainSettings,
        step: u64,
        learning_rate: f64,
        norm: f64,
        parameters: &mut Parameters,
        gradient: &mut [f32],
    ) {
        let table = std::sync::Arc::clone(parameters.table());
        let values = parameters.values_mut();
        for parameter in table.iter() {
            let update = Update {
                learning_rate,
                beta1: settings.beta1,
                beta2: settings.beta2,
                eps: EPS,
                weight_decay: if parameter.decay { settings.weight_decay } else { 0.0 },
                step,
                gradient_scale: adamw::clip_scale(norm, settings.clip()),
            };
            let range = parameter.range();
            adamw::update(
                update,
                &mut values[range.clone()],
                &mut gradient[range.clone()],
                &mut self.mean[range.clone()],
                &mut self.square[range],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_config;

    #[test]
    fn weight_decay_moves_matrices_only_by_rate_times_decay() {
        let config = small_config();
        let start = Parameters::initial(&config, 1);
        let stepped = |weight_decay| {
            let settings = TrainSettings { weight_decay, ..Default::default() };
            let mut parameters = start.clone();
            let mut gradient = vec![0.01; parameters.table().len()];
            Optimizer::new(start.table()).update(&settings, 1, 1e-3, 1.0, &mut parameters, &mut gradient);
            assert!(gradient.iter().all(|&g| g == 0.0));
            parameters
        };
        let (with, without) = (stepped(10.0), stepped(0.0));
        for parameter in start.table().iter() {
            for index in parameter.range() {
                let moved = without.values()[index] - with.values()[index];
                let expected = if parameter.decay { 1e-3 * 10.0 * start.values()[index] } else { 0.0 };
                assert!((moved - expected).abs() < 1e-6, "{}", parameter.name);
            }
        }
    }
}
