//! The FFN part of a block: after = middle + down(activation(up(norm(input)))).

use super::weights::{LinearPlace, NormPlace};
use super::{Scratch, Size, Step};
use crate::block::{DropoutPass, DropoutSite};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::parameters::ParameterTable;
use softdict_kernels::activation::{self, Activation};
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
    raised: Vec<f32>,     // (M, F), for SwiGLU (M, 2F), before the nonlinearity
    hidden: Vec<f32>,     // (M, F), after it
    draised: Vec<f32>,    // (M, 2F), for SwiGLU only; else the gradient is turned in place
}

impl FfnPart {
    pub(super) fn new(config: &ModelConfig, table: &ParameterTable, layer: usize) -> Result<Self> {
        let name = |rest: &str| format!("blocks.{layer}.{rest}");
        let (width, hidden, kind) = (config.width(), config.ffn_dim, config.activation());
        let raised = hidden * kind.inputs_per_output();
        Ok(Self {
            layer,
            norm: NormPlace::new(table, &name("norm2"), config.norm())?,
            up: LinearPlace::new(table, &name("ffn.up"), width, raised)?,
            down: LinearPlace::new(table, &name("ffn.down"), hidden, width)?,
            kind,
            hidden_width: hidden,
            dropout: config.settings.dropout,
            stats: Vec::new(),
            raised: Vec::new(),
            hidden: Vec::new(),
            draised: Vec::new(),
        })
    }

    pub(super) fn resize(&mut self, size: Size) {
        let rows = size.rows();
        let raised = rows * self.hidden_width * self.kind.inputs_per_output();
        self.stats.resize(rows, [0.0; 2]);
        self.raised.resize(raised, 0.0);
        self.hidden.resize(rows * self.hidden_width, 0.0);
        if self.kind == Activation::SwiGlu {
            self.draised.resize(raised, 0.0);
        }
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
        activation::forward(self.kind, self.hidden_width, &self.raised, &mut self.hidden);
        match DropoutPass::at(step.dropout, self.dropout, DropoutSite::Ffn(self.layer))? {
            None => self.down.forward(values, &self.hidden, Some(middle), after),
            Some(dropout) => {
                self.down.forward(values, &self.hidden, None, after);
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
        self.down.backward_weights(dbranch, &self.hidden, total);
        let dhidden = &mut wide[..self.hidden.len()];
        self.down.backward_input(values, dbranch, dhidden);
        // inverts: hidden = activation(raised)
        let draised: &[f32] = if self.kind == Activation::SwiGlu {
            activation::backward_swiglu(self.hidden_width, &self.raised, dhidden, &mut self.draised);
            &self.draised
        } else {
            activation::backward_in_place(self.kind, &self.raised, dhidden);
            dhidden
        };
        // inverts: raised = up(normed)
        self.norm.recompute(values, input, &self.stats, normed);
        self.up.backward_weights(draised, normed, total);
        self.up.backward_input(values, draised, narrow);
        // inverts: normed = norm(input)
        self.norm.backward(values, (input, &self.stats), narrow, (gradient, true), total);
        Ok(())
    }
}
