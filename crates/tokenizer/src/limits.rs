//! What a `tokenizer.json` may ask for: a few hundred bytes of one can otherwise take gigabytes.
//!
//! Everything is checked before the `tokenizers` crate sees the file. A step is known by its keys, not by its
//! type alone, since the crate takes steps without a type, too.

use serde_json::Value;

use crate::charsmap::longest_replacement;
use crate::read::added_tokens;

/// The most bytes that may become of one byte of text: 2,500.
///
/// The files of ALBERT and `XLNet` reach 2,178 in the worst case, most others less than 150; a text grows by
/// hardly anything in practice.
const MOST_GROWTH: f64 = 2500.0;
/// Bytes that the added tokens may have after they have grown; they are normalized when a file is loaded.
const MOST_ADDED_BYTES: f64 = 64e6;
/// Steps in one file; real ones have a dozen.
const MOST_STEPS: usize = 256;
/// Bytes of all regular expressions together; a class such as `\pL` takes a thousand times its own length.
const MOST_REGEX_BYTES: usize = 4 << 10;
/// Bytes of a piece of a Unigram model, of a prefix, a suffix or the unknown token. The crate walks the tree of
/// pieces by recursion, and writes the unknown token out once for each place.
const MOST_TOKEN_BYTES: usize = 512;
/// Characters of a word that a `WordPiece` model may look at; the time grows with the cube. Real files have 100.
const MOST_WORD_CHARACTERS: u64 = 1000;
/// Tokens that a text may have for each byte, and besides. The worst case of a file seldom comes up: what does
/// come up is in most files less than one, and 33 for the three bytes of U+FDFA.
const TOKENS_PER_BYTE: usize = 64;
const SPARE_TOKENS: usize = 1 << 12;
/// Ids that may be unused for each entry and besides: tables have a row for each.
const ROWS_PER_ENTRY: usize = 2;
const SPARE_ROWS: usize = 1 << 16;

/// How many bytes may become of one byte of text, at most, when it is encoded.
///
/// # Errors
/// When the file asks for too much; says of what.
pub(crate) fn check(file: &Value) -> Result<f64, String> {
    let mut steps = Steps::default();
    let model = model_growth(&file["model"])?;
    let encoding = model * steps.growth(&file["normalizer"])? * steps.growth(&file["pre_tokenizer"])?;
    let decoding = steps.growth(&file["decoder"])?;
    for (growth, work) in [(encoding, "normalizer, pre_tokenizer and model"), (decoding, "decoder")] {
        if growth > MOST_GROWTH {
            return Err(format!(
                "its {work} can make {growth:.0} bytes of each byte of text; at most {MOST_GROWTH} are allowed"
            ));
        }
    }
    let added = added_tokens(file).iter().filter_map(|token| token["content"].as_str());
    let added = added.map(str::len).sum::<usize>() as f64 * encoding;
    if added > MOST_ADDED_BYTES {
        return Err(format!(
            "its added tokens can have {added:.0} bytes when normalized; at most {MOST_ADDED_BYTES} are allowed"
        ));
    }
    Ok(encoding)
}

/// A vocabulary may leave ids out, but not most of them.
pub(crate) fn check_largest_id(largest: usize, entries: usize) -> Result<(), String> {
    let most = ROWS_PER_ENTRY * entries + SPARE_ROWS;
    if largest < most {
        return Ok(());
    }
    Err(format!("it has id {largest} but only {entries} tokens; ids of that many go up to {}", most - 1))
}

/// A text has tokens in reason.
pub(crate) fn check_tokens(tokens: usize, bytes: usize) -> Result<(), String> {
    if tokens <= TOKENS_PER_BYTE * bytes + SPARE_TOKENS {
        return Ok(());
    }
    Err(format!(
        "it makes {tokens} tokens of {bytes} bytes of text; at most {TOKENS_PER_BYTE} of each are allowed"
    ))
}

/// What may become of a byte in the model, and whether its words are short enough.
fn model_growth(model: &Value) -> Result<f64, String> {
    let short = |what: &str, text: &str| match text.len() {
        bytes if bytes > MOST_TOKEN_BYTES => {
            Err(format!("its {what} has {bytes} bytes; at most {MOST_TOKEN_BYTES} are allowed"))
        }
        bytes => Ok(bytes),
    };
    let of = |key: &str| short(key, model[key].as_str().unwrap_or_default());
    let affixes = of("continuing_subword_prefix")? + of("end_of_word_suffix")?;
    of("unk_token")?;
    for piece in model["vocab"].as_array().into_iter().flatten() {
        short("longest piece", piece[0].as_str().unwrap_or_default())?;
    }
    if let Some(characters) =
        model["max_input_chars_per_word"].as_u64().filter(|&characters| characters > MOST_WORD_CHARACTERS)
    {
        return Err(format!(
            "its max_input_chars_per_word is {characters}; at most {MOST_WORD_CHARACTERS} are allowed"
        ));
    }
    // each character that falls back to bytes brings those of the prefix and the suffix along
    Ok(if model["byte_fallback"] == true { 1.0 + affixes as f64 } else { 1.0 })
}

/// What was found in the steps of a file so far.
#[derive(Debug, Default)]
struct Steps {
    count: usize,
    regex_bytes: usize,
}

