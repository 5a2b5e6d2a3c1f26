//! Forward and backward by hand over the CPU kernels: no graph, no allocation per step, gradients added in place.
//!
//! The three parts ([`attention`], [`ffn`], [`head`]) each have a forward and, below it, the backward that
//! inverts it line by line from the bottom. Between them goes one residual stream; its gradient is one buffer
//! that each part's backward adds to. Buffers are made for the largest batch seen and kept.

mod attention;
mod decode;
mod ffn;
mod head;
mod weights;

use crate::block::{DropoutPass, DropoutSite};
use crate::config::ModelConfig;
use crate::engine::{Batch, Engine};
use crate::error::Result;
use crate::parameters::Parameters;
use attention::AttentionPart;
pub use decode::Decoder;
use ffn::FfnPart;
use head::HeadPart;
pub(crate) use head::LOGITS;
use softdict_kernels::matmul::Precision;
use softdict_kernels::memory::fit;
use softdict_kernels::rope::RopeTable;
use softdict_kernels::simd::add_assign;
use softdict_kernels::{embedding, parallel};
use std::ops::Range;
use weights::place;

/// Sizes of the batch at hand.
#[derive(Debug, Clone, Copy)]
struct Size {
    batch: usize,
    time: usize,
}

impl Size {
    fn rows(self) -> usize {
        self.batch * self.time
    }
}

/// What backward needs besides gradients, and whether it will come at all.
#[derive(Debug, Clone, Copy)]
struct Step {
    size: Size,
    dropout: Option<DropoutPass>,
}

/// Buffers that every layer uses in turn.
#[derive(Default)]
struct Scratch {
    normed: Vec<f32>, // (M, C), a norm's output, made again in backward
    wide: Vec<f32>,   // (M, widest), gradient of qkv or of the FFN's hidden units
    narrow: Vec<f32>, // (M, C)
    branch: Vec<f32>, // (M, C), gradient of one branch when dropout changes it
}

/// One block's two parts.
struct BlockParts {
    attention: AttentionPart,
    ffn: FfnPart,
}

/// The fused training pass of one model.
pub struct FusedEngine {
    config: ModelConfig,
    rope: Option<RopeTable>,
    embedding: Range<usize>,
    positions: Option<Range<usize>>,
    blocks: Vec<BlockParts>,
    head: HeadPart,
    stream: Vec<Vec<f32>>, // 2L + 1 residual streams (M, C): before and inside each block, and after the last
    gradient: Vec<f32>,    // (M, C), of the residual stream
    before: Vec<f32>,      // (M, C), the same before the FFN's part, for parallel branches
    scratch: Scratch,
    rows: usize,
}

impl FusedEngine {
    /// An engine for `config` that multiplies in f32.
    ///
    /// # Errors
    /// When the configuration has no rotary table.
    pub fn new(config: &ModelConfig) -> Result<Self> {
        Self::with_precision(config, Precision::F32)
    }

    /// An engine whose products, those of attention too, take their operands in `precision`; weights, sums, statistics and
    /// gradients stay f32.
    ///
    /// # Errors
    /// As [`FusedEngine::new`].
    pub fn with_precision(config: &ModelConfig, precision: Precision) -> Result<Self> {
        let table = crate::parameters::ParameterTable::new(config);
        let blocks = (0..config.layers())
            .map(|layer| {
                let attention = AttentionPart::new(config, &table, layer, precision)?;
                Ok(BlockParts { attention, ffn: FfnPart::new(config, &table, layer, precision)? })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            config: config.clone(),
            rope: config.rope(0..0)?,
            embedding: table.range("embedding.weight")?,
            positions: place(&table, "positions.weight"),
            head: HeadPart::new(config, &table, precision)?,
            stream: vec![Vec::new(); 2 * config.layers() + 1],
            gradient: Vec::new(),
            before: Vec::new(),
            scratch: Scratch::default(),
            rows: 0,
            blocks,
        })
    }

    /// Makes every buffer fit `rows` rows exactly; buffers that fit already are kept.
    fn resize(&mut self, size: Size) {
        let rows = size.rows();
        let width = self.config.width();
        let widest = self.config.qkv_width().max(self.config.ffn_dim);
        for block in &mut self.blocks {
            block.attention.resize(size);
            block.ffn.resize(size);
        }
        if let Some(rope) = &mut self.rope {
            rope.cover(size.time);
        }
        if rows == self.rows {
            return;
        }
        self.rows = rows;
        for stream in &mut self.stream {
            fit(stream, rows * width);
        }
        fit(&mut self.gradient, rows * width);
        if self.config.settings.parallel_residual {
            fit(&mut self.before, rows * width);
        }
        fit(&mut self.scratch.normed, rows * width);
        fit(&mut self.scratch.wide, rows * widest);
        fit(&mut self.scratch.narrow, rows * width);
        fit(&mut self.scratch.branch, rows * width);
    }

