//! softdict: train tiny transformers on a text file and read what every head learned.
//!
//! `args` is the command line, `settings` the file and `--set`; each command is one file in `commands`. Data goes
//! to standard output, everything else to standard error, both through `output`.

mod ablate;
mod args;
mod checkpoint;
mod commands;
mod defaults;
mod ids;
mod machine;
mod metrics;
mod output;
mod progress;
mod prompt;
mod settings;
mod signals;
mod summary;
mod windows;
mod written;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

/// A mistake in what was asked for; the exit code is 2.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error that exits with 2.
fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) if error.use_stderr() => {
            // what was typed may hold control sequences, and is part of the message
            error.render().to_string().lines().for_each(|line| output::notice(output::visible(line)));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    if let Err(error) = signals::listen() {
        output::notice(format!("signals are not listened to: {error}"));
    }
    let result = match command {
        Command::Train(args) => commands::train::run(&args),
        Command::Sample(args) => commands::sample::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Eval(args) => commands::eval::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Attention(args) => commands::attention::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Heads(args) => commands::heads::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Lookup(args) => commands::lookup::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Diff(args) => commands::diff::run(&args).map(|()| ExitCode::SUCCESS),
        Command::History(args) => commands::history::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Export(args) => commands::export::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Import(args) => commands::import::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Lens(args) => commands::lens::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Patch(args) => commands::patch::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => commands::explain::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Tokenizer(args) => commands::tokenizer::run(args.action).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => commands::bench::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Tales(args) => commands::tales::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Cost(args) => commands::cost::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Corpus(args) => commands::corpus::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => commands::completions::run(&args).map(|()| ExitCode::SUCCESS),
    };
    signals::let_end();
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}
