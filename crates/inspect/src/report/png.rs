//! Attention as one picture: layers down, heads across, each map labelled `L0H1`.
//!
//! Darker is more (the square root of the weight along the colour map); pairs a causal mask forbids are grey.
//! The picture is indexed and written row by row, so even a large grid needs one row of memory beside a layer's weights.

use std::io::Write;

use ::png::{BitDepth, ColorType, Compression, Encoder, Filter};

use super::colour::{DAY, MASKED, Rgb, along, shade};
use super::font;
use crate::error::{InspectError, Result};
use crate::maps::{AttentionMaps, Layer, Shape};

/// Steps of the colour map; what follows it in the palette.
const STEPS: u8 = 240;
const PAPER: u8 = STEPS;
const INK: u8 = STEPS + 1;
const MASK: u8 = STEPS + 2;
const FRAME: u8 = STEPS + 3;
const EXTRAS: [Rgb; 4] = [[0xff, 0xff, 0xff], [0x2a, 0x27, 0x38], MASKED, [0xcf, 0xcb, 0xc2]];

/// A map aims at this many pixels a side; a cell has 2 to 32 of them.
const MAP_PIXELS: usize = 256;
const MARGIN: usize = 10;
const GAP: usize = 10;
const LABEL_GAP: usize = 4;
const LEGEND: usize = 121;
const LEGEND_BAR: usize = 8;
/// PNG names sizes in 31 bits.
const MAX_SIDE: usize = (1 << 31) - 1;

/// Writes `maps` as a PNG picture.
///
/// # Errors
/// [`InspectError::Picture`] where the grid has more pixels a side than PNG can name;
/// [`InspectError::Png`] where the encoder or `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let layout = Layout::new(maps);
    if layout.width > MAX_SIDE || layout.height > MAX_SIDE {
        return Err(InspectError::Picture { width: layout.width, height: layout.height });
    }
    let mut encoder = indexed(out, layout.width, layout.height);
    let title = format!("Attention of {} tokens{}, layers down, heads across", maps.len(), maps.without());
    encoder.add_text_chunk("Title".into(), title)?;
    encoder.add_text_chunk(
        "Description".into(),
        "Rows are queries, columns are keys; colour: root of weight".into(),
    )?;
    let mut writer = encoder.write_header()?;
    let mut stream = writer.stream_writer()?;
    let mut picture = Rows { out: &mut stream, row: vec![PAPER; layout.width] };
    picture.blank(MARGIN)?;
    maps.each_layer(&mut |layer| {
        picture.labels(maps, layer.number, &layout)?;
        picture.blank(LABEL_GAP)?;
        picture.frame(maps, &layout)?;
        for query in 0..maps.len() {
            picture.cells(maps, layer, query, &layout)?;
        }
        picture.frame(maps, &layout)?;
        picture.blank(GAP)
    })?;
    picture.legend()?;
    picture.blank(MARGIN)?;
    stream.finish()?;
    Ok(writer.finish()?)
}

/// One map as a picture of one pixel a cell.
pub(super) fn map_image(pattern: &[f32], tokens: usize, causal: bool) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = indexed(&mut bytes, tokens, tokens).write_header()?;
    let mut stream = writer.stream_writer()?;
    for (query, weights) in pattern.chunks_exact(tokens).enumerate() {
        let row: Vec<u8> =
            weights.iter().enumerate().map(|(key, &weight)| index(weight, key > query && causal)).collect();
        stream.write_all(&row)?;
    }
    stream.finish()?;
    writer.finish()?;
    Ok(bytes)
}

fn indexed<'out, W: Write>(out: W, width: usize, height: usize) -> Encoder<'out, W> {
    let ramp = (0..STEPS).map(|step| along(&DAY, f32::from(step) / f32::from(STEPS - 1)));
    let palette: Vec<u8> = ramp.chain(EXTRAS).flatten().collect();
    let mut encoder = Encoder::new(out, width as u32, height as u32);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette(palette);
    encoder.set_compression(Compression::Balanced);
    // neighbouring palette indices are no neighbouring samples: filters only hurt, except for repeated rows
    encoder.set_filter(Filter::Up);
    encoder
}

fn index(weight: f32, masked: bool) -> u8 {
    if masked { MASK } else { (shade(weight) * f32::from(STEPS - 1)).round() as u8 }
}

fn name(layer: usize, head: usize) -> String {
    format!("L{layer}H{head}")
}

/// Where things are, in pixels.
struct Layout {
    cell: usize,
    label_scale: usize,
    column: usize,
    width: usize,
    height: usize,
}

impl Layout {
    fn new(maps: &AttentionMaps<'_>) -> Self {
        let Shape { layers, heads, tokens } = maps.shape();
        let cell = (MAP_PIXELS / tokens).clamp(2, 32);
        let framed = tokens * cell + 2;
        let label_scale = if framed >= 96 { 2 } else { 1 };
        let largest = |numbers: &[usize]| numbers.iter().copied().max().unwrap_or(0);
        let widest = name(largest(maps.layers()), largest(maps.heads()));
        let column = framed.max(font::width(&widest, label_scale));
        let band = font::HEIGHT * label_scale + LABEL_GAP + framed + GAP;
        let content = (heads * (column + GAP) - GAP).max(LEGEND);
        let legend = LEGEND_BAR + LABEL_GAP + font::HEIGHT;
        Self {
            cell,
            label_scale,
            column,
            width: content + 2 * MARGIN,
            height: layers * band + legend + 2 * MARGIN,
        }
    }

    fn left(&self, head_index: usize) -> usize {
        MARGIN + head_index * (self.column + GAP)
    }
}

