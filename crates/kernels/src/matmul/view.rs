//! Matrices inside slices.

use std::ops::Range;

/// A matrix somewhere in a slice: element (r, c) is at `offset + r·row_stride + c·col_stride`.
#[derive(Clone, Copy)]
pub struct View<'a> {
    data: &'a [f32],
    pub(crate) place: Place,
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
    pub(crate) fn end(&self) -> usize {
        if self.rows == 0 || self.cols == 0 {
            return 0;
        }
        self.index(self.rows - 1, self.cols - 1) + 1
    }

    fn index(&self, row: usize, column: usize) -> usize {
        self.offset + row * self.row_stride + column * self.col_stride
    }

    pub(crate) fn t(self) -> Self {
        let Self { offset, rows, cols, row_stride, col_stride } = self;
        Self { offset, rows: cols, cols: rows, row_stride: col_stride, col_stride: row_stride }
    }

    pub(crate) fn some_rows(self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows up to {} of {}", rows.end, self.rows);
        Self { offset: self.offset + rows.start * self.row_stride, rows: rows.len(), ..self }
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
        Self { data: self.data, place: self.place.t() }
    }

    pub(crate) fn some_rows(self, rows: Range<usize>) -> Self {
        Self { data: self.data, place: self.place.some_rows(rows) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.place.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.place.cols
    }

    /// The address of an element.
    pub(crate) fn at(&self, row: usize, column: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(self.place.index(row, column))
    }

    /// Whether `count` values of the buffer follow from an element on.
    pub(crate) fn goes_on(&self, (row, column): (usize, usize), count: usize) -> bool {
        self.place.index(row, column) + count <= self.data.len()
    }

    /// The same matrix with a stride of 1 along its rows or columns; a side of length one has any stride.
    ///
    /// # Panics
    /// When neither is contiguous: no product of this workspace has such operands.
    pub(crate) fn readable(mut self) -> Self {
        if self.place.cols < 2 {
            self.place.col_stride = 1;
        } else if self.place.col_stride != 1 && self.place.rows < 2 {
            self.place.row_stride = 1;
        }
        assert!(
            self.place.col_stride == 1 || self.place.row_stride == 1,
            "an operand that is contiguous nowhere"
        );
        self
    }
}
