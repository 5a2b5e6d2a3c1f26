//! The history as a PNG picture: the same marks as the drawing, as pixels on white paper.

use super::{Anchor, HEIGHT, Ink, LEFT, Mark, Panel, RIGHT, WIDTH, all_steps, marks};
use crate::error::Result;
use ::png::{BitDepth, ColorType, Compression, Encoder};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use std::io::Write;

/// Pixels to a unit of the layout: sharp where a page or a slide shows the picture at half its size.
const SCALE: f64 = 2.0;
/// Half the width of a curve, in pixels.
const HALF_STROKE: f64 = 1.6;
const PAPER: [u8; 3] = [0xff; 3];
const INK: [u8; 3] = [0x2a, 0x27, 0x38];
/// Of a font's height, what stands above the baseline.
const ABOVE_BASELINE: f64 = 0.77;
/// Stands for characters that the font lacks.
const UNKNOWN: char = '?';

pub(super) fn write(title: &str, panels: &[Panel], out: &mut dyn Write) -> Result<()> {
    let picture = Picture::of(panels);
    let mut encoder = Encoder::new(out, picture.width as u32, picture.height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Balanced);
    // the kind of text that may hold any name a folder has
    encoder.add_itxt_chunk("Title".into(), title.into())?;
    let mut writer = encoder.write_header()?;
    writer.write_image_data(picture.pixels.as_flattened())?;
    Ok(writer.finish()?)
}

struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn of(panels: &[Panel]) -> Self {
        let side = |units: f64| (units * SCALE) as usize;
        let (width, height) = (side(WIDTH), side(HEIGHT * panels.len() as f64));
        let mut picture = Self { width, height, pixels: vec![PAPER; width * height] };
        let steps = all_steps(panels);
        for (nth, panel) in panels.iter().enumerate() {
            for mark in &marks(panel, steps, nth as f64 * HEIGHT) {
                picture.draw(mark);
            }
        }
        picture
    }

    fn draw(&mut self, mark: &Mark<'_>) {
        match mark {
            Mark::Text { at, anchor, ink, text } => self.text(*at, *anchor, *ink, text),
            Mark::Rule { y } => {
                let y = (y * SCALE) as usize;
                let [from, to] = [LEFT, WIDTH - RIGHT].map(|x| (x * SCALE) as usize);
                (from..to).for_each(|x| self.blend(x, y, INK, 0.15));
            }
            Mark::Curve { colour, pieces, .. } => {
                for piece in pieces {
                    let points: Vec<_> = piece.iter().map(|(x, y)| (x * SCALE, y * SCALE)).collect();
                    points.windows(2).for_each(|ends| self.segment(ends[0], ends[1], *colour));
                    if let [alone] = points[..] {
                        self.segment(alone, alone, *colour);
                    }
                }
            }
        }
    }

    /// Blends a pixel with a colour, `part` of it; what lies outside is left out.
    fn blend(&mut self, x: usize, y: usize, colour: [u8; 3], part: f64) {
        if x >= self.width || y >= self.height {
            return;
        }
        for (channel, wanted) in self.pixels[y * self.width + x].iter_mut().zip(colour) {
            let old = f64::from(*channel);
            *channel = (old + (f64::from(wanted) - old) * part).round() as u8;
        }
    }

    /// A line with round ends; pixels at its edge are covered in part.
    fn segment(&mut self, from: (f64, f64), to: (f64, f64), colour: [u8; 3]) {
        let (along_x, along_y) = (to.0 - from.0, to.1 - from.1);
        let length = along_x * along_x + along_y * along_y;
        let reach = HALF_STROKE + 1.0;
        // a negative place saturates to 0
        let span = |a: f64, b: f64| (a.min(b) - reach) as usize..=(a.max(b) + reach) as usize;
        for y in span(from.1, to.1) {
            for x in span(from.0, to.0) {
                let (dx, dy) = (x as f64 + 0.5 - from.0, y as f64 + 0.5 - from.1);
                let nearest = if length > 0.0 { (dx * along_x + dy * along_y) / length } else { 0.0 };
                let nearest = nearest.clamp(0.0, 1.0);
                let distance = (dx - nearest * along_x).hypot(dy - nearest * along_y);
                let covered = (HALF_STROKE + 0.5 - distance).clamp(0.0, 1.0);
                if covered > 0.0 {
                    self.blend(x, y, colour, covered);
                }
            }
        }
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, ink: Ink, text: &str) {
        let (weight, size, colour, part) = match ink {
            Ink::Heading => (FontWeight::Bold, RasterHeight::Size24, INK, 1.0),
            Ink::Faint => (FontWeight::Regular, RasterHeight::Size20, INK, 0.7),
            Ink::Colour(colour) => (FontWeight::Regular, RasterHeight::Size20, colour, 1.0),
        };
        let advance = get_raster_width(weight, size);
        let width = (text.chars().count() * advance) as f64;
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let mut left = (at.0 * SCALE - before).round() as usize;
        let top = (at.1 * SCALE - size.val() as f64 * ABOVE_BASELINE).round() as usize;
        let raster = |character| get_raster(character, weight, size);
        for glyph in text.chars().filter_map(|character| raster(character).or_else(|| raster(UNKNOWN))) {
            for (y, row) in glyph.rows().enumerate() {
                for (x, &covered) in row.iter().enumerate().filter(|(_, covered)| **covered > 0) {
                    self.blend(left + x, top + y, colour, f64::from(covered) / 255.0 * part);
                }
            }
            left += advance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::panels;
    use super::*;
    use std::io::Cursor;

    /// Width, height and pixels of a written picture, and the title in it.
    fn read_back(title: &str, panels: &[Panel]) -> (usize, usize, Vec<u8>, String) {
        let mut bytes = Vec::new();
        write(title, panels, &mut bytes).unwrap();
        let mut reader = ::png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.color_type, info.bit_depth), (ColorType::Rgb, BitDepth::Eight));
        let title = reader.info().utf8_text[0].get_text().unwrap();
        (info.width as usize, info.height as usize, pixels, title)
    }

    #[test]
    fn the_picture_has_the_drawings_size_and_any_title() {
        let (width, height, _, title) = read_back("History of é/漢", &panels());
        assert_eq!((width, height), (1800, 2 * 480));
        assert_eq!(title, "History of é/漢");
    }

    #[test]
    fn a_curve_is_ink_of_its_colour_where_its_points_are_and_a_gap_is_paper() {
        let mut panels = panels();
        panels.truncate(1);
        panels[0].series.truncate(1);
        let picture = Picture::of(&panels);
        let at = |x: f64, y: f64| picture.pixels[(y * SCALE) as usize * picture.width + (x * SCALE) as usize];
        let colour = super::super::COLOURS[0];
        // (0, 4) is alone, leftmost and highest; from (20, 1) to (30, 2) the line goes on; (10, 4) is a gap
        assert_eq!(at(64.0, 34.0), colour);
        let (x, y) =
            (|step: f64| 64.0 + step / 30.0 * 646.0, |value: f64| 206.0 - (value - 1.0) / 3.0 * 172.0);
        for step in [20.0, 25.0, 29.9] {
            assert_eq!(at(x(step), y(1.0 + (step - 20.0) / 10.0)), colour, "{step}");
        }
        let between = |from: f64, to: f64| {
            let columns = (x(from) * SCALE) as usize..(x(to) * SCALE) as usize;
            columns.flat_map(|column| (68..420).map(move |row| (column, row)))
        };
        let coloured = |(column, row): (usize, usize)| picture.pixels[row * picture.width + column] == colour;
        assert!(!between(1.0, 19.0).any(coloured) && between(20.0, 30.0).any(coloured));
    }

    #[test]
    fn titles_and_names_are_written_in_letters() {
        let letters = |title: &str, name: &str| {
            let mut panels = panels();
            panels.truncate(1);
            panels[0].title = title.into();
            panels[0].series[0].name = name.into();
            Picture::of(&panels).pixels
        };
        let (plain, other) = (letters("loss", "train"), letters("rate", "train"));
        assert!(plain != other && plain != letters("loss", "valid"));
        // what the font lacks is seen to be missing
        assert_eq!(letters("漢", "train"), letters("?", "train"));
        // a name without end stays inside
        assert_eq!(letters("loss", &"m".repeat(500)).len(), plain.len());
    }
}
