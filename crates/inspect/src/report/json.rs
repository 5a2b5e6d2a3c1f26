//! Attention as strict JSON, written piece by piece.
//!
//! `{"tokens":[…],"token_ids":[…],"shape":[L,H,T,T],"layers":[…],"heads":[…],"ablated":[…],"attention":[…]}`, where
//! `attention[l][h][i][j]` is how much token i looks at token j in the l-th layer and h-th head shown. Weights
//! read back as the same f32; later tokens of a causal model are exactly `0`.

use std::io::{self, Write};
use std::mem;

use super::escape::{json_list, json_string, number};
use crate::error::Result;
use crate::maps::AttentionMaps;

/// Writes `maps` as one JSON object and a line feed.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let tokens = maps.len();
    out.write_all(b"{\"tokens\":")?;
    json_list(maps.tokens(), out, |token, out| json_string(token, out))?;
    out.write_all(b",\"token_ids\":")?;
    json_list(maps.token_ids(), out, |id, out| write!(out, "{id}"))?;
    write!(out, ",\"shape\":[{},{},{tokens},{tokens}]", maps.layers().len(), maps.heads().len())?;
    out.write_all(b",\"layers\":")?;
    write_numbers(maps.layers(), out)?;
    out.write_all(b",\"heads\":")?;
    write_numbers(maps.heads(), out)?;
    out.write_all(b",\"ablated\":")?;
    write_ablated(maps, out)?;
    // one row a line, so that a text editor and a line-wise tool can live with the file
    out.write_all(b",\"attention\":")?;
    let mut before = "[";
    maps.each_layer(&mut |layer| {
        out.write_all(mem::replace(&mut before, ",").as_bytes())?;
        Ok(json_list(layer.patterns(), out, |(_, pattern), out| {
            json_list(pattern.chunks_exact(tokens), out, |row, out| {
                out.write_all(b"\n")?;
                json_list(row, out, |&weight, out| number(weight, out))
            })
        })?)
    })?;
    out.write_all(b"]}\n")?;
    Ok(())
}

/// Writes `["1.0=zero",…]`.
pub(super) fn write_ablated(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> io::Result<()> {
    json_list(maps.ablated(), out, |ablation, out| json_string(&ablation.to_string(), out))
}

/// Writes `[0,1,…]`.
pub(super) fn write_numbers(numbers: &[usize], out: &mut dyn Write) -> io::Result<()> {
    json_list(numbers, out, |value, out| write!(out, "{value}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::maps::tests::{uniform, values};

    fn parsed(maps: &AttentionMaps<'_>) -> (String, Value) {
        let mut out = Vec::new();
        write(maps, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    #[test]
    fn a_small_map_is_written_as_agreed() {
        let (text, _) = parsed(&uniform(&["a\n", " b"], 1, 1));
        let expected = concat!(
            r#"{"tokens":["a\n"," b"],"token_ids":[10,11],"shape":[1,1,2,2],"layers":[0],"heads":[0],"ablated":[],"attention":[[["#,
            "\n[1,0],\n[0.5,0.5]]]]}\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn nesting_follows_the_shape() {
        let maps = uniform(&["x", "y", "z"], 2, 3);
        let (_, value) = parsed(&maps);
        let lists = |value: &Value| value.as_array().unwrap().clone();
        let attention = lists(&value["attention"]);
        assert_eq!(attention.len(), 2);
        for layer in &attention {
            assert_eq!(lists(layer).len(), 3);
            for head in lists(layer) {
                assert_eq!(lists(&head).len(), 3);
                for row in lists(&head) {
                    assert_eq!(lists(&row).len(), 3);
                    let sum: f64 = lists(&row).iter().map(|weight| weight.as_f64().unwrap()).sum();
                    assert!((sum - 1.0).abs() < 1e-6);
                }
            }
        }
        assert_eq!(value["attention"][1][2][0][2], 0);
    }

    #[test]
    fn weights_read_back_as_the_same_f32() {
        let maps = uniform(&["a", "b", "c", "d", "e", "f", "g"], 1, 1);
        let (_, value) = parsed(&maps);
        for (row, weights) in values(&maps).chunks_exact(7).enumerate() {
            for (key, weight) in weights.iter().enumerate() {
                let read = value["attention"][0][0][row][key].as_f64().unwrap() as f32;
                assert_eq!(read.to_bits(), weight.to_bits());
            }
        }
    }
}
