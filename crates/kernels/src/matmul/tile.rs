//! The tile: a few rows times one or two registers of columns, summed in registers.

#![expect(unsafe_code, reason = "the innermost loop goes through pointers that its caller has checked")]

use crate::lanes::{Lanes, Register, Words};

/// Where a tile's operands lie.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    /// Words summed over.
    pub(crate) words: usize,
    /// First word of A.
    pub(crate) a: *const f32,
    /// From one row of A to the next.
    pub(crate) a_row: usize,
    /// From one word of a row of A to the next.
    pub(crate) a_step: usize,
    /// A panel of B: for each word, the tile's columns.
    pub(crate) b: *const f32,
}

/// Where a tile's results go.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// First result, and the distance between rows.
    pub(crate) out: (*mut f32, usize),
    /// Rows written.
    pub(crate) rows: usize,
    /// Columns written.
    pub(crate) columns: usize,
    /// Factor on the sums.
    pub(crate) scale: f32,
    /// What is added: pointers that go with `out.0`, and distances between their rows.
    pub(crate) addends: [Option<(*const f32, usize)>; 3],
}

/// out = scale·A·B + addends for up to `ROWS` rows and a panel of B that is one or two registers wide.
///
/// # Safety
/// A holds a word for each of `size(rows)` rows, B for each of the panel's `width` columns, `words` times; `target`
/// and its addends are valid for its rows and columns; the level's instructions are there.
#[inline(always)]
pub(crate) unsafe fn tile<W: Words>(width: usize, operands: Operands, target: Target) {
    // SAFETY: the same contract.
    unsafe {
        if width == W::On::LANES {
            of_registers::<W, 1>(operands, target);
        } else {
            of_registers::<W, 2>(operands, target);
        }
    }
}

#[inline(always)]
unsafe fn of_registers<W: Words, const REGISTERS: usize>(operands: Operands, target: Target) {
    // SAFETY: the contract of `tile`.
    unsafe {
        match size::<W>(target.rows) {
            12 => sized::<W, 12, REGISTERS>(operands, target),
            8 => sized::<W, 8, REGISTERS>(operands, target),
            6 => sized::<W, 6, REGISTERS>(operands, target),
            4 => sized::<W, 4, REGISTERS>(operands, target),
            _ => sized::<W, 1, REGISTERS>(operands, target),
        }
    }
}

/// Rows of the smallest tile that has `rows`.
#[inline(always)]
pub(crate) fn size<W: Words>(rows: usize) -> usize {
    match rows {
        0 | 1 => 1,
        2..=4 => 4,
        5 | 6 if W::On::ROWS < 8 => 6,
        5..=8 => 8,
        _ => 12,
    }
}

#[inline(always)]
unsafe fn sized<W: Words, const ROWS: usize, const REGISTERS: usize>(operands: Operands, target: Target) {
    if ROWS > W::On::ROWS {
        return; // never asked for: compiles to nothing
    }
    let (out, stride) = target.out;
    for row in 0..ROWS {
        W::On::prefetch(out.wrapping_add(row * stride));
        W::On::prefetch(out.wrapping_add(row * stride + 16));
    }
    // SAFETY: the contract of `tile`.
    unsafe {
        let sums = sums::<W, ROWS, REGISTERS>(operands);
        match (target.addends, target.columns == REGISTERS * W::On::LANES) {
            ([None, None, None], true) => write::<W::On, ROWS, REGISTERS, 0>(&sums, target, []),
            ([Some(one), None, None] | [None, Some(one), None] | [None, None, Some(one)], true) => {
                write::<W::On, ROWS, REGISTERS, 1>(&sums, target, [one]);
            }
            ([None, Some(one), Some(two)], true) => {
                write::<W::On, ROWS, REGISTERS, 2>(&sums, target, [one, two]);
            }
            _ => write_any::<W::On, ROWS, REGISTERS>(sums, target),
        }
    }
}

/// Writes whole registers; all loops are unrolled, so that the sums stay where they are.
#[inline(always)]
unsafe fn write<L: Lanes, const ROWS: usize, const REGISTERS: usize, const ADDENDS: usize>(
    sums: &[[L::Register; REGISTERS]; ROWS],
    target: Target,
    addends: [(*const f32, usize); ADDENDS],
) {
    let (out, stride) = target.out;
    // SAFETY: the contract of `tile`.
    unsafe {
        let scale = L::splat(target.scale);
        for (row, sums) in sums.iter().enumerate() {
            if row >= target.rows {
                break;
            }
            for (register, &sum) in sums.iter().enumerate() {
                let at = register * L::LANES;
                let mut value = L::splat(0.0);
                for (from, stride) in addends {
                    value = L::add(value, L::load(from.wrapping_add(row * stride + at)));
                }
                let value = L::multiply_add(scale, sum, value);
                L::store(out.wrapping_add(row * stride + at), value);
            }
        }
    }
}

/// Writes any number of columns, one by one, with any addends. The sums come as a copy, so that only this way needs
/// them in memory.
#[inline(never)]
unsafe fn write_any<L: Lanes, const ROWS: usize, const REGISTERS: usize>(
    sums: [[L::Register; REGISTERS]; ROWS],
    target: Target,
) {
    let (out, stride) = target.out;
    for (row, sums) in sums.iter().enumerate().take(target.rows) {
        // SAFETY: registers are as many f32 as their lanes; otherwise the contract of `tile`.
        unsafe {
            let sums = std::slice::from_raw_parts(sums.as_ptr().cast::<f32>(), REGISTERS * L::LANES);
            for (column, sum) in sums.iter().enumerate().take(target.columns) {
                let mut value = target.scale * sum;
                for (from, stride) in target.addends.into_iter().flatten() {
                    value += *from.add(row * stride + column);
                }
                *out.add(row * stride + column) = value;
            }
        }
    }
}

/// The sums themselves, all in registers.
#[inline(always)]
unsafe fn sums<W: Words, const ROWS: usize, const REGISTERS: usize>(
    operands: Operands,
) -> [[Register<W>; REGISTERS]; ROWS] {
    // SAFETY: the contract of `tile`.
    unsafe {
        let Operands { words, mut a, a_row, a_step, mut b } = operands;
        let mut sums = [[W::On::splat(0.0); REGISTERS]; ROWS];
        for _ in 0..words {
            let mut columns = [W::On::splat(0.0); REGISTERS];
            for (register, columns) in columns.iter_mut().enumerate() {
                *columns = W::On::load(b.add(register * W::On::LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                for (sum, &columns) in sums.iter_mut().zip(&columns) {
                    *sum = W::accumulate(*sum, a.add(row * a_row), columns);
                }
            }
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(REGISTERS * W::On::LANES);
        }
        sums
    }
}
