//! Every weight of a model: name, shape, initial size, decay, and its place in one flat buffer.

use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use crate::settings::{Init, Positions};
use softdict_kernels::memory;
use softdict_random::{Purpose, Stream};
use std::ops::Range;
use std::sync::Arc;

/// Which part of the model a parameter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Token embedding.
    Embedding,
    /// Learned positions.
    Positions,
    /// Query, key, value and output projections.
    Attention,
    /// Feed-forward network.
    Ffn,
    /// All norms.
    Norm,
    /// Output head, when it is not the embedding.
    Head,
}

impl Part {
    /// All parts, in the order of the model.
    pub const ALL: [Self; 6] =
        [Self::Embedding, Self::Positions, Self::Attention, Self::Ffn, Self::Norm, Self::Head];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Positions => "positions",
            Self::Attention => "attention",
            Self::Ffn => "feed-forward",
            Self::Norm => "norms",
            Self::Head => "output head",
        }
    }
}

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Start {
    Constant(f32),
    Normal(f64),
}

/// One weight of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name, which is also its path through the model's code.
    pub name: String,
    /// Its shape; matrices are (outputs, inputs).
    pub shape: Vec<usize>,
    /// Which part of the model it belongs to.
    pub part: Part,
    /// Whether weight decay applies: to matrices, not to biases and norms.
    pub decay: bool,
    /// Its first element in the flat buffer.
    pub offset: usize,
    start: Start,
}

impl Parameter {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its elements in the flat buffer.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// All weights of a model, in the order in which they lie in the flat buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterTable {
    parameters: Vec<Parameter>,
    len: usize,
}

impl ParameterTable {
    /// The weights of `config`.
    pub fn new(config: &ModelConfig) -> Self {
        let mut table = Self { parameters: Vec::new(), len: 0 };
        let s = &config.settings;
        let (width, qkv, mixed) = (config.width(), config.qkv_width(), config.heads * config.head_size());
        let up = config.ffn_dim * config.activation().inputs_per_output();
        let deviation = |inputs: usize| match config.init {
            Init::FanIn => 1.0 / (inputs as f64).sqrt(),
            Init::Fixed => 0.02,
        };
        // two branches per block add to the residual stream; together they keep its size (GPT-2)
        let residual = 1.0 / (2.0 * config.layers() as f64).sqrt();

        // An embedding is a product with a one-hot vector, so its fan-in is 1; a tied one is also the head, whose
        // inputs are `width`. Tales of 2,400 steps at width 64 were solved by 2 seeds of 2 with 1, 1 of 2 with 0.5,
        // 0 of 2 with 1/√width.
        let embedding = deviation(if s.tied { width } else { 1 });
        table.matrix("embedding.weight", Part::Embedding, [config.vocab_size, width], embedding);
        if s.positions == Positions::Learned {
            table.matrix("positions.weight", Part::Positions, [config.context(), width], deviation(width));
        }
        for layer in 0..config.layers() {
            let name = |rest: &str| format!("blocks.{layer}.{rest}");
            table.norm(&name("norm1"), width, config.norm_bias());
            table.matrix(&name("attention.qkv.weight"), Part::Attention, [qkv, width], deviation(width));
            table.bias(&name("attention.qkv.bias"), Part::Attention, qkv, s.bias);
            if s.qk_norm {
                table.norm(&name("attention.query_norm"), config.head_size(), false);
                table.norm(&name("attention.key_norm"), config.head_size(), false);
            }
            let out = deviation(mixed) * residual;
            table.matrix(&name("attention.out.weight"), Part::Attention, [width, mixed], out);
            table.bias(&name("attention.out.bias"), Part::Attention, width, s.bias);
            table.norm(&name("norm2"), width, config.norm_bias());
            table.matrix(&name("ffn.up.weight"), Part::Ffn, [up, width], deviation(width));
            table.bias(&name("ffn.up.bias"), Part::Ffn, up, s.bias);
            let down = deviation(config.ffn_dim) * residual;
            table.matrix(&name("ffn.down.weight"), Part::Ffn, [width, config.ffn_dim], down);
            table.bias(&name("ffn.down.bias"), Part::Ffn, width, s.bias);
        }
        table.norm("norm", width, config.norm_bias());
        if !s.tied {
            table.matrix("head.weight", Part::Head, [config.vocab_size, width], deviation(width));
        }
        table
    }

    fn push(&mut self, name: &str, part: Part, shape: Vec<usize>, start: Start) {
        let decay = shape.len() == 2;
        let parameter = Parameter { name: name.to_owned(), shape, part, decay, offset: self.len, start };
        self.len += parameter.len();
        self.parameters.push(parameter);
    }

    fn matrix(&mut self, name: &str, part: Part, shape: [usize; 2], deviation: f64) {
        self.push(name, part, shape.to_vec(), Start::Normal(deviation));
    }

    fn bias(&mut self, name: &str, part: Part, len: usize, wanted: bool) {
        if wanted {
            self.push(name, part, vec![len], Start::Constant(0.0));
        }
    }

    fn norm(&mut self, name: &str, len: usize, bias: bool) {
        self.push(&format!("{name}.weight"), Part::Norm, vec![len], Start::Constant(1.0));
        self.bias(&format!("{name}.bias"), Part::Norm, len, bias);
    }

