//! Attention as a drawing: one labelled map for each head, self-contained.
//!
//! Short texts become one rectangle a cell, whose tooltip says query, key and weight; weights below 0.0005
//! get none. Where that would be too many elements, each map is an embedded PNG picture instead.

use std::io::Write;

use super::colour::{DAY, MASKED, along, hex, shade};
use super::escape::{Base64, markup};
use super::png::map_image;
use crate::error::Result;
use crate::labels::{labels, shorten, width};
use crate::maps::{AttentionMaps, Shape};

/// Browsers become slow with more elements than this; half of a causal map has none.
const MAX_CELLS: u64 = 120_000;
const MAX_CELL_TOKENS: usize = 128;
/// Weights below it are left to the background: the tooltip would say 0.000.
const MIN_WEIGHT: f32 = 0.0005;
const LABEL_COLUMNS: usize = 16;
const MARGIN: f64 = 24.0;
const HEADER: f64 = 70.0;
const TITLE: f64 = 20.0;
const INK: &str = "#2a2738";
const GENERATED: &str = "#b3431f";

/// Whether a report of this shape has one element a cell.
pub(super) fn draws_cells(shape: &Shape) -> bool {
    shape.tokens <= MAX_CELL_TOKENS && shape.weights() <= MAX_CELLS
}

/// Writes `maps` as an SVG drawing.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let drawing = Drawing::new(maps);
    let (step_x, step_y) = (drawing.left + drawing.side + MARGIN, drawing.top + drawing.side + MARGIN);
    let page_width = (MARGIN + step_x * maps.heads().len() as f64).max(420.0);
    let page_height = HEADER + step_y * maps.layers().len() as f64;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{page_width:.0}\" height=\"{page_height:.0}\" \
         viewBox=\"0 0 {page_width:.0} {page_height:.0}\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" \
         font-size=\"{:.1}\" fill=\"{INK}\">",
        drawing.font
    )?;
    let generated = maps.len() - maps.prompt_tokens();
    let (tokens, without) = (maps.len(), maps.without());
    writeln!(out, "<title>Attention of {tokens} tokens, {generated} of them generated{without}</title>")?;
    writeln!(
        out,
        "<desc>Layers down, heads across. Rows are queries, columns are keys. Darker is more.</desc>"
    )?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>")?;
    write_legend(generated > 0, out)?;
    let mut y = HEADER + drawing.top;
    maps.each_layer(&mut |layer| {
        let mut x = MARGIN + drawing.left;
        for (head, pattern) in layer.patterns() {
            writeln!(out, "<g transform=\"translate({x:.1} {y:.1})\">")?;
            let (title_y, number) = (-drawing.top + 12.0, layer.number);
            writeln!(
                out,
                "<text y=\"{title_y:.1}\" font-size=\"13\" font-weight=\"600\">layer {number}, head {head}</text>"
            )?;
            drawing.write_map(pattern, out)?;
            writeln!(out, "</g>")?;
            x += step_x;
        }
        y += step_y;
        Ok(())
    })?;
    writeln!(out, "</svg>")?;
    Ok(())
}

/// The colour map with weights at their places, and what the label colours mean.
fn write_legend(generated: bool, out: &mut dyn Write) -> Result<()> {
    const BAR: f64 = 180.0;
    writeln!(out, "<defs><linearGradient id=\"softdict-weight\">")?;
    for (index, &anchor) in DAY.iter().enumerate() {
        writeln!(out, "<stop offset=\"{}%\" stop-color=\"{}\"/>", index * 20, hex(anchor))?;
    }
    writeln!(out, "</linearGradient></defs>\n<g transform=\"translate({MARGIN} 20)\" font-size=\"10\">")?;
    writeln!(out, "<rect width=\"{BAR}\" height=\"10\" fill=\"url(#softdict-weight)\" stroke=\"#cfcbc2\"/>")?;
    for weight in [0.0, 0.05, 0.25, 0.5, 1.0] {
        let x = f64::from(shade(weight)) * BAR;
        writeln!(out, "<text x=\"{x:.1}\" y=\"22\" text-anchor=\"middle\">{weight}</text>")?;
    }
    if generated {
        writeln!(out, "<text x=\"{:.0}\" y=\"9\" fill=\"{GENERATED}\">generated tokens</text>", BAR + 20.0)?;
    }
    writeln!(out, "</g>")?;
    Ok(())
}

/// What all maps of a drawing share.
struct Drawing<'maps, 'model> {
    maps: &'maps AttentionMaps<'model>,
    /// The whole labels, and those that fit beside a map.
    labels: Vec<String>,
    names: Vec<String>,
    cells: bool,
    /// Pixels of a cell and of a whole map.
    cell: f64,
    side: f64,
    font: f64,
    /// Every how many tokens one is named.
    step: usize,
    /// Room for the names of queries and of keys.
    left: f64,
    top: f64,
}

impl<'maps, 'model> Drawing<'maps, 'model> {
    fn new(maps: &'maps AttentionMaps<'model>) -> Self {
        let tokens = maps.len();
        let cells = draws_cells(&maps.shape());
        let (cell, font): (f64, f64) = match (cells, tokens) {
            (true, ..=32) => (16.0, 11.0),
            (true, ..=64) => (12.0, 9.0),
            (true, _) => (8.0, 7.0),
            (false, ..=512) => ((200.0 / tokens as f64).max(2.0), 9.0),
            // a pixel for each cell at least, or a sharp head loses its line
            (false, _) => ((1024.0 / tokens as f64).max(1.0), 9.0),
        };
        let side = cell * tokens as f64;
        let nice = [1, 2, 5, 10, 20, 50, 100, 200, 500];
        let step = nice.into_iter().find(|&step| step as f64 * cell > font).unwrap_or(tokens);
        let labels = labels(maps.tokens());
        let columns = if step == 1 { LABEL_COLUMNS } else { LABEL_COLUMNS / 2 };
        let names: Vec<String> = labels.iter().map(|label| shorten(label, columns)).collect();
        let longest = names.iter().map(|name| width(name)).max().unwrap_or(0);
        let number = if step > 1 { tokens.to_string().len() + 1 } else { 0 };
        // a fixed-width letter is about 0.6 em wide
        let room = (longest + number) as f64 * font * 0.62 + 6.0;
        Self { maps, labels, names, cells, cell, side, font, step, left: room, top: room + TITLE }
    }

