//! Settings: defaults, then a file, then `--set`, each checked as it comes; unknown keys get the nearest name.

use crate::usage;
use anyhow::Context;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Serialize};
use softdict_model::{ModelConfig, ModelSettings};
use softdict_sampler::SampleOptions;
use softdict_tokenizer::Kind;
use softdict_trainer::{Objective, TrainSettings, first_difference};
use std::path::Path;
use toml::{Table, Value};

/// Bytes of a settings file, at most.
const MOST_BYTES: u64 = 1 << 20;
/// Tokens that a sample of a run may have without being asked for.
const MOST_TOKENS: usize = 1_000_000;

/// The name and content of a run's settings file.
///
/// # Errors
/// When it cannot be read, or is no text.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<(String, String)> {
    as_text(path, softdict_files::read(path, MOST_BYTES))
}

/// The same of a file that the command line names, which may be a pipe.
///
/// # Errors
/// As [`of_file`].
pub(crate) fn of_named(path: &Path) -> anyhow::Result<(String, String)> {
    as_text(path, softdict_files::read_named(path, MOST_BYTES))
}

fn as_text(path: &Path, bytes: std::io::Result<Vec<u8>>) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let bytes = bytes.with_context(|| name.clone())?;
    let text = String::from_utf8(bytes).with_context(|| name.clone())?;
    Ok((name, text))
}

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DataSettings {
    /// Share of the text, at its end, that is only evaluated.
    pub(crate) val_fraction: f64,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self { val_fraction: 0.1 }
    }
}

/// The `[tokenizer]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenizerSettings {
    /// `auto`, `char`, `byte`, `bpe`, or the path of a `tokenizer.json`.
    pub(crate) kind: Kind,
    /// Entries of a BPE vocabulary; absent means by the size of the text.
    pub(crate) vocab_size: Option<usize>,
}

impl Default for TokenizerSettings {
    fn default() -> Self {
        Self { kind: Kind::Auto, vocab_size: None }
    }
}

/// All settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) data: DataSettings,
    pub(crate) tokenizer: TokenizerSettings,
    pub(crate) model: ModelSettings,
    pub(crate) train: TrainSettings,
    pub(crate) sample: SampleOptions,
}

impl Settings {
    /// Lays `--set` over `file` over `self`.
    pub(crate) fn with(self, file: Option<(&str, &str)>, sets: &[String]) -> anyhow::Result<Self> {
        let mut settings = self;
        if let Some((name, text)) = file {
            let table: Table =
                text.parse().map_err(|error| usage(format!("{name}: not a settings file: {error}")))?;
            for (section, value) in table {
                let Value::Table(keys) = value else {
                    let message = format!(
                        "{name}: the key {section} stands outside a section; the sections are [data], [tokenizer], [model], [train] and [sample]"
                    );
                    return Err(usage(message));
                };
                for (key, value) in keys {
                    settings.put(&section, &key, value, name)?;
                }
            }
        }
        for set in sets {
            let (path, text) = set
                .split_once('=')
                .ok_or_else(|| usage(format!("--set {set}: it must have the form section.key=value")))?;
            let (section, key) = path.trim().split_once('.').ok_or_else(|| {
                usage(format!("--set {set}: {path} lacks its section, as in model.layers=4"))
            })?;
            settings.put(section, key, value(text.trim()), &format!("--set {set}"))?;
        }
        Ok(settings)
    }

    /// Puts one value in its place; `origin` says in messages where it came from.
    fn put(&mut self, section: &str, key: &str, value: Value, origin: &str) -> anyhow::Result<()> {
        match section {
            "data" => self.data = replaced(&self.data, section, key, value, origin)?,
            "tokenizer" => self.tokenizer = replaced(&self.tokenizer, section, key, value, origin)?,
            "model" => self.model = replaced(&self.model, section, key, value, origin)?,
            "train" => self.train = replaced(&self.train, section, key, value, origin)?,
            "sample" => self.sample = replaced(&self.sample, section, key, value, origin)?,
            unknown => {
                let known = ["data", "tokenizer", "model", "train", "sample"];
                return Err(usage(format!(
                    "{origin}: there is no section {unknown}{}",
                    nearest("", unknown, &known)
                )));
            }
        }
        Ok(())
    }

