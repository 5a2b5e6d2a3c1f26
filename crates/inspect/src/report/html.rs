//! Attention as one interactive page that works offline.
//!
//! Template, style and scripts live in `html/`; `page.rs` makes one file of them.
//!
//! Weights are stored in steps of 1/10,000, those below 1/1,000 not at all; where the maps would still be too large for a
//! page, only the strongest weights of each row are. The page says how much that drops, and draws it as the row's mean.
//! One map is, for each row, the number of weights kept, then pairs (keys skipped, weight·10,000), all as
//! base-128 integers, lowest digits first, in base64.

use std::io::{self, Write};
use std::mem;

use super::colour::{DAY, MASKED, NIGHT, Rgb};
use super::escape::{Base64, json_list, json_string, markup};
use super::json::write_numbers;
use super::page::Page;
use crate::error::Result;
use crate::labels::labels;
use crate::maps::{AttentionMaps, Shape};
use crate::scores::{Pattern, positional};

const PAGE: Page = Page {
    template: include_str!("html/page.html"),
    style: &[include_str!("html/page.css"), include_str!("html/parts.css"), include_str!("html/print.css")],
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
/// Bytes that the maps may take before only the strongest weights of each row are kept: a page that opens at once.
const ROOM: usize = 8 << 20;
/// Weights of a row that are kept even then.
const LEAST: usize = 16;
/// What a weight takes: a byte for its place and one or two for its value, a third more in base64.
const WEIGHT_BYTES: usize = 3;

/// Bytes of the maps of this shape, where every weight that may be there is kept.
pub(super) fn size_estimate(shape: &Shape) -> f64 {
    let [layers, heads, tokens] = [shape.layers, shape.heads, shape.tokens].map(|size| size as f64);
    let rows = layers * heads * tokens;
    // a row has at most 1,000 weights from 0.001 on, and far fewer in a long text
    let all = rows * tokens * (800.0 / tokens.max(1.0)).min(1.4);
    40_000.0 + all.min((ROOM as f64).max(rows * (LEAST * WEIGHT_BYTES) as f64)) + tokens * 24.0
}

/// Writes `maps` as an HTML page.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let most = most_kept(maps)?;
    let dropped = dropped(maps, most)?;
    PAGE.write(out, |name, out| {
        match name {
            "title" => out.write_all(markup(&title(maps)).as_bytes())?,
            "summary" => out.write_all(markup(&summary(maps, most)).as_bytes())?,
            "dropped" => out.write_all(markup(&dropped).as_bytes())?,
            "data" => write_data(maps, most, out)?,
            _ => {}
        }
        Ok(())
    })
}

