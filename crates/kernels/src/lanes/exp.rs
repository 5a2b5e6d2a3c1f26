//! eˣ in registers.

use super::Lanes;

/// eˣ for x up to 88, relative error below 2e-7; what is below 1.2e-38 is given as about 1.2e-38, a NaN as itself.
///
/// The same as [`crate::simd::exp`], with fused products.
///
/// # Safety
/// The level's instructions are there.
/// # Source
/// Cephes `expf` (Moshier 1989): x = n·ln 2 + r, a polynomial of degree six in r, the exponent set through the bits.
#[inline(always)]
#[expect(unsafe_code, reason = "arithmetic in registers of a level")]
pub(crate) unsafe fn exp<L: Lanes>(x: L::Register) -> L::Register {
    // 1.5·2²³: adding it leaves the rounded integer in the low bits
    const ROUND: f32 = 12_582_912.0;
    // SAFETY: the same contract.
    unsafe {
        let x = L::max(L::splat(-87.3), x);
        let shifted = L::multiply_add(x, L::splat(std::f32::consts::LOG2_E), L::splat(ROUND));
        let n = L::subtract(shifted, L::splat(ROUND));
        // ln 2 in two parts, the first exact in few bits, so that n·ln 2 loses nothing
        let r = L::multiply_add(n, L::splat(-0.693_359_4), x);
        let r = L::multiply_add(n, L::splat(2.121_944_4e-4), r);
        let mut polynomial = L::splat(1.987_569_1e-4);
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            polynomial = L::multiply_add(polynomial, r, L::splat(coefficient));
        }
        let value = L::multiply_add(polynomial, L::multiply(r, r), L::add(r, L::splat(1.0)));
        L::multiply(value, L::power_of_two(shifted))
    }
}

#[cfg(test)]
mod tests {
    use super::exp;
    use crate::lanes::{Lanes, Words, by_level};

    #[inline(always)]
    fn all<W: Words>(values: &mut [f32]) {
        let mut at = 0;
        while at < values.len() {
            let pointer = values[at..at + W::On::LANES].as_mut_ptr();
            #[expect(unsafe_code, reason = "a register of a slice that holds whole ones")]
            // SAFETY: the slice is a register long, and `by_level` gives a level that is there.
            unsafe {
                W::On::store(pointer, exp::<W::On>(W::On::load(pointer)));
            }
            at += W::On::LANES;
        }
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let grid: Vec<f32> = (0..20_000).map(|i| -87.0 + 175.0 * i as f32 / 20_000.0).collect();
        let mut found = grid.clone();
        let values = found.as_mut_slice();
        by_level!(Exact, all(values: &mut [f32]));
        for (x, found) in grid.iter().zip(&found) {
            let exact = f64::from(*x).exp();
            let error = (f64::from(*found) - exact).abs() / exact;
            // 2e-7 is about 1.7 units in the last place
            assert!(error < 2e-7, "exp({x}): {error}");
        }
        let mut found = [f32::NAN; 32];
        found[0] = f32::NEG_INFINITY;
        let values = found.as_mut_slice();
        by_level!(Exact, all(values: &mut [f32]));
        assert!(found[0] < 1.3e-38 && found[1..].iter().all(|value| value.is_nan()));
    }
}