    fn write_map(&self, pattern: &[f32], out: &mut dyn Write) -> Result<()> {
        self.write_names(out)?;
        if self.cells { self.write_cells(pattern, out) } else { self.write_picture(pattern, out) }
    }

    fn write_names(&self, out: &mut dyn Write) -> Result<()> {
        for token in (0..self.maps.len()).step_by(self.step) {
            let number = if self.step > 1 { format!("{token} ") } else { String::new() };
            let name = format!("{number}{}", markup(&self.names[token]));
            let colour = if token >= self.maps.prompt_tokens() {
                format!(" fill=\"{GENERATED}\"")
            } else {
                String::new()
            };
            let middle = (token as f64 + 0.5) * self.cell;
            let base = middle + self.font * 0.35;
            writeln!(out, "<text x=\"-4\" y=\"{base:.1}\" text-anchor=\"end\"{colour}>{name}</text>")?;
            writeln!(out, "<text transform=\"translate({base:.1} -4) rotate(-90)\"{colour}>{name}</text>")?;
        }
        Ok(())
    }

    fn write_cells(&self, pattern: &[f32], out: &mut dyn Write) -> Result<()> {
        let (tokens, cell, side) = (self.maps.len(), self.cell, self.side);
        let ground = if self.maps.causal() { hex(MASKED) } else { hex(DAY[0]) };
        writeln!(out, "<rect width=\"{side}\" height=\"{side}\" fill=\"{ground}\"/>")?;
        if self.maps.causal() {
            // the staircase of allowed pairs
            let steps = format!("h{cell}v{cell}").repeat(tokens);
            writeln!(out, "<path d=\"M0 0{steps}H0Z\" fill=\"{}\"/>", hex(DAY[0]))?;
        }
        for (query, weights) in pattern.chunks_exact(tokens).enumerate() {
            for (key, &weight) in weights.iter().enumerate().filter(|&(_, &weight)| weight >= MIN_WEIGHT) {
                // one pixel less than the step leaves a thin gap
                writeln!(
                    out,
                    "<rect x=\"{}\" y=\"{}\" width=\"{size}\" height=\"{size}\" fill=\"{}\">\
                     <title>{query} {} looks at {key} {}: {weight:.3}</title></rect>",
                    key as f64 * cell,
                    query as f64 * cell,
                    hex(along(&DAY, shade(weight))),
                    markup(&self.labels[query]),
                    markup(&self.labels[key]),
                    size = cell - 1.0,
                )?;
            }
        }
        Ok(())
    }

    fn write_picture(&self, pattern: &[f32], out: &mut dyn Write) -> Result<()> {
        let side = self.side;
        write!(
            out,
            "<image width=\"{side:.1}\" height=\"{side:.1}\" style=\"image-rendering:pixelated\" \
             href=\"data:image/png;base64,"
        )?;
        let mut encoder = Base64::new(out);
        encoder.write_all(&map_image(pattern, self.maps.len(), self.maps.causal())?)?;
        encoder.finish()?;
        writeln!(
            out,
            "\"/>\n<rect width=\"{side:.1}\" height=\"{side:.1}\" fill=\"none\" stroke=\"#cfcbc2\"/>"
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::uniform;

    fn text(maps: &AttentionMaps<'_>) -> String {
        let mut out = Vec::new();
        write(maps, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_seen_pair_has_a_cell_that_names_it() {
        let drawn = text(&uniform(&["The", " <cat>", "\n"], 2, 2));
        assert!(drawn.contains("<title>1 ·&lt;cat&gt; looks at 0 The: 0.500</title>"), "{drawn}");
        // 6 of 9 pairs are not in the future
        assert_eq!(drawn.matches(" looks at ").count(), 4 * 6);
        assert!(drawn.contains(">layer 1, head 1</text>") && !drawn.contains("<image"));
        assert_eq!(drawn.matches('<').count(), drawn.matches('>').count());
    }

    #[test]
    fn generated_tokens_stand_out() {
        let drawn = text(&uniform(&["a", "b"], 1, 1));
        assert!(drawn.contains("fill=\"#b3431f\">b</text>") && !drawn.contains("fill=\"#b3431f\">a</text>"));
    }

    #[test]
    fn long_texts_become_embedded_pictures() {
        let drawn = text(&uniform(&["t"; 150], 1, 2));
        assert_eq!(drawn.matches("href=\"data:image/png;base64,iVBORw0KGgo").count(), 2);
        assert!(!drawn.contains("looks at"));
        assert!(drawn.contains(">140 t</text>") && !drawn.contains(">141 t</text>"));
    }

    #[test]
    fn many_heads_of_a_short_text_become_pictures_too() {
        assert!(draws_cells(&Shape { layers: 1, heads: 7, tokens: 128 }));
        assert!(!draws_cells(&Shape { layers: 1, heads: 8, tokens: 128 }));
        assert!(!draws_cells(&Shape { layers: 1, heads: 1, tokens: 129 }));
    }
}
