//! What the tests share: a folder of their own, the binary run in it, and what it wrote read back.

use assert_cmd::Command;
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Far above what any call takes, even on a busy machine: only what hangs gets there.
const HANGS: Duration = Duration::from_mins(2);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_softdict");

/// A model and a run that take a moment; later settings override earlier ones.
pub(crate) const TINY: [&str; 12] = [
    "tokenizer.kind=char",
    "model.layers=1",
    "model.heads=2",
    "model.width=16",
    "model.context=16",
    "model.dropout=0",
    "train.steps=20",
    "train.batch=4",
    "train.warmup_steps=2",
    "train.log_every=1",
    "train.eval_every=10",
    "train.learning_rate=1e-3",
];

/// A text with some structure.
pub(crate) fn story(lines: usize) -> String {
    const NOUNS: [&str; 5] = ["animal", "cat", "horse", "child", "bird"];
    const PLACES: [&str; 3] = ["street", "bridge", "river"];
    const STATES: [&str; 7] = ["tired", "wide", "hungry", "narrow", "slow", "long", "cold"];
    let line = |line: usize| {
        let (noun, place, state) = (NOUNS[line % 5], PLACES[line % 3], STATES[line % 7]);
        ["the", noun, "did not cross the", place, "because it was too", state, ".\n"].join(" ")
    };
    (0..lines).map(line).collect()
}

/// A folder of a test's own, in which the binary is run; it goes with the test.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    /// A folder that holds a story of some lines as `text.txt`.
    pub(crate) fn new() -> Self {
        Self::with(story(60))
    }

    /// A folder that holds this text as `text.txt`.
    pub(crate) fn with(text: impl AsRef<[u8]>) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        lab.write("text.txt", text);
        lab
    }

    /// A folder with a finished run in `run`.
    pub(crate) fn trained(sets: &[&str]) -> Self {
        let lab = Self::new();
        lab.train("run", sets).ok();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn read_text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// The binary with these arguments, in this folder.
    pub(crate) fn softdict(&self, args: &[&str]) -> Call {
        let mut call = Call::new();
        call.command.args(args).current_dir(self.folder.path());
        call
    }

    /// Trains on `text.txt` into `out` with [`TINY`] settings and these.
    pub(crate) fn train(&self, out: &str, sets: &[&str]) -> Call {
        self.softdict(&["train", "text.txt", "--out", out]).set(&TINY).set(sets)
    }

    /// Goes on with the run in `out`.
    pub(crate) fn resume(&self, out: &str, sets: &[&str]) -> Call {
        self.softdict(&["train", "--out", out, "--resume"]).set(sets)
    }

    /// The events of one kind in a run's `metrics.jsonl`.
    pub(crate) fn events(&self, run: &str, kind: &str) -> Vec<Value> {
        let metrics = self.read_text(&format!("{run}/metrics.jsonl"));
        let events = metrics.lines().map(|line| serde_json::from_str(line).unwrap());
        events.filter(|event: &Value| event["event"] == kind).collect()
    }

    /// All of a run's events without what depends on the clock.
    pub(crate) fn timeless(&self, run: &str) -> Vec<Value> {
        let metrics = self.read_text(&format!("{run}/metrics.jsonl"));
        let mut events: Vec<Value> =
            metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for event in &mut events {
            let event = event.as_object_mut().unwrap();
            event.remove("tokens_per_second");
            event.remove("seconds");
        }
        events
    }

    /// One number of every step.
    pub(crate) fn series(&self, run: &str, name: &str) -> Vec<f64> {
        self.events(run, "step").iter().map(|event| event[name].as_f64().unwrap()).collect()
    }

    /// The tensors of a `.safetensors` file, with their shapes.
    pub(crate) fn tensors(&self, file: &str) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
        tensors(&self.read(file))
    }

    /// Every file under a folder, links as what they point to.
    pub(crate) fn snapshot(&self, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(folder), &mut files);
        files
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            files.insert(path, target.to_string_lossy().into_owned().into_bytes());
        } else if path.is_dir() {
            collect(&path, files);
        } else {
            let bytes = fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
}

/// The f32 tensors of a `.safetensors` file, with their shapes.
pub(crate) fn tensors(bytes: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let floats = file.iter().filter(|(_, view)| view.dtype() == safetensors::Dtype::F32);
    floats
        .map(|(name, view)| {
            let values = view.data().chunks_exact(4);
            let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
            (name.to_owned(), (view.shape().to_vec(), values))
        })
        .collect()
}

/// One run of the binary that has not begun.
pub(crate) struct Call {
    command: Command,
}

impl Call {
    pub(crate) fn new() -> Self {
        let mut command = Command::new(BINARY);
        command.timeout(HANGS).env_remove("NO_COLOR").env_remove("COLUMNS");
        Self { command }
    }

    pub(crate) fn set(mut self, sets: &[&str]) -> Self {
        for set in sets {
            self.command.args(["--set", set]);
        }
        self
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<Path>) -> Self {
        self.command.arg(arg.as_ref());
        self
    }

    pub(crate) fn at(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder.as_ref());
        self
    }

    /// What it reads on standard input.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.command.write_stdin(bytes);
        self
    }

    /// Runs it; it must succeed.
    #[track_caller]
    pub(crate) fn ok(self) -> Done {
        self.ends(0)
    }

    /// Runs it; it must fail with this exit code and one readable message.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> Done {
        self.ends(code).says_one_error()
    }

    /// Runs it; it must fail as a mistake of use (2) or in what it found (1).
    #[track_caller]
    pub(crate) fn fails_somehow(self) -> Done {
        let done = self.run();
        assert!(matches!(done.code, Some(1 | 2)), "{:?}: {}", done.code, done.stderr);
        done.says_one_error()
    }

    #[track_caller]
    fn ends(self, code: i32) -> Done {
        let done = self.run();
        assert_eq!(done.code, Some(code), "{}", done.stderr);
        done
    }

    #[track_caller]
    fn run(mut self) -> Done {
        let output = self.command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked at") && !stderr.contains("RUST_BACKTRACE"), "{stderr}");
        Done { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

/// What a run of the binary left on its two streams.
pub(crate) struct Done {
    /// None when a signal ended it.
    code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Done {
    /// Standard output, which must be UTF-8.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    #[track_caller]
    fn says_one_error(self) -> Self {
        let errors = self.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert_eq!(errors, 1, "{}", self.stderr);
        self
    }

    /// Standard error contains all of these.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in:\n{}", self.stderr);
        }
        self
    }
}

/// The largest difference of two equally long rows of numbers.
#[track_caller]
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
