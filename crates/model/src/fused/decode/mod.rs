//! Decoding by hand over the CPU kernels: the KV cache, and the logits of what comes next.
//!
//! The same mathematics as the training pass, forward only, over buffers that are kept and grow with what is read. A prompt goes through the training
//! pass's kernels; one more token of each sample goes through [`softdict_kernels::decode`], which reads every weight
//! once. Nothing after the last layer's keys and values needs any row but a sample's last, so nothing else is computed.

mod block;
#[cfg(test)]
mod tests;

use super::weights::{LinearPlace, NormPlace, place};
use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use crate::parameters::{ParameterTable, Parameters, Part};
use block::{Block, linear, norm};
use softdict_kernels::rope::RopeTable;
use softdict_kernels::simd::add_assign;
use softdict_kernels::{embedding, parallel};
use std::ops::Range;

/// Parameters from which on more threads pay for one token: with 0.8 million, waking and feeding a second one costs what
/// it saves; with 10 million, which come from memory, two read 1.6 times as fast as one.
const SHARED_FROM: usize = 1 << 21;

/// New tokens of each sample, after what the cache holds.
#[derive(Debug, Clone, Copy)]
struct Step {
    samples: usize,
    time: usize,
    past: usize,
}

impl Step {
    fn rows(self) -> usize {
        self.samples * self.time
    }

    /// Rows that one call of a kernel takes: all of a prompt, which threads share, but single ones of the samples, for
    /// which no thread need be woken.
    fn at_once(self) -> usize {
        if self.time == 1 { 1 } else { self.rows() }
    }
}

/// Buffers that every layer uses in turn.
#[derive(Default)]
struct Scratch {
    normed: Vec<f32>,      // (M, C)
    stats: Vec<[f32; 2]>,  // M, which only training needs
    packed: Vec<f32>,      // (M, (H + 2G)·D)
    heads: Vec<f32>,       // D, a head before its norm
    joined: Vec<f32>,      // (M, H·D)
    scores: Vec<f32>,      // (B, H, S)
    log_sum_exp: Vec<f32>, // (B, H, T), as well
    raised: Vec<f32>,      // (M, F), for SwiGLU (M, 2F)
    hidden: Vec<f32>,      // (M, F)
}

/// A model on the CPU that reads several samples at once, token by token, and remembers them.
pub struct Decoder<'a> {
    config: ModelConfig,
    values: &'a [f32],
    rope: Option<RopeTable>,
    embedding: Range<usize>,
    positions: Option<Range<usize>>,
    blocks: Vec<Block>,
    norm: NormPlace,
    head: LinearPlace,
    samples: usize,
    len: usize,
    stream: [Vec<f32>; 2], // (M, C): before a block or after it, and inside it
    scratch: Scratch,
    logits: Vec<f32>, // (B, V)
}

