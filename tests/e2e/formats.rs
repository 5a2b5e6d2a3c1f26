//! `attention --format`: every format opens again and holds the same weights; large ones are announced or refused.

use crate::support::{Lab, story, tensors};
use safetensors::SafeTensors;
use serde_json::Value;

const PROMPT: &str = "the \"cat\" <b>&";

/// A run whose vocabulary has what files must escape.
fn lab() -> Lab {
    let lab = Lab::with(story(40) + &"\"<>&'\t\\=+@\u{7f}é漢\n".repeat(10));
    lab.train("run", &["model.layers=2"]).ok();
    lab
}

/// The report in a file and on standard output, which must be the same bytes.
#[track_caller]
fn report(lab: &Lab, format: &str) -> Vec<u8> {
    let (file, call) = (format!("a.{format}"), ["attention", "run", "--prompt", PROMPT]);
    // the name decides the format
    let done = lab.softdict(&call).args(&["--out", &file]).ok().says(&[&file]);
    assert!(done.stdout.is_empty());
    let piped = lab.softdict(&call).args(&["--format", format]).ok().stdout;
    assert_eq!(lab.read(&file), piped, "{format}");
    piped
}

fn flat(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(values) => values.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap() as f32],
    }
}

#[test]
fn all_formats_for_programs_hold_the_same_weights() {
    let lab = lab();
    let json: Value = serde_json::from_slice(&report(&lab, "json")).unwrap();
    let names: Vec<&String> = json.as_object().unwrap().keys().collect();
    let mut expected = ["tokens", "token_ids", "shape", "layers", "heads", "ablated", "attention"];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let length = PROMPT.chars().count();
    assert_eq!(json["shape"], serde_json::json!([2, 2, length, length]));
    assert_eq!(json["layers"], serde_json::json!([0, 1]));
    let weights = flat(&json["attention"]);
    assert_eq!(weights.len(), 4 * length * length);

    let npy = report(&lab, "npy");
    assert_eq!(npy[..8], *b"\x93NUMPY\x01\x00");
    let header = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
    let dictionary = std::str::from_utf8(&npy[10..header]).unwrap();
    let shape = format!("'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, {length}, {length})");
    assert!(header.is_multiple_of(64) && dictionary.contains(&shape), "{dictionary}");
    let values = npy[header..].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert_eq!(values.collect::<Vec<_>>(), weights);

    let bytes = report(&lab, "safetensors");
    let (shape, values) = tensors(&bytes).remove("attention").unwrap();
    assert_eq!((shape, values), (vec![2, 2, length, length], weights.clone()));
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ids = file.tensor("token_ids").unwrap();
    assert_eq!((ids.dtype(), ids.shape()), (safetensors::Dtype::I64, &[length][..]));
    let ids: Vec<i64> =
        ids.data().chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(serde_json::json!(ids), json["token_ids"]);
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let tokens: Value = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["tokens"]).unwrap();
    assert_eq!(tokens, json["tokens"]);

    let csv = String::from_utf8(report(&lab, "csv")).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("layer,head,query,key,query_token,key_token,weight"));
    let values: Vec<f32> = lines.map(|line| line.rsplit_once(',').unwrap().1.parse().unwrap()).collect();
    assert_eq!(values, weights);
}

#[test]
fn a_picture_is_a_png_of_the_size_that_its_header_says() {
    let lab = lab();
    let png = report(&lab, "png");
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!((&png[12..16], &png[png.len() - 8..png.len() - 4]), (&b"IHDR"[..], &b"IEND"[..]));
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    // two by two heads, each with at least a pixel for every weight
    let least = 2 * PROMPT.chars().count() as u32;
    assert!(side(16) >= least && side(20) >= least, "{} by {}", side(16), side(20));
}

#[test]
fn drawings_and_pages_need_nothing_from_outside_and_escape_the_text() {
    let lab = lab();
    for format in ["svg", "html"] {
        let page = String::from_utf8(report(&lab, format)).unwrap();
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for link in ["http:", "https:", "url(http", "src=\"/", "//cdn", "@import", "<link"] {
            assert!(!outside.contains(link), "{format} contains {link}");
        }
        assert!(!page.contains("<b>&"), "{format} must escape the prompt");
        assert!(page.trim_end().ends_with(&format!("</{format}>")), "{format} is not whole");
    }
    let svg = String::from_utf8(report(&lab, "svg")).unwrap();
    assert!(svg.starts_with("<svg ") || svg.starts_with("<?xml"));
    for head in ["layer 0, head 0", "layer 1, head 1"] {
        assert!(svg.contains(head), "{head}");
    }
}

#[test]
fn the_terminals_report_is_plain_text_in_a_pipe() {
    let lab = lab();
    let call = ["attention", "run", "--prompt", "the cat"];
    let text = lab.softdict(&call).ok();
    assert!(!text.text().contains(['\u{1b}', '\r']));
    for head in ["layer 0 head 0", "layer 0 head 1", "layer 1 head 0", "layer 1 head 1"] {
        assert!(text.text().contains(head), "{head}");
    }
    lab.softdict(&call).args(&["--out", "a.txt"]).ok();
    assert_eq!(lab.read("a.txt"), text.stdout);
    lab.softdict(&call).args(&["--format", "gif"]).fails(2).says(&["gif", "json"]);
}

#[test]
fn a_large_dump_is_announced_a_huge_one_refused_and_a_selection_written() {
    let lab = Lab::new();
    let shape = ["model.layers=6", "model.heads=6", "model.width=12", "model.context=512"];
    lab.train("run", &[&shape[..], &["train.steps=1", "train.warmup_steps=0", "train.batch=1"]].concat())
        .ok();
    let prompt = lab.read_text("text.txt").chars().take(512).collect::<String>();
    let attention = |flags: &[&str]| lab.softdict(&["attention", "run", "--prompt", &prompt]).args(flags);

    // 6 × 6 × 512 × 512 = 9,437,184 weights of four bytes
    let done = attention(&["--out", "all.npy"]).ok().says(&["--layer", "--head", "36.0 MiB"]);
    assert!(done.stderr.contains("6 layers × 6 heads × 512 × 512"), "{}", done.stderr);
    let header = lab.read("all.npy").len() - 9_437_184 * 4;
    assert!(header < 200, "{header}");

    attention(&["--out", "all.csv"]).fails(1).says(&["--layer", "--head", "MiB"]);
    assert!(!lab.has("all.csv"));
    let one = attention(&["--out", "one.csv", "--layer", "5", "--head", "0"]).ok();
    assert!(!one.stderr.contains("--layer"), "{}", one.stderr);
    assert_eq!(lab.read_text("one.csv").lines().count(), 1 + 512 * 512);
    assert!(lab.read_text("one.csv").lines().skip(1).all(|line| line.starts_with("5,0,")));
}
