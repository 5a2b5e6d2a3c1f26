//! One block while decoding: keys and values join the cache, then the queries gather from it.

use super::{Scratch, Step};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::fused::weights::{LinearPlace, NormPlace};
use crate::kv_cache::room;
use crate::parameters::ParameterTable;
use softdict_kernels::activation::{self, Activation};
use softdict_kernels::attention::{self, Inputs, Layout, Options};
use softdict_kernels::decode::{self, Heads};
use softdict_kernels::memory;
use softdict_kernels::rope::{self, RopeTable, Rows, Turn};

pub(super) struct Block {
    norm1: NormPlace,
    qkv: LinearPlace,
    head_norms: Option<[NormPlace; 2]>, // of queries and of keys
    out: LinearPlace,
    norm2: NormPlace,
    up: LinearPlace,
    down: LinearPlace,
    activation: Activation,
    parallel: bool,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    hidden_width: usize,
    context: usize,
    scale: f32,
    capacity: usize,  // tokens that the cache has room for
    keys: Vec<f32>,   // (B, G, capacity, D), after RoPE
    values: Vec<f32>, // (B, G, capacity, D)
}

impl Block {
    pub(super) fn new(config: &ModelConfig, table: &ParameterTable, layer: usize) -> Result<Self> {
        let name = |rest: &str| format!("blocks.{layer}.{rest}");
        let linear = |rest: &str, inputs, outputs| LinearPlace::new(table, &name(rest), inputs, outputs);
        let head_norm = |rest: &str| NormPlace::new(table, &name(rest), config.head_norm());
        let head_norms = if config.settings.qk_norm {
            Some([head_norm("attention.query_norm")?, head_norm("attention.key_norm")?])
        } else {
            None
        };
        let (width, mixed) = (config.width(), config.heads * config.head_size());
        let raised = config.ffn_dim * config.activation().inputs_per_output();
        Ok(Self {
            norm1: NormPlace::new(table, &name("norm1"), config.norm())?,
            qkv: linear("attention.qkv", width, config.qkv_width())?,
            head_norms,
            out: linear("attention.out", mixed, width)?,
            norm2: NormPlace::new(table, &name("norm2"), config.norm())?,
            up: linear("ffn.up", width, raised)?,
            down: linear("ffn.down", config.ffn_dim, width)?,
            activation: config.activation(),
            parallel: config.settings.parallel_residual,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_size: config.head_size(),
            hidden_width: config.ffn_dim,
            context: config.context(),
            scale: config.score_scale(),
            capacity: 0,
            keys: Vec::new(),
            values: Vec::new(),
        })
    }