    /// The weights in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Parameter> {
        self.parameters.iter()
    }

    /// Elements of all weights; a tied head counts once.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The weight called `name`.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The place of the weight called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn range(&self, name: &str) -> Result<Range<usize>> {
        let parameter = self.get(name).ok_or_else(|| ModelError::MissingParameter { name: name.into() })?;
        Ok(parameter.range())
    }

    /// Elements of one part.
    pub fn part_len(&self, part: Part) -> usize {
        self.iter().filter(|parameter| parameter.part == part).map(Parameter::len).sum()
    }

    /// Elements that decay, and elements that do not.
    pub fn decay_groups(&self) -> (usize, usize) {
        let decayed = self.iter().filter(|parameter| parameter.decay).map(Parameter::len).sum();
        (decayed, self.len - decayed)
    }
}

impl<'a> IntoIterator for &'a ParameterTable {
    type Item = &'a Parameter;
    type IntoIter = std::slice::Iter<'a, Parameter>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The values of a model's weights in one flat buffer.
#[derive(Debug, Clone)]
pub struct Parameters {
    table: Arc<ParameterTable>,
    values: Vec<f32>,
    version: u64,
}

impl Parameters {
    /// Initial values for `config`: each weight from its own stream, so that adding one changes no other.
    pub fn initial(config: &ModelConfig, seed: u64) -> Self {
        let mut parameters = Self::zeros(config);
        for (index, parameter) in parameters.table.iter().enumerate() {
            let values = &mut parameters.values[parameter.range()];
            match parameter.start {
                Start::Constant(value) => values.fill(value),
                Start::Normal(deviation) => {
                    let mut stream = Stream::new(seed, Purpose::Init, index as u64);
                    values.fill_with(|| (stream.normal() * deviation) as f32);
                }
            }
        }
        parameters
    }

    /// Zeros, to be filled.
    pub fn zeros(config: &ModelConfig) -> Self {
        let table = Arc::new(ParameterTable::new(config));
        Self { values: memory::zeros(table.len()), table, version: 0 }
    }

    /// Names, shapes and places.
    pub fn table(&self) -> &Arc<ParameterTable> {
        &self.table
    }

    /// All values.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, to be changed; counts as a new version.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.version += 1;
        &mut self.values
    }

    /// Grows whenever the values may have changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The values of one weight.
    ///
    /// # Errors
    /// When there is no weight of that name.
    pub fn get(&self, name: &str) -> Result<&[f32]> {
        Ok(&self.values[self.table.range(name)?])
    }

    /// The first weight that holds a value which is not finite.
    pub fn first_non_finite(&self) -> Option<&Parameter> {
        self.table.iter().find(|parameter| self.values[parameter.range()].iter().any(|v| !v.is_finite()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ModelSettings;

    fn config(change: impl Fn(&mut ModelSettings)) -> ModelConfig {
        let mut settings = ModelSettings { layers: 2, heads: 2, width: 8, ..Default::default() };
        change(&mut settings);
        ModelConfig::new(&settings, 11).unwrap()
    }

    #[test]
    fn places_follow_each_other_and_groups_add_up() {
        let table = ParameterTable::new(&config(|s| (s.tied, s.qk_norm) = (false, true)));
        let mut end = 0;
        for parameter in &table {
            assert_eq!(parameter.offset, end, "{}", parameter.name);
            end = parameter.range().end;
        }
        assert_eq!(end, table.len());
        let (decayed, kept) = table.decay_groups();
        assert_eq!(decayed + kept, table.len());
        assert_eq!(Part::ALL.iter().map(|&part| table.part_len(part)).sum::<usize>(), table.len());
        assert!(table.iter().all(|p| p.decay == (p.name.ends_with("weight") && !p.name.contains("norm"))));
    }

    #[test]
    fn a_tied_head_counts_once_and_heads_do_not_change_the_count() {
        let tied = ParameterTable::new(&config(|_| ())).len();
        assert_eq!(ParameterTable::new(&config(|s| s.tied = false)).len(), tied + 11 * 8);
        assert_eq!(ParameterTable::new(&config(|s| s.heads = 1)).len(), tied);
        assert_eq!(ParameterTable::new(&config(|s| s.heads = 4)).len(), tied);
    }

    #[test]
    fn initial_sizes_follow_the_width_and_depth() {
        let deviation = |config: &ModelConfig, name: &str| {
            let parameters = Parameters::initial(config, 1);
            let values = parameters.get(name).unwrap();
            (values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64).sqrt()
        };
        let wide = config(|s| s.width = 64);
        // 16,384 draws: six standard errors of the deviation are 3.3 %
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.034;
        assert!(close(deviation(&wide, "blocks.0.ffn.up.weight"), 1.0 / 8.0));
        assert!(close(deviation(&wide, "blocks.0.ffn.down.weight"), 1.0 / 16.0 / 2.0));
        let fixed = config(|s| (s.width, s.init) = (64, Some(Init::Fixed)));
        assert!(close(deviation(&fixed, "blocks.1.ffn.up.weight"), 0.02));
        assert!(Parameters::initial(&wide, 1).get("norm.weight").unwrap().iter().all(|&v| v == 1.0));
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let config = config(|_| ());
        assert_eq!(Parameters::initial(&config, 5).values(), Parameters::initial(&config, 5).values());
        assert_ne!(Parameters::initial(&config, 5).values(), Parameters::initial(&config, 6).values());
    }

    #[test]
    fn a_nan_is_found_by_name() {
        let mut parameters = Parameters::initial(&config(|_| ()), 1);
        assert!(parameters.first_non_finite().is_none());
        let place = parameters.table().range("blocks.1.ffn.up.bias").unwrap();
        parameters.values_mut()[place.start] = f32::NAN;
        assert_eq!(parameters.first_non_finite().unwrap().name, "blocks.1.ffn.up.bias");
    }
}
