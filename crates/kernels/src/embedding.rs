//! Embedding: rows of a table, chosen by token id; backward adds each row's gradient where it came from.

use crate::error::KernelError;
use crate::op::{host, output, tensor, values};
use crate::parallel::{Shared, ranges};
use crate::simd::add_assign;
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use std::sync::Arc;

/// Each id's row of the table.
///
/// # Shapes
/// `table` `(V, C)` with `width` C, `ids` M, `out` `(M, C)`.
/// # Errors
/// When an id has no row.
pub fn forward(
    table: &[f32],
    width: usize,
    ids: &[u32],
    out: &mut [f32],
) -> std::result::Result<(), KernelError> {
    for (&id, out) in ids.iter().zip(out.chunks_exact_mut(width)) {
        let start = id as usize * width;
        let row = table.get(start..start + width).ok_or(KernelError::Range {
            op: "embedding",
            what: "a token id",
            found: f64::from(id),
            range: "below the number of rows",
        })?;
        out.copy_from_slice(row);
    }
    Ok(())
}

/// Inverts [`forward`]: each id's row of dtable += dy, in the order of the ids, split over threads by columns.
///
/// # Shapes
/// `dy` `(M, C)`, `dtable` `(V, C)`; every id has a row.
pub fn backward(ids: &[u32], width: usize, dy: &[f32], dtable: &mut [f32]) {
    let shared = Shared::new(dtable);
    ranges(width, 16, |columns| {
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(width)) {
            let start = shared.at(id as usize * width + columns.start);
            let _ = shared.at(id as usize * width + columns.end);
            #[expect(unsafe_code, reason = "tasks own disjoint columns of the table's gradient")]
            // SAFETY: both ends lie inside the buffer, and no other task has these columns.
            let row = unsafe { std::slice::from_raw_parts_mut(start, columns.len()) };
            add_assign(row, &dy[columns.clone()]);
        }
    });
}

struct Embedding(Arc<[u32]>, Shape);

impl CustomOp1 for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu_fwd(&self, table: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let mut out = vec![0.0; self.0.len() * width];
        forward(values("embedding", table, layout)?, width, &self.0, &mut out)?;
        Ok(output(out, [self.1.dims(), &[width]].concat()))
    }

    fn bwd(&self, table: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let mut dtable = vec![0.0; table.elem_count()];
        backward(&self.0, table.dim(1)?, &host(dy)?, &mut dtable);
        Ok(Some(tensor(dtable, table.shape())?))
    }
}

/// The embedding as a differentiable candle operation.
///
/// # Shapes
/// `table` `(V, C)`, `ids` of any `shape`; returns `(shape…, C)`.
pub fn fused(table: &Tensor, ids: &Arc<[u32]>, shape: &[usize]) -> Result<Tensor> {
    table.apply_op1(Embedding(Arc::clone(ids), Shape::from(shape)))
}

/// The same from plain candle operations, on any device and in any float type.
pub fn reference(table: &Tensor, ids: &[u32], shape: &[usize]) -> Result<Tensor> {
    let width = table.dim(1)?;
    let ids = Tensor::from_slice(ids, ids.len(), &Device::Cpu)?.to_device(table.device())?;
    table.index_select(&ids, 0)?.reshape([shape, &[width]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn embedding_and_its_gradient_are_right() {
        let ids: Arc<[u32]> = Arc::new([2, 0, 2, 4, 1, 2]);
        gradcheck(&[&[5, 7]], |t| fused(&t[0], &ids, &[2, 3]), |t| reference(&t[0], &ids, &[2, 3]));
    }

    #[test]
    fn an_id_without_a_row_is_named() {
        let message = forward(&[0.0; 6], 2, &[3], &mut [0.0; 2]).unwrap_err().to_string();
        assert!(message.contains("token id is 3"), "{message}");
    }
}
