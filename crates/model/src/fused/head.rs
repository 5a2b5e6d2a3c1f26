//! The end of the model: final norm, logits and loss, a block of rows at a time, so that logits are never all kept.

use super::Scratch;
use super::weights::{LinearPlace, NormPlace};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::parameters::ParameterTable;
use softdict_kernels::cross_entropy;
use softdict_kernels::matmul::Precision;
use softdict_kernels::memory::fit;
use softdict_kernels::parallel::{map, share};

/// Logits in memory at once: 64 MiB, so that a large head is packed for many rows.
pub(crate) const LOGITS: usize = 16 << 20;

/// What the head's backward writes.
pub(super) struct Down<'a> {
    /// Factor on the sum of the losses.
    pub(super) scale: f32,
    /// Gradient of the last residual stream, overwritten.
    pub(super) stream: &'a mut [f32],
    /// Gradients of the weights, added to.
    pub(super) total: &'a mut [f32],
}

pub(super) struct HeadPart {
    norm: NormPlace,
    head: LinearPlace,
    width: usize,
    classes: usize,
    stats: Vec<[f32; 2]>, // M
    logits: Vec<f32>,     // (rows of a block, V)
}

impl HeadPart {
    pub(super) fn new(config: &ModelConfig, table: &ParameterTable, precision: Precision) -> Result<Self> {
        let name = if config.settings.tied { "embedding" } else { "head" };
        let (width, classes) = (config.width(), config.vocab_size);
        Ok(Self {
            norm: NormPlace::new(table, "norm", config.norm())?,
            head: LinearPlace::new(table, name, width, classes)?.with(precision),
            width,
            classes,
            stats: Vec::new(),
            logits: Vec::new(),
        })
    }

    /// The sum of the losses, and its gradient when `down` says where it goes.
    pub(super) fn run(
        &mut self,
        values: &[f32],
        stream: &[f32],
        targets: &[u32],
        scratch: &mut Scratch,
        mut down: Option<Down<'_>>,
    ) -> Result<f64> {
        let (width, classes) = (self.width, self.classes);
        self.stats.resize(targets.len(), [0.0; 2]);
        self.norm.forward(values, stream, &mut scratch.normed, &mut self.stats);
        let block = (LOGITS / classes).clamp(1, targets.len());
        fit(&mut self.logits, block * classes);
        let mut loss = 0.0;
        for (index, targets) in targets.chunks(block).enumerate() {
            let rows = index * block * width..(index * block + targets.len()) * width;
            let normed = &scratch.normed[rows.clone()];
            let logits = &mut self.logits[..targets.len() * classes];
            self.head.forward(values, normed, None, logits);
            let Some(down) = &mut down else {
                loss += rowwise(logits, classes, targets, |logits, targets| {
                    cross_entropy::forward(logits, classes, targets)
                })?;
                continue;
            };
            let scale = down.scale;
            loss += rowwise(logits, classes, targets, |logits, targets| {
                cross_entropy::forward_backward(logits, classes, targets, scale)
            })?;
            // inverts: logits = head(normed); they hold their own gradient now
            self.head.backward_weights(logits, normed, down.total);
            self.head.backward_input(values, logits, &mut scratch.narrow[rows]);
        }
        if let Some(down) = down {
            // inverts: normed = norm(stream)
            let saved = (stream, self.stats.as_slice());
            self.norm.backward(values, saved, &scratch.narrow, (down.stream, false), down.total);
        }
        Ok(loss)
    }
}

type KernelResult = std::result::Result<f64, softdict_kernels::KernelError>;

/// Sums what `work` returns for each thread's share of the rows, in order.
fn rowwise(
    logits: &mut [f32],
    classes: usize,
    targets: &[u32],
    work: impl Fn(&mut [f32], &[u32]) -> KernelResult + Sync + Send,
) -> Result<f64> {
    let piece = share(targets.len());
    let pieces = logits.chunks_mut(piece * classes).zip(targets.chunks(piece));
    let losses = map(pieces, |(logits, targets)| work(logits, targets));
    losses.into_iter().try_fold(0.0, |total, loss| Ok(total + loss?))
}
