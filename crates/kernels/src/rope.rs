//! Rotary position embedding: pairs (i, i + R/2) of the first R components of each head turn by position·frequency.
//!
//! # Source
//! Su et al. 2021, arXiv:2104.09864, section 3.2, in the half-split layout of GPT-NeoX and Llama.

use crate::error::KernelError;
use crate::op::{host, output, tensor, values};
use crate::parallel::{each, share};
use crate::simd::vectorized;
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// Cosines and sines of the angles of some positions.
#[derive(Debug, Clone)]
pub struct RopeTable {
    /// Rotated components R of each head; the rest passes through.
    pub rotated: usize,
    /// Positions in the table.
    pub positions: Range<usize>,
    frequencies: Vec<f64>, // R/2
    cos: Vec<f32>,         // (positions, R/2)
    sin: Vec<f32>,         // (positions, R/2)
}

impl RopeTable {
    /// The table of `positions`: angle = position·base^(−2i/R).
    ///
    /// # Errors
    /// When `rotated` is odd or zero: rotation needs pairs.
    pub fn new(positions: Range<usize>, rotated: usize, base: f64) -> std::result::Result<Self, KernelError> {
        if rotated == 0 || !rotated.is_multiple_of(2) {
            return Err(KernelError::Range {
                op: "rope",
                what: "the number of rotated components",
                found: rotated as f64,
                range: "even and positive, rotation needs pairs",
            });
        }
        let mut table = Self {
            rotated,
            positions: positions.start..positions.start,
            frequencies: (0..rotated / 2).map(|i| base.powf(-2.0 * i as f64 / rotated as f64)).collect(),
            cos: Vec::new(),
            sin: Vec::new(),
        };
        table.extend(positions.end);
        Ok(table)
    }

    /// Makes the table reach to `end`: at least twice as far as before, so that going on token by token costs little.
    ///
    /// A context is only a limit, and may be far longer than what a model ever reads.
    pub fn cover(&mut self, end: usize) {
        if end > self.positions.end {
            self.extend(end.max(2 * self.positions.end));
        }
    }

    fn extend(&mut self, end: usize) {
        let more = end.saturating_sub(self.positions.end) * self.frequencies.len();
        self.cos.reserve(more);
        self.sin.reserve(more);
        for position in self.positions.end..end {
            let angles = self.frequencies.iter().map(|frequency| position as f64 * frequency);
            self.cos.extend(angles.clone().map(|angle| angle.cos() as f32));
            self.sin.extend(angles.map(|angle| angle.sin() as f32));
        }
        self.positions.end = end.max(self.positions.end);
    }

    /// Where a range of positions stands in the table.
    fn places(&self, positions: Range<usize>) -> Range<usize> {
        let (half, start) = (self.rotated / 2, self.positions.start);
        (positions.start - start) * half..(positions.end - start) * half
    }

    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let range = self.places(position..position + 1);
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// Which way to turn; backward undoes forward, since a rotation's transpose is its inverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By +angle.
    Forward,
    /// By −angle.
    Backward,
}

vectorized! {
    fn rotate_row(row: &mut [f32], heads: usize, head_size: usize, cos: &[f32], sin: &[f32], sign: f32) {
        let half = cos.len();
        let sin = &sin[..half];
        for head in 0..heads {
            let (low, high) = row[head * head_size..head * head_size + 2 * half].split_at_mut(half);
            let (low, high) = (&mut low[..half], &mut high[..half]);
            for i in 0..half {
                let (a, b, s) = (low[i], high[i], sign * sin[i]);
                low[i] = a * cos[i] - b * s;
                high[i] = b * cos[i] + a * s;
            }
        }
    }
}

/// The rows that [`rotate`] turns.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Distance between rows.
    pub stride: usize,
    /// Heads at the beginning of each row that are turned.
    pub heads: usize,
    /// Components of a head.
    pub head_size: usize,
    /// Rows per sequence; a row's position is its number modulo this, plus `first`.
    pub time: usize,
    /// Position of a sequence's first row.
    pub first: usize,
}

/// Turns the first heads of every row in place.
///
/// # Shapes
/// `buffer` `(B·T, stride)`, of which the first heads·D columns are turned.
pub fn rotate(table: &RopeTable, rows: Rows, turn: Turn, buffer: &mut [f32]) {
    let sign = if turn == Turn::Forward { 1.0 } else { -1.0 };
    let piece = share(buffer.len() / rows.stride);
    each(buffer.chunks_mut(piece * rows.stride).enumerate(), |(index, chunk)| {
        for (at, row) in chunk.chunks_exact_mut(rows.stride).enumerate() {
            let (cos, sin) = table.at((index * piece + at) % rows.time + rows.first);
            rotate_row(row, rows.heads, rows.head_size, cos, sin, sign);
        }
    });
}

struct Rope {
    table: Arc<RopeTable>,
    first: usize,
}

impl Rope {
    fn turned(&self, mut x: Vec<f32>, shape: &Shape, turn: Turn) -> Result<Vec<f32>> {
        let (_, _, time, head_size) = shape.dims4()?;
        check_fits(&self.table, head_size, self.first..self.first + time)?;
        let rows = Rows { stride: head_size, heads: 1, head_size, time, first: self.first };
        rotate(&self.table, rows, turn, &mut x);
        Ok(x)
    }
}

