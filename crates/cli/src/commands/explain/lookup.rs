//! From a dictionary that is asked for one key to one that is asked softly.
//!
//! # Source
//! "Attention is a lookup table you learn", section "Start with a dictionary".

use super::random::normal;
use candle_core::{Device, Tensor};
use softdict_kernels::attention::{self, Options};
use std::fmt::Write;

const KEYS: [&str; 4] = ["paris", "tokyo", "lima", "cairo"];
const VALUES: [&str; 4] = ["france", "japan", "peru", "egypt"];
/// Components of a key.
const SIZE: usize = 8;
const TEMPERATURES: [f32; 5] = [100.0, 10.0, 3.0, 1.0, 0.1];
/// The query is this key, moved by so much noise.
const WANTED: usize = 1;
const NOISE: f64 = 0.3;

/// The weights of all keys at a temperature.
fn weights(temperature: f32) -> candle_core::Result<Vec<f32>> {
    let keys = normal(&[1, 1, KEYS.len(), SIZE], 1)?; // (B, H, S, D)
    let noise = (normal(&[1, 1, 1, SIZE], 2)? * NOISE)?;
    let query = (keys.narrow(2, WANTED, 1)? + noise)?;
    let options = Options::plain(false, 1.0 / temperature);
    attention::pattern(options, &query, &keys)?.flatten_all()?.to_vec1()
}

/// How much the weight of the wanted key moves when its key vector is moved a little along the query, at temperature 1: what an
/// exact lookup does not have.
fn slope() -> candle_core::Result<f64> {
    let keys = normal(&[KEYS.len(), SIZE], 1)?.to_vec2::<f32>()?;
    let query = keys[WANTED].clone();
    let weight = |step: f32| -> candle_core::Result<f64> {
        let mut moved = keys.clone();
        moved[WANTED].iter_mut().zip(&query).for_each(|(key, q)| *key += step * q);
        let k = Tensor::new(moved, &Device::Cpu)?.reshape((1, 1, KEYS.len(), SIZE))?;
        let q = Tensor::new(query.clone(), &Device::Cpu)?.reshape((1, 1, 1, SIZE))?;
        let pattern: Vec<f32> =
            attention::pattern(Options::plain(false, 0.1), &q, &k)?.flatten_all()?.to_vec1()?;
        Ok(f64::from(pattern[WANTED]))
    };
    Ok((weight(1e-2)? - weight(-1e-2)?) / 2e-2)
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = format!(
        "LOOKUP: a table that is asked with a vector\n\n\
         \x20 table = {{{}}}\n\n\
         An exact lookup of `{}` finds `{}` or nothing: no gradient, and keys that cannot be learned. Here keys are\n\
         vectors of {SIZE} numbers, and the query is the vector of `{}` with a little noise. The weights are\n\
         softmax(query · key / temperature), computed by softdict's own attention:\n\n\
         \x20 temperature  {}\n",
        KEYS.iter().zip(VALUES).map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", "),
        KEYS[WANTED],
        VALUES[WANTED],
        KEYS[WANTED],
        VALUES.map(|value| format!("{value:>8}")).join(""),
    );
    for temperature in TEMPERATURES {
        write!(text, "  {temperature:>11}  ")?;
        for weight in weights(temperature)? {
            write!(text, "{weight:8.3}")?;
        }
        text.push('\n');
    }
    let (warm, cold) = (weights(TEMPERATURES[0])?, weights(TEMPERATURES[4])?);
    let spread = warm.iter().fold(0f32, |most, weight| most.max((weight - 0.25).abs()));
    write!(
        text,
        "\nThe document says: every query matches every key a little, and a sharp softmax is the exact lookup again.\n\
         \x20 borne out: at {} all four lie within {spread:.3} of a quarter; at {} `{}` has {:.3}\n\
         The document says: an exact lookup has no gradient, a soft one does.\n\
         \x20 borne out: moving the key of `{}` along the query moves its weight by {:.3} for a unit step\n",
        TEMPERATURES[0],
        TEMPERATURES[4],
        VALUES[WANTED],
        cold[WANTED],
        KEYS[WANTED],
        slope()?,
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_spreads_the_weights_and_cold_gives_them_to_the_wanted_key() {
        for temperature in TEMPERATURES {
            assert!((weights(temperature).unwrap().iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
        let largest = TEMPERATURES.map(|temperature| weights(temperature).unwrap()[WANTED]);
        assert!(largest.is_sorted() && largest[0] < 0.3 && largest[4] > 0.999, "{largest:?}");
        assert!(slope().unwrap() > 0.01);
    }
}
