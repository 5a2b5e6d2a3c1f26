//! Reading a `tokenizer.json`: what it is, and the fastest exact way to encode and decode with it.
//!
//! Char, byte and byte-level BPE vocabularies (ours, and GPT-2's and its kin) get our own tables; every
//! other file goes through the `tokenizers` crate. The file alone decides, so a tokenizer works the same
//! after training and after loading.

use std::collections::HashMap;

use serde_json::Value;

use crate::alphabet;
use crate::bpe::BpeEncoder;
use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::json::ANY_CHARACTER;
use crate::kind::DetectedKind;
use crate::limits::check_largest_id;
use crate::table::{CharTable, TokenTable};
use crate::tokenizer::{Decoder, Encoder};

/// No vocabulary has more entries; a larger id in a file is a mistake that would fill the memory.
pub const MAX_VOCAB: usize = 1 << 24;

/// A tokenizer taken apart.
pub(crate) struct Parts {
    pub(crate) kind: DetectedKind,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    pub(crate) vocab_size: usize,
}

/// Reads the bytes of a `tokenizer.json`; `name` stands for them in messages.
pub(crate) fn read(json: &[u8], name: &str) -> Result<Parts> {
    let mut file: Value = serde_json::from_slice(json).map_err(Error::json(name))?;
    let invalid = |reason: String| Error::TokenizerInvalid { name: name.to_owned(), reason };
    if !file["model"].is_object() {
        return Err(invalid("it has no \"model\"".to_owned()));
    }
    // merges left out at random are for training a model: ids are the same every time here
    if let Some(dropout) = file["model"].get_mut("dropout") {
        *dropout = Value::Null;
    }
    let vocab = vocab(&file).map_err(invalid)?;
    check_merges(&file, &vocab).map_err(invalid)?;
    if let Some(characters) = char_vocabulary(&file, &vocab) {
        let tokens: Vec<String> = characters.iter().map(char::to_string).collect();
        let table = TokenTable::new(tokens.iter().map(|token| Some(token.as_bytes())));
        return Ok(Parts {
            kind: DetectedKind::Char,
            vocab_size: table.len(),
            encoder: Encoder::Char(CharTable::new(&characters)),
            decoder: Decoder::Table(table),
        });
    }
    if let Some(parts) = byte_level(&file, &vocab)? {
        return Ok(parts);
    }
    Foreign::parts(&file, name)
}

type Vocab<'a> = HashMap<&'a str, u32>;

/// The model's vocabulary where it is a map from token to id; empty for other models.
fn vocab(file: &Value) -> Result<Vocab<'_>, String> {
    let Some(entries) = file["model"]["vocab"].as_object() else {
        return Ok(Vocab::new());
    };
    let ids = entries.iter().map(|(token, id)| match id.as_u64() {
        Some(value) if value < MAX_VOCAB as u64 => Ok((token.as_str(), value as u32)),
        _ => Err(format!("token {token:?} has id {id}; ids go from 0 to {}", MAX_VOCAB - 1)),
    });
    let vocab = ids.collect::<Result<Vocab<'_>, String>>()?;
    let largest = vocab.values().max().map_or(0, |&id| id as usize);
    check_largest_id(largest, vocab.len())?;
    let mut by_id: Vec<(u32, &str)> = vocab.iter().map(|(&token, &id)| (id, token)).collect();
    by_id.sort_unstable();
    match by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        // the crate gives one of the two back, not the same every time
        Some(pair) => {
            Err(format!("tokens {:?} and {:?} have the same id {}", pair[0].1, pair[1].1, pair[0].0))
        }
        None => Ok(vocab),
    }
}

/// Both sides of a merge and what they make must be tokens; the crate takes that for granted.
fn check_merges(file: &Value, vocab: &Vocab<'_>) -> Result<(), String> {
    let prefix = file["model"]["continuing_subword_prefix"].as_str().unwrap_or_default();
    for (rank, merge) in merges(file).enumerate() {
        let (left, right) = merge.ok_or_else(|| format!("merge {rank} is not a pair of tokens"))?;
        let inner = right
            .strip_prefix(prefix)
            .ok_or_else(|| format!("merge {rank}: {right:?} lacks the prefix {prefix:?}"))?;
        let joined = [left, inner].concat();
        if let Some(missing) = [left, right, &joined].into_iter().find(|&token| !vocab.contains_key(token)) {
            return Err(format!("merge {rank} needs the token {missing:?}, which is not in the vocabulary"));
        }
    }
    Ok(())
}

/// The merges, in the newer form (a pair) or the older (one string with a space between).
fn merges(file: &Value) -> impl Iterator<Item = Option<(&str, &str)>> {
    file["model"]["merges"].as_array().into_iter().flatten().map(|merge| match merge {
        Value::Array(pair) => match pair.as_slice() {
            [left, right] => left.as_str().zip(right.as_str()),
            _ => None,
        },
        merge => merge.as_str().and_then(|merge| merge.split_once(' ')),
    })
}