    /// Checks the values themselves, before any text is read.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let fraction = self.data.val_fraction;
        if !(0.0..1.0).contains(&fraction) {
            return Err(usage(format!("data.val_fraction = {fraction}: it must be at least 0 and below 1")));
        }
        ModelConfig::check(&self.model).map_err(|error| usage(error.to_string()))?;
        match (self.train.objective, self.model.causal) {
            (Objective::Next, false) => {
                return Err(usage(
                    "model.causal = false: every token would see the next one, which it is trained to predict; leave it \
                     true, or hide what is to be predicted with train.objective = masked",
                ));
            }
            (Objective::Masked, true) => {
                return Err(usage(
                    "train.objective = masked: a hidden token is told from both of its sides, which needs model.causal = false",
                ));
            }
            _ => {}
        }
        if self.train.heads_every.is_some() && self.model.context < 2 {
            return Err(usage("train.heads_every: with model.context = 1 no token has another to look at"));
        }
        self.train.check().map_err(|error| usage(error.to_string()))?;
        self.sample.validate().map_err(|error| usage(error.to_string()))?;
        self.tokenizer.kind.validate().map_err(|error| usage(error.to_string()))
    }

    /// The settings of the run that a checkpoint is part of; the defaults where it is part of none.
    ///
    /// # Errors
    /// When the run's file cannot be read, or says something wrong.
    pub(crate) fn of_run(run: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = run.map(|run| run.join("settings.toml")).filter(|path| path.exists()) else {
            return Ok(Self::default());
        };
        let (name, text) = of_file(&path)?;
        let settings = Self::default().with(Some((&name, &text)), &[])?;
        settings.train.check().context(name.clone())?;
        let sample = settings.sample.validate().map_err(anyhow::Error::from).and_then(|()| {
            // nobody who types a prompt asks for more, and nobody would see the end of it
            let tokens = settings.sample.tokens;
            if tokens > MOST_TOKENS {
                anyhow::bail!("sample.tokens = {tokens}: a run's own settings may ask for {MOST_TOKENS} at most; --tokens for more");
            }
            Ok(())
        });
        sample.context(name)?;
        Ok(settings)
    }

    /// As the file that reproduces the run.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The settings that decide what a run computes, by section.
    pub(crate) fn fixed(&self) -> anyhow::Result<serde_json::Value> {
        let mut all = serde_json::to_value(self)?;
        if let Some(sections) = all.as_object_mut() {
            sections.remove("sample");
        }
        if let Some(train) = all.get_mut("train").and_then(serde_json::Value::as_object_mut) {
            train.retain(|name, _| !TrainSettings::free_to_change(name));
        }
        Ok(all)
    }

    /// The first setting that must not change when a run is resumed, and does: (key, now, then).
    pub(crate) fn first_change(&self, then: &Self) -> anyhow::Result<Option<[String; 3]>> {
        Ok(first_difference(&self.fixed()?, &then.fixed()?))
    }
}

/// Whether a file or `--set` speaks of a setting.
pub(crate) fn mentions(file: Option<&str>, sets: &[String], section: &str, key: &str) -> bool {
    let in_file = file
        .and_then(|text| text.parse::<Table>().ok())
        .is_some_and(|table| table.get(section).is_some_and(|keys| keys.get(key).is_some()));
    let name = format!("{section}.{key}");
    in_file || sets.iter().any(|set| set.split('=').next().is_some_and(|path| path.trim() == name))
}

