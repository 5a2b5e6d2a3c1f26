//! Why scores are divided by √d: entropy and gradient as vectors grow longer.
//!
//! # Source
//! "Attention is a lookup table you learn", section "Where they come from": q and k of unit variance have a dot product of
//! variance d; without scaling the softmax saturates and gradients vanish.

mod learning;

use super::random::normal;
use candle_core::Var;
use softdict_kernels::attention::{self, Options};
use std::fmt::Write;

const WIDTHS: [usize; 6] = [4, 16, 64, 256, 1024, 4096];
/// Rows and keys that are averaged over.
const TOKENS: usize = 64;

/// What a scale does to random queries and keys of unit variance.
struct Found {
    /// Variance of query · key.
    variance: f64,
    /// Mean entropy of a row over its maximum: 1 uniform, 0 one key.
    entropy: f64,
    /// Size of the gradient of what a query takes along with respect to the query: of the median query, and root mean square.
    gradient: [f64; 2],
}

fn find(width: usize, scaled: bool) -> candle_core::Result<Found> {
    let q = Var::from_tensor(&normal(&[1, 1, TOKENS, width], 1)?)?;
    let (k, v) = (normal(&[1, 1, TOKENS, width], 2)?, normal(&[1, 1, TOKENS, 1], 3)?);
    let scale = if scaled { 1.0 / (width as f32).sqrt() } else { 1.0 };
    let dots: Vec<f32> = q.matmul(&k.transpose(2, 3)?.contiguous()?)?.flatten_all()?.to_vec1()?;
    let pattern = attention::pattern(Options::plain(false, scale), &q, &k)?;
    let weights: Vec<f32> = pattern.flatten_all()?.to_vec1()?;
    let entropy: f64 =
        weights.iter().filter(|weight| **weight > 0.0).map(|&weight| -f64::from(weight * weight.ln())).sum();
    let store = pattern.matmul(&v)?.sum_all()?.backward()?;
    let rows = match store.get(&q) {
        Some(gradient) => gradient.sqr()?.mean(3)?.flatten_all()?.to_vec1::<f32>()?,
        None => Vec::new(),
    };
    // per unit of the scores, so that only the softmax is compared
    let mut rows: Vec<f64> = rows.iter().map(|&square| f64::from(square).sqrt() / f64::from(scale)).collect();
    rows.sort_by(f64::total_cmp);
    let mean_square = rows.iter().map(|row| row * row).sum::<f64>() / rows.len() as f64;
    let gradient = [rows.get(rows.len() / 2).copied().unwrap_or(f64::NAN), mean_square.sqrt()];
    Ok(Found {
        variance: dots.iter().map(|&dot| f64::from(dot).powi(2)).sum::<f64>() / dots.len() as f64,
        entropy: entropy / (TOKENS as f64 * (TOKENS as f64).ln()),
        gradient,
    })
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = format!(
        "SCALE: softmax(q · k / √d), and what happens without the √d\n\n\
         Random queries and {TOKENS} keys, components of variance 1. Entropy: 1 is uniform, 0 one key alone. Gradient: of what a\n\
         query takes along with respect to the query, of the median query, the scale itself divided out.\n\n\
         \x20    d  variance of q · k      entropy with √d / without    gradient with √d / without\n"
    );
    for width in WIDTHS {
        let (with, without) = (find(width, true)?, find(width, false)?);
        writeln!(
            text,
            "  {width:>4}  {:>17.1}  {:>20.3} / {:<7.3}  {:>18.4} / {:.1e}",
            with.variance, with.entropy, without.entropy, with.gradient[0], without.gradient[0]
        )?;
    }
    let (first, last) = (WIDTHS[0], WIDTHS[WIDTHS.len() - 1]);
    let (narrow, wide) = (find(first, false)?, find(last, false)?);
    let fixed = find(last, true)?;
    write!(
        text,
        "\nThe document says: the dot product of d components of unit variance has variance d.\n\
         \x20 borne out: {:.0} at d = {last}\n\
         The document says: without scaling the softmax saturates as the model gets wider, and gradients vanish.\n\
         \x20 borne out for most queries: entropy falls from {:.3} to {:.3}, with √d it stays at {:.3}; the median query's gradient\n\
         \x20 falls from {:.4} to {:.0e}\n\
         \x20 not for all: a few queries stand between two keys and have a large one, so the root mean square only falls from\n\
         \x20 {:.3} to {:.3}\n\
         {}",
        wide.variance,
        narrow.entropy,
        wide.entropy,
        fixed.entropy,
        narrow.gradient[0],
        wide.gradient[0],
        narrow.gradient[1],
        wide.gradient[1],
        learning::section()?,
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_root_the_softmax_saturates_with_width() {
        let entropy = |scaled| WIDTHS.map(|width| find(width, scaled).unwrap().entropy);
        let (with, without) = (entropy(true), entropy(false));
        assert!(with.iter().all(|entropy| (0.8..0.95).contains(entropy)), "{with:?}");
        assert!(without.iter().rev().is_sorted() && without[5] < 0.05, "{without:?}");
        for width in WIDTHS {
            let ratio = find(width, true).unwrap().variance / width as f64;
            assert!((0.7..1.3).contains(&ratio), "{width}: {ratio}");
        }
        assert!(find(4096, false).unwrap().gradient[0] < 1e-3 * find(4, false).unwrap().gradient[0]);
        assert!(find(4096, true).unwrap().gradient[0] > 0.5 * find(4, true).unwrap().gradient[0]);
    }
}
