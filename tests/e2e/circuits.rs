//! `heads`, `lookup`, `lens`, `patch` and `--ablate`: what they say of one model agrees.

use crate::support::Lab;
use serde_json::Value;

/// Two layers of two heads that have learned a little.
const DEEP: [&str; 2] = ["model.layers=2", "model.context=32"];

fn json(lab: &Lab, args: &[&str]) -> Value {
    lab.softdict(&[args, &["--json"]].concat()).ok().json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() < tolerance, "{found}, not {expected}");
}

#[test]
fn what_heads_say_of_a_head_is_what_eval_finds_without_it() {
    let lab = Lab::trained(&DEEP);
    lab.write("held.txt", &crate::support::story(40)[..1300]);
    let heads = json(&lab, &["heads", "run", "held.txt", "--tokens", "100000"]);
    let whole = number(&json(&lab, &["eval", "run", "held.txt"])["loss"]);
    for head in heads.as_array().unwrap() {
        let name = format!("{}.{}", head["layer"], head["head"]);
        let without = lab.softdict(&["eval", "run", "held.txt", "--json", "--ablate", &name]).ok();
        assert!(without.stderr.contains(&format!("without heads {name}=zero")), "{}", without.stderr);
        // the same windows, but for what does not fill one at the end
        near(number(&without.json()["loss"]) - whole, number(&head["zero"]["increase"]), 0.01);
        let [low, high] = [0, 1].map(|end| number(&head["zero"]["interval"][end]));
        assert!(low <= number(&head["zero"]["increase"]) && number(&head["zero"]["increase"]) <= high);
    }
}

