//! Linear layers: y = x·Wᵀ + b, with the bias and a residual added at the product's edge.

use crate::decode;
use crate::error::check_size;
use crate::matmul::{Edge, Precision, View, matmul};
use crate::op::{host, output, rows_and_width, tensor, values};
use crate::parallel::{each, share};
use crate::simd::vectorized;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};

/// Sizes of a linear layer: `inputs` K and `outputs` N.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Width of the input.
    pub inputs: usize,
    /// Width of the output.
    pub outputs: usize,
}

/// y = x·Wᵀ + b + residual.
///
/// # Shapes
/// `x` `(M, K)`, `weight` `(N, K)`, `bias` `(N)`, `residual` and `y` `(M, N)`.
pub fn forward(
    size: Size,
    precision: Precision,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    y: &mut [f32],
) {
    let Size { inputs, outputs } = size;
    let rows = x.len() / inputs;
    if rows == 1 && precision == Precision::F32 {
        return decode::linear(size, x, weight, bias, residual, y);
    }
    let residual = residual.map(|residual| View::new(residual, rows, outputs));
    let edge = Edge { bias, residual, precision, ..Edge::default() };
    matmul(y, edge, View::new(x, rows, inputs), View::new(weight, outputs, inputs).t());
}

/// dx = dy·W, overwriting `dx`.
///
/// # Shapes
/// `dy` `(M, N)`, `weight` `(N, K)`, `dx` `(M, K)`.
pub fn backward_input(size: Size, precision: Precision, dy: &[f32], weight: &[f32], dx: &mut [f32]) {
    let Size { inputs, outputs } = size;
    let edge = Edge { precision, ..Edge::default() };
    matmul(dx, edge, View::new(dy, dy.len() / outputs, outputs), View::new(weight, outputs, inputs));
}

/// dW += dyᵀ·x.
///
/// # Shapes
/// `dy` `(M, N)`, `x` `(M, K)`, `dweight` `(N, K)`.
pub fn backward_weight(size: Size, precision: Precision, dy: &[f32], x: &[f32], dweight: &mut [f32]) {
    let Size { inputs, outputs } = size;
    let rows = dy.len() / outputs;
    let edge = Edge { precision, ..Edge::accumulate() };
    matmul(dweight, edge, View::new(dy, rows, outputs).t(), View::new(x, rows, inputs));
}

vectorized! {
    /// total += Σ over rows of the columns from `first` on, of rows of `width`: memory is read in long runs.
    fn add_columns(rows: &[f32], width: usize, first: usize, total: &mut [f32]) {
        let columns = first..first + total.len();
        for row in rows.chunks_exact(width) {
            for (total, value) in total.iter_mut().zip(&row[columns.clone()]) {
                *total += value;
            }
        }
    }
}

/// db += Σ over rows of dy.
///
/// # Shapes
/// `dy` `(M, N)`, `dbias` `(N)`.
pub fn backward_bias(dy: &[f32], dbias: &mut [f32]) {
    let outputs = dbias.len();
    let piece = share(outputs);
    each(dbias.chunks_mut(piece).enumerate(), |(index, dbias)| {
        add_columns(dy, outputs, index * piece, dbias);
    });
}

struct Linear;

