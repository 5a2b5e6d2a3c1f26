//! Random vectors for the topics that need some; the same every time.

use candle_core::{Device, Result, Tensor};
use softdict_random::{Purpose, Stream};

/// Normal numbers of variance 1; each topic has its own substream.
pub(super) fn normal(shape: &[usize], topic: u64) -> Result<Tensor> {
    let mut stream = Stream::new(0, Purpose::Init, topic);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| stream.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// The largest difference between two tensors.
pub(super) fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}
