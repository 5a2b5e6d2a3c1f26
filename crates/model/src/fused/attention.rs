//! The attention part of a block: middle = before + out(attention(rope(qkv(norm(before))))).

use super::weights::{LinearPlace, NormPlace};
use super::{Scratch, Size, Step};
use crate::block::{DropoutPass, DropoutSite};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::parameters::ParameterTable;
use softdict_kernels::attention::{self, Buffers, Gradients, Inputs, Layout, Options, Saved};
use softdict_kernels::matmul::Precision;
use softdict_kernels::memory::fit;
use softdict_kernels::rope::{self, RopeTable, Rows, Turn};
use softdict_kernels::simd::add_assign;

/// The norms of queries and keys under `qk_norm`.
struct HeadNorms {
    query: NormPlace,
    key: NormPlace,
    raw: Vec<f32>,           // (M, (H + G)·D), queries and keys before their norm
    stats: Vec<[f32; 2]>,    // M·(H + G)
    gathered: [Vec<f32>; 3], // (M, heads·D) of one kind: input, gradient, result
}

pub(super) struct AttentionPart {
    layer: usize,
    norm: NormPlace,
    qkv: LinearPlace,
    out: LinearPlace,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    causal: bool,
    scale: f32,
    dropout: f32,
    precision: Precision,
    head_norms: Option<HeadNorms>,
    stats: Vec<[f32; 2]>,  // M, of the norm
    packed: Vec<f32>,      // (M, (H + 2G)·D), after head norms and RoPE
    joined: Vec<f32>,      // (M, H·D), what the heads gathered
    log_sum_exp: Vec<f32>, // (B, H, T)
}

impl AttentionPart {
    pub(super) fn new(
        config: &ModelConfig,
        table: &ParameterTable,
        layer: usize,
        precision: Precision,
    ) -> Result<Self> {
        let name = |rest: &str| format!("blocks.{layer}.{rest}");
        let (width, mixed) = (config.width(), config.heads * config.head_size());
        let head_norms = if config.settings.qk_norm {
            Some(HeadNorms {
                query: NormPlace::new(table, &name("attention.query_norm"), config.head_norm())?,
                key: NormPlace::new(table, &name("attention.key_norm"), config.head_norm())?,
                raw: Vec::new(),
                stats: Vec::new(),
                gathered: Default::default(),
            })
        } else {
            None
        };
        Ok(Self {
            layer,
            norm: NormPlace::new(table, &name("norm1"), config.norm())?,
            qkv: LinearPlace::new(table, &name("attention.qkv"), width, config.qkv_width())?.with(precision),
            out: LinearPlace::new(table, &name("attention.out"), mixed, width)?.with(precision),
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_size: config.head_size(),
            causal: config.settings.causal,
            scale: config.score_scale(),
            dropout: config.settings.dropout,
            precision,
            head_norms,
            stats: Vec::new(),
            packed: Vec::new(),
            joined: Vec::new(),
            log_sum_exp: Vec::new(),
        })
    }

