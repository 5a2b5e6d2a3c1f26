//! A run over its steps, drawn: loss, learning rate, and every head's scores where they were kept.

use super::escape::markup;
use super::page::Page;
use crate::error::Result;
use std::borrow::Cow;
use std::io::Write;

mod png;
mod svg;

use svg::svg;

/// One line of a panel.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Which colour it has: lines of one number share it.
    pub colour: usize,
    /// (step, value), in order of steps; values that are not finite leave a gap.
    pub points: Vec<(f64, f64)>,
}

/// One picture of the history.
#[derive(Debug, Clone)]
pub struct Panel {
    /// What is drawn, with its unit.
    pub title: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// Colours that stay apart for most eyes (Okabe & Ito 2008).
const COLOURS: [[u8; 3]; 7] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x2a, 0x27, 0x38],
];

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 34.0;
/// Lines that are named beside a panel.
const NAMED: usize = 12;

const PAGE: Page = Page {
    template: include_str!("history/page.html"),
    style: &[
        include_str!("html/page.css"),
        include_str!("history/history.css"),
        include_str!("html/print.css"),
    ],
    script: &[include_str!("history/history.js")],
};

/// Writes the panels as one SVG drawing.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write_svg(title: &str, panels: &[Panel], out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(svg(title, panels).as_bytes())?)
}

/// Writes the panels as one PNG picture, light.
///
/// # Errors
/// [`crate::InspectError::Png`] where the encoder or `out` fails.
pub fn write_png(title: &str, panels: &[Panel], out: &mut dyn Write) -> Result<()> {
    png::write(title, panels, out)
}

/// Writes the panels as a page that works offline.
///
/// # Errors
/// As [`write_svg`].
pub fn write_html(title: &str, summary: &str, panels: &[Panel], out: &mut dyn Write) -> Result<()> {
    PAGE.write(out, |name, out| {
        match name {
            "title" => out.write_all(markup(title).as_bytes())?,
            "summary" => out.write_all(markup(summary).as_bytes())?,
            "drawing" => out.write_all(svg(title, panels).as_bytes())?,
            _ => {}
        }
        Ok(())
    })
}

/// Whether a number is one that a drawing has room for.
fn is_drawn(value: f64) -> bool {
    value.abs() < 1e100
}

/// Lowest and highest of some numbers; a range of one where they are all the same.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| is_drawn(*value))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        (0.0, 1.0)
    } else if high - low <= 1e-12 * (1.0 + high.abs().max(low.abs())) {
        let half = 0.5f64.max(1e-6 * high.abs());
        (low - half, high + half)
    } else {
        (low, high)
    }
}

/// Round steps that cover a range in about `count`.
fn ticks((low, high): (f64, f64), count: f64) -> Vec<f64> {
    let rough = (high - low) / count;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-6).floor() as i64);
    (first..=last).map(|nth| nth as f64 * step).collect()
}

