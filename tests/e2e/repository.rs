//! What the repository promises: the committed checkpoint answers at once, and the README says what is so.

use crate::support::{Call, Lab};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

const TALES_TINY: &str = "checkpoints/tales-tiny";

/// The binary in the repository's folder, as the README has it.
fn softdict(args: &[&str]) -> Call {
    Call::new().args(args).at(root())
}

/// The likeliest next word.
fn answer(prompt: &str) -> String {
    let flags = ["--prompt", prompt, "--tokens", "1", "--temperature", "0"];
    let done = softdict(&["sample", TALES_TINY]).args(&flags).ok();
    done.text().strip_prefix(prompt).unwrap().trim().to_owned()
}

/// What the table of a line binds to a key.
fn bound<'t>(table: &'t str, key: &str) -> &'t str {
    let mut words = table.split_whitespace();
    words.find(|word| *word == key).unwrap();
    words.next().unwrap()
}

#[test]
fn the_committed_checkpoint_looks_up_what_it_has_never_seen() {
    // lines of another seed than the training's; the first query cannot be answered by elimination
    let lines = Call::new().args(&["corpus", "dictionaries", "--lines", "25", "--seed", "99"]).ok();
    let right = lines.text().lines().filter(|line| {
        let (table, queries) = line.split_once(" ; ").unwrap();
        let key = queries.split_whitespace().next().unwrap();
        answer(&format!("{table} ; {key}")) == bound(table, key)
    });
    // guessing one of the four values of the table is right in 6 of 25
    let right = right.count();
    assert!(right >= 23, "{right} of 25 first queries are answered from the table");
}

#[test]
fn the_committed_checkpoint_answers_what_the_readme_asks() {
    let readme = readme();
    let asked = readme.lines().filter(|line| line.starts_with("softdict ") && line.contains(TALES_TINY));
    let mut commands = Vec::new();
    for line in asked {
        // the words of a shell, of which only the prompt is quoted
        let mut words = Vec::new();
        for (part, text) in line.split('#').next().unwrap().split('"').enumerate() {
            let quoted = part % 2 == 1;
            words.extend(if quoted { vec![text] } else { text.split_whitespace().collect() });
        }
        let done = softdict(&words[1..]).ok();
        commands.push(words[1].to_owned());
        if words[1] == "sample" {
            let prompt = words[words.iter().position(|word| *word == "--prompt").unwrap() + 1];
            let referent = if prompt.contains("tired") { "animal" } else { "street" };
            assert_eq!(done.text(), format!("{prompt} {referent}\n"));
        }
    }
    for command in ["sample", "attention", "heads"] {
        assert!(
            commands.iter().any(|asked| asked == command),
            "the README shows no {command} of {TALES_TINY}"
        );
    }
}

#[test]
fn the_committed_checkpoint_shows_which_entry_a_head_finds() {
    let prompt = "table paris japan , tokyo cuba ; tokyo cuba";
    let call = ["attention", TALES_TINY, "--prompt", prompt, "--format", "json"];
    let json = softdict(&call).ok().json();
    let tokens: Vec<&str> =
        json["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), prompt);
    let find = |word: &str| tokens.iter().position(|token| token.trim() == word).unwrap();
    let (query, entry) = (tokens.len() - 2, find("cuba"));
    // some head of the second layer reads the answer's place when the query is asked
    let layers = json["attention"].as_array().unwrap();
    let heads = layers.iter().flat_map(|layer| layer.as_array().unwrap());
    let found = heads.map(|head| head[query][entry].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(found > 0.5, "the entry gets at most {found}");
    let one = softdict(&["attention", TALES_TINY, "--prompt", prompt, "--layer", "1"]).ok();
    assert!(one.text().contains("layer 1") && !one.text().contains("layer 0"));
}

#[test]
fn the_committed_checkpoint_has_scored_heads_and_is_small_and_unbound() {
    let heads = softdict(&["heads", TALES_TINY, "--json"]).ok().json();
    assert!(heads.as_array().unwrap().len() >= 4);
    let (mut bytes, mut folders) = (0, vec![root().join(TALES_TINY)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
                continue;
            }
            let content = fs::read(&path).unwrap_or_default();
            bytes += if path.is_symlink() { 0 } else { content.len() };
            let text = String::from_utf8_lossy(&content);
            for place in ["/home/", "/root/", "/tmp/", "/Users/"] {
                assert!(!text.contains(place), "{} names {place}", path.display());
            }
        }
    }
    assert!(bytes < 1 << 20, "{bytes} bytes");
    // a copy elsewhere answers the same
    let lab = Lab::new();
    let prompt =
        ["--prompt", "table paris japan , tokyo cuba ; tokyo", "--tokens", "1", "--temperature", "0"];
    let there = lab.softdict(&["sample"]).arg(root().join(TALES_TINY)).args(&prompt).ok();
    assert_eq!(there.stdout, softdict(&["sample", TALES_TINY]).args(&prompt).ok().stdout);
}

/// The rows of the README's table of commands: the first cell and the second.
fn rows(readme: &str) -> Vec<(String, String)> {
    let lines = readme.lines().skip_while(|line| !line.starts_with("| command | does |")).skip(2);
    let cells = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').splitn(2, '|').map(|cell| cell.trim().to_owned());
        (cells.next().unwrap(), cells.next().unwrap())
    });
    cells.collect()
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_command_and_flag_of_the_readme_exists_and_no_command_is_left_out() {
    let readme = readme();
    let rows = rows(&readme);
    assert!(rows.len() >= 7, "the table of commands has {} rows", rows.len());
    let mut known = Vec::new();
    for (commands, text) in &rows {
        for command in quoted(commands) {
            let command = command.split_whitespace().next().unwrap();
            known.push(command.to_owned());
            let help = Call::new().args(&[command, "--help"]).ok();
            let flags = quoted(text).filter_map(|quoted| quoted.split_whitespace().next());
            for flag in flags.filter(|flag| flag.starts_with("--")) {
                assert!(help.text().contains(flag), "{command} has no {flag}");
            }
        }
    }
    let help = Call::new().args(&["--help"]).ok();
    let commands = help.text().lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands =
        commands.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    for command in commands.filter(|command| *command != "help") {
        assert!(known.iter().any(|known| known == command), "the README says nothing of {command}");
    }
}

