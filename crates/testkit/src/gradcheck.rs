//! Operations against their composed reference, and both against central differences in f64.

use candle_core::{DType, Device, Result, Tensor, Var};

/// Step of the central differences; their error is about step² = 1e-8 in f64.
const STEP: f64 = 1e-4;

/// What f32 arithmetic may add to a sum of some hundred products of size one.
const TOLERANCE: f64 = 2e-4;

/// Deterministic values in about [−1.2, 1.2], without ties or symmetry.
pub fn ramp(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1009) as f64 / 420.0 - 1.2).collect()
}

/// Panics unless every pair differs by at most `tolerance`·(1 + |expected|).
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths differ");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(
            error <= tolerance * (1.0 + expected.abs()),
            "{what}: element {index} is {found}, expected {expected} (difference {error:e})"
        );
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Checks an f32 operation against its f64 reference: values, and the gradient with respect to every input.
///
/// The scalar is Σ wᵢ·yᵢ with fixed uneven weights, so that no symmetric error cancels.
///
/// # Panics
/// When values or gradients differ, or when an input gets no gradient.
pub fn gradcheck(
    shapes: &[&[usize]],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let inputs: Vec<(Vec<usize>, Vec<f64>)> = shapes
        .iter()
        .enumerate()
        .map(|(seed, shape)| (shape.to_vec(), ramp(shape.iter().product(), seed)))
        .collect();
    gradcheck_with(&inputs, fused, reference);
}

/// As [`gradcheck`], at given inputs: pairs of shape and values.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradcheck_with(
    inputs: &[(Vec<usize>, Vec<f64>)],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let device = Device::Cpu;
    let make = |dtype: DType, changed: Option<(usize, usize, f64)>| -> Vec<Tensor> {
        inputs
            .iter()
            .enumerate()
            .map(|(which, (shape, values))| {
                let mut values = values.clone();
                if let Some((input, element, delta)) = changed
                    && input == which
                {
                    values[element] += delta;
                }
                Tensor::from_vec(values, shape.as_slice(), &device).unwrap().to_dtype(dtype).unwrap()
            })
            .collect()
    };
    let scalar = |y: &Tensor| -> Tensor {
        let weights: Vec<f64> = ramp(y.elem_count(), 99);
        let weights = Tensor::from_vec(weights, y.shape(), &device).unwrap().to_dtype(y.dtype()).unwrap();
        y.mul(&weights).unwrap().sum_all().unwrap()
    };
    let gradients = |dtype: DType, op: &dyn Fn(&[Tensor]) -> Result<Tensor>, name: &str| {
        let vars: Vec<Var> = make(dtype, None).iter().map(|t| Var::from_tensor(t).unwrap()).collect();
        let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
        let y = op(&tensors).unwrap();
        let store = scalar(&y).backward().unwrap();
        let all: Vec<Vec<f64>> = vars
            .iter()
            .enumerate()
            .map(|(index, var)| {
                let gradient =
                    store.get(var).unwrap_or_else(|| panic!("{name}: input {index} has no gradient"));
                numbers(gradient)
            })
            .collect();
        (numbers(&y), all)
    };

    let (fused_value, fused_gradients) = gradients(DType::F32, &fused, "fused");
    let (value, reference_gradients) = gradients(DType::F64, &reference, "reference");
    assert_close("fused value", &fused_value, &value, TOLERANCE);
    for (input, (_, values)) in inputs.iter().enumerate() {
        let numeric: Vec<f64> = (0..values.len())
            .map(|element| {
                let at = |delta| {
                    let y = reference(&make(DType::F64, Some((input, element, delta)))).unwrap();
                    scalar(&y).to_scalar::<f64>().unwrap()
                };
                (at(STEP) - at(-STEP)) / (2.0 * STEP)
            })
            .collect();
        let what = format!("gradient of input {input}");
        assert_close(&format!("reference {what}"), &reference_gradients[input], &numeric, 1e-5);
        assert_close(&format!("fused {what}"), &fused_gradients[input], &numeric, TOLERANCE);
        // an input whose gradient is zero everywhere would hide a detached tensor
        assert!(numeric.iter().any(|g| g.abs() > 1e-6), "{what} is zero everywhere: the check cannot fail");
    }
}
