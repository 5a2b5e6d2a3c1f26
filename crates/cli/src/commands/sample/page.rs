//! Samples on their way to the reader: whole characters as they come, one sample after the other, or JSON lines.

use anyhow::Context;
use serde::Serialize;
use softdict_sampler::{Flow, StopWatch};
use softdict_tokenizer::{DecodeStream, Tokenizer};

/// One sample while it grows.
pub(super) struct Continuation<'t> {
    stream: Option<DecodeStream<'t>>,
    watch: StopWatch,
    ids: Vec<u32>,
    text: String,
    /// Bytes of the text that were shown.
    shown: usize,
}

impl<'t> Continuation<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, stop: &[String]) -> Self {
        let (stream, watch) = (Some(tokenizer.stream()), StopWatch::new(stop));
        Self { stream, watch, ids: Vec::new(), text: String::new(), shown: 0 }
    }

    fn take(&mut self, id: u32) -> anyhow::Result<Flow> {
        self.ids.push(id);
        if let Some(stream) = &mut self.stream
            && let Some(piece) = stream.push(id).context("the model drew a token without a text")?
        {
            self.text.push_str(&self.watch.push(&piece));
        }
        if self.watch.found().is_none() {
            return Ok(Flow::Continue);
        }
        self.finish();
        Ok(Flow::Stop)
    }

    fn finish(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.text.push_str(&self.watch.push(&stream.finish()));
            self.text.push_str(&self.watch.finish());
        }
    }

    fn is_done(&self) -> bool {
        self.stream.is_none()
    }
}

/// A finished sample as JSON.
#[derive(Serialize)]
struct Line<'a> {
    prompt: &'a str,
    /// The continuation alone.
    text: &'a str,
    /// Every token that was drawn, those of a stop string included.
    token_ids: &'a [u32],
    seed: u64,
    /// `tokens`, or the stop string.
    stopped_by: &'a str,
}

/// All samples of a prompt, which grow together and are shown one after the other.
pub(super) struct Page<'a> {
    prompt: &'a str,
    seed: u64,
    json: bool,
    samples: Vec<Continuation<'a>>,
    /// The sample that is being shown, and whether its prompt was.
    current: usize,
    begun: bool,
    show: &'a mut dyn FnMut(&str) -> anyhow::Result<()>,
}

impl<'a> Page<'a> {
    /// `samples` of `prompt`, which `show` gets piece by piece, as text or as one JSON object each.
    pub(super) fn new(
        prompt: &'a str,
        seed: u64,
        json: bool,
        samples: Vec<Continuation<'a>>,
        show: &'a mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> Self {
        Self { prompt, seed, json, samples, current: 0, begun: false, show }
    }

    /// Takes the next token of a sample; says whether it goes on.
    pub(super) fn take(&mut self, sample: usize, id: u32) -> anyhow::Result<Flow> {
        let Some(continuation) = self.samples.get_mut(sample) else { return Ok(Flow::Stop) };
        let flow = continuation.take(id)?;
        self.advance()?;
        Ok(flow)
    }

    /// Ends all samples that no stop string has ended.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        self.samples.iter_mut().for_each(Continuation::finish);
        self.advance()
    }

    /// Shows what is new, in the order of the samples.
    pub(super) fn advance(&mut self) -> anyhow::Result<()> {
        while let Some(sample) = self.samples.get_mut(self.current) {
            if self.json {
                if !sample.is_done() {
                    break;
                }
                let Continuation { text, ids, watch, .. } = sample;
                let stopped_by = watch.found().unwrap_or("tokens");
                let line = Line { prompt: self.prompt, text, token_ids: ids, seed: self.seed, stopped_by };
                (self.show)(&(serde_json::to_string(&line)? + "\n"))?;
            } else {
                if !self.begun {
                    let separator = if self.current > 0 { "---\n" } else { "" };
                    (self.show)(&format!("{separator}{}", self.prompt))?;
                    self.begun = true;
                }
                if sample.shown < sample.text.len() {
                    (self.show)(&sample.text[sample.shown..])?;
                    sample.shown = sample.text.len();
                }
                if !sample.is_done() {
                    break;
                }
                let ended = if sample.text.is_empty() { self.prompt } else { &sample.text };
                if !ended.ends_with('\n') {
                    (self.show)("\n")?;
                }
            }
            self.current += 1;
            self.begun = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_tokenizer::{Kind, TextFile};

    fn bytes() -> Tokenizer {
        let text = TextFile::from_bytes("test", "x").unwrap();
        Tokenizer::train(&Kind::Byte, &text, None, &mut |_, _, _| ()).unwrap()
    }

    /// What a page shows of samples whose tokens arrive by turns.
    fn page(tokenizer: &Tokenizer, texts: &[&str], stop: &[&str], json: bool) -> String {
        let stop: Vec<String> = stop.iter().map(|&stop| stop.to_owned()).collect();
        let samples = texts.iter().map(|_| Continuation::new(tokenizer, &stop)).collect();
        let mut shown = String::new();
        let mut show = |piece: &str| {
            shown.push_str(piece);
            Ok(())
        };
        let mut page = Page::new("> ", 7, json, samples, &mut show);
        let ids: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
        let mut open = vec![true; texts.len()];
        for turn in 0..ids.iter().map(Vec::len).max().unwrap_or(0) {
            for (sample, ids) in ids.iter().enumerate() {
                if let Some(&id) = ids.get(turn).filter(|_| open[sample]) {
                    open[sample] = page.take(sample, id).unwrap() == Flow::Continue;
                }
            }
        }
        page.finish().unwrap();
        shown
    }

    #[test]
    fn samples_that_grow_together_are_shown_one_after_the_other() {
        let tokenizer = bytes();
        assert_eq!(
            page(&tokenizer, &["one", "second\n", "3"], &[], false),
            "> one\n---\n> second\n---\n> 3\n"
        );
        assert_eq!(page(&tokenizer, &[""], &[], false), "> \n");
    }

    #[test]
    fn characters_cut_by_tokens_are_shown_whole_and_a_dangling_one_once() {
        let tokenizer = bytes();
        let samples = vec![Continuation::new(&tokenizer, &[])];
        let mut pieces = Vec::new();
        let mut show = |piece: &str| {
            pieces.push(piece.to_owned());
            Ok(())
        };
        let mut page = Page::new("", 0, false, samples, &mut show);
        for &byte in &"é漢🙂".as_bytes()[..8] {
            page.take(0, u32::from(byte)).unwrap();
        }
        page.finish().unwrap();
        assert_eq!(pieces, ["", "é", "漢", "\u{fffd}", "\n"]);
    }

    #[test]
    fn a_stop_string_ends_its_sample_only_and_is_named() {
        let tokenizer = bytes();
        let shown = page(&tokenizer, &["ab END c", "no end"], &["END"], true);
        let lines: Vec<serde_json::Value> =
            shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[0],
            serde_json::json!({
                "prompt": "> ", "text": "ab ", "token_ids": [97, 98, 32, 69, 78, 68], "seed": 7, "stopped_by": "END"
            })
        );
        assert_eq!((&lines[1]["text"], &lines[1]["stopped_by"]), (&"no end".into(), &"tokens".into()));
    }
}
