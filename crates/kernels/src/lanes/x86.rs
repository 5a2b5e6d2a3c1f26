//! The registers of x86-64: AVX2 with FMA, AVX-512, and the bf16 products of AVX-512.

#![expect(unsafe_code, reason = "intrinsics, each of the level that callers have detected")]
// Every unsafe block here rests on the contract of `Lanes` and `Words`: the level's instructions are there, and
// pointers are valid for a register. Transmutes are between registers of one size, all of whose bits are valid.

use super::{Lanes, Words};
use std::arch::x86_64::{
    __m256, __m256bh, __m256i, __m512, __m512bh, __m512i, _MM_HINT_ET0, _mm_prefetch, _mm256_add_epi32,
    _mm256_add_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps,
    _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
    _mm512_add_epi32, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtneps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_sub_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};
use std::mem::transmute;

/// Eight lanes.
pub(crate) struct Avx2;

impl Lanes for Avx2 {
    type Register = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m256) {
        // SAFETY: see the top of this file.
        unsafe { _mm256_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn subtract(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn power_of_two(n: __m256) -> __m256 {
        // SAFETY: see the top of this file.
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
            _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(127 << 23)))
        }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) };
    }
}

/// Sixteen lanes.
pub(crate) struct Avx512;

impl Lanes for Avx512 {
    type Register = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 12;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m512) {
        // SAFETY: see the top of this file.
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn subtract(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn power_of_two(n: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
            _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(127 << 23)))
        }
    }

    /// Four rounds: pairs of words, pairs of pairs, then quarters of registers twice.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, to: *mut f32, stride: usize) {
        // SAFETY: see the top of this file.
        unsafe {
            let (mut a, mut b) = ([_mm512_setzero_ps(); 16], [_mm512_setzero_ps(); 16]);
            for (row, register) in a.iter_mut().enumerate() {
                *register = _mm512_loadu_ps(from.add(16 * row));
            }
            for i in 0..8 {
                b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
                b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
            }
            for i in 0..4 {
                let pair = |at: usize| _mm512_castps_pd(b[4 * i + at]);
                a[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(0), pair(2)));
                a[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(0), pair(2)));
                a[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair(1), pair(3)));
                a[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair(1), pair(3)));
            }
            for i in 0..4 {
                b[i] = _mm512_shuffle_f32x4::<0x88>(a[i], a[4 + i]);
                b[4 + i] = _mm512_shuffle_f32x4::<0x88>(a[8 + i], a[12 + i]);
                b[8 + i] = _mm512_shuffle_f32x4::<0xdd>(a[i], a[4 + i]);
                b[12 + i] = _mm512_shuffle_f32x4::<0xdd>(a[8 + i], a[12 + i]);
            }
            for i in 0..4 {
                let (even, odd) = ((b[i], b[4 + i]), (b[8 + i], b[12 + i]));
                _mm512_storeu_ps(to.add(i * stride), _mm512_shuffle_f32x4::<0x88>(even.0, even.1));
                _mm512_storeu_ps(to.add((4 + i) * stride), _mm512_shuffle_f32x4::<0x88>(odd.0, odd.1));
                _mm512_storeu_ps(to.add((8 + i) * stride), _mm512_shuffle_f32x4::<0xdd>(even.0, even.1));
                _mm512_storeu_ps(to.add((12 + i) * stride), _mm512_shuffle_f32x4::<0xdd>(odd.0, odd.1));
            }
        }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) };
    }
}

/// Pairs of bf16, multiplied and summed in f32 by one instruction.
pub(crate) struct Pairs;

impl Words for Pairs {
    type On = Avx512;
    const PER_WORD: usize = 2;
    const IN_PLACE: bool = false;

    #[inline(always)]
    unsafe fn accumulate(sum: __m512, a: *const f32, b: __m512) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe {
            let a = transmute::<__m512, __m512bh>(_mm512_set1_ps(*a));
            _mm512_dpbf16_ps(sum, a, transmute::<__m512, __m512bh>(b))
        }
    }
    #[inline(always)]
    unsafe fn along(from: *const f32) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe {
            let pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from.add(16)), _mm512_loadu_ps(from));
            transmute::<__m512bh, __m512>(pairs)
        }
    }
    #[inline(always)]
    unsafe fn across(from: *const f32, stride: usize) -> __m512 {
        // SAFETY: see the top of this file.
        unsafe {
            let (low, high) = (halved(_mm512_loadu_ps(from)), halved(_mm512_loadu_ps(from.add(stride))));
            _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32::<16>(high)))
        }
    }
}

/// Each number as bf16 in the low half of its lane.
#[inline(always)]
unsafe fn halved(values: __m512) -> __m512i {
    // SAFETY: see the top of this file.
    unsafe { _mm512_cvtepu16_epi32(transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(values))) }
}
