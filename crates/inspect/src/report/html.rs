//! Attention as one interactive page that works offline.
//!
//! Template, style and scripts live in `html/`; `page.rs` makes one file of them.
//!
//! Weights are stored in steps of 1/10,000, those below 1/1,000 not at all; the page says how much that drops.
//! One map is, for each row, the number of weights kept, then pairs (keys skipped, weight·10,000), all as
//! base-128 integers, lowest digits first, in base64.

use std::io::{self, Write};

use super::colour::{DAY, MASKED, NIGHT, Rgb};
use super::escape::{Base64, json_list, json_string, markup};
use super::json::write_numbers;
use super::page::Page;
use crate::error::Result;
use crate::labels::labels;
use crate::maps::AttentionMaps;
use crate::scores::{Pattern, positional};

const PAGE: Page = Page {
    template: include_str!("html/page.html"),
    style: &[include_str!("html/page.css"), include_str!("html/parts.css")],
    script: &[
        include_str!("html/data.js"),
        include_str!("html/colour.js"),
        include_str!("html/heads.js"),
        include_str!("html/map.js"),
        include_str!("html/tokens.js"),
        include_str!("html/table.js"),
        include_str!("html/main.js"),
    ],
};

/// Steps of a stored weight.
const UNIT: f32 = 10_000.0;
/// Weights below it are not stored.
const FLOOR: f32 = 0.001;

/// Writes `maps` as an HTML page.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps, out: &mut dyn Write) -> Result<()> {
    PAGE.write(out, |name, out| {
        match name {
            "title" => out.write_all(markup(&title(maps)).as_bytes())?,
            "summary" => out.write_all(markup(&summary(maps)).as_bytes())?,
            "dropped" => out.write_all(markup(&dropped(maps)).as_bytes())?,
            "data" => write_data(maps, out)?,
            _ => {}
        }
        Ok(())
    })
}

fn counted(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn title(maps: &AttentionMaps) -> String {
    let heads = maps.layers().len() * maps.heads().len();
    format!("Where {} look{}", counted(heads, "head"), if heads == 1 { "s" } else { "" })
}

fn summary(maps: &AttentionMaps) -> String {
    let generated = maps.len() - maps.prompt_tokens();
    let layers = counted(maps.layers().len(), "layer");
    let heads = counted(maps.heads().len(), "head");
    let mask = if maps.causal() {
        "a token sees itself and what came before"
    } else {
        "a token sees the whole text"
    };
    format!("{}, {generated} of them generated. {layers} of {heads}; {mask}.", counted(maps.len(), "token"))
}

/// What the page does not hold, in one sentence.
fn dropped(maps: &AttentionMaps) -> String {
    let (mut all, mut worst, mut rows) = (0.0_f64, 0.0_f64, 0_usize);
    for row in maps.values().chunks_exact(maps.len()) {
        let lost: f64 = row.iter().filter(|&&weight| weight < FLOOR).map(|&weight| f64::from(weight)).sum();
        all += lost;
        worst = worst.max(lost);
        rows += 1;
    }
    let percent = |share: f64| {
        if share > 0.0 && share < 0.0005 { "under 0.1 %".into() } else { format!("{:.1} %", share * 100.0) }
    };
    format!(
        "Weights are rounded to four decimals. Weights below {FLOOR} are left out: {} of all attention, at most {} of \
         one token's. The formats json, npy, safetensors and csv hold every weight.",
        percent(all / rows as f64),
        percent(worst)
    )
}

fn write_data(maps: &AttentionMaps, out: &mut dyn Write) -> Result<()> {
    out.write_all(b"{\"labels\":")?;
    json_list(labels(maps.tokens()), out, |label, out| json_string(&label, out))?;
    out.write_all(b",\"ids\":")?;
    json_list(maps.token_ids(), out, |id, out| write!(out, "{id}"))?;
    write!(
        out,
        ",\"prompt\":{},\"causal\":{},\"unit\":{UNIT},\"layers\":",
        maps.prompt_tokens(),
        maps.causal()
    )?;
    write_numbers(maps.layers(), out)?;
    out.write_all(b",\"heads\":")?;
    write_numbers(maps.heads(), out)?;
    for (name, colours) in [("day", &DAY[..]), ("night", &NIGHT[..]), ("masked", &[MASKED][..])] {
        write!(out, ",\"{name}\":")?;
        json_list(colours, out, |colour, out| write_colour(*colour, out))?;
    }
    out.write_all(b",\"scores\":")?;
    write_scores(maps, out)?;
    out.write_all(b",\"maps\":")?;
    json_list(maps.patterns(), out, |(_, _, pattern), out| write_map(pattern, maps.len(), out))?;
    out.write_all(b"}")?;
    Ok(())
}

fn write_colour([red, green, blue]: Rgb, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "[{red},{green},{blue}]")
}

