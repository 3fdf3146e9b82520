//! `polyrail completions` and what `make install` asks for: manual pages. Both come from the definitions that parse the command
//! line, so that they say what it takes.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output;

/// Prints what lets a shell complete polyrail's words.
#[derive(clap::Args)]
#[command(
    after_help = "bash: polyrail completions bash >~/.local/share/bash-completion/completions/polyrail\n\
                  zsh:  polyrail completions zsh >_polyrail, in a directory of $fpath\n\
                  fish: polyrail completions fish >~/.config/fish/completions/polyrail.fish\n\
                  Installed by make install, or by a package, they are there already."
)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Writes the manual pages: polyrail.1, and one for each subcommand.
#[derive(clap::Args)]
pub struct Pages {
    /// The directory to write them to, made if missing
    directory: PathBuf,
}

/// Prints completions.
pub fn completions(args: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Command::command(), "polyrail", &mut text);
    output::print(&String::from_utf8_lossy(&text));
    ExitCode::SUCCESS
}

/// Writes manual pages.
pub fn pages(args: &Pages) -> ExitCode {
    match write_pages(&args.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            output::tell!("polyrail: {}: {why}", args.directory.display());
            ExitCode::FAILURE
        }
    }
}

fn write_pages(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(crate::Command::command(), directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_is_shown_has_a_page_with_its_options_and_examples() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path()).unwrap();
        let command = crate::Command::command();
        let shown: Vec<_> = command.get_subcommands().filter(|task| !task.is_hide_set()).collect();
        assert!(shown.len() >= 8);
        for task in shown {
            let page = dir.path().join(format!("polyrail-{}.1", task.get_name()));
            let text =
                std::fs::read_to_string(&page).unwrap_or_else(|why| panic!("{}: {why}", page.display()));
            for option in task.get_opts().filter(|option| !option.is_hide_set()) {
                let name = option.get_long().unwrap_or_default().replace('-', "\\-");
                assert!(text.contains(&name), "{name} in {}", page.display());
            }
        }
        assert!(dir.path().join("polyrail.1").is_file());
        let hidden = command.get_subcommands().find(|task| task.is_hide_set()).unwrap().get_name();
        assert!(!dir.path().join(format!("polyrail-{hidden}.1")).exists(), "{hidden}");
    }
}
