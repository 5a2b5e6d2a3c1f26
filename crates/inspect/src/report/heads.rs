//! All heads as one interactive page that works offline: a scatter of any two numbers, and for each head its scores, what
//! the model loses without it, how its scores grew, its dictionary, and the passages where it attends most.

use super::escape::markup;
use super::page::Page;
use crate::error::Result;
use crate::passages::Passage;
use crate::survey::HeadReport;
use serde::Serialize;
use std::io::Write;

const PAGE: Page = Page {
    template: include_str!("heads/page.html"),
    style: &[
        include_str!("html/page.css"),
        include_str!("heads/heads.css"),
        include_str!("html/print.css"),
        include_str!("heads/print.css"),
    ],
    script: &[
        include_str!("heads/data.js"),
        include_str!("heads/scatter.js"),
        include_str!("heads/growth.js"),
        include_str!("heads/head.js"),
        include_str!("heads/main.js"),
    ],
};

/// Scores by their names in the data, and what the page calls them.
const SCORES: [(&str, &str); 9] = [
    ("previous_token", "previous token"),
    ("duplicate_token", "duplicate token, random blocks"),
    ("induction", "induction, random blocks"),
    ("duplicate_in_text", "duplicate token, in the text"),
    ("induction_in_text", "induction, where the text repeats"),
    ("first_token", "first token"),
    ("current_token", "current token"),
    ("entropy", "entropy over its maximum"),
    ("mean_distance", "mean distance, tokens"),
];

/// What the page shows; every token is its label.
#[derive(Debug, Clone)]
pub struct HeadsPage {
    /// Its title.
    pub title: String,
    /// On what was measured.
    pub summary: String,
    /// What the reader should know about the numbers.
    pub note: String,
    /// What the growth of the scores is, or where one comes from.
    pub growth_note: String,
    /// The steps of the growth; none where no scores were kept.
    pub steps: Vec<u64>,
    /// The step of the checkpoint that the page is about.
    pub checkpoint_step: Option<u64>,
    /// The windows that passages are from.
    pub windows: Vec<Vec<String>>,
    /// Every head.
    pub heads: Vec<HeadEntry>,
}

/// One head of the page.
#[derive(Debug, Clone, Serialize)]
pub struct HeadEntry {
    /// Scores, costs and name.
    #[serde(flatten)]
    pub report: HeadReport,
    /// How its scores grew in training.
    pub growth: Vec<GrowthLine>,
    /// Its dictionary as the text uses it.
    pub used: Vec<UsedLine>,
    /// Its dictionary as the weights have it.
    pub written: Vec<WrittenLine>,
    /// Where it attends most.
    pub passages: Vec<Passage>,
}

/// One score over the steps of the page.
#[derive(Debug, Clone, Serialize)]
pub struct GrowthLine {
    /// Its name, as in [`crate::scores::HeadScores`].
    pub score: &'static str,
    /// Its value at every step, 0 to 1; none where it was not kept.
    pub values: Vec<Option<f64>>,
}

/// A line of the dictionary as used.
#[derive(Debug, Clone, Serialize)]
pub struct UsedLine {
    /// The token that looks.
    pub query: String,
    /// The token that is looked at.
    pub key: String,
    /// Rows of the query token.
    pub rows: usize,
    /// Of these, rows that look at the key token.
    pub finds: usize,
    /// Share of the query token's attention.
    pub attention: f64,
    /// The token that is raised most.
    pub raises: String,
}

/// A line of the dictionary as written: tokens and scores.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenLine {
    /// The token.
    pub token: String,
    /// What it finds as a query.
    pub finds: Vec<(String, f32)>,
    /// What it promotes as a key.
    pub promotes: Vec<(String, f32)>,
}

#[derive(Serialize)]
struct Data<'a> {
    scores: [(&'static str, &'static str); SCORES.len()],
    window: usize,
    steps: &'a [u64],
    checkpoint: Option<u64>,
    windows: &'a [Vec<String>],
    heads: &'a [HeadEntry],
}

