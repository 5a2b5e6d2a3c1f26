//! What can go wrong in a kernel: always a caller's mistake, stated with the sizes at hand.

/// A kernel was asked for something it cannot compute.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Two sizes that must agree do not.
    #[error("{op}: {what} is {found}, expected {expected}")]
    Size {
        /// The operation.
        op: &'static str,
        /// Which size.
        what: &'static str,
        /// What was found.
        found: usize,
        /// What would be right.
        expected: usize,
    },
    /// A value outside its range.
    #[error("{op}: {what} is {found}; it must be {range}")]
    Range {
        /// The operation.
        op: &'static str,
        /// Which value.
        what: &'static str,
        /// What was found.
        found: f64,
        /// The allowed range in words.
        range: &'static str,
    },
    /// The fused kernels take contiguous 32-bit floats on the CPU.
    #[error("{op}: the CPU kernel takes contiguous f32, not {found}; use Ops::Reference for other tensors")]
    Storage {
        /// The operation.
        op: &'static str,
        /// Type or layout of the argument.
        found: String,
    },
}

impl From<KernelError> for candle_core::Error {
    fn from(error: KernelError) -> Self {
        Self::wrap(error)
    }
}

/// `Ok` when `found` is `expected`.
pub(crate) fn check_size(
    op: &'static str,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), KernelError> {
    if found == expected { Ok(()) } else { Err(KernelError::Size { op, what, found, expected }) }
}
