//! `polyrail info`: what this machine has, what would be used for a peer, and why not the rest.

pub mod machine;
mod peer;

use std::process::ExitCode;

use crate::bench;
use crate::output;
use crate::settings;

/// Shows the rails of this machine, or what would be used for a peer.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        polyrail info\n  \
                        polyrail info --settings\n  \
                        polyrail info --listen 7000                    on one host; then, on another:\n  \
                        polyrail info --peer n1:7000")]
pub struct Args {
    /// What would be used for this peer: HOST:PORT of polyrail info --listen there, or the text of an address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "listen")]
    peer: Option<String>,
    /// Be a peer for others to look at, at this port
    #[arg(long, value_name = "PORT", conflicts_with = "json", value_parser = clap::value_parser!(u16).range(1..))]
    listen: Option<u16>,
    /// List all settings, made or not
    #[arg(long, conflicts_with_all = ["peer", "listen"])]
    settings: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    match tell(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell!("polyrail info: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(args: &Args) -> Result<(), bench::Error> {
    if let Some(port) = args.listen {
        return bench::serve(port);
    }
    let (text, json) = match &args.peer {
        Some(peer) => {
            let found = peer::look(peer)?;
            (found.text(), found.json())
        }
        None if args.settings => (settings::list(), settings::list_json()),
        None => {
            let machine = machine::Machine::look()?;
            (machine.text(), machine.json())
        }
    };
    if args.json {
        output::print_line(&format!("{json:#}"));
    } else {
        output::print(&text);
    }
    Ok(())
}

/// The versions of the wire protocol that this polyrail speaks.
pub fn wire() -> String {
    let versions = polyrail_rails::Versions::OURS;
    match (versions.oldest(), versions.newest()) {
        (oldest, newest) if oldest == newest => newest.to_string(),
        (oldest, newest) => format!("{oldest} to {newest}"),
    }
}