    /// Runs the model up to the last residual stream.
    fn forward(&mut self, values: &[f32], inputs: &[u32], step: Step) -> Result<()> {
        let (width, time) = (self.config.width(), step.size.time);
        let dropout = self.dropout(step)?;
        let first = &mut self.stream[0];
        embedding::forward(&values[self.embedding.clone()], width, inputs, first)?;
        if let Some(positions) = &self.positions {
            let positions = &values[positions.clone()][..time * width];
            first.chunks_exact_mut(time * width).for_each(|sequence| add_assign(sequence, positions));
        }
        if let Some(dropout) = dropout {
            dropout.apply_all(first);
        }
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            let [before, middle, after] = &mut self.stream[2 * layer..2 * layer + 3] else { continue };
            let (scratch, rope) = (&mut self.scratch, self.rope.as_ref());
            block.attention.forward(values, before, middle, rope, scratch, step)?;
            let input = if self.config.settings.parallel_residual { &*before } else { &*middle };
            block.ffn.forward(values, input, middle, after, scratch, step)?;
        }
        Ok(())
    }

    /// Takes the gradient of the last residual stream down to the embedding, adding to `total` on the way.
    fn backward(&mut self, values: &[f32], inputs: &[u32], step: Step, total: &mut [f32]) -> Result<()> {
        let parallel = self.config.settings.parallel_residual;
        for (layer, block) in self.blocks.iter_mut().enumerate().rev() {
            let [before, middle, _] = &self.stream[2 * layer..2 * layer + 3] else { continue };
            let (gradient, scratch) = (&mut self.gradient, &mut self.scratch);
            if parallel {
                self.before.copy_from_slice(gradient);
            }
            let input = if parallel { before } else { middle };
            block.ffn.backward(values, input, gradient, scratch, step, total)?;
            let branch = parallel.then_some(self.before.as_slice());
            let rope = self.rope.as_ref();
            block.attention.backward(values, before, branch, gradient, rope, scratch, step, total)?;
        }
        // inverts: first = dropped(embedding + positions)
        if let Some(dropout) = self.dropout(step)? {
            dropout.apply_all(&mut self.gradient);
        }
        let (width, time) = (self.config.width(), step.size.time);
        if let Some(positions) = &self.positions {
            let positions = &mut total[positions.clone()][..time * width];
            self.gradient.chunks_exact(time * width).for_each(|sequence| add_assign(positions, sequence));
        }
        embedding::backward(inputs, width, &self.gradient, &mut total[self.embedding.clone()]);
        Ok(())
    }

    fn dropout(&self, step: Step) -> Result<Option<softdict_kernels::dropout::Dropout>> {
        Ok(DropoutPass::at(step.dropout, self.config.settings.dropout, DropoutSite::Embedding)?)
    }

    fn step(&self, batch: Batch<'_>, dropout: Option<DropoutPass>) -> Result<Step> {
        batch.check(&self.config)?;
        Ok(Step { size: Size { batch: batch.inputs.len() / batch.time, time: batch.time }, dropout })
    }
}

impl Engine for FusedEngine {
    fn accumulate(
        &mut self,
        parameters: &Parameters,
        batch: Batch<'_>,
        scale: f32,
        dropout: Option<DropoutPass>,
        gradient: &mut [f32],
    ) -> Result<f64> {
        let step = self.step(batch, dropout)?;
        let values = parameters.values();
        parallel::enter(|| {
            self.resize(step.size);
            self.forward(values, batch.inputs, step)?;
            let last = self.stream.last().map_or(&[][..], Vec::as_slice);
            let down = head::Down { scale, stream: &mut self.gradient, total: gradient };
            let loss = self.head.run(values, last, batch.targets, &mut self.scratch, Some(down))?;
            self.backward(values, batch.inputs, step, gradient)?;
            Ok(loss)
        })
    }

    fn loss(&mut self, parameters: &Parameters, batch: Batch<'_>) -> Result<f64> {
        let step = self.step(batch, None)?;
        let values = parameters.values();
        parallel::enter(|| {
            self.resize(step.size);
            self.forward(values, batch.inputs, step)?;
            let last = self.stream.last().map_or(&[][..], Vec::as_slice);
            self.head.run(values, last, batch.targets, &mut self.scratch, None)
        })
    }
}

#[cfg(test)]
mod tests;
