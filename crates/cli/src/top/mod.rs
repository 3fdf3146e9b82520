//! `polyrail top`: what the rails of all running Polyrail programs of this user carry, and why they do.
//!
//! `figures` makes rows of what endpoints say of themselves ([`polyrail_rails::top`]); `screen` shows them in a terminal.

mod figures;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use polyrail_rails::top::{self, Answer, Said};
use serde_json::{Value, json};

use crate::output;
use crate::table;

/// How often endpoints are asked, and how long those that say nothing are waited for.
const PERIOD: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_millis(300);

/// Shows what running programs send by which rail, live: q quits, p pauses, arrows scroll.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Print one table, of half a second, and end
    #[arg(long)]
    once: bool,
    /// Other users' programs too (as root)
    #[arg(long)]
    all: bool,
    /// Print what endpoints say, one JSON object per line
    #[arg(long)]
    json: bool,
    /// These processes alone
    #[arg(short, long, value_delimiter = ',', value_name = "PID")]
    pid: Vec<u32>,
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let shown = match (args.once, args.json) {
        (once, true) => print_json(once, args),
        (true, false) => print_table(args),
        (false, false) if !io::stdout().is_terminal() => {
            Err(io::Error::other("this is no terminal; --once prints a table, --json objects"))
        }
        (false, false) => screen::run(args),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        // who read this has had enough
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            output::tell!("polyrail top: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks all endpoints of this user, or of all users, for those processes that are wanted.
fn ask(args: &Args) -> io::Result<Vec<Answer>> {
    let mut answers = top::ask(&top::endpoints(args.all)?, PATIENCE, args.all);
    if !args.pid.is_empty() {
        answers.retain(|answer| args.pid.contains(&answer.pid));
    }
    Ok(answers)
}

/// Said in place of a table.
fn nobody(args: &Args) -> &'static str {
    match args.pid.is_empty() {
        true => "no Polyrail program of this user is running on this host",
        false => "these processes are no Polyrail programs of this user on this host",
    }
}

fn print_table(args: &Args) -> io::Result<()> {
    let before = ask(args)?;
    sleep(PERIOD);
    let view = figures::View::new(&before, &ask(args)?);
    let mut out = io::stdout().lock();
    if view.rows.is_empty() {
        return writeln!(out, "{}", nobody(args));
    }
    let heading = figures::HEADING.map(str::to_owned).to_vec();
    out.write_all(table::aligned([heading].into_iter().chain(view.rows)).as_bytes())?;
    if !view.collectives.is_empty() {
        let heading = figures::OPERATIONS.map(str::to_owned).to_vec();
        writeln!(out)?;
        out.write_all(table::aligned([heading].into_iter().chain(view.collectives)).as_bytes())?;
    }
    if !view.events.is_empty() {
        writeln!(out, "\n  Last events")?;
    }
    view.events.iter().try_for_each(|event| writeln!(out, "  {event}"))
}

fn print_json(once: bool, args: &Args) -> io::Result<()> {
    loop {
        let answers = ask(args)?;
        let mut out = io::stdout().lock();
        answers.iter().try_for_each(|answer| writeln!(out, "{}", object(answer)))?;
        out.flush()?;
        if once {
            return Ok(());
        }
        sleep(PERIOD);
    }
}

fn object(answer: &Answer) -> Value {
    let Answer { endpoint, pid, program, said } = answer;
    let without = |state: &str| json!({ "v": top::VERSION, "state": state, "pid": pid, "program": program, "endpoint": endpoint });
    match said {
        Said::All(snapshot) => {
            let mut value = json!(snapshot);
            value["state"] = "answers".into();
            value
        }
        Said::Nothing => without("computing"),
        Said::Refused => without("refuses"),
        Said::Nonsense(why) => {
            let mut value = without("unreadable");
            value["why"] = why.as_str().into();
            value
        }
    }
}
