//! What the tile's inner loop and the packing do in registers, for every level and both precisions.
//!
//! A *word* is four bytes of an operand: one f32, or two bf16 that follow each other along the summed side.

#![expect(unsafe_code, reason = "instructions of a level, and pointers of the packing")]

/// One level's vector registers of f32.
///
/// # Safety
/// Every method needs the instructions of its level; pointers must be valid for what a method reads or writes.
pub(crate) trait Lanes {
    /// A register.
    type Register: Copy;
    /// Numbers in a register.
    const LANES: usize;
    /// Rows of the largest tile: two registers of sums for each, and two of B, must fit in the registers.
    const ROWS: usize;

    unsafe fn splat(value: f32) -> Self::Register;
    unsafe fn load(from: *const f32) -> Self::Register;
    unsafe fn store(to: *mut f32, value: Self::Register);
    unsafe fn add(a: Self::Register, b: Self::Register) -> Self::Register;
    /// a·b + c.
    unsafe fn multiply_add(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;

    /// Writes the transpose of a square of `LANES` rows of words, `LANES` apart, with rows `stride` apart.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, to: *mut f32, stride: usize) {
        for row in 0..Self::LANES {
            for column in 0..Self::LANES {
                // SAFETY: both squares are valid, says the contract.
                unsafe { *to.add(column * stride + row) = *from.add(row * Self::LANES + column) };
            }
        }
    }

    /// Announces that the line at `at` will be written; any address will do.
    #[inline(always)]
    fn prefetch(_: *const f32) {}
}

/// How numbers of the operands become words, and words sums.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait Words {
    /// The registers used.
    type On: Lanes;
    /// Numbers in a word.
    const PER_WORD: usize;
    /// Whether a row of A is words as it lies.
    const IN_PLACE: bool;

    /// sum + a·b, where the word at `a` meets every word of `b`.
    unsafe fn accumulate(sum: Register<Self>, a: *const f32, b: Register<Self>) -> Register<Self>;
    /// The words of the `LANES`·`PER_WORD` numbers at `from`, which follow each other along the summed side.
    unsafe fn along(from: *const f32) -> Register<Self>;
    /// One word of each of `LANES` neighbours; the numbers of a word are `stride` apart.
    unsafe fn across(from: *const f32, stride: usize) -> Register<Self>;
}

/// The register of some words.
pub(crate) type Register<W> = <<W as Words>::On as Lanes>::Register;

/// f32 operands.
pub(crate) struct Exact<L>(std::marker::PhantomData<L>);

impl<L: Lanes> Words for Exact<L> {
    type On = L;
    const PER_WORD: usize = 1;
    const IN_PLACE: bool = true;

    #[inline(always)]
    unsafe fn accumulate(sum: L::Register, a: *const f32, b: L::Register) -> L::Register {
        // SAFETY: the same contract.
        unsafe { L::multiply_add(L::splat(*a), b, sum) }
    }
    #[inline(always)]
    unsafe fn along(from: *const f32) -> L::Register {
        // SAFETY: the same contract.
        unsafe { L::load(from) }
    }
    #[inline(always)]
    unsafe fn across(from: *const f32, _: usize) -> L::Register {
        // SAFETY: the same contract.
        unsafe { L::load(from) }
    }
}

/// bf16 operands without bf16 instructions: each number is rounded when it is packed, and multiplied as f32.
pub(crate) struct Rounded<L>(std::marker::PhantomData<L>);

/// `value` to the nearest bf16, ties to even, as the f32 that it stands for.
#[inline(always)]
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    let carry = 0x7fff + ((bits >> 16) & 1);
    let nearest = f32::from_bits(bits.wrapping_add(carry) & 0xffff_0000);
    if value.is_nan() { value } else { nearest }
}

impl<L: Lanes> Words for Rounded<L> {
    type On = L;
    const PER_WORD: usize = 1;
    const IN_PLACE: bool = false;

    #[inline(always)]
    unsafe fn accumulate(sum: L::Register, a: *const f32, b: L::Register) -> L::Register {
        // SAFETY: the same contract.
        unsafe { L::multiply_add(L::splat(*a), b, sum) }
    }
    #[inline(always)]
    unsafe fn along(from: *const f32) -> L::Register {
        let mut buffer = [0.0; 16];
        for (lane, value) in buffer.iter_mut().enumerate().take(L::LANES) {
            // SAFETY: `LANES` numbers are valid, says the contract.
            *value = rounded(unsafe { *from.add(lane) });
        }
        // SAFETY: the buffer holds the 16 lanes of the widest level.
        unsafe { L::load(buffer.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn across(from: *const f32, _: usize) -> L::Register {
        // SAFETY: the same contract.
        unsafe { Self::along(from) }
    }
}

/// Any processor: four lanes in an array, which the compiler keeps in the target's registers.
pub(crate) struct Portable;

impl Lanes for Portable {
    type Register = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 4] {
        [value; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: four numbers are valid, says the contract.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: [f32; 4]) {
        // SAFETY: as above.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn rounding_is_to_the_nearest_and_even() {
        for value in
            [0.0, -0.0, 1.0, 3.2e-3, -1e-30, 1e38, f32::MAX, f32::INFINITY, 257.0 / 256.0, 259.0 / 256.0]
        {
            assert_eq!(rounded(value).to_bits(), half::bf16::from_f32(value).to_f32().to_bits(), "{value}");
        }
        assert!(rounded(f32::NAN).is_nan());
    }
}
