//! Streams, help and exit codes: data on standard output, everything else on standard error, in plain lines.

use crate::support::{BINARY, Call, Lab, story};
use std::process::{Command, Stdio};

const COMMANDS: [&str; 19] = [
    "train",
    "sample",
    "eval",
    "attention",
    "heads",
    "lookup",
    "lens",
    "patch",
    "diff",
    "history",
    "export",
    "import",
    "tales",
    "explain",
    "cost",
    "bench",
    "tokenizer",
    "corpus",
    "completions",
];

#[test]
fn a_log_that_is_no_terminal_has_one_plain_line_an_interval() {
    let lab = Lab::new();
    let done = lab.train("run", &["train.steps=200", "train.log_every=20", "train.eval_every=100"]).ok();
    assert!(!done.stderr.contains(['\u{1b}', '\r']), "{:?}", done.stderr);
    let lines = |start: &str| done.stderr.lines().filter(|line| line.starts_with(start)).count();
    // the first, then every twentieth
    assert_eq!((lines("step "), lines("eval at step ")), (11, 2));
    assert!(done.stderr.lines().count() < 50, "{}", done.stderr);
    for line in done.stderr.lines().filter(|line| line.starts_with("step ")) {
        let rate = line.split("  ").find_map(|part| part.strip_suffix(" tokens/s")).unwrap();
        let rate: f64 = rate.replace(',', "").parse().unwrap();
        assert!(rate > 0.0 && line.ends_with(" left"), "{line}");
    }
    // the sample at the end is the only data
    assert!(!done.text().contains(['\u{1b}', '\r']), "{:?}", done.text());
    assert!(!done.text().contains("step ") && !done.text().contains("loss"), "{}", done.text());
}

#[test]
fn the_plan_is_told_before_the_first_step() {
    let lab = Lab::new();
    let done = lab.train("run", &[]).ok();
    let (plan, _) = done.stderr.split_once("step 1/20").unwrap();
    for part in [
        "parameters",
        "decay",
        "text",
        "training",
        "device",
        "memory",
        "time",
        "tokens/s",
        "GPTNeoXForCausalLM",
    ] {
        assert!(plan.contains(part), "{part} is not in\n{plan}");
    }
    // the parts add up to the whole
    let line = plan.lines().find(|line| line.starts_with("parameters")).unwrap().replace(',', "");
    let numbers: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers[0], numbers[1..].iter().sum::<usize>(), "{line}");
    assert_eq!(lab.events("run", "start")[0]["parameters"], numbers[0]);
}

#[test]
fn standard_output_holds_data_alone() {
    let lab = Lab::trained(&[]);
    let sample = lab.softdict(&["sample", "run", "--prompt", "the", "--tokens", "9", "--seed", "1"]).ok();
    assert!(sample.text().starts_with("the"));
    assert!((12..=13).contains(&sample.text().chars().count()), "{:?}", sample.text());
    for call in [
        vec!["eval", "run", "--json"],
        vec!["heads", "run", "--json"],
        vec!["attention", "run", "--prompt", "the", "--format", "json"],
        vec!["sample", "run", "--json", "--tokens", "2"],
    ] {
        lab.softdict(&call).ok().json();
    }
}

#[test]
fn colours_and_control_characters_stay_out_of_pipes() {
    let lab = Lab::trained(&[]);
    for call in [vec!["attention", "run", "--prompt", "the cat"], vec!["heads", "run"], vec!["eval", "run"]] {
        let done = lab.softdict(&call).ok();
        assert!(!done.text().contains('\u{1b}') && !done.stderr.contains('\u{1b}'));
    }
    // nor can a prompt bring them to the messages
    let done = lab.softdict(&["sample", "run", "--prompt", "the\u{1b}[31m"]).fails(1);
    assert!(!done.stderr.contains('\u{1b}'), "{:?}", done.stderr);
    lab.softdict(&["train", "no\u{1b}[2J.txt", "--out", "x"]).fails(1).says(&["no\\u{1b}[2J.txt"]);
}

#[test]
fn every_command_has_a_help_that_explains_every_flag() {
    let whole = Call::new().args(&["--help"]).ok();
    for command in COMMANDS {
        assert!(whole.text().contains(&format!("\n  {command} ")), "{command}");
        let help = Call::new().args(&[command, "--help"]).ok();
        assert!(help.text().contains("Usage: softdict ") && help.stderr.is_empty());
        let lines: Vec<&str> = help.text().lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("--"))
        {
            let beside = line.trim_start().split("  ").skip(1).any(|part| !part.trim().is_empty());
            let below = lines.get(number + 1).is_some_and(|next| next.starts_with("          "));
            assert!(beside || below, "{command}: {line} has no explanation");
        }
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{command}");
    }
    for action in ["train", "encode", "decode", "show"] {
        assert!(Call::new().args(&["tokenizer", action, "--help"]).ok().text().contains("Usage: "));
    }
    assert!(Call::new().args(&["--version"]).ok().text().starts_with("softdict "));
}

#[test]
fn exit_codes_tell_mistakes_of_use_from_what_went_wrong() {
    let lab = Lab::new();
    for wrong in [
        &["trian"][..],
        &["train", "--fast"],
        &["sample"],
        &["attention", "run"],
        &["sample", "run", "--which", "worst"],
        &["completions", "cmd"],
        &["sample", "run", "--tokens", "many"],
    ] {
        lab.softdict(wrong).fails(2);
    }
    lab.softdict(&["sample", "nowhere"]).fails(1).says(&["nowhere"]);
    lab.softdict(&["train", "none.txt"]).fails(1).says(&["none.txt"]);
    // without a command the help is shown, as a mistake
    let nothing = Command::new(BINARY).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8(nothing.stderr).unwrap().contains("Commands:"));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Call::new().args(&["completions", shell]).ok();
        for command in COMMANDS {
            assert!(script.text().contains(command), "{shell}: {command}");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_reader_that_leaves_early_is_no_failure() {
    let lab = Lab::trained(&[]);
    for call in [
        &["corpus", "--lines", "100000"][..],
        &["tokenizer", "show", "run"],
        &["sample", "run", "--tokens", "100000"],
        &["completions", "zsh"],
    ] {
        let mut command = Command::new(BINARY);
        command.args(call).current_dir(lab.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{call:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{call:?}: {stderr}");
    }
}

#[test]
fn any_locale_and_width_will_do() {
    let lab = Lab::with(story(60) + "\u{e9}t\u{e9} \u{6f22}\n");
    lab.train("run", &[]).ok();
    let call = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(BINARY);
        let output =
            command.args(args).current_dir(lab.path("")).envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let attention = ["attention", "run", "--prompt", "\u{e9}t\u{e9} \u{6f22}"];
    let usual = call(&attention, &[("LC_ALL", "C.UTF-8")]);
    assert!(usual.contains('\u{6f22}'));
    for locale in ["C", "POSIX", "ja_JP.SJIS", "none at all"] {
        assert_eq!(call(&attention, &[("LC_ALL", locale), ("LANG", locale)]), usual, "{locale}");
    }
    for columns in ["1", "20", "0", "-3", "100000000000"] {
        assert!(!call(&attention, &[("COLUMNS", columns)]).is_empty());
    }
}