fn check_fits(
    table: &RopeTable,
    head_size: usize,
    positions: Range<usize>,
) -> std::result::Result<(), KernelError> {
    if head_size < table.rotated {
        let (found, range) = (head_size as f64, "at least the number of rotated components");
        return Err(KernelError::Range { op: "rope", what: "the head size", found, range });
    }
    if positions.start < table.positions.start {
        let (found, range) = (positions.start as f64, "at least the first of the table");
        return Err(KernelError::Range { op: "rope", what: "the first position", found, range });
    }
    if positions.end > table.positions.end {
        let (found, range) = (positions.end as f64, "at most the positions of the table");
        return Err(KernelError::Range { op: "rope", what: "the last position", found, range });
    }
    Ok(())
}

impl CustomOp1 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let y = self.turned(values("rope", x, layout)?.to_vec(), layout.shape(), Turn::Forward)?;
        Ok(output(y, layout.shape()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(tensor(self.turned(host(dy)?, x.shape(), Turn::Backward)?, x.shape())?))
    }
}

/// The fused rotation as a differentiable candle operation; row t of `x` has position `first` + t.
///
/// # Shapes
/// `x` `(B, H, T, D)`; returns the same.
pub fn fused(table: &Arc<RopeTable>, x: &Tensor, first: usize) -> Result<Tensor> {
    x.apply_op1(Rope { table: Arc::clone(table), first })
}

/// The same from plain candle operations, on any device and in any float type.
pub fn reference(table: &RopeTable, x: &Tensor, first: usize) -> Result<Tensor> {
    let (_, _, time, head_size) = x.dims4()?;
    check_fits(table, head_size, first..first + time)?;
    let (half, places) = (table.rotated / 2, table.places(first..first + time));
    let angles = |values: &[f32]| -> Result<Tensor> {
        Tensor::from_slice(&values[places.clone()], (time, half), &Device::Cpu)?
            .to_device(x.device())?
            .to_dtype(x.dtype())
    };
    let (cos, sin) = (angles(&table.cos)?, angles(&table.sin)?); // (T, R/2)
    let low = x.narrow(3, 0, half)?;
    let high = x.narrow(3, half, half)?;
    let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
    let turned_high = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
    if head_size == table.rotated {
        return Tensor::cat(&[turned_low, turned_high], 3);
    }
    let rest = x.narrow(3, table.rotated, head_size - table.rotated)?;
    Tensor::cat(&[turned_low, turned_high, rest], 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn rotation_and_its_gradient_are_right() {
        for (rotated, first) in [(6, 0), (4, 3), (2, 1)] {
            let table = Arc::new(RopeTable::new(0..9, rotated, 500.0).unwrap());
            gradcheck(&[&[2, 3, 5, 6]], |t| fused(&table, &t[0], first), |t| reference(&table, &t[0], first));
        }
    }

    #[test]
    fn rotation_keeps_length_and_depends_on_distance_only() {
        let table = RopeTable::new(0..20, 4, 100.0).unwrap();
        let turned = |position: usize, x: [f32; 4]| {
            let mut x = x.to_vec();
            let rows = Rows { stride: 4, heads: 1, head_size: 4, time: 1, first: position };
            rotate(&table, rows, Turn::Forward, &mut x);
            x
        };
        let (q, k) = ([1.0, 2.0, -0.5, 0.3], [0.2, -1.0, 0.7, 0.9]);
        let product = |i, j| turned(i, q).iter().zip(turned(j, k)).map(|(a, b)| a * b).sum::<f32>();
        assert!((product(5, 2) - product(17, 14)).abs() < 1e-5);
        assert!((product(5, 2) - product(5, 3)).abs() > 1e-3);
        let length: f32 = turned(11, q).iter().map(|v| v * v).sum();
        assert!((length - 5.34).abs() < 1e-5);
    }

    #[test]
    fn an_odd_width_and_a_position_beyond_the_table_are_refused() {
        let message = RopeTable::new(0..4, 5, 10.0).unwrap_err().to_string();
        assert!(message.contains('5') && message.contains("pairs"), "{message}");
        let table = Arc::new(RopeTable::new(0..4, 2, 10.0).unwrap());
        let x = Tensor::zeros((1, 1, 5, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert!(fused(&table, &x, 0).unwrap_err().to_string().contains("last position is 5"));
        assert!(reference(&table, &x, 0).is_err());
        let late = Arc::new(RopeTable::new(3..9, 2, 10.0).unwrap());
        assert!(fused(&late, &x, 2).unwrap_err().to_string().contains("first position is 2"));
        fused(&late, &x, 3).unwrap();
    }

    #[test]
    fn a_table_that_grew_or_begins_late_has_the_same_angles() {
        let whole = RopeTable::new(0..40, 6, 500.0).unwrap();
        let mut grown = RopeTable::new(0..0, 6, 500.0).unwrap();
        for end in [3, 2, 4, 40] {
            grown.cover(end);
        }
        let late = RopeTable::new(17..40, 6, 500.0).unwrap();
        assert_eq!([&grown.positions, &late.positions], [&(0..40), &(17..40)]);
        for position in 0..40 {
            assert_eq!(grown.at(position), whole.at(position));
            if position >= 17 {
                assert_eq!(late.at(position), whole.at(position));
            }
        }
        grown.cover(41);
        assert_eq!(grown.positions, 0..80);
    }
}