fn counted(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn title(maps: &AttentionMaps<'_>) -> String {
    let heads = maps.layers().len() * maps.heads().len();
    format!("Where {} look{}", counted(heads, "head"), if heads == 1 { "s" } else { "" })
}

/// How many weights of a row are kept at most, where not all from [`FLOOR`] on fit in [`ROOM`].
fn most_kept(maps: &AttentionMaps<'_>) -> Result<Option<usize>> {
    let mut counts = Vec::new();
    maps.each_layer(&mut |layer| {
        let rows = layer.values.chunks_exact(maps.len());
        counts.extend(rows.map(|row| row.iter().filter(|&&weight| weight >= FLOOR).count()));
        Ok(())
    })?;
    let fits =
        |most: &usize| counts.iter().map(|count| count.min(most)).sum::<usize>() * WEIGHT_BYTES <= ROOM;
    let candidates: Vec<usize> = (LEAST..=maps.len()).collect();
    let fitting = candidates.partition_point(fits);
    Ok((fitting < candidates.len()).then(|| candidates[fitting.saturating_sub(1)]))
}

/// The keys of a row that are kept, in order.
fn kept(row: &[f32], most: Option<usize>) -> Vec<usize> {
    let mut keys: Vec<usize> = (0..row.len()).filter(|&key| row[key] >= FLOOR).collect();
    if let Some(most) = most.filter(|&most| most < keys.len()) {
        keys.select_nth_unstable_by(most, |&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        keys.truncate(most);
        keys.sort_unstable();
    }
    keys
}

fn summary(maps: &AttentionMaps<'_>, most: Option<usize>) -> String {
    let generated = maps.len() - maps.prompt_tokens();
    let layers = counted(maps.layers().len(), "layer");
    let heads = counted(maps.heads().len(), "head");
    let mask = if maps.causal() {
        "a token sees itself and what came before"
    } else {
        "a token sees the whole text"
    };
    let sparse = most.map_or(String::new(), |most| {
        format!(" A text this long leaves room for the {most} strongest weights of each token; the others are drawn as their mean.")
    });
    let tokens = counted(maps.len(), "token");
    let without = maps.without();
    format!("{tokens}, {generated} of them generated{without}. {layers} of {heads}; {mask}.{sparse}")
}

/// What the page does not hold, in one sentence.
fn dropped(maps: &AttentionMaps<'_>, most: Option<usize>) -> Result<String> {
    let (mut all, mut worst, mut rows) = (0.0_f64, 0.0_f64, 0_usize);
    maps.each_layer(&mut |layer| {
        for row in layer.values.chunks_exact(maps.len()) {
            let sum = |weights: &mut dyn Iterator<Item = f32>| weights.map(f64::from).sum::<f64>();
            let found = sum(&mut kept(row, most).into_iter().map(|key| row[key]));
            let lost = (sum(&mut row.iter().copied()) - found).max(0.0);
            all += lost;
            worst = worst.max(lost);
            rows += 1;
        }
        Ok(())
    })?;
    let percent = |share: f64| {
        if share > 0.0 && share < 0.0005 { "under 0.1 %".into() } else { format!("{:.1} %", share * 100.0) }
    };
    let (rest, more) = most.map_or((String::new(), ""), |most| {
        (
            format!(", and of each token's all but the {most} strongest,"),
            " Fewer heads (--layer, --head) or a shorter prompt leave room for more of them.",
        )
    });
    Ok(format!(
        "Weights are rounded to four decimals. Weights below {FLOOR}{rest} are left out: {} of all attention, at most {} of \
         one token's.{more} The formats json, npy, safetensors and csv hold every weight.",
        percent(all / rows as f64),
        percent(worst)
    ))
}

fn write_data(maps: &AttentionMaps<'_>, most: Option<usize>, out: &mut dyn Write) -> Result<()> {
    out.write_all(b"{\"labels\":")?;
    json_list(labels(maps.tokens()), out, |label, out| json_string(&label, out))?;
    out.write_all(b",\"ids\":")?;
    json_list(maps.token_ids(), out, |id, out| write!(out, "{id}"))?;
    write!(
        out,
        ",\"prompt\":{},\"causal\":{},\"unit\":{UNIT},\"floor\":{FLOOR},\"most\":",
        maps.prompt_tokens(),
        maps.causal()
    )?;
    out.write_all(most.map_or("null".to_owned(), |most| most.to_string()).as_bytes())?;
    out.write_all(b",\"layers\":")?;
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
    let mut before = "[";
    maps.each_layer(&mut |layer| {
        for (_, pattern) in layer.patterns() {
            out.write_all(mem::replace(&mut before, ",").as_bytes())?;
            write_map(pattern, maps.len(), most, out)?;
        }
        Ok(())
    })?;
    out.write_all(b"]}")?;
    Ok(())
}

fn write_colour([red, green, blue]: Rgb, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "[{red},{green},{blue}]")
}

/// Writes for each map previous, first and current token, entropy and distance; nothing for a single token.
fn write_scores(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    if maps.len() < 2 {
        out.write_all(b"null")?;
        return Ok(());
    }
    let mut all = Vec::new();
    maps.each_layer(&mut |layer| {
        for (_, weights) in layer.patterns() {
            let pattern = Pattern::new(weights, maps.len(), maps.causal())?;
            all.push([
                positional::previous_token(&pattern)?,
                positional::first_token(&pattern)?,
                positional::current_token(&pattern)?,
                positional::entropy(&pattern)?,
                positional::mean_distance(&pattern)?,
            ]);
        }
        Ok(())
    })?;
    json_list(all, out, |scores, out| json_list(scores, out, |score, out| write!(out, "{score:.4}")))?;
    Ok(())
}

fn write_map(pattern: &[f32], tokens: usize, most: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut encoder = Base64::new(out);
    for row in pattern.chunks_exact(tokens) {
        let kept = kept(row, most);
        write_varint(kept.len(), &mut encoder)?;
        let mut next = 0;
        for key in kept {
            write_varint(key - next, &mut encoder)?;
            write_varint((row[key] * UNIT).round() as usize, &mut encoder)?;
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

    fn text(maps: &AttentionMaps<'_>) -> String {
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
            ablated: Vec::new(),
        };
        let values = vec![1.0, 0.0, 0.0, 0.9995, 0.0005, 0.0, 0.004, 0.0, 0.996];
        let page = text(&AttentionMaps::new(parts, values).unwrap());
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
    fn too_many_weights_leave_the_strongest_of_each_row_and_the_page_says_so() {
        let maps = uniform(&["t"; 600], 2, 8);
        let most = most_kept(&maps).unwrap().unwrap();
        // 8 MiB at three bytes a weight, over 16 triangles of 600 rows
        assert!((450..550).contains(&most), "{most}");
        let page = text(&maps);
        assert!(page.len() < 9_000_000, "{}", page.len());
        assert!(page.contains(&format!("room for the {most} strongest weights of each token")));
        assert!(page.contains(&format!("of each token&#39;s all but the {most} strongest, are left out: ")));
        // the last row keeps `most` of 600 equal weights
        let worst = 100.0 * (1.0 - most as f64 / 600.0);
        assert!(page.contains(&format!("at most {worst:.1} % of one token")));
        assert_eq!(data(&page)["most"], most);
        let small = text(&uniform(&["t"; 60], 2, 8));
        assert!(data(&small)["most"].is_null() && !small.contains("leaves room"));
    }

    #[test]
    fn the_strongest_weights_are_kept_and_the_earlier_of_equal_ones() {
        let row = [0.1, 0.3, 0.0005, 0.1, 0.2, 0.1];
        assert_eq!(kept(&row, Some(3)), [0, 1, 4]);
        assert_eq!(kept(&row, Some(9)), [0, 1, 3, 4, 5]);
        assert_eq!(kept(&row, None), kept(&row, Some(9)));
    }

    #[test]
    fn a_long_text_stays_small() {
        // about 2 MB of JSON, 1 MB of raw floats for each map
        let page = text(&uniform(&["t"; 512], 1, 4));
        assert!(page.len() < 2_000_000, "{}", page.len());
    }
}
