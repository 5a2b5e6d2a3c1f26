//! What a model costs: parameters by part, floating-point operations, bytes.

use crate::config::ModelConfig;
use crate::fused::LOGITS;
use crate::parameters::{ParameterTable, Part};

/// Bytes of an f32.
const F32: usize = 4;

/// The costs of one configuration.
#[derive(Debug, Clone)]
pub struct Cost {
    config: ModelConfig,
    table: ParameterTable,
}

impl Cost {
    /// The costs of `config`.
    pub fn new(config: &ModelConfig) -> Self {
        Self { config: config.clone(), table: ParameterTable::new(config) }
    }

    /// All parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        self.table.len()
    }

    /// Parameters of each part that has any.
    pub fn parameters_by_part(&self) -> Vec<(Part, usize)> {
        let counts = Part::ALL.map(|part| (part, self.table.part_len(part)));
        counts.into_iter().filter(|&(_, count)| count > 0).collect()
    }

    /// Operations per token in the products with weights, forward: two for each weight of a matrix that is
    /// multiplied, the embedding only as the head.
    pub fn linear_flops(&self) -> u64 {
        let matrices = self.table.part_len(Part::Attention) + self.table.part_len(Part::Ffn);
        let biases: usize = self
            .table
            .iter()
            .filter(|parameter| matches!(parameter.part, Part::Attention | Part::Ffn) && !parameter.decay)
            .map(crate::parameters::Parameter::len)
            .sum();
        2 * (matrices - biases + self.config.vocab_size * self.config.width()) as u64
    }

    /// Operations of a whole sequence of `length` tokens in Q·Kᵀ and P·V, forward; half of the square under a
    /// causal mask.
    pub fn attention_flops(&self, length: usize) -> u64 {
        let width = (self.config.heads * self.config.head_size()) as u64;
        let square =
            (length as u64).saturating_pow(2).saturating_mul(self.config.layers() as u64 * 4 * width);
        if self.config.settings.causal { square / 2 } else { square }
    }

    /// Operations of one training step: forward, and twice that backward.
    pub fn training_flops(&self, batch: usize, length: usize) -> u64 {
        let linear = (length as u64).saturating_mul(self.linear_flops());
        (3 * batch as u64).saturating_mul(linear.saturating_add(self.attention_flops(length)))
    }

    /// Bytes of the KV cache of one sequence of `length` tokens.
    pub fn cache_bytes(&self, length: usize) -> usize {
        2 * F32 * self.config.layers() * self.config.kv_heads * self.config.head_size() * length
    }

    /// Bytes that training on the CPU holds: parameters, gradient and two moments, and the fused pass's buffers.
    pub fn training_bytes(&self, batch: usize, length: usize) -> u64 {
        let c = &self.config;
        let raised = c.ffn_dim * c.activation().inputs_per_output();
        let layer = 2 * c.width() + c.qkv_width() + c.heads * (c.head_size() + 1) + raised + 4;
        let shared = 4 * c.width() + c.qkv_width().max(c.ffn_dim);
        // in 128 bits: sizes that no machine has must come out as such
        let wide = |value: usize| value as u128;
        let rows = wide(batch) * wide(length);
        let logits = wide(LOGITS).min(rows * wide(c.vocab_size));
        let per_row = wide(c.layers()) * wide(layer) + wide(shared);
        let bytes = wide(F32) * (4 * wide(self.parameters()) + rows * per_row + logits);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ModelSettings;

    #[test]
    fn costs_of_the_benchmark_are_those_of_its_formula() {
        let settings = ModelSettings { layers: 4, heads: 4, width: 128, context: 64, ..Default::default() };
        let cost = Cost::new(&ModelConfig::new(&settings, 65).unwrap());
        // 3·B·(T·(2·L·12·C² + 2·C·V) + L·4·T²·C/2), the count that PyTorch's peer program uses
        let (l, c, t, b, v) = (4u64, 128u64, 64u64, 12u64, 65u64);
        let formula = 3 * b * (t * (2 * l * 12 * c * c + 2 * c * v) + l * 4 * t * t * c / 2);
        assert_eq!(cost.training_flops(12, 64), formula);
        assert_eq!(cost.cache_bytes(64), 4 * 2 * 64 * 128 * 4);
    }

    #[test]
    fn parts_add_up_and_two_thirds_of_a_block_is_ffn() {
        let settings = ModelSettings { bias: false, ..Default::default() };
        let cost = Cost::new(&ModelConfig::new(&settings, 65).unwrap());
        let parts = cost.parameters_by_part();
        assert_eq!(parts.iter().map(|(_, count)| count).sum::<usize>(), cost.parameters());
        let count = |wanted| parts.iter().find(|(part, _)| *part == wanted).unwrap().1;
        assert_eq!(count(Part::Ffn), 2 * count(Part::Attention));
    }
}
