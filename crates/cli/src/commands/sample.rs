//! `softdict sample`: continues a prompt.

mod page;

use crate::ablate::reader;
use crate::args::Sample;
use crate::checkpoint::{self, Loaded};
use crate::machine::{self, available_memory};
use crate::output::{self, grouped, notice};
use crate::settings::Settings;
use crate::usage;
use anyhow::{Context, bail};
use page::{Continuation, Page};
use softdict_inspect::labels::label;
use softdict_model::Reader;
use softdict_model::cost::Cost;
use softdict_sampler::{Flow, SampleOptions, generate};
use softdict_tokenizer::Tokenizer;
use std::hash::BuildHasher;
use std::io::{BufRead, IsTerminal, Read};
use std::num::NonZeroUsize;
use std::path::Path;

/// Bytes of a prompt, of which the model sees the end.
const MOST_PROMPT: u64 = 1 << 30;

pub(crate) fn run(args: &Sample) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let given = prompt_bytes(args)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let options = options(args, loaded.run.as_deref())?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    // what is always the likeliest token depends on no seed
    if options.seed.is_none() && options.temperature > 0.0 {
        notice(format!("seed: {seed} (--seed {seed} draws the same again)"));
    }
    let mut session = Session {
        model: reader(&loaded, &args.ablate)?,
        tokenizer: &loaded.tokenizer,
        options: &options,
        cache: !args.no_cache,
        json: args.json,
    };
    if args.interactive {
        return session.converse(seed);
    }
    session.sample(&Prompt::new(&given, &loaded.tokenizer)?, seed, &mut output::text)
}

/// One sample from the default start, its start included.
pub(crate) fn preview(loaded: &Loaded, options: &SampleOptions, seed: u64) -> anyhow::Result<String> {
    let options = SampleOptions { num_samples: 1, ..options.clone() };
    let ids = default_start(&loaded.tokenizer)?;
    let prompt = Prompt { text: loaded.tokenizer.decode(&ids)?, ids };
    let mut text = String::new();
    let (model, tokenizer) = (loaded.reader()?, &loaded.tokenizer);
    let mut session = Session { model, tokenizer, options: &options, cache: true, json: false };
    session.sample(&prompt, seed, &mut |piece| {
        text.push_str(piece);
        Ok(())
    })?;
    Ok(text.trim().to_owned())
}

/// The ids that a sample without a prompt starts from: a line end if the vocabulary has one, else its first token.
pub(crate) fn default_start(tokenizer: &Tokenizer) -> anyhow::Result<Vec<u32>> {
    match tokenizer.encode("\n") {
        Ok(ids) if !ids.is_empty() => Ok(ids),
        _ => {
            let has_text = |&id: &u32| tokenizer.token_text(id).is_ok_and(|text| !text.is_empty());
            let first = (0..tokenizer.vocab_size() as u32).find(has_text);
            Ok(vec![first.context("the vocabulary has no token to start from; give a --prompt")?])
        }
    }
}

/// The run's `[sample]` settings under what the command line says.
fn options(args: &Sample, run: Option<&Path>) -> anyhow::Result<SampleOptions> {
    let mut options = Settings::of_run(run)?.sample;
    if let Some(k) = args.top_k {
        let k = usize::try_from(k).map_err(|_| usage(format!("--top-k {k}: it must be 0 (off) or more")))?;
        options.top_k = NonZeroUsize::new(k);
    }
    options.temperature = args.temperature.unwrap_or(options.temperature);
    options.top_p = args.top_p.or(options.top_p);
    options.min_p = args.min_p.or(options.min_p);
    options.repetition_penalty = args.repetition_penalty.or(options.repetition_penalty);
    options.tokens = args.tokens.unwrap_or(options.tokens);
    options.num_samples = args.num_samples.unwrap_or(options.num_samples);
    options.seed = args.seed.or(options.seed);
    if !args.stop.is_empty() {
        options.stop.clone_from(&args.stop);
    }
    options.validate().map_err(|error| usage(error.to_string()))?;
    Ok(options)
}

/// A seed from the operating system's randomness, short enough to be typed and for every JSON reader.
fn fresh_seed() -> u64 {
    std::hash::RandomState::new().hash_one(std::time::SystemTime::now()) >> 32
}

/// What the command line gives as a prompt, read before the model is.
fn prompt_bytes(args: &Sample) -> anyhow::Result<Vec<u8>> {
    let Some(path) = &args.prompt_file else {
        return Ok(args.prompt.clone().unwrap_or_default().into_bytes());
    };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
    } else {
        bytes = softdict_files::read_named(path, MOST_PROMPT)
            .with_context(|| format!("--prompt-file {}", path.display()))?;
    }
    // no training text has one either
    if let Some(rest) = bytes.strip_prefix("\u{feff}".as_bytes()) {
        notice(format!("--prompt-file {}: dropped the UTF-8 byte order mark at its start", path.display()));
        bytes = rest.to_vec();
    }
    Ok(bytes)
}

/// What is continued.
struct Prompt {
    text: String,
    ids: Vec<u32>,
}

