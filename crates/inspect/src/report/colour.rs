//! The two colour maps of the pictures, and how a weight becomes a shade.
//!
//! Both run evenly in lightness, so that they survive a grey printer and every kind of colour blindness:
//! `DAY` from paper to indigo, `NIGHT` from slate to pale yellow.

/// A colour as red, green, blue.
pub(super) type Rgb = [u8; 3];

/// Anchors at equal steps from weight 0 to 1, for light backgrounds.
pub(super) const DAY: [Rgb; 6] = [
    [0xfa, 0xf8, 0xf2],
    [0xcf, 0xe4, 0xd8],
    [0x86, 0xc3, 0xbb],
    [0x42, 0x93, 0xa6],
    [0x30, 0x5c, 0x91],
    [0x2c, 0x22, 0x5c],
];

/// Anchors at equal steps from weight 0 to 1, for dark backgrounds.
pub(super) const NIGHT: [Rgb; 6] = [
    [0x1b, 0x1f, 0x29],
    [0x30, 0x34, 0x6b],
    [0x2b, 0x6a, 0x92],
    [0x35, 0x9c, 0x94],
    [0x92, 0xcc, 0x7c],
    [0xfb, 0xf0, 0xa4],
];

/// The pairs that a causal mask forbids, on light backgrounds: beside the colour map, not on it.
pub(super) const MASKED: Rgb = [0xe9, 0xe6, 0xde];

/// How far along the colour map a weight is drawn, 0 to 1: its square root, because in a long text a weight
/// of 0.01 is a strong one, and a linear scale would show it as nothing.
pub(super) fn shade(weight: f32) -> f32 {
    weight.clamp(0.0, 1.0).sqrt()
}

/// The colour at `position` (0 to 1) along `anchors`, linear between neighbours.
pub(super) fn along(anchors: &[Rgb; 6], position: f32) -> Rgb {
    let steps = anchors.len() - 1;
    let scaled = position.clamp(0.0, 1.0) * steps as f32;
    let lower = (scaled as usize).min(steps - 1);
    let part = scaled - lower as f32;
    std::array::from_fn(|channel| {
        let [from, to] = [lower, lower + 1].map(|index| f32::from(anchors[index][channel]));
        (from + (to - from) * part).round() as u8
    })
}

/// `#rrggbb`.
pub(super) fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2 formula.
    fn luminance(colour: Rgb) -> f64 {
        let linear = colour.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn more_weight_is_always_darker_by_day_and_lighter_by_night() {
        let ramp = |anchors: &[Rgb; 6]| -> Vec<f64> {
            (0..=40).map(|step| luminance(along(anchors, step as f32 / 40.0))).collect()
        };
        assert!(ramp(&DAY).windows(2).all(|pair| pair[1] < pair[0]));
        assert!(ramp(&NIGHT).windows(2).all(|pair| pair[1] > pair[0]));
    }

    #[test]
    fn the_ends_are_the_outer_anchors() {
        assert_eq!(along(&DAY, 0.0), DAY[0]);
        assert_eq!(along(&DAY, 1.0), DAY[5]);
        assert_eq!(along(&DAY, 0.2), DAY[1]);
        assert_eq!(along(&DAY, f32::MAX), DAY[5]);
        assert_eq!(hex([1, 171, 255]), "#01abff");
    }

    #[test]
    fn small_weights_stay_visible() {
        assert!((shade(0.01) - 0.1).abs() < 1e-6);
        assert!(shade(1.0) >= 1.0);
    }
}