/// Writes for each map previous, first and current token, entropy and distance; nothing for a single token.
fn write_scores(maps: &AttentionMaps, out: &mut dyn Write) -> Result<()> {
    if maps.len() < 2 {
        out.write_all(b"null")?;
        return Ok(());
    }
    let mut all = Vec::new();
    for (_, _, weights) in maps.patterns() {
        let pattern = Pattern::new(weights, maps.len(), maps.causal())?;
        all.push([
            positional::previous_token(&pattern)?,
            positional::first_token(&pattern)?,
            positional::current_token(&pattern)?,
            positional::entropy(&pattern)?,
            positional::mean_distance(&pattern)?,
        ]);
    }
    json_list(all, out, |scores, out| json_list(scores, out, |score, out| write!(out, "{score:.4}")))?;
    Ok(())
}

fn write_map(pattern: &[f32], tokens: usize, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut encoder = Base64::new(out);
    for row in pattern.chunks_exact(tokens) {
        let kept = row.iter().enumerate().filter(|&(_, &weight)| weight >= FLOOR);
        write_varint(kept.clone().count(), &mut encoder)?;
        let mut next = 0;
        for (key, weight) in kept {
            write_varint(key - next, &mut encoder)?;
            write_varint((weight * UNIT).round() as usize, &mut encoder)?;
            next = key + 1;
        }
    }
    encoder.finish()?;
    out.write_all(b"\"")
}

fn write_varint(mut value: usize, out: &mut dyn Write) -> io::Result<()> {
    while value > 127 {
        out.write_all(&[(value & 127) as u8 | 128])?;
        value >>= 7;
    }
    out.write_all(&[value as u8])
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{check, data};
    use super::*;
    use crate::maps::MapParts;
    use crate::maps::tests::uniform;

    fn text(maps: &AttentionMaps) -> String {
        let mut out = Vec::new();
        write(maps, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_page_is_whole() {
        let page = text(&uniform(&["a", "b"], 1, 1));
        check(PAGE.template, &["title", "summary", "dropped", "data"], &page);
    }

    #[test]
    fn maps_are_packed_as_documented() {
        let parts = MapParts {
            tokens: vec!["a".into(), "b".into(), "c".into()],
            token_ids: vec![1, 2, 3],
            prompt_tokens: 3,
            layers: vec![0],
            heads: vec![0],
            causal: true,
            values: vec![1.0, 0.0, 0.0, 0.9995, 0.0005, 0.0, 0.004, 0.0, 0.996],
        };
        let page = text(&AttentionMaps::new(parts).unwrap());
        // 10000 = 78·128 + 16, 9995 = 78·128 + 11, 9960 = 77·128 + 104
        let bytes = [1, 0, 144, 78, 1, 0, 139, 78, 2, 0, 40, 1, 232, 77];
        let mut packed = Vec::new();
        let mut encoder = Base64::new(&mut packed);
        encoder.write_all(&bytes).unwrap();
        encoder.finish().unwrap();
        assert_eq!(data(&page)["maps"][0].as_str().unwrap().as_bytes(), packed);
        assert!(page.contains("left out: under 0.1 % of all attention, at most 0.1 % of one"), "{}", page);
    }

    #[test]
    fn scores_are_those_of_the_scores_module() {
        let page = data(&text(&uniform(&["t"; 8], 1, 2)));
        assert_eq!(page["scores"][1], serde_json::json!([0.2454, 0.2454, 0.3397, 1.0, 2.0]));
        assert!(data(&text(&uniform(&["t"], 1, 1)))["scores"].is_null());
    }

    #[test]
    fn a_long_text_stays_small() {
        // about 2 MB of JSON, 1 MB of raw floats for each map
        let page = text(&uniform(&["t"; 512], 1, 4));
        assert!(page.len() < 2_000_000, "{}", page.len());
    }
}
