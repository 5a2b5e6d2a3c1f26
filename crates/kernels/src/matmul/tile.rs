//! The tile: a few rows times one or two registers of columns, summed in registers.

#![expect(unsafe_code, reason = "the innermost loop goes through pointers that its caller has checked")]

use super::lanes::{Lanes, Register, Words};

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

/// Numbers in the widest register.
const WIDEST: usize = 16;

/// out = scale·A·B + addends for up to `ROWS` rows and `REGISTERS` registers of columns.
///
/// # Safety
/// A holds a word for each of `size(rows)` rows, B for each of the tile's columns, `words` times; `target` and
/// its addends are valid for its rows and columns; the level's instructions are there.
#[inline(always)]
pub(crate) unsafe fn tile<W: Words, const REGISTERS: usize>(operands: Operands, target: Target) {
    // SAFETY: the same contract.
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
    let sums = unsafe { sums::<W, ROWS, REGISTERS>(operands) };
    for (row, sums) in sums.iter().enumerate().take(target.rows) {
        for (register, &sum) in sums.iter().enumerate() {
            let at = register * W::On::LANES;
            // SAFETY: the contract of `tile`.
            unsafe {
                if at + W::On::LANES <= target.columns {
                    W::On::store(out.add(row * stride + at), finished::<W::On>(sum, target, row, at));
                } else {
                    rest::<W::On>(sum, target, row, at);
                }
            }
        }
    }
}

/// The columns from `at` on, which are fewer than a register has, one by one.
#[inline(always)]
unsafe fn rest<L: Lanes>(sum: L::Register, target: Target, row: usize, at: usize) {
    let mut sums = [0f32; WIDEST];
    // SAFETY: the buffer holds the widest register; otherwise the contract of `tile`.
    unsafe {
        L::store(sums.as_mut_ptr(), sum);
        for (column, &sum) in (at..target.columns).zip(&sums) {
            let mut value = target.scale * sum;
            for (from, stride) in target.addends.into_iter().flatten() {
                value += *from.add(row * stride + column);
            }
            *target.out.0.add(row * target.out.1 + column) = value;
        }
    }
}

/// scale·sum + addends for one register of the results.
#[inline(always)]
unsafe fn finished<L: Lanes>(sum: L::Register, target: Target, row: usize, at: usize) -> L::Register {
    // SAFETY: the contract of `tile`.
    unsafe {
        let one = L::splat(1.0);
        let mut value = L::multiply_add(L::splat(target.scale), sum, L::splat(0.0));
        for (from, stride) in target.addends.into_iter().flatten() {
            value = L::multiply_add(one, value, L::load(from.add(row * stride + at)));
        }
        value
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