impl Steps {
    /// How many bytes a step, with the steps in it, may make of one.
    fn growth(&mut self, step: &Value) -> Result<f64, String> {
        if step.is_null() {
            return Ok(1.0);
        }
        let Some(keys) = step.as_object() else {
            let start: String = step.to_string().chars().take(80).collect();
            return Err(format!(
                "a step of its normalizer, pre_tokenizer or decoder is not an object: {start}"
            ));
        };
        self.count += 1;
        if self.count > MOST_STEPS {
            return Err(format!("it has more than {MOST_STEPS} steps"));
        }
        if step["type"] == "FixedLength" && step["length"] == 0 {
            return Err("its FixedLength pre_tokenizer has length 0".to_owned());
        }
        let bytes = |key: &str| step[key].as_str().map(str::len);
        let mut growth = of_type(step);
        if let Some(pattern) = keys.get("pattern") {
            self.take_regex(pattern)?;
            growth *= bytes("content").map_or(1.0, |content| of_replacement(pattern, content));
        }
        growth *= 1.0 + bytes("prepend").unwrap_or(0) as f64;
        growth *= 1.0 + bytes("replacement").unwrap_or(0) as f64;
        // an empty text is found between any two characters, and a space put there
        growth *= if bytes("suffix") == Some(0) { 3.0 } else { 1.0 };
        growth *= if bytes("word_delimiter_token") == Some(0) { 3.0 } else { 1.0 };
        if let Some(charsmap) = step["precompiled_charsmap"].as_str() {
            growth *= longest_replacement(charsmap)?.max(1) as f64;
        }
        for key in ["normalizers", "pretokenizers", "decoders"] {
            for inner in step[key].as_array().into_iter().flatten() {
                growth *= self.growth(inner)?;
            }
        }
        Ok(growth)
    }

    fn take_regex(&mut self, pattern: &Value) -> Result<(), String> {
        self.regex_bytes += pattern["Regex"].as_str().map_or(0, str::len);
        if self.regex_bytes > MOST_REGEX_BYTES {
            return Err(format!("its regular expressions have more than {MOST_REGEX_BYTES} bytes"));
        }
        Ok(())
    }
}

/// What a type makes of one byte by itself; Unicode's own figures are in its annex 15.
fn of_type(step: &Value) -> f64 {
    // accents taken apart, spaces around a character of three bytes, small letters
    let bert = 3.0 * (5.0 / 3.0) * 1.5;
    match step["type"].as_str() {
        Some("NFC" | "NFD") => 3.0,
        Some("NFKC" | "NFKD") => 11.0,
        Some("Lowercase") => 1.5,
        Some("ByteLevel") if step["add_prefix_space"] == false => 2.0,
        Some("ByteLevel") => 4.0,
        Some("WordPiece") => 2.0,
        _ if step.get("handle_chinese_chars").is_some() => bert,
        _ => 1.0,
    }
}

/// What replacing by `content` bytes makes of one byte.
fn of_replacement(pattern: &Value, content: usize) -> f64 {
    let regex = |regex: &str| regex_syntax::parse(regex).ok()?.properties().minimum_len();
    let shortest = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(text), None) => text.len(),
        // one with more than the regex crate has, such as a look ahead, may match nothing
        (None, Some(text)) => regex(text).unwrap_or(0),
        _ => 0,
    };
    match shortest {
        // found before and after each character
        0 => 1.0 + 2.0 * content as f64,
        shortest => (content as f64 / shortest as f64).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn growth(step: &Value) -> f64 {
        Steps::default().growth(step).unwrap()
    }

    #[test]
    fn steps_multiply() {
        let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
        assert_eq!(growth(&Value::Null), 1.0);
        assert_eq!(growth(&replace(json!({"String": " "}), "▁")), 3.0);
        assert_eq!(growth(&replace(json!({"String": "▁"}), " ")), 1.0);
        assert_eq!(growth(&replace(json!({"String": ""}), "abc")), 7.0);
        assert_eq!(growth(&replace(json!({"Regex": " {2,}"}), "▁")), 1.5);
        assert_eq!(growth(&replace(json!({"Regex": "a*"}), "bc")), 5.0);
        assert_eq!(growth(&replace(json!({"Regex": "(?=a)"}), "bc")), 5.0);
        let inner = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, replace(json!({"String": " "}), "▁")]});
        assert_eq!(growth(&inner), 12.0);
        assert_eq!(
            growth(&json!({"normalizers": [inner, {"type": "NFKC"}, {"type": "StripAccents"}]})),
            132.0
        );
        assert_eq!(growth(&json!({"type": "Metaspace", "replacement": "▁"})), 4.0);
        assert_eq!(growth(&json!({"type": "BPEDecoder", "suffix": ""})), 3.0);
        assert_eq!(growth(&json!({"type": "BPEDecoder", "suffix": "</w>"})), 1.0);
    }

    #[test]
    fn a_step_that_the_crate_would_take_from_a_list_is_refused() {
        let sequence = json!({"type": "Sequence", "normalizers": [[{"String": "a"}, "aaaa"]]});
        assert!(Steps::default().growth(&sequence).unwrap_err().contains("[{\"String\":\"a\"},\"aaaa\"]"));
    }

    #[test]
    fn ids_may_have_gaps_in_reason() {
        check_largest_id(65_540, 3).unwrap();
        check_largest_id(300_000, 150_000).unwrap();
        assert!(check_largest_id(65_542, 3).unwrap_err().contains("id 65542 but only 3 tokens"));
    }
}
