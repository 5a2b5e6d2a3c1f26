//! Writing the three vocabularies as `tokenizer.json`.
//!
//! The layout is that of the `tokenizers` crate, field by field and in its order, so that every reader of
//! such files opens ours. Plain structs and ordered pairs are written, never a map, so the bytes are the
//! same each time.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::alphabet;
use crate::error::{Error, Result};
use crate::merge::Pair;

/// Matches one character of any kind; `.` would leave out the line feed.
pub(crate) const ANY_CHARACTER: &str = r"[\s\S]";

/// A char vocabulary: a word-level model whose words are cut to one character each.
///
/// Its unknown token is not in the vocabulary, so that other readers too fail at a character they do not
/// know instead of dropping it.
pub(crate) fn char_file(characters: &[char]) -> Result<Vec<u8>> {
    let model = WordLevel {
        kind: "WordLevel",
        vocab: Vocab(characters.iter().map(char::to_string).collect()),
        unk_token: "<unk>",
    };
    let split =
        PreTokenizer::Split { pattern: Pattern::Regex(ANY_CHARACTER), behavior: "Isolated", invert: false };
    write(&TokenizerFile::new(split, Decoder::Fuse, model))
}

/// The byte vocabulary: 256 single bytes, id = byte, nothing to merge and so nothing to split.
pub(crate) fn byte_file() -> Result<Vec<u8>> {
    let tokens: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    byte_level(&tokens, &[], false)
}

/// A byte-level BPE vocabulary with the GPT-2 splitting rule.
pub(crate) fn bpe_file(tokens: &[Vec<u8>], merges: &[Pair]) -> Result<Vec<u8>> {
    byte_level(tokens, merges, true)
}

fn byte_level<T: AsRef<[u8]>>(tokens: &[T], merges: &[Pair], use_regex: bool) -> Result<Vec<u8>> {
    let spelled: Vec<String> = tokens.iter().map(|token| alphabet::spell(token.as_ref())).collect();
    let merges = merges
        .iter()
        .map(|&(left, right)| (spelled[left as usize].clone(), spelled[right as usize].clone()))
        .collect();
    let model = Bpe {
        kind: "BPE",
        dropout: None,
        unk_token: None,
        continuing_subword_prefix: None,
        end_of_word_suffix: None,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: Vocab(spelled),
        merges,
    };
    let byte_level = ByteLevel { add_prefix_space: false, trim_offsets: true, use_regex };
    write(&TokenizerFile::new(PreTokenizer::ByteLevel(byte_level), Decoder::ByteLevel(byte_level), model))
}

fn write(file: &impl Serialize) -> Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(file).map_err(Error::json("tokenizer.json"))?;
    json.push(b'\n');
    Ok(json)
}

#[derive(Serialize)]
struct TokenizerFile<M> {
    version: &'static str,
    truncation: Option<()>,
    padding: Option<()>,
    added_tokens: [(); 0],
    normalizer: Option<()>,
    pre_tokenizer: PreTokenizer,
    post_processor: Option<()>,
    decoder: Decoder,
    model: M,
}

impl<M> TokenizerFile<M> {
    fn new(pre_tokenizer: PreTokenizer, decoder: Decoder, model: M) -> Self {
        Self {
            version: "1.0",
            truncation: None,
            padding: None,
            added_tokens: [],
            normalizer: None,
            pre_tokenizer,
            post_processor: None,
            decoder,
            model,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum PreTokenizer {
    Split { pattern: Pattern, behavior: &'static str, invert: bool },
    ByteLevel(ByteLevel),
}

#[derive(Serialize)]
enum Pattern {
    Regex(&'static str),
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Decoder {
    Fuse,
    ByteLevel(ByteLevel),
}

#[derive(Serialize, Clone, Copy)]
struct ByteLevel {
    add_prefix_space: bool,
    trim_offsets: bool,
    use_regex: bool,
}

#[derive(Serialize)]
struct WordLevel {
    #[serde(rename = "type")]
    kind: &'static str,
    vocab: Vocab,
    unk_token: &'static str,
}

#[derive(Serialize)]
struct Bpe {
    #[serde(rename = "type")]
    kind: &'static str,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Vocab,
    merges: Vec<(String, String)>,
}

/// Tokens by id, written as a map from token to id in order of id.
struct Vocab(Vec<String>);

impl Serialize for Vocab {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (id, token) in self.0.iter().enumerate() {
            map.serialize_entry(token, &id)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the `tokenizers` crate writes after reading `json`.
    fn rewritten(json: &[u8]) -> String {
        tokenizers::Tokenizer::from_bytes(json).unwrap().to_string(true).unwrap()
    }

    #[test]
    fn our_files_are_what_the_tokenizers_crate_writes_itself() {
        let mut tokens: Vec<Vec<u8>> = alphabet::BYTES_IN_ORDER.iter().map(|&byte| vec![byte]).collect();
        tokens.push(b"!!".to_vec());
        for json in [
            char_file(&['\0', '\n', '"', 'a', '🙂']).unwrap(),
            byte_file().unwrap(),
            bpe_file(&tokens, &[(0, 0)]).unwrap(),
        ] {
            assert_eq!(String::from_utf8(json.clone()).unwrap().trim_end(), rewritten(&json));
        }
    }
}