fn number(value: f64) -> String {
    let size = value.abs();
    if !(1e-12..1000.0).contains(&size) {
        format!("{value:.0}")
    } else if size < 1e-3 {
        format!("{value:.0e}")
    } else {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// What a drawing is made of, in units of the layout: x from left to right, y from top to bottom.
enum Mark<'a> {
    /// A piece of text on its baseline.
    Text { at: (f64, f64), anchor: Anchor, ink: Ink, text: Cow<'a, str> },
    /// A faint line from edge to edge of a panel's plot.
    Rule { y: f64 },
    /// A line through points, in pieces where values are missing.
    Curve { name: &'a str, colour: [u8; 3], pieces: Vec<Vec<(f64, f64)>> },
}

/// Which part of a text its place is.
#[derive(Clone, Copy, PartialEq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text is written.
#[derive(Clone, Copy)]
enum Ink {
    Heading,
    Faint,
    Colour([u8; 3]),
}

/// The steps that the panels cover together.
fn all_steps(panels: &[Panel]) -> (f64, f64) {
    range(panels.iter().flat_map(|panel| &panel.series).flat_map(|s| &s.points).map(|point| point.0))
}

/// Lays a panel out, its top edge at `top`.
fn marks(panel: &Panel, steps: (f64, f64), top: f64) -> Vec<Mark<'_>> {
    let values = range(panel.series.iter().flat_map(|series| &series.points).map(|point| point.1));
    let x = |step: f64| LEFT + (step - steps.0) / (steps.1 - steps.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        top + HEIGHT - BOTTOM - (value - values.0) / (values.1 - values.0) * (HEIGHT - TOP - BOTTOM)
    };
    let text = |at, anchor, ink, text| Mark::Text { at, anchor, ink, text };
    let mut marks = vec![text((LEFT, top + 20.0), Anchor::Start, Ink::Heading, panel.title.as_str().into())];
    for tick in ticks(values, 4.0) {
        marks.push(Mark::Rule { y: y(tick) });
        let at = (LEFT - 8.0, y(tick) + 4.0);
        marks.push(text(at, Anchor::End, Ink::Faint, number(tick).into()));
    }
    for tick in ticks(steps, 6.0) {
        let at = (x(tick), top + HEIGHT - BOTTOM + 18.0);
        marks.push(text(at, Anchor::Middle, Ink::Faint, number(tick).into()));
    }
    let beside = |nth: usize| (WIDTH - RIGHT + 12.0, top + TOP + 6.0 + 15.0 * nth as f64);
    for (nth, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let pieces = series.points.split(|point| !is_drawn(point.1));
        let pieces = pieces.filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| piece.iter().map(|&(step, value)| (x(step), y(value))).collect());
        marks.push(Mark::Curve { name: &series.name, colour, pieces: pieces.collect() });
        let last = series.points.iter().rev().map(|point| point.1).find(|value| is_drawn(*value));
        if let (true, Some(last)) = (nth < NAMED, last) {
            let named = format!("{}: {}", series.name, number(last));
            marks.push(text(beside(nth), Anchor::Start, Ink::Colour(colour), named.into()));
        }
    }
    if panel.series.len() > NAMED {
        let more = format!("and {} more", panel.series.len() - NAMED);
        marks.push(text(beside(NAMED), Anchor::Start, Ink::Faint, more.into()));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::check;
    use super::*;

    pub(super) fn panels() -> Vec<Panel> {
        let line = |name: &str, colour| Series {
            name: name.into(),
            colour,
            points: vec![(0.0, 4.0), (10.0, f64::NAN), (20.0, 1.0), (30.0, 2.0)],
        };
        vec![
            Panel { title: "loss <nats>".into(), series: vec![line("train", 0), line("val", 1)] },
            Panel {
                title: "heads".into(),
                series: (0..20).map(|nth| line(&format!("0.{nth}"), nth)).collect(),
            },
        ]
    }

    #[test]
    fn every_line_is_drawn_with_a_gap_where_there_is_no_number() {
        let text = svg("run", &panels());
        assert_eq!(text.matches("<path class=\"line\"").count(), 22);
        assert!(text.contains("loss &lt;nats&gt;") && text.contains("and 8 more"));
        let first = text.split("d=\"").nth(1).unwrap().split('"').next().unwrap();
        // the first point stands alone, highest of its panel; the last one ends at the right edge
        assert_eq!(first.matches('M').count(), 2);
        assert!(first.starts_with("M64.0 34.0L64.0 34.0M") && first.contains("L710.0 "), "{first}");
    }

    #[test]
    fn the_page_is_whole() {
        let mut out = Vec::new();
        write_html("<run>", "s", &panels(), &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        check(PAGE.template, &["title", "summary", "drawing"], &page);
        assert!(page.contains("&lt;run&gt;"));
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 1000.0), 5.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(ticks((1.03, 4.2), 4.0), [2.0, 3.0, 4.0]);
        assert_eq!(
            ["0", "200", "0.001", "5e-4", "2.5"],
            [0.0, 200.0, 0.001, 0.0005, 2.5].map(number).each_ref().map(String::as_str)
        );
        assert_eq!(range([3.0, f64::NAN].into_iter()), (2.5, 3.5));
    }

    #[test]
    fn numbers_that_no_drawing_has_room_for_are_gaps() {
        assert_eq!(range([1e308, -1e308, f64::NAN, 2.0, 3.0].into_iter()), (2.0, 3.0));
        let (low, high) = range([1e20, 1e20].into_iter());
        assert!(low < 1e20 && high > 1e20);
        let wild = Series {
            name: "wild".into(),
            colour: 0,
            points: vec![(0.0, 1.0), (1.0, 1e308), (2.0, f64::NAN)],
        };
        let mut drawn = Vec::new();
        write_svg("t", &[Panel { title: "p".into(), series: vec![wild] }], &mut drawn).unwrap();
        let drawn = String::from_utf8(drawn).unwrap();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf") && drawn.contains("wild: 1<"), "{drawn}");
    }
}
