//! What every candle custom operation of this crate needs: slices from storages, tensors from vectors.

use crate::error::KernelError;
use candle_core::{CpuStorage, DType, Device, Layout, Result, Shape, Tensor};

/// The values of a contiguous f32 argument.
pub(crate) fn values<'a>(op: &'static str, storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let CpuStorage::F32(data) = storage else {
        return Err(KernelError::Storage { op, found: format!("{:?}", dtype(storage)) }.into());
    };
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&data[start..end]),
        None => Err(KernelError::Storage { op, found: format!("strides {:?}", layout.stride()) }.into()),
    }
}

fn dtype(storage: &CpuStorage) -> DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

/// A copy of a tensor's values, row-major.
pub(crate) fn host(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

/// A CPU tensor that takes over `values`, outside every gradient.
pub(crate) fn tensor(values: Vec<f32>, shape: &Shape) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// What `cpu_fwd` returns.
pub(crate) fn output(values: Vec<f32>, shape: impl std::convert::Into<Shape>) -> (CpuStorage, Shape) {
    (CpuStorage::F32(values), shape.into())
}

/// (product of the leading sizes, last size) of a shape; a scalar is (1, 1).
pub(crate) fn rows_and_width(shape: &Shape) -> (usize, usize) {
    let dims = shape.dims();
    let width = dims.last().copied().unwrap_or(1);
    (shape.elem_count() / width.max(1), width)
}
