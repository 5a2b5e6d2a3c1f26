//! Small files of the kinds that go through the `tokenizers` crate, as their models have them.

use serde_json::{Value, json};

/// A file with these parts; `added` are control tokens.
pub(crate) fn file(parts: &Value, added: &[(u32, &str)]) -> Value {
    let special = |&(id, content): &(u32, &str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.iter().map(special).collect::<Vec<_>>(), "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3}}
    });
    for (key, part) in parts.as_object().into_iter().flatten() {
        file[key] = part.clone();
    }
    file
}

/// A charsmap that makes "b" of "a" and `text` of "c": a tree in two arrays, as sentencepiece writes it.
pub(crate) fn charsmap(text: &str) -> String {
    // a unit has its label in the low byte, bit 8 says that a value is at its offset, from bit 10 on
    let mut units = [0u32; 512];
    for (label, value_at, value) in [(b'a', 256, 0), (b'c', 258, 2)] {
        let at = u32::from(label);
        units[at as usize] = at | 1 << 8 | (at ^ value_at) << 10;
        units[value_at as usize] = value | 1 << 31;
    }
    let mut bytes: Vec<u8> = (4 * units.len() as u32).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(b"b\0");
    bytes.extend(text.bytes().chain([0]));
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let groups = bytes.chunks(3).flat_map(|three| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | three.get(at).copied().map_or(0, usize::from));
        let digit = |at: usize| if at > three.len() { '=' } else { alphabet[bits >> (18 - 6 * at) & 63] };
        [0, 1, 2, 3].map(digit)
    });
    groups.collect()
}

/// T5, BERT, Llama 2, Llama 3, and one with the steps that these have not.
pub(crate) fn kinds() -> [Value; 5] {
    let pieces = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁the", "e", "t", "▁it"];
    let pieces: Vec<Value> = (0..).zip(pieces).map(|(at, piece)| json!([piece, f64::from(-at)])).collect();
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let template = json!({"type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}});
    let t5 = json!({
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap("it")},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": template, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": false}});
    let bert = json!({
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "it": 3, "'": 4, "s": 5, "##2": 6, "1": 7, "##t": 8}}});
    let llama2 = json!({
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": {"<unk>": 0, "</s>": 1, "<0x0A>": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "i": 6, "t": 7,
                "it": 8, "▁it": 9, "I": 10, "s": 11, "'": 12}, "merges": [["i", "t"], ["▁", "it"]]}});
    let llama3 = json!({
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"},
                "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": 0.1, "unk_token": null, "fuse_unk": false, "ignore_merges": true,
            "vocab": {"I": 0, "t": 1, "It": 2, "Ġ": 3, "'": 4, "s": 5, "Ã": 6, "©": 7, "1": 8, "2": 9},
            "merges": ["I t"]}});
    let mixed = json!({
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "?"},
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"},
            {"type": "Lowercase"}, {"type": "Nmt"}, {"type": "Strip", "strip_left": true, "strip_right": true}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Digits", "individual_digits": true},
            {"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 2}]},
        "decoder": {"type": "Sequence", "decoders": [{"type": "CTC", "pad_token": "<pad>",
            "word_delimiter_token": "|", "cleanup": true}, {"type": "BPEDecoder", "suffix": "</w>"}]}});
    [
        file(&t5, &[(0, "<pad>"), (1, "</s>"), (2, "<unk>")]),
        file(&bert, &[(0, "[UNK]"), (1, "[CLS]"), (9, "[MASK]")]),
        file(&llama2, &[(0, "<unk>"), (1, "</s>")]),
        file(&llama3, &[(10, "<|end|>")]),
        file(&mixed, &[(0, "?")]),
    ]
}
