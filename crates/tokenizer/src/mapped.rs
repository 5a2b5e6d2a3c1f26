//! A file mapped into memory, so that one larger than memory can be gone through.

use std::fs::File;
use std::ops::{Deref, Range};

use memmap2::Mmap;

/// How much of a mapping is looked at before its pages are given back.
pub(crate) const BLOCK_BYTES: usize = 4 << 20;

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    #[expect(unsafe_code, reason = "mapping a file")]
    pub(crate) fn new(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is read-only. This program changes neither a text nor a token file in place;
        // another one that does changes what we see. Bytes are checked anew at every use as `str` and no
        // memory access depends on an id, so the worst is a wrong token or an error.
        unsafe { Mmap::map(file) }.map(Self)
    }

    /// Tells the system that this range is not needed for now.
    ///
    /// Pages of a mapping that were read count as memory of this process until then.
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "madvise on a mapping")]
    pub(crate) fn release(&self, range: Range<usize>) {
        // SAFETY: the mapping is shared and read-only, so a page dropped here is read from the file again at
        // the next access; slices into it stay valid. It is advice: an error means only that more memory
        // stays in use.
        let _ = unsafe {
            self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
    }

    #[cfg(not(unix))]
    pub(crate) fn release(&self, _range: Range<usize>) {}
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