impl<'a> Decoder<'a> {
    /// A decoder for `config` with the values of `parameters`, which has read nothing yet.
    ///
    /// The embedding and the head may have more rows than `config` has tokens: those are left out.
    ///
    /// # Errors
    /// When the parameters are those of another configuration, or the model is not causal, since its past depends
    /// on its future.
    pub fn new(config: &ModelConfig, parameters: &'a Parameters) -> Result<Self> {
        if !config.settings.causal {
            return Err(ModelError::uncacheable());
        }
        let table = parameters.table().as_ref();
        check_shapes(config, table)?;
        let (width, classes) = (config.width(), config.vocab_size);
        let head = if config.settings.tied { "embedding" } else { "head" };
        let embedding = table.range("embedding.weight")?;
        Ok(Self {
            values: parameters.values(),
            rope: config.rope(0..0)?,
            embedding: embedding.start..embedding.start + classes * width,
            positions: place(table, "positions.weight"),
            blocks: (0..config.layers())
                .map(|layer| Block::new(config, table, layer))
                .collect::<Result<Vec<_>>>()?,
            norm: NormPlace::new(table, "norm", config.norm())?,
            head: LinearPlace::new(table, head, width, classes)?,
            config: config.clone(),
            samples: 0,
            len: 0,
            stream: Default::default(),
            scratch: Scratch::default(),
            logits: Vec::new(),
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Forgets everything; the buffers stay.
    pub fn clear(&mut self) {
        (self.samples, self.len) = (0, 0);
    }

    /// Reads `time` more tokens of each sample; returns the logits of the next one.
    ///
    /// The first call after [`Decoder::clear`] says how many samples there are.
    ///
    /// # Shapes
    /// `ids` holds the new tokens of one sample after those of the other; returns `(B, V)`.
    /// # Errors
    /// When the samples would be longer than the context, there are more or fewer of them than before, or an id is
    /// outside the vocabulary; then nothing was read.
    pub fn read(&mut self, ids: &[u32], time: usize) -> Result<&[f32]> {
        let samples = if self.len == 0 { ids.len() / time.max(1) } else { self.samples };
        let step = Step { samples, time, past: self.len };
        let (length, context) = (self.len + time, self.config.context());
        if length > context {
            return Err(ModelError::TooLong { length, context });
        }
        if step.rows() == 0 || ids.len() != step.rows() {
            return Err(ModelError::Batch { inputs: ids.len(), targets: ids.len(), time });
        }
        let alone = time == 1 && self.values.len() < SHARED_FROM;
        let threads = if alone { 1 } else { parallel::threads() };
        parallel::enter_with(threads, || self.run(ids, step))?;
        (self.samples, self.len) = (samples, length);
        Ok(&self.logits)
    }

    fn run(&mut self, ids: &[u32], mut step: Step) -> Result<()> {
        let (width, values, scratch) = (self.config.width(), self.values, &mut self.scratch);
        let [stream, middle] = &mut self.stream;
        stream.resize(step.rows() * width, 0.0);
        embedding::forward(&values[self.embedding.clone()], width, ids, stream)?;
        if let Some(positions) = &self.positions {
            let positions = &values[positions.clone()][step.past * width..(step.past + step.time) * width];
            stream.chunks_exact_mut(step.time * width).for_each(|sample| add_assign(sample, positions));
        }
        if let Some(rope) = &mut self.rope {
            rope.cover(step.past + step.time);
        }
        let last = self.config.layers() - 1;
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            block.remember(values, stream, self.rope.as_ref(), step, scratch);
            if layer == last {
                keep_last(step, stream);
                keep_last(step, &mut scratch.packed);
                step = Step { time: 1, past: step.past + step.time - 1, ..step };
            }
            block.answer(values, stream, middle, step, scratch);
        }
        norm(&self.norm, step, values, stream, &mut scratch.normed, &mut scratch.stats);
        linear(&self.head, step, values, &scratch.normed, None, &mut self.logits);
        Ok(())
    }
}

/// Drops all rows but the last of each sample.
fn keep_last(step: Step, rows: &mut Vec<f32>) {
    let width = rows.len() / step.rows();
    for sample in 0..step.samples {
        let row = (sample + 1) * step.time - 1;
        rows.copy_within(row * width..(row + 1) * width, sample * width);
    }
    rows.truncate(step.samples * width);
}

/// # Errors
/// When a weight is missing or has another shape; the embedding and the head may have more rows.
fn check_shapes(config: &ModelConfig, table: &ParameterTable) -> Result<()> {
    for expected in &ParameterTable::new(config) {
        let missing = || ModelError::MissingParameter { name: expected.name.clone() };
        let found = table.get(&expected.name).ok_or_else(missing)?;
        let padded = matches!(found.part, Part::Embedding | Part::Head)
            && found.shape[0] > expected.shape[0]
            && found.shape[1..] == expected.shape[1..];
        if found.shape != expected.shape && !padded {
            let (name, expected) = (found.name.clone(), expected.shape.clone());
            return Err(ModelError::ParameterShape { name, found: found.shape.clone(), expected });
        }
    }
    Ok(())
}
