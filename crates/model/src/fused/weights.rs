//! Where the weights of a layer lie in the flat buffers of parameters and gradients.

use crate::error::Result;
use crate::parameters::ParameterTable;
use softdict_kernels::decode;
use softdict_kernels::linear::{self, Size};
use softdict_kernels::matmul::Precision;
use softdict_kernels::norm::{self, Norm, Saved};
use std::ops::Range;

/// The place of a weight that may not exist.
pub(super) fn place(table: &ParameterTable, name: &str) -> Option<Range<usize>> {
    table.get(name).map(crate::parameters::Parameter::range)
}

/// A linear layer's places.
pub(super) struct LinearPlace {
    size: Size,
    weight: Range<usize>,
    bias: Option<Range<usize>>,
    precision: Precision,
}

impl LinearPlace {
    /// The first `outputs` rows of the weight `name`.
    pub(super) fn new(table: &ParameterTable, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let first = table.range(&format!("{name}.weight"))?.start;
        let (size, weight) = (Size { inputs, outputs }, first..first + inputs * outputs);
        Ok(Self { size, weight, bias: place(table, &format!("{name}.bias")), precision: Precision::F32 })
    }

    /// The same with products of this precision.
    pub(super) fn with(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Width of the output.
    pub(super) fn outputs(&self) -> usize {
        self.size.outputs
    }

    /// y = residual + x·Wᵀ + b.
    pub(super) fn forward(&self, values: &[f32], x: &[f32], residual: Option<&[f32]>, y: &mut [f32]) {
        let bias = self.bias.clone().map(|bias| &values[bias]);
        linear::forward(self.size, self.precision, x, &values[self.weight.clone()], bias, residual, y);
    }

    /// As `forward`, for few rows: every weight is read once.
    pub(super) fn decode(&self, values: &[f32], x: &[f32], residual: Option<&[f32]>, y: &mut [f32]) {
        let bias = self.bias.clone().map(|bias| &values[bias]);
        decode::linear(self.size, x, &values[self.weight.clone()], bias, residual, y);
    }

    /// Inverts `forward` towards its input.
    pub(super) fn backward_input(&self, values: &[f32], dy: &[f32], dx: &mut [f32]) {
        linear::backward_input(self.size, self.precision, dy, &values[self.weight.clone()], dx);
    }

    /// Inverts `forward` towards its weights.
    pub(super) fn backward_weights(&self, dy: &[f32], x: &[f32], total: &mut [f32]) {
        linear::backward_weight(self.size, self.precision, dy, x, &mut total[self.weight.clone()]);
        if let Some(bias) = self.bias.clone() {
            linear::backward_bias(dy, &mut total[bias]);
        }
    }
}

/// A norm's places.
pub(super) struct NormPlace {
    norm: Norm,
    weight: Range<usize>,
    bias: Option<Range<usize>>,
}

impl NormPlace {
    pub(super) fn new(table: &ParameterTable, name: &str, norm: Norm) -> Result<Self> {
        let weight = table.range(&format!("{name}.weight"))?;
        Ok(Self { norm, weight, bias: place(table, &format!("{name}.bias")) })
    }

    fn weights<'a>(&self, values: &'a [f32]) -> (&'a [f32], Option<&'a [f32]>) {
        (&values[self.weight.clone()], self.bias.clone().map(|bias| &values[bias]))
    }

    pub(super) fn forward(&self, values: &[f32], x: &[f32], y: &mut [f32], stats: &mut [[f32; 2]]) {
        let (weight, bias) = self.weights(values);
        norm::forward(self.norm, x, weight, bias, y, stats);
    }

    /// The norm's output once more, from the statistics that `forward` kept.
    pub(super) fn recompute(&self, values: &[f32], x: &[f32], stats: &[[f32; 2]], y: &mut [f32]) {
        let (weight, bias) = self.weights(values);
        norm::recompute(x, weight, bias, stats, y);
    }

    /// Inverts `forward`; `add` says whether dx is added to what is there.
    pub(super) fn backward(
        &self,
        values: &[f32],
        (x, stats): (&[f32], &[[f32; 2]]),
        dy: &[f32],
        (dx, add): (&mut [f32], bool),
        total: &mut [f32],
    ) {
        let (weight, _) = self.weights(values);
        let saved = Saved { kind: self.norm.kind, x, weight, stats };
        norm::backward(saved, dy, dx, add, &mut total[self.weight.clone()]);
        if let Some(bias) = self.bias.clone() {
            linear::backward_bias(dy, &mut total[bias]);
        }
    }
}
