//! Tokens from a model: prefill, then one token of every sample at a time.

use crate::config::SampleOptions;
use crate::draw::draw;
use crate::error::{Result, SampleError};
use crate::logits::filter;
use candle_core::IndexOp;
use softdict_model::{KvCache, NoTap, Transformer};
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
}

/// Continues `prompt` `options.num_samples` times, all samples in one batch.
///
/// `on_token` receives the sample's number and each new token, and says whether the sample goes on. Sample i
/// draws from its own stream of `seed`, so it is the same however many samples there are.
///
/// # Errors
/// When the prompt is empty or longer ago than the model can see in one direction, a filter is out of range,
/// or the model yields logits that are no numbers.
pub fn generate(
    model: &Transformer,
    prompt: &[u32],
    options: &SampleOptions,
    seed: u64,
    use_cache: bool,
    on_token: &mut dyn FnMut(usize, u32) -> Flow,
) -> Result<()> {
    options.validate()?;
    let config = model.config();
    if !config.settings.causal {
        return Err(SampleError::Bidirectional);
    }
    let context = config.context();
    if prompt.is_empty() {
        return Err(SampleError::EmptyPrompt);
    }
    let seen = &prompt[prompt.len().saturating_sub(context)..];
    let count = options.num_samples;
    let mut window = Window { samples: vec![seen.to_vec(); count], cached: 0 };
    let mut cache = if use_cache { Some(KvCache::new(config, count, model.device())?) } else { None };
    let mut streams: Vec<Stream> =
        (0..count).map(|sample| Stream::new(seed, Purpose::Sampling, sample as u64)).collect();
    let mut open = vec![true; count];
    for _ in 0..options.tokens {
        let logits = next_logits(model, &mut window, cache.as_mut())?;
        for (sample, mut logits) in logits.into_iter().enumerate() {
            filter(&mut logits, &window.samples[sample], options)?;
            let token = draw(&logits, options.temperature, &mut streams[sample])?;
            window.samples[sample].push(token);
            if open[sample] {
                open[sample] = on_token(sample, token) == Flow::Continue;
            }
        }
        if !open.contains(&true) {
            break;
        }
        window.fit(context);
    }
    Ok(())
}

/// Logits of the next token of every sample.
fn next_logits(
    model: &Transformer,
    window: &mut Window,
    cache: Option<&mut KvCache>,
) -> Result<Vec<Vec<f32>>> {
    let logits = match cache {
        Some(cache) => {
            if window.cached == 0 {
                cache.clear();
            }
            let fresh: Vec<u32> =
                window.samples.iter().flat_map(|sample| &sample[window.cached..]).copied().collect();
            let time = window.len() - window.cached;
            window.cached = window.len();
            model.decode(&fresh, time, cache, &mut NoTap)?
        }
        None => model.forward(&window.samples.concat(), window.len(), &mut NoTap)?,
    }; // (samples, T, V)
    let last = logits.dim(1).map_err(softdict_model::ModelError::from)? - 1;
    let rows = logits.i((.., last)).and_then(|rows| rows.to_vec2()); // (samples, V)
    Ok(rows.map_err(softdict_model::ModelError::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

    fn model(context: usize) -> Transformer {
        let settings = ModelSettings { layers: 2, heads: 2, width: 16, context, ..Default::default() };
        let config = ModelConfig::new(&settings, 30).unwrap();
        Transformer::new(&config, &Parameters::initial(&config, 2), &Device::Cpu).unwrap()
    }

    fn options(tokens: usize, num_samples: usize) -> SampleOptions {
        SampleOptions { temperature: 1.0, tokens, num_samples, ..Default::default() }
    }

    fn sample(
        model: &Transformer,
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

    #[test]
    fn the_cache_changes_nothing_even_beyond_the_context() {
        let model = model(12);
        let prompt: Vec<u32> = (0..40).map(|i| i * 7 % 30).collect();
        for length in [1, 11, 12, 13, 40] {
            let prompt = &prompt[..length];
            let cached = sample(&model, prompt, &options(50, 2), 5, true);
            assert_eq!(cached, sample(&model, prompt, &options(50, 2), 5, false));
            assert!(cached.iter().all(|tokens| tokens.len() == 50));
        }
    }

    #[test]
    fn a_long_prompt_counts_by_its_last_context_tokens() {
        let model = model(8);
        let prompt: Vec<u32> = (0..20).collect();
        let greedy = SampleOptions { temperature: 0.0, ..options(1, 1) };
        assert_eq!(
            sample(&model, &prompt, &greedy, 0, true),
            sample(&model, &prompt[12..], &greedy, 0, true)
        );
    }

    #[test]
    fn seeds_repeat_and_differ_and_a_sample_does_not_depend_on_how_many_there_are() {
        let model = model(16);
        let three = sample(&model, &[1, 2], &options(20, 3), 9, true);
        assert_eq!(three, sample(&model, &[1, 2], &options(20, 3), 9, true));
        assert_eq!(three[..1], sample(&model, &[1, 2], &options(20, 1), 9, true));
        assert_ne!(three[0], three[1]);
        assert_ne!(three[0], sample(&model, &[1, 2], &options(20, 1), 10, true)[0]);
    }

    #[test]
    fn a_sample_ends_when_told_and_the_others_go_on() {
        let mut counts = [0; 2];
        generate(&model(16), &[1], &options(10, 2), 1, true, &mut |sample, _| {
            counts[sample] += 1;
            if sample == 0 && counts[0] == 3 { Flow::Stop } else { Flow::Continue }
        })
        .unwrap();
        assert_eq!(counts, [3, 10]);
    }

    #[test]
    fn nothing_to_continue_is_an_error() {
        let error =
            generate(&model(4), &[], &options(1, 1), 1, true, &mut |_, _| Flow::Continue).unwrap_err();
        assert!(error.to_string().contains("prompt"), "{error}");
    }
}
