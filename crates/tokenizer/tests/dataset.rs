//! A text as ids on disk.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;

use common::{PROSE, all_kinds, long_text, text, train};
use softdict_tokenizer::{Dataset, Kind, TextFile, TokenFile, Tokenizer, encode_to_file};

fn ids(file: &TokenFile) -> Vec<u32> {
    let mut ids = vec![0; file.len()];
    file.copy_to(0..file.len(), &mut ids).unwrap();
    ids
}

fn encode(tokenizer: &Tokenizer, source: &TextFile, folder: &Path, val_fraction: f64) -> Dataset {
    encode_to_file(tokenizer, source, folder, val_fraction, &mut |_, _| ()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_two_files_hold_the_ids_of_the_two_parts_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let content = long_text(900_000) + PROSE;
    let source = text(content.as_str());
    for tokenizer in all_kinds(&content) {
        let mut last = (0, 0);
        let dataset =
            encode_to_file(&tokenizer, &source, folder.path(), 0.1, &mut |done, all| last = (done, all))
                .unwrap();
        assert_eq!(last, (content.len() as u64, content.len() as u64));
        let (train, val) = (dataset.record.train, dataset.record.val);
        assert_eq!(train.bytes + val.bytes, content.len());
        assert!(ids(&dataset.train) == tokenizer.encode(&content[..train.bytes]).unwrap());
        assert!(ids(&dataset.val) == tokenizer.encode(&content[train.bytes..]).unwrap());
        // no token straddles the cut: the ids of both are those of the whole
        let both = [ids(&dataset.train), ids(&dataset.val)].concat();
        assert!(both == tokenizer.encode(&content).unwrap(), "{}", tokenizer.kind());
        assert!(both == common::their_ids(&tokenizer, &content), "{}", tokenizer.kind());
        assert_eq!(names(folder.path()), ["data.json", "train.bin", "val.bin"]);
    }
}

/// Case 1: 400 characters and a tenth are 40 tokens, no more and no fewer.
#[test]
fn validation_is_exactly_the_last_fraction_of_the_characters() {
    let folder = tempfile::tempdir().unwrap();
    for (content, val_fraction, bytes) in [("é".repeat(400), 0.1, 80), ("ab c".repeat(100), 0.1, 40)] {
        let source = text(content.as_str());
        let dataset =
            encode(&train(&Kind::Char, content.as_str(), None), &source, folder.path(), val_fraction);
        assert_eq!((dataset.train.len(), dataset.val.len()), (360, 40));
        assert_eq!(dataset.record.val.bytes, bytes);
    }
    let source = text("ab c".repeat(100));
    let none = encode(&train(&Kind::Byte, "x", None), &source, folder.path(), 0.0);
    assert_eq!((none.train.len(), none.val.len()), (400, 0));
    assert!(none.val.is_empty());
    // a byte tokenizer does not start validation inside a character
    let source = text("漢".repeat(100));
    let bytes = encode(&train(&Kind::Byte, "x", None), &source, folder.path(), 0.1);
    assert_eq!((bytes.train.len(), bytes.val.len()), (270, 30));
    let bytes = encode(&train(&Kind::Byte, "x", None), &source, folder.path(), 0.104);
    assert_eq!((bytes.train.len(), bytes.val.len()), (267, 33));
}

/// The cut is counted in blocks from the end: here it is in the last block, the first, and between.
#[test]
fn validation_of_a_long_text_is_exact_and_the_files_are_the_same_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let content = "é漢x".repeat(1_700_000);
    let source = text(content.as_str());
    let tokenizer = train(&Kind::Char, "éx漢", None);
    let on_threads = |threads: usize, val_fraction: f64| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let dataset = encode(&tokenizer, &source, folder.path(), val_fraction);
            assert_eq!(dataset.val.len(), (val_fraction * 5_100_000.0) as usize);
            dataset.train.verify().unwrap();
            [dataset.train, dataset.val].map(|file| std::fs::read(file.path()).unwrap())
        })
    };
    let half = on_threads(1, 0.5);
    assert!(on_threads(2, 0.5) == half && on_threads(3, 0.5) == half);
    for val_fraction in [0.001, 0.999] {
        on_threads(2, val_fraction);
    }
}