/// The picture so far: rows go out as they are finished.
struct Rows<'out> {
    out: &'out mut dyn Write,
    row: Vec<u8>,
}

impl Rows<'_> {
    /// Writes the row `times` times and clears it.
    fn put(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            self.out.write_all(&self.row)?;
        }
        self.row.fill(PAPER);
        Ok(())
    }

    fn blank(&mut self, rows: usize) -> Result<()> {
        self.row.fill(PAPER);
        self.put(rows)
    }

    fn labels(&mut self, maps: &AttentionMaps<'_>, layer: usize, layout: &Layout) -> Result<()> {
        for pixel_row in 0..font::HEIGHT * layout.label_scale {
            for (head_index, &head) in maps.heads().iter().enumerate() {
                let left = layout.left(head_index);
                font::draw_row(&mut self.row, left, &name(layer, head), pixel_row, layout.label_scale, INK);
            }
            self.put(1)?;
        }
        Ok(())
    }

    fn frame(&mut self, maps: &AttentionMaps<'_>, layout: &Layout) -> Result<()> {
        for head_index in 0..maps.heads().len() {
            let left = layout.left(head_index);
            self.row[left..left + maps.len() * layout.cell + 2].fill(FRAME);
        }
        self.put(1)
    }

    fn cells(
        &mut self,
        maps: &AttentionMaps<'_>,
        layer: Layer<'_>,
        query: usize,
        layout: &Layout,
    ) -> Result<()> {
        let tokens = maps.len();
        for (head_index, (_, pattern)) in layer.patterns().enumerate() {
            let left = layout.left(head_index);
            let framed = &mut self.row[left..left + tokens * layout.cell + 2];
            framed.fill(FRAME);
            let weights = &pattern[query * tokens..(query + 1) * tokens];
            let cells = framed[1..].chunks_exact_mut(layout.cell);
            for (key, (cell, &weight)) in cells.zip(weights).enumerate() {
                cell.fill(index(weight, maps.causal() && key > query));
            }
        }
        self.put(layout.cell)
    }

    /// The colour map with the weights 0, 0.25 and 1 below it.
    fn legend(&mut self) -> Result<()> {
        for (pixel, shown) in self.row[MARGIN..MARGIN + LEGEND].iter_mut().enumerate() {
            *shown = (pixel * usize::from(STEPS - 1) / (LEGEND - 1)) as u8;
        }
        self.put(LEGEND_BAR)?;
        self.blank(LABEL_GAP)?;
        let middle = MARGIN + (LEGEND - font::width(".25", 1)) / 2;
        for pixel_row in 0..font::HEIGHT {
            font::draw_row(&mut self.row, MARGIN, "0", pixel_row, 1, INK);
            font::draw_row(&mut self.row, middle, ".25", pixel_row, 1, INK);
            font::draw_row(&mut self.row, MARGIN + LEGEND - font::width("1", 1), "1", pixel_row, 1, INK);
            self.put(1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::maps::tests::{uniform, values};

    fn decoded(bytes: &[u8]) -> (usize, usize, Vec<u8>) {
        let mut decoder = ::png::Decoder::new(Cursor::new(bytes));
        decoder.set_transformations(::png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!(info.color_type, ColorType::Rgb);
        (info.width as usize, info.height as usize, pixels)
    }

    fn written(maps: &AttentionMaps<'_>) -> (usize, usize, Vec<u8>) {
        let mut out = Vec::new();
        write(maps, &mut out).unwrap();
        decoded(&out)
    }

    #[test]
    fn a_cell_has_the_colour_of_its_weight() {
        let maps = uniform(&["a", "b"], 1, 2);
        let (width, _, pixels) = written(&maps);
        let layout = Layout::new(&maps);
        let top = MARGIN + font::HEIGHT * layout.label_scale + LABEL_GAP + 1;
        let at = |head: usize, query: usize, key: usize| {
            let left = layout.left(head) + 1;
            let (x, y) = (left + key * layout.cell + 1, top + query * layout.cell + 1);
            let start = (y * width + x) * 3;
            [pixels[start], pixels[start + 1], pixels[start + 2]]
        };
        for head in 0..2 {
            assert_eq!(at(head, 0, 0), along(&DAY, 1.0));
            assert_eq!(at(head, 0, 1), MASKED);
            assert_eq!(at(head, 1, 0), along(&DAY, (0.5_f32.sqrt() * 239.0).round() / 239.0));
        }
    }

    #[test]
    fn the_grid_grows_with_layers_and_heads() {
        let (width, height, _) = written(&uniform(&["t"; 16], 1, 1));
        let (wide, high, _) = written(&uniform(&["t"; 16], 3, 2));
        assert_eq!((width, height), (278, 325));
        assert_eq!(wide - width, 268);
        assert_eq!(high - height, 2 * (14 + 4 + 258 + 10));
    }

    #[test]
    fn one_token_and_many_tokens_work() {
        assert_eq!(written(&uniform(&["t"], 1, 1)).0, LEGEND + 2 * MARGIN);
        assert_eq!(written(&uniform(&["t"; 200], 1, 1)).0, 400 + 2 + 2 * MARGIN);
    }

    #[test]
    fn an_embedded_map_has_one_pixel_a_cell() {
        let maps = uniform(&["t"; 5], 1, 1);
        let (width, height, pixels) = decoded(&map_image(&values(&maps), 5, true).unwrap());
        assert_eq!((width, height), (5, 5));
        assert_eq!(pixels[3..6], MASKED);
        assert_eq!(pixels[..3], DAY[5]);
    }
}
