use super::*;

fn naive(a: &[f32], b: &[f32], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum();
        }
    }
    out
}

#[test]
fn the_threads_change_no_bit() {
    let (m, k, n) = (70, 500, 90);
    let values = |len: usize| (0..len).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
    let (a, b) = (values(m * k), values(k * n));
    let run = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let mut out = vec![0.0; m * n];
            matmul(&mut out, Edge::default(), View::new(&a, m, k), View::new(&b, k, n));
            out
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn bf16_rounds_the_operands_and_nothing_else() {
    let (m, k, n) = (7, 129, 33);
    let values = |len: usize, step: f32| (0..len).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
    let round =
        |values: &[f32]| values.iter().map(|&v| half::bf16::from_f32(v).to_f32()).collect::<Vec<f32>>();
    let expected = naive(&round(&a), &round(&b), m, k, n);
    let mut out = vec![0.0; m * n];
    let edge = Edge { precision: Precision::Bf16, ..Edge::default() };
    matmul(&mut out, edge, View::new(&a, m, k), View::new(&b, k, n));
    assert!(out.iter().zip(&expected).all(|(x, y)| (f64::from(*x) - y).abs() < 1e-4));
}

#[test]
#[should_panic(expected = "matrix ends at 12 in 11 values")]
fn a_view_beyond_its_buffer_is_refused() {
    let data = [0.0; 11];
    let _ = View::new(&data, 3, 4);
}