#[test]
fn fractions_outside_their_range_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = train(&Kind::Byte, "x", None);
    for fraction in [1.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
        let result = encode_to_file(&tokenizer, &text("abc"), folder.path(), fraction, &mut |_, _| ());
        let message = result.unwrap_err().to_string();
        assert!(message.contains(&format!("data.val_fraction = {fraction}")), "{message}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn ids_are_made_again_only_when_something_changed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (source, other) = (text("some words, some more"), text("some words, some other"));
    let (char_kind, byte_kind) =
        (train(&Kind::Char, "some words, other", None), train(&Kind::Byte, "x", None));
    let reused = |tokenizer: &Tokenizer, source: &TextFile, fraction: f64| {
        Dataset::open_or_encode(tokenizer, source, folder, fraction, &mut |_, _| ()).unwrap().1
    };
    assert!(!reused(&char_kind, &source, 0.25));
    assert!(reused(&char_kind, &source, 0.25));
    assert!(!reused(&char_kind, &other, 0.25));
    assert!(!reused(&byte_kind, &other, 0.25));
    assert!(!reused(&byte_kind, &other, 0.5));
    assert!(reused(&byte_kind, &other, 0.5));

    let path = folder.join("train.bin");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let message = Dataset::open(folder).unwrap_err().to_string();
    assert!(message.contains("train.bin") && message.contains("made anew"), "{message}");
    assert!(!reused(&byte_kind, &other, 0.5));
    // whole, but of another text than the record says
    std::fs::copy(folder.join("val.bin"), &path).unwrap();
    std::fs::write(&path, [&bytes[..32], &[0xFF, 0xFF]].concat()).unwrap();
    assert!(!reused(&byte_kind, &other, 0.5));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn the_record_has_what_bits_per_byte_need_and_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let content = "é and è, é and è. é and è, é and è.";
    let source = text(content);
    let tokenizer = train(&Kind::Bpe, content, Some(280));
    encode(&tokenizer, &source, folder.path(), 0.2);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("data.json")).unwrap()).unwrap();
    assert_eq!(json["text_sha256"], source.sha256());
    assert_eq!(json["tokenizer_sha256"], tokenizer.sha256());
    let sum = |key: &str| json["train"][key].as_u64().unwrap() + json["val"][key].as_u64().unwrap();
    assert_eq!(sum("bytes"), content.len() as u64);
    assert_eq!(sum("tokens"), tokenizer.encode(content).unwrap().len() as u64);
    assert!(!json.to_string().contains(folder.path().to_str().unwrap()));
}

/// Case 7 on disk: more than 65,536 entries take four bytes each.
#[test]
fn a_large_vocabulary_does_not_wrap_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let content: String = ('\u{1000}'..).take(70_000).collect();
    let dataset =
        encode(&train(&Kind::Char, content.as_str(), None), &text(content.as_str()), folder.path(), 0.5);
    let mut last = [0];
    dataset.val.copy_to(34_999..35_000, &mut last).unwrap();
    assert_eq!(last, [69_999]);
    assert_eq!(std::fs::metadata(dataset.val.path()).unwrap().len(), 32 + 4 * 35_000);
    assert!(ids(&dataset.train).into_iter().eq(0..35_000));
}

#[test]
fn a_text_that_cannot_be_encoded_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = train(&Kind::Char, "ab", None);
    let path = folder.path().join("text.txt");
    std::fs::write(&path, "\u{FEFF}abab\nab").unwrap();
    let source = TextFile::open(&path).unwrap();
    let ids_folder = folder.path().join("data");
    let result = encode_to_file(&tokenizer, &source, &ids_folder, 0.5, &mut |_, _| ());
    let message = result.unwrap_err().to_string();
    assert!(message.contains("'\\n' (U+000A) at position 5"), "{message}");
    assert_eq!(names(&ids_folder), ["train.bin"], "train.bin has \"abab\", whole");
    assert!(Dataset::open(&ids_folder).is_err());

    let stray = text(b"abab\xFF".to_vec());
    assert!(encode_to_file(&tokenizer, &stray, folder.path().join("x"), 0.0, &mut |_, _| ()).is_err());
    assert!(!folder.path().join("x").exists());
}

#[test]
fn a_mapped_file_gives_the_same_ids_as_the_string() {
    let folder = tempfile::tempdir().unwrap();
    let content = long_text(3_000_000);
    let path = folder.path().join("text.txt");
    std::fs::write(&path, &content).unwrap();
    let mapped = TextFile::open(&path).unwrap();
    for kind in [Kind::Char, Kind::Bpe] {
        let tokenizer = Tokenizer::train(&kind, &mapped, None, &mut |_, _, _| ()).unwrap();
        let dataset = encode(&tokenizer, &mapped, &folder.path().join("data"), 0.1);
        let both = [ids(&dataset.train), ids(&dataset.val)].concat();
        assert!(both == tokenizer.encode(&content).unwrap());
    }
}
