//! The options of `sample`, and their ranges.

use std::num::NonZeroUsize;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Result, SampleError};

/// How to choose tokens, and how many.
///
/// The defaults are those that users of small transformers know: temperature 0.8 and the 200 likeliest tokens,
/// the other filters off. A seed makes the text repeatable; without one every run differs.
///
/// # Source
/// nanoGPT's `sample.py` for `temperature` and `top_k`; one sample of 200 tokens (there ten of 500) because a
/// first look should be short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleOptions {
    /// Divides the logits: below 1 surer, above 1 bolder; 0 always takes the likeliest token.
    pub temperature: f32,
    /// Keeps only this many of the likeliest tokens; `None` (0 in settings) keeps all.
    #[serde(serialize_with = "write_top_k", deserialize_with = "read_top_k")]
    pub top_k: Option<NonZeroUsize>,
    /// Keeps the smallest set of the likeliest tokens that has at least this probability together.
    pub top_p: Option<f32>,
    /// Keeps the tokens that are at least this fraction as likely as the likeliest.
    pub min_p: Option<f32>,
    /// Makes tokens of the text so far less likely, above 1, or more likely, below 1.
    pub repetition_penalty: Option<f32>,
    /// Ends a sample as soon as its continuation contains one of these texts.
    pub stop: Vec<String>,
    /// Repeats the samples of an earlier run; `None` draws a new seed.
    pub seed: Option<u64>,
    /// How many tokens a sample has at most.
    pub tokens: usize,
    /// How many samples to make.
    pub num_samples: usize,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: NonZeroUsize::new(200),
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            stop: Vec::new(),
            seed: None,
            tokens: 200,
            num_samples: 1,
        }
    }
}

impl SampleOptions {
    /// Checks every option against its range.
    ///
    /// # Errors
    /// [`SampleError::OutOfRange`] or [`SampleError::EmptyStop`] for the first option, in the order of the
    /// fields, that is wrong; NaN is outside every range.
    pub fn validate(&self) -> Result<()> {
        let checks = [
            (
                "--temperature",
                Some(self.temperature),
                self.temperature >= 0.0 && self.temperature.is_finite(),
                "a finite number of at least 0 (0 always takes the likeliest token)",
            ),
            (
                "--top-p",
                self.top_p,
                self.top_p.is_none_or(|p| p > 0.0 && p <= 1.0),
                "a number above 0 and at most 1 (1 keeps all tokens)",
            ),
            (
                "--min-p",
                self.min_p,
                self.min_p.is_none_or(|p| (0.0..=1.0).contains(&p)),
                "a number from 0 to 1 (0 keeps all tokens)",
            ),
            (
                "--repetition-penalty",
                self.repetition_penalty,
                self.repetition_penalty.is_none_or(|penalty| penalty > 0.0 && penalty.is_finite()),
                "a finite number above 0 (1 changes nothing)",
            ),
        ];
        for (flag, value, is_right, range) in checks {
            if let (Some(value), false) = (value, is_right) {
                return Err(SampleError::OutOfRange { flag, value: value.to_string(), range });
            }
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(SampleError::EmptyStop);
        }
        if self.num_samples == 0 {
            let value = self.num_samples.to_string();
            return Err(SampleError::OutOfRange {
                flag: "--num-samples",
                value,
                range: "a count of at least 1",
            });
        }
        Ok(())
    }
}

/// Writes "off" as 0: a missing key would be read back as the default of 200.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn write_top_k<S: Serializer>(
    top_k: &Option<NonZeroUsize>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    top_k.map_or(0, NonZeroUsize::get).serialize(serializer)
}

fn read_top_k<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<NonZeroUsize>, D::Error> {
    Ok(NonZeroUsize::new(usize::deserialize(deserializer)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(options: &SampleOptions) -> String {
        options.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_and_the_ends_of_every_range_are_valid() {
        SampleOptions::default().validate().unwrap();
        let ends = SampleOptions {
            temperature: 0.0,
            top_p: Some(1.0),
            min_p: Some(0.0),
            repetition_penalty: Some(f32::MIN_POSITIVE),
            tokens: 0,
            ..SampleOptions::default()
        };
        ends.validate().unwrap();
        SampleOptions { min_p: Some(1.0), ..ends }.validate().unwrap();
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_flag_and_the_range() {
        let base = SampleOptions::default();
        let top_p = SampleOptions { top_p: Some(1.5), ..base.clone() };
        assert_eq!(
            message(&top_p),
            "--top-p 1.5 is out of range; give a number above 0 and at most 1 (1 keeps all tokens)"
        );
        let temperature = SampleOptions { temperature: -1.0, ..base.clone() };
        assert!(message(&temperature).starts_with("--temperature -1 is out of range; give a finite number"));
        let min_p = SampleOptions { min_p: Some(-0.1), ..base.clone() };
        assert!(message(&min_p).starts_with("--min-p -0.1 is out of range"));
        let penalty = SampleOptions { repetition_penalty: Some(0.0), ..base.clone() };
        assert!(message(&penalty).starts_with("--repetition-penalty 0 is out of range"));
        let samples = SampleOptions { num_samples: 0, ..base.clone() };
        assert!(message(&samples).starts_with("--num-samples 0 is out of range"));
        let stop = SampleOptions { stop: vec!["\n".to_owned(), String::new()], ..base };
        assert!(message(&stop).starts_with("--stop \"\" is empty"));
    }

    #[test]
    fn zero_nan_and_infinity_are_out_of_range_where_they_make_no_sense() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let base = SampleOptions::default();
            assert!(SampleOptions { temperature: value, ..base.clone() }.validate().is_err());
            assert!(SampleOptions { top_p: Some(value), ..base.clone() }.validate().is_err());
            assert!(SampleOptions { min_p: Some(value), ..base.clone() }.validate().is_err());
            assert!(SampleOptions { repetition_penalty: Some(value), ..base }.validate().is_err());
        }
        assert!(SampleOptions { top_p: Some(0.0), ..SampleOptions::default() }.validate().is_err());
    }

    #[test]
    fn settings_are_read_as_users_write_them() {
        let options: SampleOptions = toml::from_str("temperature = 1\ntop_k = 0\nstop = [\"\\n\"]").unwrap();
        assert!((options.temperature - 1.0).abs() < f32::EPSILON);
        assert_eq!(options.top_k, None);
        assert_eq!(options.stop, ["\n"]);
        assert_eq!(options.tokens, SampleOptions::default().tokens);
        assert_eq!(toml::from_str::<SampleOptions>("").unwrap(), SampleOptions::default());
        let unknown = toml::from_str::<SampleOptions>("temprature = 1.0").unwrap_err();
        assert!(unknown.to_string().contains("temprature"), "{unknown}");
    }

    #[test]
    fn settings_written_and_read_back_are_the_same() {
        for top_k in [None, NonZeroUsize::new(1), NonZeroUsize::new(40)] {
            let options =
                SampleOptions { top_k, top_p: Some(0.9), seed: Some(7), ..SampleOptions::default() };
            let text = toml::to_string(&options).unwrap();
            assert_eq!(toml::from_str::<SampleOptions>(&text).unwrap(), options, "{text}");
        }
    }
}
