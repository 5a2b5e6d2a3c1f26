//! `bench`, and training in bf16.

use crate::support::Lab;

#[test]
fn bench_times_one_work_and_refuses_unknown_ones() {
    let lab = Lab::new();
    let report = lab.softdict(&["bench", "--work", "D256", "--dtype", "bf16", "--json"]).ok().json();
    let training = &report["training"][0];
    assert_eq!((training["work"].as_str(), training["dtype"].as_str()), (Some("D256"), Some("bf16")));
    let (rate, time) =
        (training["tokens_per_second"].as_f64().unwrap(), training["milliseconds"].as_f64().unwrap());
    assert!((rate * time / 1e3 - 256.0).abs() < 1e-6, "{training}");
    assert!(training["gflops"].as_f64().unwrap() > 0.0);
    lab.softdict(&["bench", "--work", "E"]).fails(2).says(&["--work E", "D16384"]);
}

#[test]
fn bf16_trains_to_the_same_loss_by_other_products() {
    let lab = Lab::new();
    let loss = |out: &str, dtype: &str| {
        lab.train(out, &["train.steps=60", &format!("train.dtype={dtype}")]).ok();
        lab.events(out, "eval").last().unwrap()["val_loss"].as_f64().unwrap()
    };
    let (exact, rounded) = (loss("f32", "f32"), loss("bf16", "bf16"));
    assert!((exact - rounded).abs() < 0.01, "{exact} {rounded}");
    assert!(exact.to_bits() != rounded.to_bits(), "bf16 changed nothing");
}

#[test]
fn a_run_goes_on_in_its_own_precision_only() {
    let lab = Lab::trained(&["train.dtype=bf16"]);
    lab.resume("run", &["train.steps=30", "train.dtype=f32"]).fails(1).says(&["train.dtype", "f32", "bf16"]);
    lab.resume("run", &["train.steps=30"]).ok();
}
