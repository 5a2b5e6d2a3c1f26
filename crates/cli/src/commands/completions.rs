//! `softdict completions`: what makes a shell complete our commands and flags.

use crate::args::{Cli, Completions};
use crate::output;
use clap::CommandFactory;

pub(crate) fn run(args: &Completions) -> anyhow::Result<()> {
    // clap panics when its writer fails, as standard output may
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "softdict", &mut script);
    output::data(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "softdict", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