impl Prompt {
    /// The prompt that was given; of an empty one, the default start.
    fn new(given: &[u8], tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        if given.is_empty() {
            let ids = default_start(tokenizer)?;
            let text = tokenizer.decode(&ids)?;
            notice(format!("no prompt: starting from {}", label(&text)));
            return Ok(Self { text, ids });
        }
        let ids = tokenizer.encode_bytes(given).context("prompt")?;
        Ok(Self { text: String::from_utf8_lossy(given).into_owned(), ids })
    }
}

/// How every prompt of a call is continued.
struct Session<'a> {
    model: Box<dyn Reader + 'a>,
    tokenizer: &'a Tokenizer,
    options: &'a SampleOptions,
    cache: bool,
    json: bool,
}

impl Session<'_> {
    /// Continues each line of standard input until it ends.
    fn converse(&mut self, seed: u64) -> anyhow::Result<()> {
        let mut input = std::io::stdin().lock();
        let asks = input.is_terminal();
        // a seed of its own for each prompt, so that asking again gives something new
        for seed in (0..).map(|number| seed.wrapping_add(number)) {
            if asks {
                output::ask("> ");
            }
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).context("standard input")? == 0 {
                break;
            }
            while line.ends_with(b"\n") || line.ends_with(b"\r") {
                line.pop();
            }
            match Prompt::new(&line, self.tokenizer) {
                Ok(prompt) => self.sample(&prompt, seed, &mut output::text)?,
                // what cannot be read is no reason to end the conversation
                Err(error) => output::error(&error),
            }
        }
        Ok(())
    }

    /// Continues one prompt and hands the text to `show` as it comes.
    fn sample(
        &mut self,
        prompt: &Prompt,
        seed: u64,
        show: &mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (found, context) = (prompt.ids.len(), self.model.config().context());
        if found > context {
            let (found, context) = (grouped(found as u64), grouped(context as u64));
            notice(format!(
                "the prompt has {found} tokens: the model sees {context} at once, so the last {context} count"
            ));
        }
        self.check_memory(found.min(context))?;
        let samples = (0..self.options.num_samples)
            .map(|_| Continuation::new(self.tokenizer, &self.options.stop))
            .collect();
        let mut page = Page::new(&prompt.text, seed, self.json, samples, show);
        // the prompt stands there while the first token is computed
        page.advance()?;
        let mut failure = None;
        let model = self.model.as_mut();
        let done = generate(model, &prompt.ids, self.options, seed, self.cache, &mut |sample, id| {
            if failure.is_some() {
                return Flow::Stop;
            }
            page.take(sample, id).unwrap_or_else(|error| {
                failure = Some(error);
                Flow::Stop
            })
        });
        match failure {
            Some(error) => return Err(error),
            None => done?,
        }
        page.finish()
    }

    /// # Errors
    /// When the samples, which grow together, do not fit in memory together.
    fn check_memory(&self, prompt: usize) -> anyhow::Result<()> {
        let (config, count) = (self.model.config(), self.options.num_samples);
        // the cache, which doubles when it is full, and for each token of the prompt its logits and a dozen vectors of the
        // model's width
        let cached = prompt.saturating_add(self.options.tokens).saturating_mul(2).min(config.context());
        let row = size_of::<f32>() * (config.vocab_size + 12 * config.width());
        let each = Cost::new(config).cache_bytes(cached).saturating_add(prompt.saturating_mul(row));
        let needed = (each as u64).saturating_mul(count as u64);
        match available_memory() {
            Some(free) if needed > free => bail!(
                "--num-samples {count} take about {} together, and {} of memory are free; make fewer at once",
                output::bytes(needed),
                output::bytes(free)
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_tokenizer::{Kind, TextFile};

    fn tokenizer(text: &str, kind: &Kind) -> Tokenizer {
        let text = TextFile::from_bytes("test", text).unwrap();
        Tokenizer::train(kind, &text, None, &mut |_, _, _| ()).unwrap()
    }

    #[test]
    fn without_a_prompt_a_line_end_or_the_first_token_starts() {
        let lines = tokenizer("ab\n", &Kind::Char);
        assert_eq!(lines.decode(&default_start(&lines).unwrap()).unwrap(), "\n");
        let words = tokenizer("Helloworld!", &Kind::Char);
        assert_eq!(default_start(&words).unwrap(), [0]);
        assert_eq!(Prompt::new(&[], &words).unwrap().text, "!");
    }

    #[test]
    fn a_prompt_that_cannot_be_read_says_which_character_and_where() {
        let tokenizer = tokenizer("ab\n", &Kind::Char);
        let error = Prompt::new(b"abZ", &tokenizer).err().unwrap();
        let message = format!("{error:#}");
        assert!(message.contains("'Z' (U+005A) at position 3"), "{message}");
    }

    #[test]
    fn fresh_seeds_differ_and_are_short() {
        let seeds: Vec<u64> = (0..8).map(|_| fresh_seed()).collect();
        assert!(seeds.iter().all(|&seed| seed < 1 << 32));
        assert!(seeds.iter().any(|seed| *seed != seeds[0]));
    }
}
