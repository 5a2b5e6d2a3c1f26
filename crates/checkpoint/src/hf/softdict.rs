//! Our own format, for mixes that no family expresses: our settings and our parameter names as they are.

use super::keys::Keys;
use super::table::{Entry, Layout, Names};
use super::{Format, OWN_KEY, decimal, extend};
use crate::error::Result;
use serde_json::{Value, json};
use softdict_model::settings::ModelSettings;
use softdict_model::{ModelConfig, ParameterTable};

pub(super) const FORMAT: Format = Format {
    model_type: "softdict",
    class: "SoftdictModel",
    entries,
    canonical: |name| Some(name.to_owned()),
    tied_head: None,
    write,
    read,
};

fn entries(config: &ModelConfig) -> Vec<Entry> {
    let mut names = Names::of(config);
    for parameter in &ParameterTable::new(config) {
        names.add(&parameter.name, &parameter.name, Layout::Same);
    }
    names.finish()
}

fn write(config: &ModelConfig) -> Value {
    let mut settings = json!(config.settings);
    extend(&mut settings, json!({ "dropout": decimal(config.settings.dropout) }));
    json!({ OWN_KEY: settings })
}

fn read(keys: &Keys<'_>) -> Result<(ModelSettings, usize)> {
    let settings: Option<ModelSettings> = keys.parsed(OWN_KEY)?;
    let settings = settings.ok_or_else(|| keys.wrong(OWN_KEY, "it must hold the settings of the model"))?;
    Ok((settings, keys.count("vocab_size")?))
}