#[test]
fn a_head_taken_away_gathers_nothing_and_all_of_them_leave_the_tokens_alone() {
    let lab = Lab::trained(&DEEP);
    let all = ["--ablate", "0.0", "--ablate", "0.1", "--ablate", "1.0", "--ablate", "1.1"];
    // without any attention a token is predicted from the one before it alone
    let sample = |prompt: &str| {
        let args = ["sample", "run", "--tokens", "1", "--temperature", "0", "--json", "--prompt", prompt];
        lab.softdict(&[&args[..], &all].concat()).ok().json()["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(sample("the cat").chars().last(), sample("a dog sat").chars().last());
    let maps = |flags: &[&str]| {
        let args = ["attention", "run", "--format", "json", "--prompt", "the cat"];
        lab.softdict(&[&args[..], flags].concat()).ok().json()["attention"].clone()
    };
    let (with, without) = (maps(&[]), maps(&["--ablate", "0.1=mean"]));
    // the first layer looks as before; the second sees another stream
    assert_eq!(with[0], without[0]);
    assert_ne!(with[1], without[1]);
    for (wrong, says) in
        [("2.0", "layer 2"), ("0.7", "head 7"), ("x", "LAYER.HEAD"), ("0.0=max", "LAYER.HEAD")]
    {
        lab.softdict(&["eval", "run", "--ablate", wrong]).fails_somehow().says(&[says]);
    }
}

#[test]
fn the_parts_of_a_logit_sum_to_it_and_the_last_depth_is_the_model() {
    let lab = Lab::trained(&DEEP);
    let lens = json(&lab, &["lens", "run", "--prompt", "the cat", "--token", "a", "--against", "t"]);
    let shares: f64 = lens["shares"].as_array().unwrap().iter().map(|share| number(&share["share"])).sum();
    near(shares, number(&lens["logit"]), 1e-9);
    assert_eq!(lens["depths"].as_array().unwrap().len(), 3);
    // the likeliest token after all blocks is what greedy sampling takes
    let args = ["sample", "run", "--prompt", "the cat", "--tokens", "1", "--temperature", "0", "--json"];
    let sampled = lab.softdict(&args).ok().json()["text"].as_str().unwrap().to_owned();
    let best = lens["depths"][2]["top"][0]["token"].as_str().unwrap().replace('·', " ").replace('⏎', "\n");
    assert!(sampled.ends_with(&best), "{sampled:?} {best:?}");
    let (a, t) = (
        ["lens", "run", "--prompt", "the cat", "--token", "a"],
        ["lens", "run", "--prompt", "the cat", "--token", "t"],
    );
    let single = |args: &[&str]| number(&json(&lab, args)["logit"]);
    near(single(&a) - single(&t), number(&lens["logit"]), 1e-4);
    let without = json(&lab, &[&a[..], &["--ablate", "1.1"]].concat());
    let gone = without["shares"]
        .as_array()
        .unwrap()
        .iter()
        .find(|share| share["part"]["head"]["layer"] == 1 && share["part"]["head"]["head"] == 1);
    near(number(&gone.unwrap()["share"]), 0.0, 1e-9);
    lab.softdict(&["lens", "run", "--prompt", "the cat", "--position", "7"])
        .fails(2)
        .says(&["--position 7", "0 to 6"]);
    lab.softdict(&["lens", "run", "--prompt", "the cat", "--token", "cat"])
        .fails(2)
        .says(&["3 tokens", "c a t"]);
    assert!(lab.softdict(&["lens", "run", "--prompt", "the cat"]).ok().text().contains("after 2 blocks"));
}

#[test]
fn patching_the_embedding_that_differs_restores_everything() {
    let lab = Lab::trained(&DEEP);
    let args =
        ["patch", "run", "--clean", "the cat", "--corrupt", "the dat", "--token", "a", "--against", "t"];
    let found = json(&lab, &args);
    let residual: Vec<f64> = found["residual"][0].as_array().unwrap().iter().map(number).collect();
    assert_eq!(residual.len(), 7);
    for (position, share) in residual.iter().enumerate() {
        near(*share, if position == 4 { 1.0 } else { 0.0 }, 1e-2);
    }
    assert_eq!(found["heads"].as_array().unwrap().len(), 2);
    assert!(lab.softdict(&args).ok().text().contains("token 4 (c for d)"));
    let other = ["patch", "run", "--clean", "the cat", "--corrupt", "a", "--token", "a", "--against", "t"];
    lab.softdict(&other).fails(2).says(&["--clean has 7 tokens", "--corrupt 1"]);
    let same =
        ["patch", "run", "--clean", "the cat", "--corrupt", "the cat", "--token", "a", "--against", "t"];
    lab.softdict(&same).fails(1).says(&["nothing to patch"]);
}

#[test]
fn the_dictionary_of_a_head_is_shown_as_used_and_as_written() {
    let lab = Lab::trained(&DEEP);
    let tables = json(&lab, &["lookup", "run", "--top", "3", "--token", "t", "--token", "e"]);
    let tables = tables.as_array().unwrap();
    assert_eq!(tables.len(), 4);
    for table in tables {
        assert_eq!(table["used"].as_array().unwrap().len(), 3);
        for line in table["used"].as_array().unwrap() {
            let attention = number(&line["attention"]);
            assert!((0.0..=1.000_001).contains(&attention), "{line}");
            assert!(line["finds"].as_u64() <= line["rows"].as_u64());
        }
        let written = table["written"].as_array().unwrap();
        assert_eq!((written.len(), &written[0]["token"]), (2, &Value::from("t")));
        assert_eq!(written[0]["finds"].as_array().unwrap().len(), 3);
    }
    let one = json(&lab, &["lookup", "run", "--layer", "1", "--head", "0", "--distance", "5"]);
    assert_eq!(one.as_array().unwrap().len(), 1);
    assert_eq!((&one[0]["head"]["layer"], &one[0]["head"]["head"]), (&1.into(), &0.into()));
    lab.softdict(&["lookup", "run", "--distance", "32"]).fails(2).says(&["--distance 32", "31"]);
    assert!(lab.softdict(&["lookup", "run"]).ok().text().contains("head 1.1, as written"));
    let pairs = json(&lab, &["lookup", "run", "--composition"]);
    // two heads of one layer, each read by two of the next
    assert_eq!(pairs.as_array().unwrap().len(), 4);
    for pair in pairs.as_array().unwrap() {
        for way in ["query", "key", "value"] {
            assert!((0.0..=1.0).contains(&number(&pair[way])), "{pair}");
        }
    }
}

#[test]
fn the_page_of_heads_holds_what_the_json_says_and_obeys_no_token() {
    let lab = Lab::with(format!("{}</script><img onerror=alert(1)>\n", crate::support::story(60)));
    lab.train("run", &DEEP).ok();
    let json = json(&lab, &["heads", "run"]);
    lab.softdict(&["heads", "run", "--html", "heads.html"]).ok().says(&["heads.html"]);
    let page = lab.read_text("heads.html");
    assert!(page.contains("default-src 'none'") && !page.contains("<img"));
    assert!(!page.contains(" src=") && !page.contains(" href="));
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let (heads, expected) = (data["heads"].as_array().unwrap(), json.as_array().unwrap());
    assert_eq!(heads.len(), expected.len());
    for (head, expected) in heads.iter().zip(expected) {
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&head[key], value, "{key}");
        }
        assert!(
            !head["passages"].as_array().unwrap().is_empty() && !head["used"].as_array().unwrap().is_empty()
        );
    }
    lab.softdict(&["heads", "run", "--html", "none/heads.html"]).fails(1).says(&["--html none/heads.html"]);
}