#[test]
fn what_the_readme_names_is_there() {
    let readme = readme();
    let placeholder = readme.split_whitespace().find(|word| word.starts_with('@') && word.ends_with('@'));
    assert_eq!(placeholder, None, "a placeholder is left in the README");
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(link.starts_with("https://") || root().join(link).exists(), "{link}");
    }
    let crates = readme.lines().filter_map(|line| line.strip_prefix("crates/")?.split_whitespace().next());
    let mut named: Vec<&str> = crates.collect();
    named.sort_unstable();
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut folders: Vec<String> = folders.map(|name| name.to_string_lossy().into_owned()).collect();
    folders.sort_unstable();
    assert_eq!(named, folders);
}

#[test]
fn the_formats_that_the_readme_names_are_those_there_are() {
    let readme = readme();
    let line = readme.lines().find(|line| line.contains("every head's pattern as")).unwrap();
    let (_, list) = line.split_once("every head's pattern as").unwrap();
    let formats: Vec<&str> = quoted(list).collect();
    let lab = Lab::trained(&[]);
    for format in &formats {
        lab.softdict(&["attention", "run", "--prompt", "the", "--format", format]).ok();
    }
    let error = lab.softdict(&["attention", "run", "--prompt", "the", "--format", "none"]).fails(2).stderr;
    let help = Call::new().args(&["attention", "--help"]).ok();
    assert_eq!(formats.len(), 8);
    assert!(formats.iter().all(|format| error.contains(format) && help.text().contains(format)), "{error}");
}

#[test]
fn the_committed_checkpoint_shows_what_it_learned_of_the_tales() {
    let found = softdict(&["tales", TALES_TINY, "--lines", "60", "--json"]).ok().json();
    let share =
        |kind: &str| found[kind]["right"].as_f64().unwrap() / found[kind]["questions"].as_f64().unwrap();
    assert!(share("dictionaries") >= 0.98, "{}", found["dictionaries"]);
    assert!(share("pronouns") > 0.95, "{}", found["pronouns"]);
    let (entry, others) =
        (found["dictionaries"]["entry"].as_f64().unwrap(), found["dictionaries"]["others"].as_f64().unwrap());
    assert!(entry >= 0.85 && others < 0.1, "{}", found["dictionaries"]);
    let rows = found["table"]["rows"].as_array().unwrap();
    let right = rows.iter().filter(|row| row["right"] == true).count();
    assert!(rows.len() == 4 && right == 4, "{rows:?}");
    assert!(found["carriers"][0]["share"].as_f64().unwrap() > 0.2);
    let text = softdict(&["tales", TALES_TINY, "--lines", "5"]).ok();
    assert!(text.text().contains("DICTIONARIES") && text.text().contains("What carries the choice"));
    let lab = Lab::trained(&[]);
    lab.softdict(&["tales", "run"]).fails(1).says(&["tales"]);
    // letters that spell a word tell each other, and look nothing up
    let tales = softdict(&["corpus", "--lines", "100"]).ok();
    let spelled = Lab::with(tales.text());
    spelled.train("run", &["model.context=160", "train.steps=2"]).ok();
    spelled.softdict(&["tales", "run"]).fails(1).says(&["its tokens are not words of the tales"]);
}

#[test]
fn every_test_that_the_page_on_reliability_names_is_there() {
    fn read(folder: &Path, all: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, all);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut code = String::new();
    for folder in ["tests", "crates"] {
        read(&root().join(folder), &mut code);
    }
    let page = fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    let (_, cases) = page.split_once("the test that holds each").unwrap();
    let names: Vec<&str> = quoted(cases).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "{name} is no test");
    }
}
