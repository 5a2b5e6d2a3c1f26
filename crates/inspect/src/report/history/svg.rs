//! The history as an SVG drawing, which the page holds, too: its lines are named and can be styled.

use super::super::colour::hex;
use super::super::escape::markup;
use super::{Anchor, HEIGHT, Ink, LEFT, Mark, Panel, RIGHT, WIDTH, all_steps, marks};
use std::fmt::Write as _;

pub(super) fn svg(title: &str, panels: &[Panel]) -> String {
    let (steps, height) = (all_steps(panels), HEIGHT * panels.len() as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"ui-sans-serif, system-ui, sans-serif\" \
         font-size=\"12\" fill=\"currentColor\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
        markup(title)
    );
    for (nth, panel) in panels.iter().enumerate() {
        text.push_str("<g class=\"panel-drawing\">");
        for mark in marks(panel, steps, nth as f64 * HEIGHT) {
            push_mark(&mut text, &mark);
        }
        text.push_str("</g>");
    }
    text.push_str("</svg>\n");
    text
}

fn push_mark(text: &mut String, mark: &Mark<'_>) {
    // writing to a String cannot fail
    let _ = match mark {
        Mark::Text { at: (x, y), anchor, ink, text: said } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let ink = match ink {
                Ink::Heading => " font-weight=\"600\" font-size=\"14\"".into(),
                Ink::Faint => " fill-opacity=\"0.7\"".into(),
                Ink::Colour(colour) => format!(" fill=\"{}\"", hex(*colour)),
            };
            write!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{ink}>{}</text>", markup(said))
        }
        Mark::Rule { y } => write!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>",
            WIDTH - RIGHT
        ),
        Mark::Curve { name, colour, pieces } => {
            text.push_str("<path class=\"line\" d=\"");
            for piece in pieces {
                for (nth, (x, y)) in piece.iter().enumerate() {
                    let _ = write!(text, "{}{x:.1} {y:.1}", if nth == 0 { 'M' } else { 'L' });
                }
                if let [(x, y)] = piece[..] {
                    // with round ends a line of no length is a dot
                    let _ = write!(text, "L{x:.1} {y:.1}");
                }
            }
            write!(
                text,
                "\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linecap=\"round\" stroke-linejoin=\"round\"><title>{}</title></path>",
                hex(*colour),
                markup(name)
            )
        }
    };
}
