//! Attention as a `NumPy` array: `numpy.load` gives float32 `[L, H, T, T]`.
//!
//! # Source
//! numpy.lib.format, version 1.0: magic, version, little-endian u16 header length, a Python dictionary padded
//! with spaces and ended by a line feed so that the data starts at a multiple of 64.

use std::io::{self, Write};

use crate::error::Result;
use crate::maps::AttentionMaps;

/// Bytes before the dictionary: magic, version, length.
const PREAMBLE: usize = 10;
const ALIGNMENT: usize = 64;

/// Writes `maps` as an `.npy` file.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let tokens = maps.len();
    let (layers, heads) = (maps.layers().len(), maps.heads().len());
    let dictionary = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({layers}, {heads}, {tokens}, {tokens}), }}"
    );
    // four lengths of at most 20 digits: the header is 192 bytes at most, far below the u16 limit
    let header = (PREAMBLE + dictionary.len() + 1).next_multiple_of(ALIGNMENT) - PREAMBLE;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(header as u16).to_le_bytes())?;
    writeln!(out, "{dictionary:<width$}", width = header - 1)?;
    maps.each_layer(&mut |layer| Ok(write_floats(layer.values, out)?))
}

/// Writes little-endian f32 through a small buffer, because `out` may be unbuffered.
pub(super) fn write_floats(values: &[f32], out: &mut dyn Write) -> io::Result<()> {
    const BLOCK: usize = 4096;
    let mut bytes = [0; BLOCK * 4];
    for block in values.chunks(BLOCK) {
        for (slot, value) in bytes.chunks_exact_mut(4).zip(block) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        out.write_all(&bytes[..block.len() * 4])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::{uniform, values};

    #[test]
    fn the_header_is_aligned_and_says_the_shape() {
        for tokens in [1, 2, 11, 101] {
            let maps = uniform(&vec!["t"; tokens], 2, 1);
            let mut out = Vec::new();
            write(&maps, &mut out).unwrap();
            assert_eq!(out[..8], *b"\x93NUMPY\x01\x00");
            let header = usize::from(u16::from_le_bytes([out[8], out[9]]));
            assert_eq!((PREAMBLE + header) % 64, 0);
            let text = std::str::from_utf8(&out[PREAMBLE..PREAMBLE + header]).unwrap();
            let shape = format!("'shape': (2, 1, {tokens}, {tokens}), }}");
            assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, "), "{text}");
            assert!(text.trim_end().ends_with(&shape) && text.ends_with('\n'), "{text}");
            assert_eq!(out.len(), PREAMBLE + header + 2 * tokens * tokens * 4);
        }
    }

    #[test]
    fn the_data_is_the_weights_in_order() {
        // 101² values do not fit one block, so the seam between blocks is covered
        let maps = uniform(&["t"; 101], 1, 1);
        let mut out = Vec::new();
        write(&maps, &mut out).unwrap();
        let data = &out[out.len() - 101 * 101 * 4..];
        let read = data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(read.eq(values(&maps)));
    }
}
