//! Run-time choice of the vector width, and the elementary functions that vectorise with it.
//!
//! `vectorized!` compiles one body three times (AVX-512, AVX2 with FMA, and the target's baseline) and
//! picks one at run time, so no `-C target-cpu` is needed. The bodies are plain loops without branches on
//! the data; sums keep sixteen partial sums so that they vectorise without reordering freedom.

use std::sync::atomic::{AtomicU8, Ordering};

/// A set of instructions that the kernels can be compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the target.
    Portable = 1,
    /// 8 lanes.
    Avx2 = 2,
    /// 16 lanes.
    Avx512 = 3,
    /// 16 lanes, and matrix products of bf16.
    Avx512Bf16 = 4,
}

impl std::fmt::Display for Level {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "no vector instructions beyond the target's own",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Avx512Bf16 => "AVX-512 with bf16",
        })
    }
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The level in use: the best that this processor has, unless [`force`] said otherwise.
#[inline]
pub fn level() -> Level {
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Avx2,
        3 => Level::Avx512,
        4 => Level::Avx512Bf16,
        _ => {
            let best = detect();
            CHOSEN.store(best as u8, Ordering::Relaxed);
            best
        }
    }
}

/// The best level that this processor has.
pub fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            let bf16 = is_x86_feature_detected!("avx512bf16");
            return if bf16 { Level::Avx512Bf16 } else { Level::Avx512 };
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Portable
}

/// Uses `wanted`, or the best level below it that this processor has, for the whole process; returns what is
/// used from now on.
pub fn force(wanted: Level) -> Level {
    let used = wanted.min(detect());
    CHOSEN.store(used as u8, Ordering::Relaxed);
    used
}

/// Defines functions whose bodies are compiled for every [`Level`] and chosen at run time.
macro_rules! vectorized {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[expect(unsafe_code, reason = "calls a function compiled for instructions that were detected")]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

                match $crate::simd::level() {
                    // SAFETY: `level` is never above what `detect` found on this processor.
                    $crate::simd::Level::Avx512 | $crate::simd::Level::Avx512Bf16 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            body($($arg),*)
        }
    )*};
}
pub(crate) use vectorized;

/// Partial sums kept by a reduction: one AVX-512 register.
const LANES: usize = 16;

/// Σ `term(i)` over `0..len` with sixteen partial sums.
#[inline(always)]
pub(crate) fn sum(len: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let whole = len / LANES * LANES;
    let mut start = 0;
    while start < whole {
        for (lane, partial) in lanes.iter_mut().enumerate() {
            *partial += term(start + lane);
        }
        start += LANES;
    }
    let mut total = 0.0;
    for partial in lanes {
        total += partial;
    }
    for index in whole..len {
        total += term(index);
    }
    total
}

/// The largest of `values`; −∞ when there are none.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (best, &value) in lanes.iter_mut().zip(chunk) {
            *best = if value > *best { value } else { *best };
        }
    }
    let mut largest = f32::NEG_INFINITY;
    for &value in lanes.iter().chain(chunks.remainder()) {
        largest = if value > largest { value } else { largest };
    }
    largest
}

/// eˣ, relative error below 2e-7; results below 1.2e-38 are given as about 1.2e-38.
///
/// # Source
/// Cephes `expf` (Moshier 1989): x = n·ln 2 + r, a polynomial of degree six in r, the exponent set through the bits.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // 1.5·2²³: adding it leaves the rounded integer in the low bits
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first exact in few bits, so that n·ln 2 loses nothing
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut polynomial = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        polynomial = polynomial * r + coefficient;
    }
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    (polynomial * r * r + r + 1.0) * scale
}

/// erf(x), absolute error below 5e-7.
///
/// # Source
/// The rational approximation of Eigen (`generic_fast_erf_float`): x·P(x²)/Q(x²) on [−4, 4].
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let x2 = x * x;
    let mut numerator = -2.726_142_3e-10;
    for coefficient in
        [2.770_681_4e-8, -2.101_024e-6, -5.692_506_5e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2]
    {
        numerator = numerator * x2 + coefficient;
    }
    let mut denominator = -1.456_607_2e-5;
    for coefficient in [-2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_474e-2] {
        denominator = denominator * x2 + coefficient;
    }
    x * numerator / denominator
}

/// tanh(x), absolute error below 3e-7.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

vectorized! {
    /// Σ aᵢ·bᵢ over the shorter of the two.
    pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
        let len = a.len().min(b.len());
        let (a, b) = (&a[..len], &b[..len]);
        sum(len, |i| a[i] * b[i])
    }

    /// aᵢ += bᵢ.
    pub fn add_assign(a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(low: f32, high: f32) -> impl Iterator<Item = f32> {
        (0..=20_000).map(move |i| low + (high - low) * i as f32 / 20_000.0)
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        for x in grid(-87.0, 88.0) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            // 2e-7 is about 1.7 units in the last place
            assert!(error < 2e-7, "exp({x}): {error}");
        }
        assert!(exp(f32::NEG_INFINITY) < 1.3e-38);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn erf_and_tanh_are_right() {
        // erf by its Maclaurin series in f64, exact to 1e-12 on this range
        let series = |x: f64| {
            let (mut term, mut total) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                total += term / f64::from(2 * n + 1);
            }
            total * std::f64::consts::FRAC_2_SQRT_PI
        };
        for x in grid(-4.2, 4.2) {
            let error = (f64::from(erf(x)) - series(f64::from(x))).abs();
            assert!(error < 5e-7, "erf({x}): {error}");
        }
        for x in grid(-12.0, 12.0) {
            let error = (f64::from(tanh(x)) - f64::from(x).tanh()).abs();
            assert!(error < 3e-7, "tanh({x}): {error}");
        }
    }

    #[test]
    fn sums_and_maxima_cover_every_length() {
        for len in 0..40 {
            let values: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32).collect();
            assert!((dot(&values, &values) - values.iter().map(|v| v * v).sum::<f32>()).abs() < 1e-6);
            let expected = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert!(max(&values) == expected);
        }
    }
}
