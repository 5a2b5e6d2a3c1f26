//! Vector registers of every level, and operands of products in both precisions.
//!
//! Code that is generic over [`Lanes`] or [`Words`] is compiled for every level by [`by_level`] or [`by_precision`],
//! and must hold no closure: what is in one may be compiled without the level's instructions.
//!
//! A *word* is four bytes of an operand: one f32, or two bf16 that follow each other along the summed side.

#![expect(unsafe_code, reason = "instructions of a level, and pointers to registers in memory")]

mod exp;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use exp::exp;

/// Calls `$run::<$words<L>>` compiled for the level in use, L being its registers.
macro_rules! by_level {
    ($words:ident, $run:ident($($arg:ident: $ty:ty),* $(,)?)) => {{
        use $crate::lanes::$words;
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $ty),*) {
                $run::<$words<$crate::lanes::x86::Avx512>>($($arg),*);
            }
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) {
                $run::<$words<$crate::lanes::x86::Avx2>>($($arg),*);
            }
            #[expect(unsafe_code, reason = "calls a function compiled for instructions that were detected")]
            match $crate::simd::level() {
                // SAFETY: `level` is never above what was detected on this processor.
                $crate::simd::Level::Avx512 | $crate::simd::Level::Avx512Bf16 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                $crate::simd::Level::Portable => $run::<$words<$crate::lanes::Portable>>($($arg),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $run::<$words<$crate::lanes::Portable>>($($arg),*);
    }};
}
pub(crate) use by_level;

/// Calls `$run::<W>` compiled for the level in use, W being words of a precision.
macro_rules! by_precision {
    ($precision:expr, $run:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        if $precision == $crate::matmul::Precision::F32 {
            $crate::lanes::by_level!(Exact, $run($($arg: $ty),*));
        } else {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")]
                fn pairs($($arg: $ty),*) {
                    $run::<$crate::lanes::x86::Pairs>($($arg),*);
                }
                if $crate::simd::level() == $crate::simd::Level::Avx512Bf16 {
                    #[expect(unsafe_code, reason = "calls a function compiled for instructions that were detected")]
                    // SAFETY: `level` is never above what was detected on this processor.
                    unsafe {
                        pairs($($arg),*)
                    };
                } else {
                    $crate::lanes::by_level!(Rounded, $run($($arg: $ty),*));
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            $crate::lanes::by_level!(Rounded, $run($($arg: $ty),*));
        }
    };
}
pub(crate) use by_precision;

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
    unsafe fn subtract(a: Self::Register, b: Self::Register) -> Self::Register;
    unsafe fn multiply(a: Self::Register, b: Self::Register) -> Self::Register;
    /// a·b + c.
    unsafe fn multiply_add(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;
    /// The larger of each two; b where either is NaN.
    unsafe fn max(a: Self::Register, b: Self::Register) -> Self::Register;
    /// 2ⁿ, where n stands in the low bits of a lane, which are otherwise those of a multiple of 2⁹.
    unsafe fn power_of_two(n: Self::Register) -> Self::Register;

    /// The sum of all lanes, by halves.
    #[inline(always)]
    unsafe fn total(value: Self::Register) -> f32 {
        let mut lanes = [0.0; 16];
        // SAFETY: the buffer holds the lanes of the widest level.
        unsafe { Self::store(lanes.as_mut_ptr(), value) };
        let mut count = Self::LANES / 2;
        while count > 0 {
            for lane in 0..count {
                lanes[lane] += lanes[lane + count];
            }
            count /= 2;
        }
        lanes[0]
    }

    /// The largest of all lanes.
    #[inline(always)]
    unsafe fn largest(value: Self::Register) -> f32 {
        let mut lanes = [0.0; 16];
        // SAFETY: as above.
        unsafe { Self::store(lanes.as_mut_ptr(), value) };
        let mut count = Self::LANES / 2;
        while count > 0 {
            for lane in 0..count {
                let (a, b) = (lanes[lane], lanes[lane + count]);
                lanes[lane] = if a > b { a } else { b };
            }
            count /= 2;
        }
        lanes[0]
    }

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
    unsafe fn subtract(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }
    #[inline(always)]
    unsafe fn multiply(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }
    #[inline(always)]
    unsafe fn power_of_two(n: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| f32::from_bits((n[lane].to_bits() << 23).wrapping_add(127 << 23)))
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
