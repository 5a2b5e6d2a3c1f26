//! The few characters a picture needs, drawn by hand on 5×7 dots.

/// Dots from one character's left edge to the next one's.
pub(super) const ADVANCE: usize = 6;
/// Dots from top to bottom.
pub(super) const HEIGHT: usize = 7;

/// The dots of one character, top row first, leftmost dot in bit 4; nothing for characters that no label has.
fn glyph(character: char) -> [u8; HEIGHT] {
    match character {
        '0' => [0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110],
        '1' => [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
        '2' => [0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111],
        '3' => [0b01110, 0b10001, 0b00001, 0b00110, 0b00001, 0b10001, 0b01110],
        '4' => [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010],
        '5' => [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110],
        '6' => [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110],
        '7' => [0b11111, 0b00001, 0b00010, 0b00100, 0b00100, 0b01000, 0b01000],
        '8' => [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110],
        '9' => [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100],
        'L' => [0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b10000, 0b11111],
        'H' => [0b10001, 0b10001, 0b10001, 0b11111, 0b10001, 0b10001, 0b10001],
        '.' => [0b00000, 0b00000, 0b00000, 0b00000, 0b00000, 0b00110, 0b00110],
        _ => [0; HEIGHT],
    }
}

/// How many pixels `text` takes at `scale` pixels a dot.
pub(super) fn width(text: &str, scale: usize) -> usize {
    (text.len() * ADVANCE).saturating_sub(1) * scale
}

/// Sets the pixels of one pixel row of `text` in `row` from `left` on to `ink`.
pub(super) fn draw_row(row: &mut [u8], left: usize, text: &str, pixel_row: usize, scale: usize, ink: u8) {
    for (index, character) in text.chars().enumerate() {
        let dots = glyph(character).get(pixel_row / scale).copied().unwrap_or(0);
        for dot in (0..5).filter(|dot| dots >> (4 - dot) & 1 == 1) {
            let start = left + (index * ADVANCE + dot) * scale;
            if let Some(pixels) = row.get_mut(start..start + scale) {
                pixels.fill(ink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_of_a_label_has_its_own_shape() {
        let drawn: Vec<_> = "0123456789LH.".chars().map(glyph).collect();
        for (index, dots) in drawn.iter().enumerate() {
            assert_ne!(dots, &[0; HEIGHT]);
            assert!(!drawn[..index].contains(dots));
        }
    }

    #[test]
    fn text_is_drawn_dot_by_dot() {
        let mut row = [0; 24];
        draw_row(&mut row, 1, "LH", 6 * 2, 2, 9);
        assert_eq!(row, [0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0, 9, 9, 0]);
        assert_eq!(width("LH", 2), 22);
        assert_eq!(width("", 2), 0);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut row = [0; 3];
        draw_row(&mut row, 0, "L", 6, 1, 9);
        assert_eq!(row, [9, 9, 9]);
        draw_row(&mut row, 2, "L", 6, 2, 1);
        assert_eq!(row, [9, 9, 9]);
    }
}