    fn packed_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_size
    }

    pub(super) fn resize(&mut self, size: Size) {
        let rows = size.rows();
        self.stats.resize(rows, [0.0; 2]);
        let packed = rows * self.packed_width();
        fit(&mut self.packed, packed);
        fit(&mut self.joined, rows * self.heads * self.head_size);
        fit(&mut self.log_sum_exp, rows * self.heads);
        if let Some(norms) = &mut self.head_norms {
            let heads = self.heads + self.kv_heads;
            fit(&mut norms.raw, rows * heads * self.head_size);
            norms.stats.resize(rows * heads, [0.0; 2]);
        }
    }

    fn size(&self, size: Size) -> attention::Size {
        attention::Size {
            batch: size.batch,
            queries: size.time,
            keys: size.time,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_size: self.head_size,
        }
    }

    fn options(&self, step: Step) -> Result<Options> {
        let dropout = DropoutPass::at(step.dropout, self.dropout, DropoutSite::Pattern(self.layer))?;
        Ok(Options { causal: self.causal, scale: self.scale, dropout, precision: self.precision })
    }

    /// Layouts of q, k and v in a packed buffer, and of the joined heads.
    fn layouts(&self, time: usize) -> [Layout; 4] {
        let (width, d) = (self.packed_width(), self.head_size);
        let packed = |offset| Layout::by_row(width, time, d, offset * d);
        let joined = Layout::by_row(self.heads * d, time, d, 0);
        [packed(0), packed(self.heads), packed(self.heads + self.kv_heads), joined]
    }

    /// The queries and keys of a packed buffer, which RoPE turns.
    fn rotated_rows(&self, time: usize) -> Rows {
        let (stride, heads) = (self.packed_width(), self.heads + self.kv_heads);
        Rows { stride, heads, head_size: self.head_size, time, first: 0 }
    }

    pub(super) fn forward(
        &mut self,
        values: &[f32],
        before: &[f32],
        middle: &mut [f32],
        rope: Option<&RopeTable>,
        scratch: &mut Scratch,
        step: Step,
    ) -> Result<()> {
        self.norm.forward(values, before, &mut scratch.normed, &mut self.stats);
        self.qkv.forward(values, &scratch.normed, None, &mut self.packed);
        self.normalize_heads(values);
        if let Some(table) = rope {
            rope::rotate(table, self.rotated_rows(step.size.time), Turn::Forward, &mut self.packed);
        }
        let (size, options) = (self.size(step.size), self.options(step)?);
        let [q, k, v, joined] = self.layouts(step.size.time);
        let inputs = Inputs { q: (&self.packed, q), k: (&self.packed, k), v: (&self.packed, v) };
        attention::forward(size, options, inputs, &mut self.joined, joined, &mut self.log_sum_exp);
        match DropoutPass::at(step.dropout, self.dropout, DropoutSite::Attention(self.layer))? {
            None => self.out.forward(values, &self.joined, Some(before), middle),
            Some(dropout) => {
                self.out.forward(values, &self.joined, None, middle);
                dropout.apply_all(middle);
                add_assign(middle, before);
            }
        }
        Ok(())
    }

    /// `gradient` holds that of `middle` and becomes that of `before`; `branch` is what the branch sees, when
    /// that is not `gradient`.
    #[expect(clippy::too_many_arguments, reason = "the buffers of one pass, owned by the engine")]
    pub(super) fn backward(
        &mut self,
        values: &[f32],
        before: &[f32],
        branch: Option<&[f32]>,
        gradient: &mut [f32],
        rope: Option<&RopeTable>,
        scratch: &mut Scratch,
        step: Step,
        total: &mut [f32],
    ) -> Result<()> {
        let Scratch { normed, wide, narrow, branch: dropped } = scratch;
        // inverts: middle = before + dropped(out(joined))
        let mut dbranch = branch.unwrap_or(gradient);
        if let Some(dropout) =
            DropoutPass::at(step.dropout, self.dropout, DropoutSite::Attention(self.layer))?
        {
            dropped.copy_from_slice(dbranch);
            dropout.apply_all(dropped);
            dbranch = dropped;
        }
        self.out.backward_weights(dbranch, &self.joined, total);
        let djoined = &mut narrow[..self.joined.len()];
        self.out.backward_input(values, dbranch, djoined);
        // inverts: joined = attention(packed)
        let (size, options) = (self.size(step.size), self.options(step)?);
        let [q, k, v, joined] = self.layouts(step.size.time);
        let inputs = Inputs { q: (&self.packed, q), k: (&self.packed, k), v: (&self.packed, v) };
        let dpacked = &mut wide[..self.packed.len()];
        let gradients = Gradients { buffers: Buffers::Packed(dpacked), q, k, v };
        let saved =
            Saved { out: &self.joined, dout: djoined, layout: joined, log_sum_exp: &self.log_sum_exp };
        attention::backward(size, options, inputs, saved, gradients);
        // inverts: packed = rope(head norms(qkv(normed)))
        if let Some(table) = rope {
            rope::rotate(table, self.rotated_rows(step.size.time), Turn::Backward, dpacked);
        }
        self.backward_head_norms(values, dpacked, total);
        self.norm.recompute(values, before, &self.stats, normed);
        self.qkv.backward_weights(dpacked, normed, total);
        self.qkv.backward_input(values, dpacked, narrow);
        // inverts: normed = norm(before)
        self.norm.backward(values, (before, &self.stats), narrow, (gradient, true), total);
        Ok(())
    }

    /// The two head norms as (place, first head, heads, first statistic per row).
    fn kinds(&self) -> [(usize, usize); 2] {
        [(0, self.heads), (self.heads, self.kv_heads)]
    }

    /// Replaces queries and keys by their norms, keeping what they were.
    fn normalize_heads(&mut self, values: &[f32]) {
        let (kinds, width, d) = (self.kinds(), self.packed_width(), self.head_size);
        let Some(norms) = &mut self.head_norms else { return };
        let rows = self.packed.len() / width;
        for (kind, (first, heads)) in kinds.into_iter().enumerate() {
            let columns = first * d..(first + heads) * d;
            let range = rows * columns.start..rows * columns.end;
            let raw = &mut norms.raw[range];
            for (raw, row) in raw.chunks_exact_mut(heads * d).zip(self.packed.chunks_exact(width)) {
                raw.copy_from_slice(&row[columns.clone()]);
            }
            let stats = &mut norms.stats[rows * first..rows * (first + heads)];
            let result = &mut norms.gathered[2];
            result.resize(raw.len(), 0.0);
            let norm = if kind == 0 { &norms.query } else { &norms.key };
            norm.forward(values, raw, result, stats);
            for (result, row) in result.chunks_exact(heads * d).zip(self.packed.chunks_exact_mut(width)) {
                row[columns.clone()].copy_from_slice(result);
            }
        }
    }

    /// Inverts `normalize_heads` on the gradient of the packed buffer.
    fn backward_head_norms(&mut self, values: &[f32], dpacked: &mut [f32], total: &mut [f32]) {
        let (kinds, width, d) = (self.kinds(), self.packed_width(), self.head_size);
        let Some(norms) = &mut self.head_norms else { return };
        let rows = dpacked.len() / width;
        for (kind, (first, heads)) in kinds.into_iter().enumerate() {
            let columns = first * d..(first + heads) * d;
            let raw = &norms.raw[rows * columns.start..rows * columns.end];
            let stats = &norms.stats[rows * first..rows * (first + heads)];
            let [_, dy, dx] = &mut norms.gathered;
            dy.resize(raw.len(), 0.0);
            dx.resize(raw.len(), 0.0);
            for (dy, row) in dy.chunks_exact_mut(heads * d).zip(dpacked.chunks_exact(width)) {
                dy.copy_from_slice(&row[columns.clone()]);
            }
            let norm = if kind == 0 { &norms.query } else { &norms.key };
            norm.backward(values, (raw, stats), dy, (dx, false), total);
            for (dx, row) in dx.chunks_exact(heads * d).zip(dpacked.chunks_exact_mut(width)) {
                row[columns.clone()].copy_from_slice(dx);
            }
        }
    }
}