/// The characters by id, when the file is a char vocabulary as `json.rs` writes it.
fn char_vocabulary(file: &Value, vocab: &Vocab<'_>) -> Option<Vec<char>> {
    let split = &file["pre_tokenizer"];
    let ours = file["model"]["type"] == "WordLevel"
        && file["normalizer"].is_null()
        && added_tokens(file).is_empty()
        && split["type"] == "Split"
        && split["pattern"]["Regex"] == ANY_CHARACTER
        && split["behavior"] == "Isolated"
        && split["invert"] == false
        && file["decoder"]["type"] == "Fuse";
    if !ours {
        return None;
    }
    let mut characters = vec![None; vocab.len()];
    for (token, id) in vocab.iter().collect::<Vec<_>>() {
        let mut of_token = token.chars();
        let character = of_token.next().filter(|_| of_token.next().is_none())?;
        *characters.get_mut(*id as usize)? = Some(character);
    }
    characters.into_iter().collect()
}

/// The parts of a byte-level BPE whose ids we can give exactly.
///
/// Special tokens may be added: they never match plain text. Other added tokens would, and a normalizer
/// or another splitting rule would change the text; those files are left to the crate.
fn byte_level(file: &Value, vocab: &Vocab<'_>) -> Result<Option<Parts>> {
    let model = &file["model"];
    let off = |value: &Value| value.is_null() || value == false || value == "" || value == 0.0;
    let plain = model["type"] == "BPE"
        && ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"]
            .iter()
            .all(|key| off(&model[key]))
        && file["normalizer"].is_null()
        && file["pre_tokenizer"]["type"] == "ByteLevel"
        && file["pre_tokenizer"]["add_prefix_space"] == false
        && file["decoder"]["type"] == "ByteLevel";
    let splits = file["pre_tokenizer"]["use_regex"] != false;
    let merges: Vec<_> = merges(file).flatten().collect();
    if !plain || !(splits || merges.is_empty()) {
        return Ok(None);
    }
    let Some(byte_ids) = byte_ids(vocab) else { return Ok(None) };
    let Some(tokens) = tokens_by_id(file, vocab) else { return Ok(None) };

    let table = TokenTable::new(tokens.iter().map(Option::as_deref));
    let is_byte = table.len() == 256 && merges.is_empty() && (0..256).eq(*byte_ids);
    let encoder = if is_byte {
        Encoder::Byte
    } else {
        let merges = merges.into_iter().filter_map(|(left, right)| {
            let id = vocab.get([left, right].concat().as_str())?;
            Some(((*vocab.get(left)?, *vocab.get(right)?), *id))
        });
        Encoder::Bpe(BpeEncoder::new(byte_ids, merges)?)
    };
    let kind = if is_byte { DetectedKind::Byte } else { DetectedKind::Bpe };
    Ok(Some(Parts { kind, encoder, vocab_size: table.len(), decoder: Decoder::Table(table) }))
}

/// The id of each byte, when all 256 have one.
fn byte_ids(vocab: &Vocab<'_>) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([0; 256]);
    for (id, character) in ids.iter_mut().zip(alphabet::CHARACTERS) {
        *id = *vocab.get(character.encode_utf8(&mut [0; 4]) as &str)?;
    }
    Some(ids)
}

/// The bytes of every token by id; `None` when the file is one that we do not read exactly.
fn tokens_by_id(file: &Value, vocab: &Vocab<'_>) -> Option<Vec<Option<Vec<u8>>>> {
    let added = added_tokens(file);
    let mut next = vocab.len() as u64;
    let mut tokens: Vec<Option<Vec<u8>>> = Vec::new();
    let mut place = |id: u64, bytes: Vec<u8>| {
        let index = usize::try_from(id).ok().filter(|&index| index < MAX_VOCAB)?;
        tokens.resize(tokens.len().max(index + 1), None);
        // an added token with the id of another: let the crate decide
        tokens[index].replace(bytes).is_none().then_some(())
    };
    for (token, id) in vocab.iter().collect::<Vec<_>>() {
        if added.iter().all(|added| added["content"] != *token) {
            // a token with a character that stands for no byte is its own text, as in the crate
            place(u64::from(*id), alphabet::read(token).unwrap_or_else(|| token.as_bytes().to_vec()))?;
        }
    }
    for token in added {
        let content = token["content"].as_str()?;
        let id = token["id"].as_u64()?;
        // the crate gives an added token its id in the vocabulary, else the next one
        let expected = vocab.get(content).map_or(next, |&id| u64::from(id));
        if token["special"] != true || id != expected {
            return None;
        }
        next += u64::from(!vocab.contains_key(content));
        place(id, content.as_bytes().to_vec())?;
    }
    Some(tokens)
}

/// The entries of `added_tokens`, none when there is no such list.
pub(crate) fn added_tokens(file: &Value) -> &[Value] {
    file["added_tokens"].as_array().map_or(&[], Vec::as_slice)
}
