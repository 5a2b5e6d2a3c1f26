//! What holds for every format alike: nothing active, nothing remote, any size.

use super::*;
use crate::maps::MapParts;
use crate::maps::tests::uniform;

const HOSTILE: [&str; 7] = [
    "</script><img src=x onerror=alert(1)>",
    "\u{1b}[31m",
    "\u{9b}2J",
    "\u{202e}txet",
    "]]>\"'&amp;",
    "=HYPERLINK(1)",
    "\0\u{7f}\u{2028}\r\n",
];

fn written(format: Format, maps: &AttentionMaps<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(format, maps, &Style { color: false, width: 90 }, &mut out).unwrap();
    out
}

fn text(format: Format, maps: &AttentionMaps<'_>) -> String {
    String::from_utf8(written(format, maps)).unwrap()
}

const TEXTS: [Format; 5] = [Format::Term, Format::Json, Format::Csv, Format::Svg, Format::Html];

#[test]
fn no_token_reaches_a_terminal_or_page_as_anything_but_text() {
    let maps = uniform(&HOSTILE, 1, 2);
    for format in TEXTS {
        let shown = text(format, &maps);
        let active =
            |character: char| character != '\n' && character != ' ' && !crate::labels::is_visible(character);
        assert!(!shown.contains(active), "{format}");
        // the terminal and a spreadsheet show markup as it is; everything a browser parses must not
        if matches!(format, Format::Json | Format::Svg | Format::Html) {
            assert!(!shown.contains("<img") && !shown.contains("]]>"), "{format}");
        }
    }
    let page = text(Format::Html, &maps);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!text(Format::Csv, &maps).contains("\"=HYPERLINK"));
}

#[test]
fn hostile_tokens_read_back_unchanged() {
    let value: serde_json::Value =
        serde_json::from_slice(&written(Format::Json, &uniform(&HOSTILE, 1, 1))).unwrap();
    assert_eq!(value["tokens"], serde_json::json!(HOSTILE));
}

#[test]
fn pages_and_drawings_refer_to_nothing_outside() {
    for tokens in [3, 150] {
        let maps = uniform(&vec!["t"; tokens], 1, 1);
        let page = text(Format::Html, &maps);
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("//cdn"));
        assert!(!page.contains(" src=") && !page.contains("@import") && !page.contains("url("));
        let drawn = text(Format::Svg, &maps).replacen("http://www.w3.org/2000/svg", "", 1);
        assert!(!drawn.contains("http:") && !drawn.contains("https:") && !drawn.contains("<script"));
    }
}

#[test]
fn one_token_works_in_every_format() {
    for format in Format::ALL {
        assert!(!written(format, &uniform(&[""], 1, 1)).is_empty(), "{format}");
    }
}

#[test]
fn attention_both_ways_works_in_every_format() {
    let parts = MapParts {
        tokens: vec!["a".into(), "b".into()],
        token_ids: vec![0, 1],
        prompt_tokens: 2,
        layers: vec![3],
        heads: vec![5],
        causal: false,
        ablated: Vec::new(),
    };
    let maps = AttentionMaps::new(parts, vec![0.25, 0.75, 0.5, 0.5]).unwrap();
    for format in Format::ALL {
        assert!(!written(format, &maps).is_empty(), "{format}");
    }
    assert!(text(Format::Svg, &maps).contains("<title>0 a looks at 1 b: 0.750</title>"));
    assert!(text(Format::Csv, &maps).contains("3,5,0,1,\"a\",\"b\",0.75"));
}

