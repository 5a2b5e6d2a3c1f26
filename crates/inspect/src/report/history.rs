//! A run over its steps, drawn: loss, learning rate, and every head's scores where they were kept.

use super::colour::hex;
use super::escape::markup;
use super::page::Page;
use crate::error::Result;
use std::fmt::Write as _;
use std::io::Write;

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
    style: &[include_str!("html/page.css"), include_str!("history/history.css")],
    script: &[include_str!("history/history.js")],
};

/// Writes the panels as one SVG drawing.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write_svg(title: &str, panels: &[Panel], out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(svg(title, panels).as_bytes())?)
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

/// Lowest and highest of some numbers; a range of one where they are all the same.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        (0.0, 1.0)
    } else if high - low < 1e-12 {
        (low - 0.5, high + 0.5)
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

fn svg(title: &str, panels: &[Panel]) -> String {
    let steps =
        range(panels.iter().flat_map(|panel| &panel.series).flat_map(|s| &s.points).map(|point| point.0));
    let height = HEIGHT * panels.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"ui-sans-serif, system-ui, sans-serif\" \
         font-size=\"12\" fill=\"currentColor\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        markup(title)
    );
    for (nth, panel) in panels.iter().enumerate() {
        push_panel(&mut text, panel, steps, nth as f64 * HEIGHT);
    }
    text.push_str("</svg>\n");
    text
}

fn push_panel(text: &mut String, panel: &Panel, steps: (f64, f64), top: f64) {
    let values = range(panel.series.iter().flat_map(|series| &series.points).map(|point| point.1));
    let x = |step: f64| LEFT + (step - steps.0) / (steps.1 - steps.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        top + HEIGHT - BOTTOM - (value - values.0) / (values.1 - values.0) * (HEIGHT - TOP - BOTTOM)
    };
    // writing to a String cannot fail
    let _ = write!(
        text,
        "<g class=\"panel-drawing\"><text x=\"{LEFT}\" y=\"{}\" font-weight=\"600\" font-size=\"14\">{}</text>",
        top + 20.0,
        markup(&panel.title)
    );
    for tick in ticks(values, 4.0) {
        let _ = write!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill-opacity=\"0.7\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y(tick) + 4.0,
            number(tick),
            at = y(tick)
        );
    }
    for tick in ticks(steps, 6.0) {
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill-opacity=\"0.7\">{}</text>",
            x(tick),
            top + HEIGHT - BOTTOM + 18.0,
            number(tick)
        );
    }
    for (nth, series) in panel.series.iter().enumerate() {
        let colour = hex(COLOURS[series.colour % COLOURS.len()]);
        let mut path = String::new();
        let mut pen = 'M';
        for &(step, value) in &series.points {
            if value.is_finite() {
                let _ = write!(path, "{pen}{:.1} {:.1}", x(step), y(value));
                pen = 'L';
            } else {
                pen = 'M';
            }
        }
        let _ = write!(
            text,
            "<path class=\"line\" d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"><title>{}</title></path>",
            markup(&series.name)
        );
        if let (true, [.., last]) = (nth < NAMED, series.points.as_slice()) {
            let _ = write!(
                text,
                "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}: {}</text>",
                WIDTH - RIGHT + 12.0,
                top + TOP + 6.0 + 15.0 * nth as f64,
                markup(&series.name),
                number(last.1)
            );
        }
    }
    if panel.series.len() > NAMED {
        let _ = write!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" fill-opacity=\"0.7\">and {} more</text>",
            WIDTH - RIGHT + 12.0,
            top + TOP + 6.0 + 15.0 * NAMED as f64,
            panel.series.len() - NAMED
        );
    }
    text.push_str("</g>");
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::check;
    use super::*;

    fn panels() -> Vec<Panel> {
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
        assert!(first.starts_with("M64.0 34.0M") && first.contains("L710.0 "), "{first}");
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
}
