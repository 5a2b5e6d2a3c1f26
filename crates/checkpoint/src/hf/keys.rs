//! Reading `config.json` key by key, so that an error can name the key and its value.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use softdict_model::settings::Ffn;
use std::path::Path;

/// Values longer than this are cut in messages.
const MOST_SHOWN: usize = 60;

/// An object of a JSON file; keys that are null count as absent.
pub(super) struct Keys<'a> {
    path: &'a Path,
    prefix: String,
    map: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self { path, prefix: String::new(), map }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The error that names `key` and its value.
    pub(super) fn wrong(&self, key: &str, expected: impl Into<String>) -> Error {
        let mut value = self.map.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
        if let Some((cut, _)) = value.char_indices().nth(MOST_SHOWN) {
            value.truncate(cut);
            value.push('…');
        }
        let key = format!("{}{key}", self.prefix);
        Error::Key { path: self.path.to_path_buf(), key, value, expected: expected.into() }
    }

    fn typed<T>(&self, key: &str, what: &str, take: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let take = |value| take(value).ok_or_else(|| self.wrong(key, format!("it must be {what}")));
        self.get(key).map(take).transpose()
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn word(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a word", Value::as_str)
    }

    /// A whole number that may be absent.
    pub(super) fn maybe_count(&self, key: &str) -> Result<Option<usize>> {
        let take = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
        self.typed(key, "a whole number", take)
    }

    /// A whole number without which the model has no shape.
    pub(super) fn count(&self, key: &str) -> Result<usize> {
        self.maybe_count(key)?.ok_or_else(|| self.wrong(key, "it must be a whole number"))
    }

    /// An object inside this one; an empty one counts as absent, as transformers has it.
    pub(super) fn inside(&self, key: &str) -> Result<Option<Self>> {
        let map = self.typed(key, "an object", Value::as_object)?.filter(|map| !map.is_empty());
        Ok(map.map(|map| Self { path: self.path, prefix: format!("{}{key}.", self.prefix), map }))
    }

    /// A value in the words of softdict's own settings.
    pub(super) fn parsed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let parse = |value: &Value| serde_json::from_value(value.clone());
        self.get(key).map(parse).transpose().map_err(|error| self.wrong(key, error.to_string()))
    }

    /// Fails unless a flag, `default` where absent, is `wanted`.
    pub(super) fn must_be(&self, key: &str, default: bool, wanted: bool) -> Result<()> {
        if self.flag(key)?.unwrap_or(default) == wanted {
            return Ok(());
        }
        Err(self.wrong(key, format!("softdict's model can only express {wanted} here")))
    }

    /// The nonlinearity that `key` names, among those that the FFNs with one branch have.
    pub(super) fn activation(&self, key: &str, default: &str) -> Result<Ffn> {
        match self.word(key)?.unwrap_or(default) {
            "gelu" => Ok(Ffn::Gelu),
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Ffn::GeluTanh),
            "relu2" => Ok(Ffn::Relu2),
            _ => {
                Err(self
                    .wrong(key, "softdict knows gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and relu2 here"))
            }
        }
    }

    /// Base of the rotary frequencies, and the rotated share of a head where it is given.
    ///
    /// Transformers 5 keeps both in `rope_parameters`; older ones in the top-level keys named here, with another
    /// `rope_scaling` where the rotation is not the plain one. As in transformers, the newer place wins.
    pub(super) fn rope(&self, base_key: &str, fraction_key: &str) -> Result<(f64, Option<f64>)> {
        let scaling = self.inside("rope_scaling")?;
        let rope = if scaling.is_some() { scaling } else { self.inside("rope_parameters")? };
        let (mut base, mut fraction) = (None, None);
        if let Some(rope) = rope {
            for key in ["rope_type", "type"] {
                if rope.word(key)?.is_some_and(|kind| kind != "default") {
                    return Err(rope.wrong(key, "softdict's model rotates by the plain rule alone (default)"));
                }
            }
            if let Some((key, _)) = rope.map.iter().find(|(_, value)| value.is_object()) {
                return Err(rope.wrong(key, "all layers of softdict's model rotate alike"));
            }
            (base, fraction) = (rope.number("rope_theta")?, rope.number("partial_rotary_factor")?);
        }
        let base = if base.is_some() { base } else { self.number(base_key)? };
        let fraction = if fraction.is_some() { fraction } else { self.number(fraction_key)? };
        Ok((base.unwrap_or(10_000.0), fraction))
    }

    /// The dropout in training, the only one that softdict has.
    pub(super) fn dropout(&self, key: &str) -> Result<f32> {
        Ok(self.number(key)?.unwrap_or(0.0) as f32)
    }
}
