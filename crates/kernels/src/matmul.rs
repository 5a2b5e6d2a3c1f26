//! Matrix products over strided views, on one thread; the callers split the work.

use crate::parallel::Shared;

/// A matrix somewhere in a slice: element (r, c) is at `offset + r·row_stride + c·col_stride`.
#[derive(Clone, Copy)]
pub struct View<'a> {
    data: &'a [f32],
    place: Place,
}

/// The place of a matrix in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
}

impl Place {
    /// The index after the last element.
    fn end(&self) -> usize {
        if self.rows == 0 || self.cols == 0 {
            return 0;
        }
        self.offset + (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride + 1
    }
}

impl<'a> View<'a> {
    /// A row-major matrix that fills `data`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, Place { offset: 0, rows, cols, row_stride: cols, col_stride: 1 })
    }

    pub(crate) fn strided(data: &'a [f32], place: Place) -> Self {
        assert!(place.end() <= data.len(), "matrix ends at {} in {} values", place.end(), data.len());
        Self { data, place }
    }

    /// The transpose, without moving anything.
    #[must_use]
    pub fn t(self) -> Self {
        let Place { offset, rows, cols, row_stride, col_stride } = self.place;
        let place = Place { offset, rows: cols, cols: rows, row_stride: col_stride, col_stride: row_stride };
        Self { data: self.data, place }
    }
}

/// What happens to the destination's old values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Into {
    /// They are overwritten.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// `out = scale·a·b`, or `out += scale·a·b`, for a row-major `out` of `a`'s rows and `b`'s columns.
pub fn matmul(out: &mut [f32], into: Into, scale: f32, a: View<'_>, b: View<'_>) {
    let (rows, cols) = (a.place.rows, b.place.cols);
    let place = Place { offset: 0, rows, cols, row_stride: cols, col_stride: 1 };
    product(Shared::new(out), place, into, scale, a, b);
}

/// As [`matmul`], into a strided place of a buffer that other tasks write elsewhere at the same time.
#[expect(
    unsafe_code,
    reason = "gemm takes pointers; the views and the place are checked against their buffers"
)]
pub(crate) fn product(out: Shared, place: Place, into: Into, scale: f32, a: View<'_>, b: View<'_>) {
    assert_eq!(a.place.cols, b.place.rows, "inner sizes of a product");
    assert_eq!((place.rows, place.cols), (a.place.rows, b.place.cols), "size of a product");
    assert!(place.end() <= out.len(), "product ends at {} in {} values", place.end(), out.len());
    if place.rows == 0 || place.cols == 0 {
        return;
    }
    // SAFETY: every address that gemm reads or writes lies between an offset and an end checked above, and
    // no other task touches the elements of `place` (the contract of `Shared`).
    unsafe {
        gemm::gemm(
            place.rows,
            place.cols,
            a.place.cols,
            out.at(place.offset),
            place.col_stride as isize,
            place.row_stride as isize,
            into == Into::Add,
            a.data.as_ptr().add(a.place.offset),
            a.place.col_stride as isize,
            a.place.row_stride as isize,
            b.data.as_ptr().add(b.place.offset),
            b.place.col_stride as isize,
            b.place.row_stride as isize,
            1.0f32,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(a: &[f32], b: &[f32], m: usize, k: usize, n: usize) -> Vec<f32> {
        let mut out = vec![0.0; m * n];
        for i in 0..m {
            for j in 0..n {
                out[i * n + j] = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
            }
        }
        out
    }

    fn ramp(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 37 % 17) as f32 - 8.0) / 8.0).collect()
    }

    #[test]
    fn products_match_the_definition() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (17, 33, 9), (64, 32, 65)] {
            let (a, b) = (ramp(m * k), ramp(k * n));
            let expected = naive(&a, &b, m, k, n);
            let mut out = vec![1.0; m * n];
            matmul(&mut out, Into::Overwrite, 1.0, View::new(&a, m, k), View::new(&b, k, n));
            assert!(out.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-4));
            matmul(&mut out, Into::Add, 2.0, View::new(&a, m, k), View::new(&b, k, n));
            assert!(out.iter().zip(&expected).all(|(x, y)| (x - 3.0 * y).abs() < 1e-4));
        }
    }

    #[test]
    fn transposes_need_no_copy() {
        let (a, b) = (ramp(12), ramp(20)); // a: (3, 4) read as its transpose (4, 3); b: (5, 4)ᵀ
        let transposed: Vec<f32> = (0..20).map(|i| b[(i % 5) * 4 + i / 5]).collect();
        let mut out = vec![0.0; 15];
        matmul(&mut out, Into::Overwrite, 1.0, View::new(&a, 3, 4), View::new(&b, 5, 4).t());
        assert_eq!(out, naive(&a, &transposed, 3, 4, 5));
    }

    #[test]
    #[should_panic(expected = "matrix ends at 12 in 11 values")]
    fn a_view_beyond_its_buffer_is_refused() {
        let data = [0.0; 11];
        let _ = View::new(&data, 3, 4);
    }
}
