//! Damaged tokenizers, texts and token files: refused or used, never a fall.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{PROSE, all_kinds, foreign};
use softdict_testkit::fuzz;
use softdict_tokenizer::{Dataset, Kind, TextFile, Tokenizer};

const MOST_MEMORY: u64 = 400 << 20;

#[test]
fn a_damaged_tokenizer_is_refused_or_reads_and_writes() {
    let own = all_kinds(PROSE).map(|tokenizer| tokenizer.to_json().to_vec());
    let foreign = foreign::kinds().into_iter().map(|file| file.to_string().into_bytes());
    let seeds: Vec<Vec<u8>> = own.into_iter().chain(foreign).collect();
    let (mut thread, mut inputs) = (one_thread(), 0);
    fuzz("tokenizer.json", &seeds, MOST_MEMORY, &mut |bytes| {
        inputs += 1;
        if inputs % 10_000 == 0 {
            thread = one_thread();
        }
        thread.install(|| load_and_use(bytes));
    });
}

/// A thread of its own: the crate keeps the words of every BPE tokenizer there was until the thread ends.
fn one_thread() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap()
}

fn load_and_use(bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_bytes(bytes, "damaged") else { return };
    for text in ["", "It's 12345 \u{202e}é\n", "\0\u{1F642}", PROSE] {
        if let Ok(ids) = tokenizer.encode(text) {
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            let _ = tokenizer.decode(&ids);
        }
    }
    let ids: Vec<u32> = (0..tokenizer.vocab_size().min(600) as u32).collect();
    let _ = tokenizer.decode_bytes(&ids);
    let _ = tokenizer.decode(&[u32::MAX]);
}

#[test]
fn a_damaged_text_is_learned_from_or_refused_and_comes_back_whole() {
    let seeds =
        [PROSE.as_bytes().to_vec(), b"abab".repeat(30), vec![0xEF, 0xBB, 0xBF, b'x'], vec![0xFF, 0xFE]];
    fuzz("text", &seeds, MOST_MEMORY, &mut |bytes| {
        let Ok(text) = TextFile::from_bytes("damaged", bytes) else { return };
        for (kind, vocab_size) in [(Kind::Char, None), (Kind::Byte, None), (Kind::Bpe, Some(300))] {
            let Ok(tokenizer) = Tokenizer::train(&kind, &text, vocab_size, &mut |_, _, _| ()) else {
                continue;
            };
            let ids = tokenizer.encode_bytes(text.bytes()).unwrap();
            assert_eq!(tokenizer.decode_bytes(&ids).unwrap(), text.bytes());
        }
    });
}

#[test]
fn damaged_token_files_are_refused_or_read_within_their_length() {
    let folder = tempfile::tempdir().unwrap();
    let [tokenizer, ..] = all_kinds(PROSE);
    let text = TextFile::from_bytes("a text", PROSE).unwrap();
    Dataset::open_or_encode(&tokenizer, &text, folder.path(), 0.2, &mut |_, _| ()).unwrap();
    let files = ["data.json", "train.bin", "val.bin"].map(|name| {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        (path, whole)
    });
    let seeds = files.clone().map(|(_, whole)| whole);
    let mut turn = 0;
    fuzz("data", &seeds, MOST_MEMORY, &mut |bytes| {
        turn = (turn + 1) % files.len();
        let (path, whole) = &files[turn];
        std::fs::write(path, bytes).unwrap();
        if let Ok(dataset) = Dataset::open(folder.path()) {
            for tokens in [&dataset.train, &dataset.val] {
                let mut ids = vec![0; tokens.len().min(5000)];
                let _ = tokens.copy_to(0..ids.len(), &mut ids);
            }
        }
        std::fs::write(path, whole).unwrap();
    });
}