#[test]
fn control_characters_of_a_command_line_do_not_reach_the_terminal() {
    let lab = Lab::new();
    for args in [
        ["cost", "--lengths", "\u{1b}]0;x\u{7}"],
        ["lens", "x", "--ablate=\u{1b}[2J"],
        ["\u{1b}[2J", "x", "y"],
    ] {
        let done = lab.softdict(&args).fails(2);
        assert!(!done.stderr.contains('\u{1b}') && done.stderr.contains("error"), "{:?}", done.stderr);
    }
}

#[test]
fn the_cost_of_a_run_is_that_of_its_own_settings() {
    let lab = Lab::trained(&DEEP);
    lab.write("docs.txt", "the cat\r\n \r\na dog sat\n\n\n\nthe\n");
    let cost = json(&lab, &["cost", "run", "docs.txt", "--lengths", "10,40"]);
    assert_eq!(cost["context"], 32);
    let settings = lab.read_text("run/settings.toml");
    assert!(settings.contains(&format!("\nbatch = {}\n", cost["batch"])), "{settings}");
    assert_eq!((&cost["documents"]["count"], &cost["documents"]["longest"]), (&3.into(), &10.into()));
    let parts = cost["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["parameters"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), cost["parameters"].as_u64());
    // four chunks of ten cost a quarter of the square of forty
    let (chunked, whole) =
        (&cost["lengths"][1]["chunked_attention_flops"], &cost["lengths"][1]["attention_flops"]);
    near(number(chunked) / number(whole), 0.25, 1e-9);
    for wrong in ["0", "99999999999", "x"] {
        lab.softdict(&["cost", "--lengths", wrong]).fails(2);
    }
    lab.write("blank.txt", "\n \n");
    lab.softdict(&["cost", "run", "blank.txt"]).fails(1).says(&["blank.txt", "no document"]);
}

#[test]
fn a_run_keeps_its_heads_scores_and_its_history_is_drawn() {
    let lab = Lab::trained(&["model.layers=2", "model.context=32", "train.heads_every=5"]);
    let kept = lab.events("run", "heads");
    let steps = lab.events("run", "step").last().unwrap()["step"].as_u64().unwrap();
    assert_eq!(kept.first().unwrap()["step"], 0);
    assert_eq!(kept.last().unwrap()["step"].as_u64(), Some(steps));
    for event in &kept {
        let heads = event["heads"].as_array().unwrap();
        assert_eq!(heads.len(), 4);
        assert!(heads.iter().all(|head| (0.0..=1.0).contains(&number(&head["previous_token"]))));
    }
    // the scores of the last step are those of the last checkpoint's patterns
    assert_ne!(kept.first().unwrap()["heads"], kept.last().unwrap()["heads"]);
    for (file, wanted) in [("h.svg", "<svg xmlns="), ("h.html", "<!doctype html>")] {
        lab.softdict(&["history", "run", "--out", file]).ok().says(&[file]);
        let text = lab.read_text(file);
        assert!(text.starts_with(wanted), "{text:.100}");
        // training and validation loss, learning rate, and seven scores of four heads
        assert_eq!(text.matches("<path class=\"line\"").count(), 3 + 7 * 4);
    }
    lab.softdict(&["history", "run", "--out", "h.png"]).ok().says(&["h.png"]);
    let picture = lab.read("h.png");
    let side = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    // loss, learning rate and seven scores, 480 pixels each
    assert_eq!((&picture[1..4], side(16), side(20)), (&b"PNG"[..], 1800, 9 * 480));
    for other in ["h.doc", "h"] {
        let done = lab.softdict(&["history", "run", "--out", other]).fails(2);
        done.says(&[other, ".png", ".svg", ".html"]);
    }
    lab.softdict(&["history", "none", "--out", "h.svg"]).fails(1).says(&["metrics.jsonl"]);
}

#[test]
fn the_page_of_heads_draws_how_scores_grew_where_the_run_kept_them_and_else_says_how_to() {
    let lab = Lab::trained(&["model.layers=2", "model.context=32", "train.heads_every=5"]);
    let page = |args: &[&str]| {
        lab.softdict(&[&["heads"], args, &["--html", "heads.html"]].concat()).ok();
        let page = lab.read_text("heads.html");
        let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
        (serde_json::from_str::<Value>(rest.split_once("</script>").unwrap().0).unwrap(), page)
    };
    let (data, text) = page(&["run"]);
    let kept = lab.events("run", "heads");
    assert_eq!(data["steps"], kept.iter().map(|event| event["step"].clone()).collect::<Value>());
    assert!(data["steps"].as_array().unwrap().contains(&data["checkpoint"]));
    for (head, last) in
        data["heads"].as_array().unwrap().iter().zip(kept.last().unwrap()["heads"].as_array().unwrap())
    {
        assert_eq!(head["growth"].as_array().unwrap().len(), 7);
        for line in head["growth"].as_array().unwrap() {
            let drawn = line["values"].as_array().unwrap().last().unwrap();
            near(number(drawn), number(&last[line["score"].as_str().unwrap()]), 0.0005);
        }
    }
    assert!(text.contains(&format!("at {} steps from 0 to 20 of the run", kept.len())));
    // a checkpoint alone, and a run that kept none
    std::fs::rename(lab.path("run/metrics.jsonl"), lab.path("metrics.jsonl")).unwrap();
    let (data, text) = page(&["run"]);
    assert!(data["steps"].as_array().unwrap().is_empty() && text.contains("--set train.heads_every=100"));
    assert_eq!(data["heads"][0]["growth"], serde_json::json!([]));
}

#[test]
fn two_checkpoints_of_a_run_differ_where_it_learned() {
    let lab = Lab::trained(&[
        "model.layers=2",
        "model.context=32",
        "train.checkpoint_every=10",
        "train.keep_checkpoints=0",
    ]);
    let folders: Vec<String> = std::fs::read_dir(lab.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("step-"))
        .collect();
    let (first, last) = (folders.iter().min().unwrap(), folders.iter().max().unwrap());
    let (first, last) = (format!("run/{first}"), format!("run/{last}"));
    let found = json(&lab, &["diff", &first, &last, "--prompt", "the cat"]);
    let moved: Vec<f64> =
        found["heads"].as_array().unwrap().iter().map(|head| number(&head["moved"])).collect();
    assert!(moved.len() == 4 && moved[0] > 0.0 && moved.is_sorted_by(|a, b| a >= b), "{moved:?}");
    let lens = |folder: &str| json(&lab, &["lens", folder, "--prompt", "the cat", "--top", "30"]);
    let (before, prediction) = (lens(&first), &found["predictions"][0]);
    let guesses = before["depths"][2]["top"].as_array().unwrap();
    let same = guesses.iter().find(|guess| guess["token"] == prediction["token"]).unwrap();
    near(number(&same["probability"]), number(&prediction["before"]), 1e-5);
    let same = json(&lab, &["diff", &last, &last, "--prompt", "the cat"]);
    near(number(&same["heads"][0]["moved"]), 0.0, 1e-9);
    assert!(
        lab.softdict(&["diff", &first, &last, "--prompt", "the cat"])
            .ok()
            .text()
            .contains("attention that moved")
    );
    lab.train("other", &["model.layers=1"]).ok();
    lab.softdict(&["diff", "run", "other", "--prompt", "the cat"]).fails(1).says(&["layers"]);
}
