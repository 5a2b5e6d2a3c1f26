//! Attention as safetensors: `attention` f32 `[L, H, T, T]` and `token_ids` i64 `[T]`.
//!
//! The ids are i64 because that is what embedding layers elsewhere take. The metadata holds `layers`, `heads`,
//! `ablated` and `tokens` as JSON text. Header and data are written by hand: the crate's own writer wants every tensor
//! as bytes first, a second copy of something large.
//!
//! # Source
//! safetensors: little-endian u64 header length, JSON header padded with spaces to a multiple of 8, data.

use std::io::Write;

use serde_json::json;

use super::escape::{json_list, json_string};
use super::json::{write_ablated, write_numbers};
use super::npy::write_floats;
use crate::error::{InspectError, Result};
use crate::maps::AttentionMaps;

/// Writes `maps` as a `.safetensors` file.
///
/// # Errors
/// [`InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let tokens = maps.len();
    // the ids come first: they are the wider type, and every tensor has to start aligned
    let ids_end = tokens * size_of::<i64>();
    let end = ids_end as u64 + maps.shape().weights() * size_of::<f32>() as u64;
    let header = json!({
        "__metadata__": {
            "ablated": text(|out| write_ablated(maps, out))?,
            "heads": text(|out| write_numbers(maps.heads(), out))?,
            "layers": text(|out| write_numbers(maps.layers(), out))?,
            "tokens": text(|out| json_list(maps.tokens(), out, |token, out| json_string(token, out)))?,
        },
        "attention": {
            "data_offsets": [ids_end, end],
            "dtype": "F32",
            "shape": [maps.layers().len(), maps.heads().len(), tokens, tokens],
        },
        "token_ids": { "data_offsets": [0, ids_end], "dtype": "I64", "shape": [tokens] },
    });
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for &id in maps.token_ids() {
        out.write_all(&i64::from(id).to_le_bytes())?;
    }
    maps.each_layer(&mut |layer| Ok(write_floats(layer.values, out)?))
}

fn text(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<String> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| InspectError::Write { source: std::io::Error::other(error) })
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::*;
    use crate::maps::tests::{uniform, values};

    #[test]
    fn the_crate_reads_back_what_was_written() {
        let maps = uniform(&["a", " \"b\"", "\u{1b}[0m"], 2, 2);
        let mut out = Vec::new();
        write(&maps, &mut out).unwrap();
        let file = SafeTensors::deserialize(&out).unwrap();
        let attention = file.tensor("attention").unwrap();
        assert_eq!((attention.dtype(), attention.shape()), (Dtype::F32, &[2, 2, 3, 3][..]));
        let read =
            attention.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(read.eq(values(&maps)));
        let ids = file.tensor("token_ids").unwrap();
        assert_eq!((ids.dtype(), ids.shape()), (Dtype::I64, &[3][..]));
        let read = ids.data().chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
        assert!(read.eq([10, 11, 12]));
    }

    #[test]
    fn the_metadata_names_tokens_layers_and_heads() {
        let tokens = ["a", "\u{1b}</script>"];
        let mut out = Vec::new();
        write(&uniform(&tokens, 2, 3), &mut out).unwrap();
        let (_, header) = SafeTensors::read_metadata(&out).unwrap();
        let metadata = header.metadata().clone().unwrap();
        assert_eq!(metadata["layers"], "[0,1]");
        assert_eq!(metadata["heads"], "[0,1,2]");
        assert_eq!(serde_json::from_str::<Vec<String>>(&metadata["tokens"]).unwrap(), tokens);
        assert!(!out.contains(&0x1b));
    }

    #[test]
    fn two_writes_give_the_same_bytes() {
        let bytes = || {
            let mut out = Vec::new();
            write(&uniform(&["a", "b"], 1, 2), &mut out).unwrap();
            out
        };
        assert_eq!(bytes(), bytes());
    }
}
