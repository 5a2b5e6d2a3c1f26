use super::*;

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
#[should_panic(expected = "matrix ends at 12 in 11 values")]
fn a_view_beyond_its_buffer_is_refused() {
    let data = [0.0; 11];
    let _ = View::new(&data, 3, 4);
}