    fn packed_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_size
    }

    /// Leaves queries, keys and values of the new rows in `packed`, and keys and values in the cache.
    pub(super) fn remember(
        &mut self,
        values: &[f32],
        stream: &[f32],
        rope: Option<&RopeTable>,
        step: Step,
        scratch: &mut Scratch,
    ) {
        let Scratch { normed, packed, stats, heads, .. } = scratch;
        norm(&self.norm1, step, values, stream, normed, stats);
        linear(&self.qkv, step, values, normed, None, packed);
        self.normalize_heads(values, packed, heads);
        let stride = self.packed_width();
        if let Some(table) = rope {
            let heads = self.heads + self.kv_heads;
            let rows = Rows { stride, heads, head_size: self.head_size, time: step.time, first: step.past };
            for rows_at_once in packed.chunks_mut(step.at_once() * stride) {
                rope::rotate(table, rows, Turn::Forward, rows_at_once);
            }
        }
        let (size, first) = (self.head_size, self.heads * self.head_size);
        self.make_room(step);
        for (row, packed) in packed.chunks_exact(stride).enumerate() {
            let (sample, position) = (row / step.time, step.past + row % step.time);
            let (keys, values) = packed[first..].split_at(self.kv_heads * size);
            for (head, (key, value)) in keys.chunks_exact(size).zip(values.chunks_exact(size)).enumerate() {
                let at = ((sample * self.kv_heads + head) * self.capacity + position) * size;
                self.keys[at..at + size].copy_from_slice(key);
                self.values[at..at + size].copy_from_slice(value);
            }
        }
    }

    /// Makes the cache fit the samples and their new tokens; what it holds of them stays.
    fn make_room(&mut self, step: Step) {
        let (rows, size, needed) = (step.samples * self.kv_heads, self.head_size, step.past + step.time);
        let fits = self.keys.len() == rows * self.capacity * size;
        if fits && needed <= self.capacity {
            return;
        }
        // other samples come with nothing to keep
        let before = if fits { self.capacity } else { 0 };
        let (capacity, kept) = (room(before, needed, self.context), step.past * size);
        for buffer in [&mut self.keys, &mut self.values] {
            let mut longer = memory::zeros(rows * capacity * size);
            if kept > 0 {
                let old = buffer.chunks_exact(before * size);
                for (new, old) in longer.chunks_exact_mut(capacity * size).zip(old) {
                    new[..kept].copy_from_slice(&old[..kept]);
                }
            }
            *buffer = longer;
        }
        self.capacity = capacity;
    }

    /// Replaces queries and keys by their norms.
    fn normalize_heads(&self, values: &[f32], packed: &mut [f32], before: &mut Vec<f32>) {
        let Some([query_norm, key_norm]) = &self.head_norms else { return };
        for row in packed.chunks_exact_mut(self.packed_width()) {
            for (index, head) in
                row.chunks_exact_mut(self.head_size).take(self.heads + self.kv_heads).enumerate()
            {
                before.clear();
                before.extend_from_slice(head);
                let norm = if index < self.heads { query_norm } else { key_norm };
                norm.forward(values, before, head, &mut [[0.0; 2]]);
            }
        }
    }

    /// Takes the residual stream through attention and FFN.
    pub(super) fn answer(
        &self,
        values: &[f32],
        stream: &mut Vec<f32>,
        middle: &mut Vec<f32>,
        step: Step,
        scratch: &mut Scratch,
    ) {
        self.gather(step, scratch);
        let Scratch { normed, stats, joined, raised, hidden, .. } = scratch;
        linear(&self.out, step, values, joined, Some(stream), middle);
        norm(&self.norm2, step, values, if self.parallel { stream } else { middle }, normed, stats);
        linear(&self.up, step, values, normed, None, raised);
        let rows = step.at_once() * self.hidden_width;
        hidden.resize(step.rows() * self.hidden_width, 0.0);
        for (raised, hidden) in
            raised.chunks(rows * self.activation.inputs_per_output()).zip(hidden.chunks_mut(rows))
        {
            activation::forward(self.activation, self.hidden_width, raised, hidden);
        }
        linear(&self.down, step, values, hidden, Some(middle), stream);
    }

    /// What each head gathers from the cache.
    fn gather(&self, step: Step, scratch: &mut Scratch) {
        let Scratch { packed, joined, scores, log_sum_exp, .. } = scratch;
        let (stride, keys) = (self.packed_width(), step.past + step.time);
        joined.resize(step.rows() * self.heads * self.head_size, 0.0);
        if step.time == 1 {
            scores.resize(step.samples * self.heads * keys, 0.0);
            let size = Heads {
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_size: self.head_size,
                keys,
                capacity: self.capacity,
            };
            let queries = (packed.as_slice(), stride);
            decode::attention(size, self.scale, queries, &self.keys, &self.values, scores, joined);
            return;
        }
        log_sum_exp.resize(step.rows() * self.heads, 0.0);
        let size = attention::Size {
            batch: step.samples,
            queries: step.time,
            keys,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_size: self.head_size,
        };
        let options = Options::plain(true, self.scale);
        let cached = Layout::by_head(self.kv_heads, self.capacity, self.head_size);
        let inputs = Inputs {
            q: (packed, Layout::by_row(stride, step.time, self.head_size, 0)),
            k: (&self.keys, cached),
            v: (&self.values, cached),
        };
        let layout = Layout::by_row(self.heads * self.head_size, step.time, self.head_size, 0);
        attention::forward(size, options, inputs, joined, layout, log_sum_exp);
    }
}

/// y = norm(x).
pub(super) fn norm(
    place: &NormPlace,
    step: Step,
    values: &[f32],
    x: &[f32],
    y: &mut Vec<f32>,
    stats: &mut Vec<[f32; 2]>,
) {
    y.resize(x.len(), 0.0);
    stats.resize(step.rows(), [0.0; 2]);
    let (rows, width) = (step.at_once(), x.len() / step.rows());
    for ((x, y), stats) in x.chunks(rows * width).zip(y.chunks_mut(rows * width)).zip(stats.chunks_mut(rows))
    {
        place.forward(values, x, y, stats);
    }
}

/// y = residual + x·Wᵀ + b, reading every weight once where each sample has one row.
pub(super) fn linear(
    place: &LinearPlace,
    step: Step,
    values: &[f32],
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut Vec<f32>,
) {
    y.resize(step.rows() * place.outputs(), 0.0);
    if step.time == 1 {
        place.decode(values, x, residual, y);
    } else {
        place.forward(values, x, residual, y);
    }
}
