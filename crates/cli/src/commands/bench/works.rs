//! The works that are timed: the same shapes everywhere, so that figures can be compared.

use softdict_model::{ModelConfig, ModelSettings};

/// A model's shape and what one step trains it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    /// What it is called.
    pub(crate) name: &'static str,
    layers: usize,
    heads: usize,
    width: usize,
    context: usize,
    vocab: usize,
    /// Sequences of a step.
    pub(crate) batch: usize,
}

const fn work(name: &'static str, shape: [usize; 3], context: usize, batch: usize, vocab: usize) -> Work {
    let [layers, heads, width] = shape;
    Work { name, layers, heads, width, context, vocab, batch }
}

/// nanoGPT's example for a CPU (A), its "baby GPT" with a smaller batch (B), GPT-2 (C), and one sequence of growing
/// length (D).
pub(crate) const WORKS: [Work; 7] = [
    work("A", [4, 4, 128], 64, 12, 65),
    work("B", [6, 6, 384], 256, 16, 65),
    work("C", [12, 12, 768], 1024, 1, 50_304),
    work("D256", [2, 4, 128], 256, 1, 65),
    work("D1024", [2, 4, 128], 1024, 1, 65),
    work("D4096", [2, 4, 128], 4096, 1, 65),
    work("D16384", [2, 4, 128], 16_384, 1, 65),
];

impl Work {
    /// The work called `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        WORKS.into_iter().find(|work| work.name.eq_ignore_ascii_case(name))
    }

    /// Its model: the default one in this shape.
    pub(crate) fn config(self) -> softdict_model::Result<ModelConfig> {
        let Self { layers, heads, width, context, vocab, .. } = self;
        let settings = ModelSettings { layers, heads, width, context, ..ModelSettings::default() };
        ModelConfig::new(&settings, vocab)
    }

    /// Tokens of a step.
    pub(crate) fn tokens(self) -> usize {
        self.batch * self.context
    }

    /// Layers, heads, width, context and sequences, as a line shows them.
    pub(crate) fn shape(self) -> String {
        let Self { layers, heads, width, context, batch, .. } = self;
        format!("{layers} layers, {heads} heads, width {width}, {batch} × {context} tokens")
    }
}