/// A value of `--set`: TOML where it is TOML, else a word.
fn value(text: &str) -> Value {
    let parsed: Option<Value> =
        format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// `section` with one key replaced.
fn replaced<T: Serialize + DeserializeOwned>(
    section: &T,
    name: &str,
    key: &str,
    value: Value,
    origin: &str,
) -> anyhow::Result<T> {
    let known = fields_of::<T>();
    if !known.contains(&key) {
        return Err(usage(format!(
            "{origin}: there is no setting {name}.{key}{}",
            nearest(&format!("{name}."), key, known)
        )));
    }
    let mut table = Table::try_from(section)?;
    let shown = value.to_string();
    table.insert(key.to_owned(), value);
    table.try_into().map_err(|error: toml::de::Error| {
        let reason = in_plain_words(error.message().trim_end());
        usage(format!("{origin}: {name}.{key} cannot be {shown}: {reason}"))
    })
}

/// serde's words for types, as people say them.
fn in_plain_words(reason: &str) -> String {
    let words = [
        ("expected usize", "expected a whole number from 0"),
        ("expected u64", "expected a whole number from 0"),
        ("expected f64", "expected a number"),
        ("expected f32", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("unknown variant", "there is no"),
    ];
    words.iter().fold(reason.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// `; did you mean …?` when a known name is close.
fn nearest(section: &str, wrong: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::damerau_levenshtein(wrong, name);
    match known.iter().min_by_key(distance) {
        Some(name) if distance(&name) <= 2.max(wrong.len() / 3) => format!("; did you mean {section}{name}?"),
        _ => format!("; there are {}", known.join(", ")),
    }
}

/// The names of a struct's fields, those included that may be absent, as its `Deserialize` asks for them.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Ask<'a>(&'a mut &'static [&'static str]);

    impl<'de> serde::Deserializer<'de> for Ask<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only structs have fields"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut fields: &'static [&'static str] = &[];
    let _ = T::deserialize(Ask(&mut fields));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[&str]) -> anyhow::Result<Settings> {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        Settings::default().with(None, &values)
    }

    fn message(values: &[&str]) -> String {
        set(values).and_then(|settings| settings.check()).unwrap_err().to_string()
    }

    #[test]
    fn later_layers_win_and_words_need_no_quotes() {
        let file = "[model]\nlayers = 3\nwidth = 64\n[train]\nlearning_rate = 1\n";
        let sets = ["model.layers=5", "model.norm=rmsnorm", "tokenizer.kind=char", "model.init=0.02"];
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        let settings = Settings::default().with(Some(("file", file)), &sets).unwrap();
        assert_eq!((settings.model.layers, settings.model.width), (5, 64));
        assert_eq!(settings.tokenizer.kind, Kind::Char);
        assert!((settings.train.learning_rate - 1.0).abs() < 1e-12);
    }

    #[test]
    fn mistakes_name_the_key_and_what_is_near() {
        assert!(message(&["train.learning_rte=1e-3"]).contains("did you mean train.learning_rate?"));
        assert!(message(&["modle.layers=1"]).contains("did you mean model?"));
        let kind = message(&["model.layers=abc"]);
        assert!(kind.contains("model.layers") && kind.contains("abc"), "{kind}");
        assert!(message(&["model.kv_head=2"]).contains("did you mean model.kv_heads?"));
        assert!(message(&["model.layers"]).contains("section.key=value"));
        assert!(message(&["layers=3"]).contains("lacks its section"));
        assert!(message(&["model.dropout=1.5"]).contains("model.dropout = 1.5"));
        assert!(message(&["train.batch=0"]).contains("train.batch = 0"));
        assert!(message(&["train.batch=-1"]).contains("train.batch"));
        assert!(message(&["data.val_fraction=1"]).contains("data.val_fraction = 1"));
        let file = Settings::default().with(Some(("my.toml", "[model]\nlayerz = 2")), &[]);
        let file = file.unwrap_err().to_string();
        assert!(file.contains("my.toml") && file.contains("did you mean model.layers?"), "{file}");
        let stray = Settings::default().with(Some(("my.toml", "layers = 2")), &[]).unwrap_err().to_string();
        assert!(stray.contains("outside a section"), "{stray}");
    }

    #[test]
    fn the_written_file_gives_the_same_settings() {
        let settings = set(&["model.kv_heads=2", "train.patience=3", "sample.temperature=0.5"]).unwrap();
        let text = settings.to_toml().unwrap();
        assert_eq!(Settings::default().with(Some(("file", &text)), &[]).unwrap(), settings);
    }

    #[test]
    fn what_a_file_or_a_flag_says_is_told_from_a_default() {
        let sets = ["train.steps = 3".to_owned()];
        let file = Some("[train]\nwarmup_steps = 5\n");
        assert!(mentions(file, &[], "train", "warmup_steps") && mentions(None, &sets, "train", "steps"));
        assert!(!mentions(file, &sets, "train", "batch") && !mentions(None, &[], "train", "steps"));
    }

    #[test]
    fn only_some_settings_may_change_on_resume() {
        let then = set(&["model.layers=4"]).unwrap();
        let free = set(&["model.layers=4", "train.steps=9999", "sample.temperature=0.1"]).unwrap();
        assert_eq!(free.first_change(&then).unwrap(), None);
        let bound = set(&["model.layers=8"]).unwrap();
        let [key, now, before] = bound.first_change(&then).unwrap().unwrap();
        assert_eq!([key.as_str(), &now, &before], ["model.layers", "8", "4"]);
        let appeared = set(&["model.layers=4", "train.decay_steps=7"]).unwrap();
        assert!(appeared.first_change(&then).unwrap().is_some());
    }

    #[test]
    fn damaged_settings_are_read_or_refused() {
        let whole = Settings::default().to_toml().unwrap();
        let seeds =
            [whole.into_bytes(), crate::defaults::TALES.as_bytes().to_vec(), b"train.steps=4".to_vec()];
        // the other tests of this program hold some memory at the same time
        softdict_testkit::fuzz("settings", &seeds, 2 << 30, &mut |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(settings) = Settings::default().with(Some(("damaged", &text)), &[])
                && settings.check().is_ok()
            {
                let again = Settings::default().with(Some(("again", &settings.to_toml().unwrap())), &[]);
                assert_eq!(again.unwrap().first_change(&settings).unwrap(), None);
            }
            let _ = Settings::default().with(None, &[text.into_owned()]);
        });
    }
}