#[test]
fn every_report_with_room_for_words_says_which_heads_were_taken_away() {
    let parts = MapParts {
        tokens: vec!["a".into()],
        token_ids: vec![0],
        prompt_tokens: 1,
        layers: vec![0],
        heads: vec![0],
        causal: true,
        ablated: vec!["1.0".parse().unwrap(), "0.3=mean".parse().unwrap()],
    };
    let maps = AttentionMaps::new(parts, vec![1.0]).unwrap();
    for format in [Format::Term, Format::Png, Format::Svg, Format::Html] {
        let shown = String::from_utf8_lossy(&written(format, &maps)).into_owned();
        assert!(shown.contains(", without heads 1.0=zero, 0.3=mean"), "{format}");
        let whole = String::from_utf8_lossy(&written(format, &uniform(&["a"], 1, 1))).into_owned();
        assert!(!whole.contains("without heads"), "{format}");
    }
    assert!(text(Format::Json, &maps).contains(r#""ablated":["1.0=zero","0.3=mean"]"#));
    let bytes = written(Format::Safetensors, &maps);
    let (_, header) = ::safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().clone().unwrap()["ablated"], r#"["1.0=zero","0.3=mean"]"#);
}

#[test]
fn two_writes_of_every_format_give_the_same_bytes() {
    for format in Format::ALL {
        assert_eq!(
            written(format, &uniform(&HOSTILE, 2, 2)),
            written(format, &uniform(&HOSTILE, 2, 2)),
            "{format}"
        );
    }
}

/// Maps like trained ones: some heads sharp, some spread, none smooth.
fn trained_like(layers: usize, heads: usize, tokens: usize) -> AttentionMaps<'static> {
    let mut stream = softdict_random::Stream::new(1, softdict_random::Purpose::Scores, 0);
    let mut values = Vec::new();
    for head in 0..layers * heads {
        let sharpness = 0.5 + 2.5 * (head % 4) as f64 / 3.0;
        for query in 0..tokens {
            let raw: Vec<f64> = (0..=query).map(|_| (sharpness * stream.normal()).exp()).collect();
            let sum: f64 = raw.iter().sum();
            values.extend(raw.iter().map(|weight| (weight / sum) as f32));
            values.extend(std::iter::repeat_n(0.0, tokens - query - 1));
        }
    }
    let parts = MapParts {
        tokens: (0..tokens).map(|token| format!(" w{}", token * 7919 % 1000)).collect(),
        token_ids: (0..tokens as u32).collect(),
        prompt_tokens: tokens,
        layers: (0..layers).collect(),
        heads: (0..heads).collect(),
        causal: true,
        ablated: Vec::new(),
    };
    AttentionMaps::new(parts, values).unwrap()
}

#[test]
fn sizes_are_known_in_advance() {
    for (layers, heads, tokens) in [(2, 4, 8), (2, 4, 48), (1, 2, 300)] {
        let maps = trained_like(layers, heads, tokens);
        for format in Format::ALL {
            let (found, said) =
                (written(format, &maps).len() as f64, format.size_estimate(&maps.shape()) as f64);
            // the documented factor; NPY and safetensors differ by their headers only
            assert!(
                found < said * 3.0 && said < found * 3.0,
                "{format} {tokens}: {found} bytes, said {said}"
            );
            if matches!(format, Format::Npy | Format::Safetensors) {
                assert!((found - said).abs() < 600.0 + 8.0 * tokens as f64, "{format}: {found}, said {said}");
            }
        }
    }
    let large = Shape { layers: 6, heads: 6, tokens: 512 };
    assert_eq!(large.weights(), 9_437_184);
    assert_eq!(Format::Npy.size_estimate(&large), 4 * 9_437_184 + 128);
    let absurd = Shape { layers: usize::MAX, heads: usize::MAX, tokens: 1 };
    assert!(Format::ALL.into_iter().all(|format| format.size_estimate(&absurd) > 1 << 60));
}

#[test]
fn formats_are_named_and_found_by_extension() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    assert_eq!(Format::from_extension(Path::new("a.b/maps.SafeTensors")).unwrap(), Format::Safetensors);
    assert_eq!(Format::from_extension(Path::new("out.txt")).unwrap(), Format::Term);
    let error = "pdf\u{1b}".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("`pdf\\u{1b}` is not a format") && error.contains("safetensors"), "{error}");
    for path in ["maps", "maps.pdf", ".json", "maps.term"] {
        let error = Format::from_extension(Path::new(path)).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("--format"), "{error}");
    }
}
