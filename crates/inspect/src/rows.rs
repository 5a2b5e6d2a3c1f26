//! What makes a row of numbers an attention row.

use crate::error::InspectError;

/// How far a row's sum may be from 1: f32 rounding over thousands of keys stays well below it, and a
/// wrong softmax or a dropped weight does not.
const ROW_SUM_TOLERANCE: f64 = 1e-3;

/// What is wrong with a row, before it is known whose row it is.
pub(crate) enum Fault {
    Weight { key: usize, weight: f32 },
    Future { key: usize, weight: f32 },
    Sum(f64),
}

impl Fault {
    /// The error, once it is known whose row it is.
    pub(crate) fn at(self, layer: usize, head: usize, row: usize) -> InspectError {
        match self {
            Self::Weight { key, weight } => InspectError::Weight { layer, head, row, key, weight },
            Self::Future { key, weight } => InspectError::Future { layer, head, row, key, weight },
            Self::Sum(sum) => InspectError::RowSum { layer, head, row, sum },
        }
    }
}

/// Whether weights are those of one query: between 0 and 1, summing to 1, and none on later tokens of a causal model.
pub(crate) fn check_row(weights: &[f32], row: usize, causal: bool) -> std::result::Result<(), Fault> {
    let mut sum = 0.0;
    for (key, &weight) in weights.iter().enumerate() {
        // also refuses NaN, which compares with nothing
        if !(0.0..=1.0 + ROW_SUM_TOLERANCE).contains(&f64::from(weight)) {
            return Err(Fault::Weight { key, weight });
        }
        if causal && key > row && weight != 0.0 {
            return Err(Fault::Future { key, weight });
        }
        sum += f64::from(weight);
    }
    if (sum - 1.0).abs() > ROW_SUM_TOLERANCE { Err(Fault::Sum(sum)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(weights: &[f32], row: usize, causal: bool) -> String {
        check_row(weights, row, causal).map_err(|fault| fault.at(1, 2, row).to_string()).unwrap_err()
    }

    #[test]
    fn a_row_sums_to_one_and_sees_no_later_token() {
        for weights in [&[1.0][..], &[0.25, 0.75], &[0.0, 1.0, 0.0]] {
            assert!(check_row(weights, 1, true).is_ok(), "{weights:?}");
        }
        assert!(check_row(&[0.5, 0.5], 0, false).is_ok());
        assert!(
            wrong(&[0.5, 0.5], 0, true).contains("layer 1, head 2, row 0: weight 0.5 on the later token 1")
        );
        assert!(wrong(&[0.5, 0.4], 1, true).contains("sum to 0.9"));
        assert!(wrong(&[f32::NAN], 0, true).contains("NaN") && wrong(&[1.5, -0.5], 1, true).contains("1.5"));
    }
}
