//! The FFN part of a block: after = middle + down(activation(up(norm(input)))).

use super::weights::{LinearPlace, NormPlace};
use super::{Scratch, Size, Step};
use crate::block::{DropoutPass, DropoutSite};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::parameters::ParameterTable;
use softdict_kernels::activation::{self, Activation};
use softdict_kernels::matmul::Precision;
use softdict_kernels::memory::fit;
use softdict_kernels::simd::add_assign;

pub(super) struct FfnPart {
    layer: usize,
    norm: NormPlace,
    up: LinearPlace,
    down: LinearPlace,
    kind: Activation,
    hidden_width: usize,
    dropout: f32,
    stats: Vec<[f32; 2]>, // M, of the norm
    raised: Vec<f32>,     // (M, F), for SwiGLU (M, 2F), before the nonlinearity; in backward its gradient
}

impl FfnPart {
    pub(super) fn new(
        config: &ModelConfig,
        table: &ParameterTable,
        layer: usize,
        precision: Precision,
    ) -> Result<Self> {
        let name = |rest: &str| format!("blocks.{layer}.{rest}");
        let (width, hidden, kind) = (config.width(), config.ffn_dim, config.activation());
        let raised = hidden * kind.inputs_per_output();
        Ok(Self {
            layer,
            norm: NormPlace::new(table, &name("norm2"), config.norm())?,
            up: LinearPlace::new(table, &name("ffn.up"), width, raised)?.with(precision),
            down: LinearPlace::new(table, &name("ffn.down"), hidden, width)?.with(precision),
            kind,
            hidden_width: hidden,
            dropout: config.settings.dropout,
            stats: Vec::new(),
            raised: Vec::new(),
        })
    }

    pub(super) fn resize(&mut self, size: Size) {
        let rows = size.rows();
        let raised = rows * self.hidden_width * self.kind.inputs_per_output();
        self.stats.resize(rows, [0.0; 2]);
        fit(&mut self.raised, raised);
    }

    pub(super) fn forward(
        &mut self,
        values: &[f32],
        input: &[f32],
        middle: &[f32],
        after: &mut [f32],
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<()> {
        self.norm.forward(values, input, &mut scratch.normed, &mut self.stats);
        self.up.forward(values, &scratch.normed, None, &mut self.raised);
        let hidden = &mut scratch.wide[..step.size.rows() * self.hidden_width];
        activation::forward(self.kind, self.hidden_width, &self.raised, hidden);
        match DropoutPass::at(step.dropout, self.dropout, DropoutSite::Ffn(self.layer))? {
            None => self.down.forward(values, hidden, Some(middle), after),
            Some(dropout) => {
                self.down.forward(values, hidden, None, after);
                dropout.apply_all(after);
                add_assign(after, middle);
            }
        }
        Ok(())
    }

    /// `gradient` holds that of `after` and becomes that of `middle`, that of `input` included.
    pub(super) fn backward(
        &mut self,
        values: &[f32],
        input: &[f32],
        gradient: &mut [f32],
        scratch: &mut Scratch,
        step: Step,
        total: &mut [f32],
    ) -> Result<()> {
        let Scratch { normed, wide, narrow, branch: dropped } = scratch;
        // inverts: after = middle + dropped(down(hidden))
        let mut dbranch: &[f32] = gradient;
        if let Some(dropout) = DropoutPass::at(step.dropout, self.dropout, DropoutSite::Ffn(self.layer))? {
            dropped.copy_from_slice(dbranch);
            dropout.apply_all(dropped);
            dbranch = dropped;
        }
        let dhidden = &mut wide[..step.size.rows() * self.hidden_width];
        self.down.backward_input(values, dbranch, dhidden);
        // inverts: hidden = activation(raised), which becomes its own gradient while `dhidden` becomes `hidden`
        activation::backward(self.kind, self.hidden_width, &mut self.raised, dhidden);
        let (draised, hidden) = (&self.raised, &*dhidden);
        self.down.backward_weights(dbranch, hidden, total);
        // inverts: raised = up(normed)
        self.norm.recompute(values, input, &self.stats, normed);
        self.up.backward_weights(draised, normed, total);
        self.up.backward_input(values, draised, narrow);
        // inverts: normed = norm(input)
        self.norm.backward(values, (input, &self.stats), narrow, (gradient, true), total);
        Ok(())
    }
}
