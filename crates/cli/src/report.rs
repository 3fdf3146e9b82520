//! `polyrail report`: makes a recording of `polyrail trace` something to look at.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use polyrail_trace::report::{self, Against, Options};

use crate::output;

/// Makes an HTML page, tables (Parquet) and a Perfetto trace of a recording, and says what kind of program it was.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                  polyrail report seen\n  \
                  polyrail report after --against before\n  \
                  polyrail report --output all seen-n1 seen-n2\n\
                  Exit status: 0; 1 if there is nothing that can be read, or the report could not be written.")]
pub struct Args {
    /// Directories with recordings of one run: more than one where hosts do not share files
    #[arg(required = true, value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    /// Directory for the report (default: the recording's, or the first of them)
    #[arg(short, long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Compare it with another recording: time, calls, bytes, messages, waiting, segments sent again
    #[arg(long, value_name = "DIRECTORY")]
    against: Option<PathBuf>,
    /// Leave the page out
    #[arg(long)]
    no_html: bool,
    /// Leave the tables (Parquet) out
    #[arg(long)]
    no_parquet: bool,
    /// Leave the Perfetto trace out
    #[arg(long)]
    no_perfetto: bool,
}

/// Runs the subcommand.
pub fn main(args: &Args) -> ExitCode {
    match make(args) {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(why) => {
            output::tell!("polyrail report: {why}");
            ExitCode::FAILURE
        }
    }
}

fn make(args: &Args) -> Result<String, Box<dyn std::error::Error>> {
    let recorded = polyrail_trace::open(&args.directories)?;
    let first = args.directories.first().map_or(Path::new("."), PathBuf::as_path);
    // a single file may be named in a directory's place
    let beside = if first.is_file() { first.parent().unwrap_or(Path::new(".")) } else { first };
    let out = args.output.as_deref().unwrap_or(beside);
    let options = Options {
        html: !args.no_html,
        parquet: !args.no_parquet,
        perfetto: !args.no_perfetto,
        ..Options::default()
    };
    let other = match &args.against {
        Some(other) => {
            let other = polyrail_trace::open(std::slice::from_ref(other))?;
            Some(report::figures(&other, options.settings)?)
        }
        None => None,
    };
    let summary = report::write(&recorded, out, &options, other.as_deref())?;
    Ok(match other {
        Some(other) => format!("{summary}\n{}", Against::new(&summary.figures, &other)),
        None => summary.to_string(),
    })
}
