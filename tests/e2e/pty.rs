//! What a person at a terminal sees: colours unless they are unwanted, progress, and no control character of a text.

use crate::support::{BINARY, Lab, TINY, story};
use std::process::{Command, Stdio};

/// Whether there is what makes a terminal here; a system without util-linux is not tested for it.
fn has_terminals() -> bool {
    Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs the binary in a terminal that `script` of util-linux makes; its exit code, and what the terminal got.
fn seen(lab: &Lab, args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let quoted = |arg: &&str| format!("'{}'", arg.replace('\'', "'\\''"));
    let line = [&BINARY].into_iter().chain(args).map(quoted).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(lab.path("")).stdin(Stdio::null());
    script.env_remove("NO_COLOR").env_remove("COLUMNS").env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
    let output = script.envs(variables.iter().copied()).output().unwrap();
    // the terminal makes \r\n of \n
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    (output.status.code(), text)
}

/// Without colour sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').unwrap().1)
}

#[test]
fn colours_come_on_a_terminal_and_stay_away_when_unwanted() {
    if !has_terminals() {
        return;
    }
    let lab = Lab::trained(&[]);
    let call = ["attention", "run", "--prompt", "the cat"];
    let (code, coloured) = seen(&lab, &call, &[]);
    assert!(code == Some(0) && coloured.contains("\u{1b}["), "{coloured:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (_, text) = seen(&lab, &call, &[variable]);
        assert!(!text.contains('\u{1b}'), "{variable:?}: {text:?}");
        assert_eq!(plain(&coloured), text);
    }
    // an empty NO_COLOR is none
    assert!(seen(&lab, &call, &[("NO_COLOR", "")]).1.contains('\u{1b}'));
}

#[test]
fn control_characters_of_a_text_are_made_visible() {
    if !has_terminals() {
        return;
    }
    let lab = Lab::with(story(30) + &"\u{1b}[2J\u{9b}\u{7}\r".repeat(20));
    lab.train("run", &[]).ok();
    for call in [
        &["sample", "run", "--prompt", "\u{1b}[2J", "--tokens", "200", "--temperature", "2", "--top-k", "0"]
            [..],
        &["sample", "run", "--prompt", "\u{1b}[2J", "--json", "--tokens", "20"],
        &["attention", "run", "--prompt", "\u{1b}[2J\r"],
        &["tokenizer", "show", "run"],
        &["sample", "\u{1b}[2J"],
    ] {
        let (_, text) = seen(&lab, call, &[("NO_COLOR", "1")]);
        let stray = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        assert_eq!(stray, None, "{call:?}: {text:?}");
    }
}

#[test]
fn progress_is_drawn_and_what_matters_stays() {
    if !has_terminals() {
        return;
    }
    let lab = Lab::new();
    let sets: Vec<&str> = TINY.iter().flat_map(|set| ["--set", set]).collect();
    let call = [&["train", "text.txt", "--out", "run"], &sets[..]].concat();
    let (code, text) = seen(&lab, &call, &[]);
    assert_eq!(code, Some(0), "{text}");
    for part in
        ["parameters", "eval at step 10", "eval at step 20", "finished after step 20", "softdict sample run"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("\nstep "), "no line a step where a bar is drawn: {text}");
    assert_eq!(lab.series("run", "step").len(), 20);
}

#[test]
fn a_file_for_programs_is_not_thrown_at_a_terminal() {
    if !has_terminals() {
        return;
    }
    let lab = Lab::trained(&[]);
    for format in ["npy", "safetensors", "png"] {
        let (code, text) = seen(&lab, &["attention", "run", "--prompt", "the", "--format", format], &[]);
        assert!(code == Some(2) && text.contains(&format!("--out FILE.{format}")), "{text}");
    }
}