impl Linear {
    fn run(
        x: (&CpuStorage, &Layout),
        weight: (&CpuStorage, &Layout),
        bias: Option<&[f32]>,
    ) -> Result<(CpuStorage, Shape)> {
        let (outputs, inputs) = weight.1.shape().dims2()?;
        let (rows, width) = rows_and_width(x.1.shape());
        check_size("linear", "input width", width, inputs)?;
        if let Some(bias) = bias {
            check_size("linear", "bias length", bias.len(), outputs)?;
        }
        let mut y = vec![0.0; rows * outputs];
        let (x_values, weight) = (values("linear", x.0, x.1)?, values("linear", weight.0, weight.1)?);
        forward(Size { inputs, outputs }, Precision::F32, x_values, weight, bias, None, &mut y);
        let mut dims = x.1.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = outputs;
        }
        Ok(output(y, dims))
    }

    fn gradients(x: &Tensor, weight: &Tensor, dy: &Tensor) -> Result<(Tensor, Tensor, Vec<f32>)> {
        let (outputs, inputs) = weight.dims2()?;
        let size = Size { inputs, outputs };
        let (dy, mut dx, mut dweight) =
            (host(dy)?, vec![0.0; x.elem_count()], vec![0.0; weight.elem_count()]);
        backward_input(size, Precision::F32, &dy, &host(weight)?, &mut dx);
        backward_weight(size, Precision::F32, &dy, &host(x)?, &mut dweight);
        Ok((tensor(dx, x.shape())?, tensor(dweight, weight.shape())?, dy))
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        w: &CpuStorage,
        lw: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Self::run((x, lx), (w, lw), None)
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dx, dw, _) = Self::gradients(x, w, dy)?;
        Ok((Some(dx), Some(dw)))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        w: &CpuStorage,
        lw: &Layout,
        b: &CpuStorage,
        lb: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Self::run((x, lx), (w, lw), Some(values("linear", b, lb)?))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (dx, dw, dy) = Self::gradients(x, w, dy)?;
        let mut db = vec![0.0; b.elem_count()];
        backward_bias(&dy, &mut db);
        Ok((Some(dx), Some(dw), Some(tensor(db, b.shape())?)))
    }
}

/// The fused linear layer as a differentiable candle operation.
///
/// # Shapes
/// `x` `(…, K)`, `weight` `(N, K)`, `bias` `(N)`; returns `(…, N)`.
pub fn fused(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    match bias {
        Some(bias) => x.apply_op3(weight, bias, Linear),
        None => x.apply_op2(weight, Linear),
    }
}

/// The same from plain candle operations, on any device and in any float type.
pub fn reference(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (outputs, inputs) = weight.dims2()?;
    let y = x.reshape(((), inputs))?.matmul(&weight.t()?)?; // (M, N)
    let y = match bias {
        Some(bias) => y.broadcast_add(bias)?,
        None => y,
    };
    let mut dims = x.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    y.reshape(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn linear_and_its_gradients_are_right() {
        for rows in [1, 5] {
            let shapes: [&[usize]; 3] = [&[rows, 7], &[3, 7], &[3]];
            gradcheck(
                &shapes,
                |t| fused(&t[0], &t[1], Some(&t[2])),
                |t| reference(&t[0], &t[1], Some(&t[2])),
            );
            gradcheck(&shapes[..2], |t| fused(&t[0], &t[1], None), |t| reference(&t[0], &t[1], None));
        }
    }

    #[test]
    fn a_residual_is_added_and_gradients_accumulate() {
        let size = Size { inputs: 2, outputs: 1 };
        let mut y = [0.0; 2];
        forward(
            size,
            Precision::F32,
            &[1.0, 2.0, 3.0, 4.0],
            &[10.0, 1.0],
            Some(&[0.5]),
            Some(&[100.0, 200.0]),
            &mut y,
        );
        assert_eq!(y, [112.5, 234.5]);
        let mut dweight = [1.0, 1.0];
        backward_weight(size, Precision::F32, &[1.0, 2.0], &[1.0, 2.0, 3.0, 4.0], &mut dweight);
        assert_eq!(dweight, [8.0, 11.0]);
        let mut dbias = [1.0];
        backward_bias(&[1.0, 2.0], &mut dbias);
        assert_eq!(dbias, [4.0]);
    }

    #[test]
    fn sizes_that_disagree_are_named() {
        let device = candle_core::Device::Cpu;
        let x = Tensor::zeros((2, 3), candle_core::DType::F32, &device).unwrap();
        let weight = Tensor::zeros((4, 5), candle_core::DType::F32, &device).unwrap();
        let message = fused(&x, &weight, None).unwrap_err().to_string();
        assert!(message.contains("input width is 3, expected 5"), "{message}");
    }
}
