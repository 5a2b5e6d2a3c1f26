//! The filters meet any logits and any options: a draw of what is there, or an error.

use softdict_random::{Purpose, Stream};
use softdict_sampler::{SampleOptions, draw, filter};
use softdict_testkit::fuzz;

const OPTIONS: &str = "temperature = 0.8\ntop_k = 200\ntop_p = 0.9\nmin_p = 0.05\nrepetition_penalty = 1.2\n\
                       stop = [\"x\", \"\\n\"]\ntokens = 20\nnum_samples = 2\nseed = 7\n";

#[test]
fn whatever_the_options_and_logits_a_token_is_drawn_or_an_error_told() {
    let logits: Vec<u8> = (0..40u8).flat_map(|i| (f32::from(i) * 0.37 - 7.0).to_le_bytes()).collect();
    let seed = [OPTIONS.as_bytes(), b"\0", &logits].concat();
    fuzz("sampler", &[seed], 200 << 20, &mut |bytes| {
        let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (options, logits) = (String::from_utf8_lossy(&bytes[..at]), &bytes[at..]);
        let options = toml::from_str::<SampleOptions>(&options).unwrap_or_default();
        if options.validate().is_err() {
            return;
        }
        let mut logits: Vec<f32> =
            logits.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let count = logits.len();
        if filter(&mut logits, &[0, 3, 3], &options).is_ok() {
            assert!(logits.iter().any(|logit| logit.is_finite()), "{options:?}");
            let id = draw(&logits, options.temperature, &mut Stream::new(1, Purpose::Sampling, 0)).unwrap();
            assert!((id as usize) < count && logits[id as usize].is_finite(), "{options:?}");
        }
    });
}
