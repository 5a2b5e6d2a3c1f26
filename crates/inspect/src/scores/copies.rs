//! Scores on ordinary text whose tokens come again: does a row look at its earlier copies, or at what followed them?
//!
//! Random blocks ([`super::repeated`]) prove that a head needs no memory of its training text, but a model that has
//! only ever seen tables of words may do nothing on them; these scores are on text that it knows.

use super::Pattern;

/// How much the row `query` looks at earlier copies of its token: Σ A[i, j] over j < i with the same token, 0 to 1; nothing
/// where there is no copy.
pub fn duplicate_in_text(pattern: &Pattern<'_>, ids: &[u32], query: usize) -> Option<f64> {
    sum_over_copies(ids, query, |copy| pattern.at(query, copy))
}

/// How much the row `query` looks at what followed earlier copies of its token and follows now again: Σ A[i, j + 1] over
/// j < i − 1 with the same token, 0 to 1; nothing where there is no such copy, or where one was followed by another token.
///
/// Where the text so far leaves no answer, or more than one, there is nothing to look up, so these rows do not count.
pub fn induction_in_text(pattern: &Pattern<'_>, ids: &[u32], query: usize) -> Option<f64> {
    let after = *ids.get(query + 1)?;
    let copies = || (0..query.saturating_sub(1)).filter(|&key| ids[key] == ids[query]);
    if copies().count() == 0 || copies().any(|copy| ids[copy + 1] != after) {
        return None;
    }
    Some(copies().map(|copy| pattern.at(query, copy + 1)).sum())
}

fn sum_over_copies(ids: &[u32], query: usize, value: impl Fn(usize) -> f64) -> Option<f64> {
    let mut copies = (0..query).filter(|&key| ids[key] == ids[query]).peekable();
    copies.peek()?;
    Some(copies.map(value).sum())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pattern, pointing};
    use super::*;

    const IDS: [u32; 6] = [7, 8, 9, 7, 7, 8];

    #[test]
    fn only_rows_with_a_copy_count_and_all_copies_do() {
        let copies = pointing(6, |query| [0, 1, 2, 0, 0, 1][query]);
        let values: Vec<_> = (0..6).map(|query| duplicate_in_text(&pattern(&copies), &IDS, query)).collect();
        assert_eq!(values, [None, None, None, Some(1.0), Some(1.0), Some(1.0)]);
        let mut both = vec![0.0; 36];
        (both[4 * 6], both[4 * 6 + 3]) = (0.25, 0.5);
        assert_eq!(duplicate_in_text(&pattern(&both), &IDS, 4), Some(0.75));
    }

    #[test]
    fn induction_counts_where_the_text_so_far_leaves_one_answer() {
        // 7 is always followed by 8, and 8 by 9 only once
        let ids = [7, 8, 9, 7, 8, 6, 7, 8];
        let after = pointing(8, |query| [0, 1, 2, 1, 2, 5, 1, 7][query]);
        let values: Vec<_> = (0..8).map(|query| induction_in_text(&pattern(&after), &ids, query)).collect();
        assert_eq!(values, [None, None, None, Some(1.0), None, None, Some(1.0), None]);
        // once two answers were seen, neither can be told
        let ambiguous = [8, 9, 8, 6, 8, 9];
        let first = pointing(6, |query| [0, 1, 1, 3, 1, 5][query]);
        assert_eq!(induction_in_text(&pattern(&first), &ambiguous, 4), None);
        // both earlier copies count, and the row itself never does
        let mut both = vec![0.0; 64];
        (both[6 * 8 + 1], both[6 * 8 + 4], both[6 * 8 + 6]) = (0.25, 0.5, 0.25);
        assert_eq!(induction_in_text(&pattern(&both), &ids, 6), Some(0.75));
    }
}