/// Writes the page.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(page: &HeadsPage, out: &mut dyn Write) -> Result<()> {
    PAGE.write(out, |name, out| {
        match name {
            "title" => out.write_all(markup(&page.title).as_bytes())?,
            "summary" => out.write_all(markup(&page.summary).as_bytes())?,
            "note" => out.write_all(markup(&page.note).as_bytes())?,
            "growth" => out.write_all(markup(&page.growth_note).as_bytes())?,
            "data" => write_data(page, out)?,
            _ => {}
        }
        Ok(())
    })
}

/// The data as JSON in which nothing is markup: these characters stand inside strings only.
fn write_data(page: &HeadsPage, out: &mut dyn Write) -> Result<()> {
    let window = page.windows.iter().map(Vec::len).max().unwrap_or(1);
    let data = Data {
        scores: SCORES,
        window,
        steps: &page.steps,
        checkpoint: page.checkpoint_step,
        windows: &page.windows,
        heads: &page.heads,
    };
    let json = serde_json::to_string(&data)?;
    let safe = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Ok(out.write_all(safe.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{check, data};
    use super::*;
    use crate::scores::HeadScores;
    use std::collections::BTreeMap;

    fn page(heads: usize, passages: usize, steps: usize) -> String {
        let scores = HeadScores {
            layer: 0,
            head: 0,
            previous_token: 0.123_456_789,
            duplicate_token: 0.1,
            induction: 0.1,
            duplicate_in_text: None,
            induction_in_text: Some(0.2),
            first_token: 0.1,
            current_token: 0.1,
            entropy: 0.5,
            mean_distance: 3.0,
        };
        let report = HeadReport {
            scores,
            spread: BTreeMap::new(),
            untrained: scores,
            zero: None,
            mean: None,
            name: "unclear",
        };
        let passage = |nth: usize| Passage {
            window: nth,
            first: 0,
            end: 48,
            row: 40,
            weight: 0.5,
            arcs: (0..48).flat_map(|row| [(row, 0, 0.5), (row, row / 2, 0.25)]).collect(),
        };
        let entry = HeadEntry {
            report,
            growth: SCORES[..7]
                .iter()
                .map(|(score, _)| GrowthLine { score, values: vec![Some(0.123); steps] })
                .collect(),
            used: Vec::new(),
            written: Vec::new(),
            passages: (0..5).map(passage).collect(),
        };
        let window = vec!["</script><img onerror=alert(1)>".to_owned(); 48];
        let page = HeadsPage {
            title: "<b>".into(),
            summary: "s".into(),
            note: "n".into(),
            growth_note: "</p><img>".into(),
            steps: (0..steps as u64).collect(),
            checkpoint_step: Some(1),
            windows: vec![window; passages],
            heads: vec![entry; heads],
        };
        let mut out = Vec::new();
        write(&page, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_page_is_whole_and_tokens_are_data() {
        let page = page(2, 5, 3);
        check(PAGE.template, &["title", "summary", "note", "growth", "data"], &page);
        assert!(page.contains("<title>&lt;b&gt;</title>") && !page.contains("<img"));
        let data = data(&page);
        assert_eq!(data["heads"].as_array().unwrap().len(), 2);
        assert_eq!(data["windows"][0][0], "</script><img onerror=alert(1)>");
        assert!(data["heads"][0]["mean"].is_null() && data["heads"][0]["duplicate_in_text"].is_null());
        assert_eq!((&data["steps"], &data["checkpoint"]), (&serde_json::json!([0, 1, 2]), &1.into()));
        let line = serde_json::json!({ "score": "previous_token", "values": [0.123, 0.123, 0.123] });
        assert_eq!(data["heads"][1]["growth"][0], line);
        for (key, _) in SCORES {
            assert!(data["heads"][0].get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn twelve_times_twelve_heads_over_a_hundred_passages_and_steps_stay_small() {
        let page = page(144, 100, 100);
        assert!(page.len() < 5_000_000, "{}", page.len());
    }
}
