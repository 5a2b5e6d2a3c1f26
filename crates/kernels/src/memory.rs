//! Large buffers in large pages.
//!
//! A pass over memory looks up the address of every page that it enters. With the usual 4 KiB that takes about as long
//! as reading the page, in a virtual machine longer, and processors stop reading ahead at its end.

/// Bytes of a large page on x86-64 and most others.
const LARGE_PAGE: usize = 2 << 20;

/// `len` zeros, in large pages where they fill some and the system has them.
pub fn zeros(len: usize) -> Vec<f32> {
    let buffer = vec![0.0; len];
    advise(&buffer);
    buffer
}

/// Makes `buffer` hold `len` values, which may be anything; memory that it has is kept.
pub fn fit(buffer: &mut Vec<f32>, len: usize) {
    if buffer.capacity() < len {
        *buffer = Vec::new(); // the old memory goes before the new one comes
        *buffer = zeros(len);
    } else {
        buffer.resize(len, 0.0);
    }
}

/// Asks for large pages for a buffer that nobody has touched yet.
#[cfg(target_os = "linux")]
fn advise(buffer: &[f32]) {
    let range = buffer.as_ptr_range();
    let first = range.start.addr().next_multiple_of(LARGE_PAGE);
    let Some(whole) = range.end.addr().checked_sub(first).map(|len| len / LARGE_PAGE * LARGE_PAGE) else {
        return;
    };
    if whole == 0 {
        return;
    }
    let first = range.start.with_addr(first).cast_mut().cast();
    #[expect(unsafe_code, reason = "tells the system how a buffer will be used")]
    // SAFETY: the range lies inside the buffer, and this advice changes no content. A system that refuses it goes on with
    // small pages, which is what an error says.
    let _ = unsafe { libc::madvise(first, whole, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &[f32]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_length_are_zeros() {
        let page = LARGE_PAGE / size_of::<f32>();
        for len in [0, 1, page - 1, page, page + 1, 3 * page + 7] {
            let buffer = zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|value| value.to_bits() == 0));
        }
    }

    #[test]
    fn a_buffer_keeps_its_memory_while_it_is_enough() {
        let mut buffer = Vec::new();
        fit(&mut buffer, 1000);
        let at = buffer.as_ptr();
        fit(&mut buffer, 10);
        assert_eq!((buffer.len(), buffer.as_ptr()), (10, at));
        fit(&mut buffer, 1000);
        assert_eq!((buffer.len(), buffer.as_ptr()), (1000, at));
        fit(&mut buffer, 5000);
        assert_eq!(buffer.len(), 5000);
    }
}
