//! Tokens from a model: prefill, then one token of every sample at a time.

use crate::config::SampleOptions;
use crate::draw::draw;
use crate::error::{Result, SampleError};
use crate::logits::filter;
use softdict_model::Reader;
use softdict_random::{Purpose, Stream};

/// Whether a sample goes on after a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Another token.
    Continue,
    /// This sample is complete.
    Stop,
}

/// The tokens that the model sees of each sample.
///
/// A prompt is cropped to its last `context` tokens. When later the window is full, its oldest quarter is
/// dropped and the rest is read again, so that long texts cost little and both ways of decoding see the same.
struct Window {
    samples: Vec<Vec<u32>>,
    cached: usize,
    fresh: Vec<u32>,
}

impl Window {
    fn len(&self) -> usize {
        self.samples.first().map_or(0, Vec::len)
    }

    /// Makes room when there are more tokens than `context`.
    fn fit(&mut self, context: usize) {
        let len = self.len();
        if len <= context {
            return;
        }
        let keep = (context * 3 / 4).max(1);
        for sample in &mut self.samples {
            sample.drain(..len - keep);
        }
        self.cached = 0;
    }

    /// Lets the model read what it has not yet; returns the logits of the next token of each sample, `(B, V)`.
    fn read<'m>(&mut self, model: &'m mut dyn Reader) -> Result<&'m [f32]> {
        if self.cached == 0 {
            model.clear();
        }
        self.fresh.clear();
        for sample in &self.samples {
            self.fresh.extend_from_slice(&sample[self.cached..]);
        }
        let time = self.len() - self.cached;
        self.cached = self.len();
        Ok(model.read(&self.fresh, time)?)
    }
}

/// Continues `prompt` `options.num_samples` times, all samples in one batch.
///
/// `on_token` receives the sample's number and each new token, and says whether the sample goes on. Sample i
/// draws from its own stream of `seed`, so it is the same however many samples there are. Without `use_cache` the
/// model reads the whole window again for every token.
///
/// # Errors
/// When the prompt is empty or longer ago than the model can see in one direction, a filter is out of range,
/// or the model yields logits that are no numbers.
pub fn generate(
    model: &mut dyn Reader,
    prompt: &[u32],
    options: &SampleOptions,
    seed: u64,
    use_cache: bool,
    on_token: &mut dyn FnMut(usize, u32) -> Flow,
) -> Result<()> {
    options.validate()?;
    if !model.config().settings.causal {
        return Err(SampleError::Bidirectional);
    }
    let (context, vocabulary) = (model.config().context(), model.config().vocab_size);
    if prompt.is_empty() {
        return Err(SampleError::EmptyPrompt);
    }
    let seen = &prompt[prompt.len().saturating_sub(context)..];
    let count = options.num_samples;
    let mut window = Window { samples: vec![seen.to_vec(); count], cached: 0, fresh: Vec::new() };
    let mut streams: Vec<Stream> =
        (0..count).map(|sample| Stream::new(seed, Purpose::Sampling, sample as u64)).collect();
    let mut open = vec![true; count];
    let mut choice = Vec::with_capacity(vocabulary);
    for _ in 0..options.tokens {
        let logits = window.read(model)?;
        for (sample, logits) in logits.chunks_exact(vocabulary).enumerate() {
            choice.clear();
            choice.extend_from_slice(logits);
            filter(&mut choice, &window.samples[sample], options)?;
            let token = draw(&choice, options.temperature, &mut streams[sample])?;
            window.samples[sample].push(token);
            if open[sample] {
                open[sample] = on_token(sample, token) == Flow::Continue;
            }
        }
        if !open.contains(&true) {
            break;
        }
        window.fit(context);
        if !use_cache {
            window.cached = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{CachedTransformer, Decoder, ModelConfig, ModelSettings, Parameters, Transformer};

    fn config(context: usize) -> ModelConfig {
        let settings = ModelSettings { layers: 2, heads: 2, width: 16, context, ..Default::default() };
        ModelConfig::new(&settings, 30).unwrap()
    }

    fn parameters(context: usize) -> Parameters {
        Parameters::initial(&config(context), 2)
    }

    fn options(tokens: usize, num_samples: usize) -> SampleOptions {
        SampleOptions { temperature: 1.0, tokens, num_samples, ..Default::default() }
    }

    fn sample_from(
        model: &mut dyn Reader,
        prompt: &[u32],
        options: &SampleOptions,
        seed: u64,
        cache: bool,
    ) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new(); options.num_samples];
        generate(model, prompt, options, seed, cache, &mut |sample, token| {
            all[sample].push(token);
            Flow::Continue
        })
        .unwrap();
        all
    }

    /// Samples of the model of one context, which is made anew.
    fn sample(context: usize, prompt: &[u32], options: &SampleOptions, seed: u64) -> Vec<Vec<u32>> {
        let parameters = parameters(context);
        let mut model = Decoder::new(&config(context), &parameters).unwrap();
        sample_from(&mut model, prompt, options, seed, true)
    }

    #[test]
    fn the_cache_changes_nothing_even_beyond_the_context_whoever_reads() {
        let (config, parameters) = (config(12), parameters(12));
        let mut decoder = Decoder::new(&config, &parameters).unwrap();
        let transformer = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        let mut transformer = CachedTransformer::new(transformer);
        let prompt: Vec<u32> = (0..40).map(|i| i * 7 % 30).collect();
        for length in [1, 11, 12, 13, 40] {
            let prompt = &prompt[..length];
            let cached = sample_from(&mut decoder, prompt, &options(50, 2), 5, true);
            assert!(cached.iter().all(|tokens| tokens.len() == 50));
            assert_eq!(cached, sample_from(&mut decoder, prompt, &options(50, 2), 5, false));
            for cache in [true, false] {
                assert_eq!(cached, sample_from(&mut transformer, prompt, &options(50, 2), 5, cache));
            }
        }
    }

    #[test]
    fn a_long_prompt_counts_by_its_last_context_tokens() {
        let prompt: Vec<u32> = (0..20).collect();
        let greedy = SampleOptions { temperature: 0.0, ..options(1, 1) };
        assert_eq!(sample(8, &prompt, &greedy, 0), sample(8, &prompt[12..], &greedy, 0));
    }

    #[test]
    fn seeds_repeat_and_differ_and_a_sample_does_not_depend_on_how_many_there_are() {
        let three = sample(16, &[1, 2], &options(20, 3), 9);
        assert_eq!(three, sample(16, &[1, 2], &options(20, 3), 9));
        assert_eq!(three[..1], sample(16, &[1, 2], &options(20, 1), 9));
        assert_ne!(three[0], three[1]);
        assert_ne!(three[0], sample(16, &[1, 2], &options(20, 1), 10)[0]);
    }

    #[test]
    fn a_sample_ends_when_told_and_the_others_go_on() {
        let parameters = parameters(16);
        let mut model = Decoder::new(&config(16), &parameters).unwrap();
        let mut counts = [0; 2];
        generate(&mut model, &[1], &options(10, 2), 1, true, &mut |sample, _| {
            counts[sample] += 1;
            if sample == 0 && counts[0] == 3 { Flow::Stop } else { Flow::Continue }
        })
        .unwrap();
        assert_eq!(counts, [3, 10]);
    }

    #[test]
    fn nothing_to_continue_is_an_error() {
        let parameters = parameters(4);
        let mut model = Decoder::new(&config(4), &parameters).unwrap();
        let nothing = generate(&mut model, &[], &options(1, 1), 1, true, &mut |_, _| Flow::Continue);
        assert!(nothing.unwrap_err().to_string().contains("prompt"));
    }
}
