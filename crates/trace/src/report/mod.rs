//! `polyrail report`: what a recorded run was, as a page to look at, as files for notebooks and viewers, and as text.
//!
//! | module | makes |
//! |---|---|
//! | `against` | two runs side by side |
//! | `about` | names, the headline, what must be known before anything is believed |
//! | `data` | the figures of the page |
//! | `key` | the few figures that matter, by the kind of program |
//! | `matrix` | who talked to whom, in as many rows as a screen can show |
//! | `rails` | what Polyrail's own rails tell |
//! | `page` | one HTML file that needs nothing else |
//! | `program` | the kind of program |
//! | `text` | what the command prints |

mod about;
mod against;
mod data;
mod key;
mod matrix;
mod page;
mod program;
mod rails;
mod text;

pub use against::{Against, Figure};
pub use text::Summary;

use crate::analysis::answers::Answers;
use crate::analysis::connections::Connection;
use crate::analysis::flights::Flights;
use crate::analysis::traffic::{Series, Traffic};
use crate::analysis::{Analyst, Settings};
use crate::model::{Event, Events, Run};
use crate::whole::Whole;
use crate::{classify, parquet, perfetto};
use std::io::Write;
use std::path::Path;

/// What to write, and how to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What a message is.
    pub settings: Settings,
    /// Whether to write `report.html`.
    pub html: bool,
    /// Whether to write the Parquet files.
    pub parquet: bool,
    /// Whether to write `trace.perfetto-trace`.
    pub perfetto: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { settings: Settings::default(), html: true, parquet: true, perfetto: true }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The run broke off while it was read; there is no report of a part of it.
    #[error("cannot read the recorded run: {0}")]
    Read(std::io::Error),
}

/// The figures of a run by which it is compared with another.
///
/// # Errors
/// It cannot be read.
pub fn figures(events: &dyn Events, settings: Settings) -> Result<Vec<Figure>, Error> {
    let run = events.run();
    let mut analyst = Analyst::new(run, settings);
    events.for_each(&mut |event| analyst.event(event)).map_err(Error::Read)?;
    let analysis = analyst.finish();
    Ok(against::figures(run, &analysis, &analysis.connections(run)))
}

/// What the page alone draws.
#[derive(Debug)]
struct OverTime {
    traffic: Traffic,
    flights: Flights,
}

impl OverTime {
    fn new(run: &Run) -> OverTime {
        OverTime { traffic: Traffic::new(run), flights: Flights::new(run) }
    }

    fn event(&mut self, run: &Run, event: &Event) {
        self.traffic.event(run, event);
        self.flights.event(run, event);
    }

    /// A connection's bytes over time, there or back.
    fn direction(&self, connection: &Connection, there: bool) -> Option<&Series> {
        let moved = |socket: u32| self.traffic.sockets[socket as usize].as_deref();
        let (one, other) = connection.sockets;
        match (there, other) {
            (true, _) => moved(one).map(|moved| &moved.sent),
            (false, Some(other)) => moved(other).map(|moved| &moved.sent),
            (false, None) => moved(one).map(|moved| &moved.received),
        }
    }
}

/// Reads a run once and writes `report.html`, the Parquet files and `trace.perfetto-trace` to a directory, which is made if there is
/// none; files of an earlier report are replaced. The page shows
/// the run's figures beside those of another one, where these are given.
///
/// # Errors
/// The run cannot be read, or a file not written.
pub fn write(
    events: &dyn Events,
    out: &Path,
    options: &Options,
    other: Option<&[Figure]>,
) -> Result<Summary, Error> {
    let run = events.run();
    let writing = |path: &Path, error| Error::Write { path: path.to_owned(), error };
    crate::whole::make_directory(out).map_err(|error| writing(out, error))?;
    let mut analyst = Analyst::new(run, options.settings);
    let mut answers = Answers::new(run);
    let mut over_time = options.html.then(|| OverTime::new(run));
    let mut files = Vec::new();
    let mut tables = match options.parquet {
        true => Some(
            parquet::Tables::create(run, out).map_err(|error| writing(&out.join("calls.parquet"), error))?,
        ),
        false => None,
    };
    let trace_path = out.join("trace.perfetto-trace");
    let mut trace = match options.perfetto {
        true => Some(perfetto::Trace::create(run, &trace_path).map_err(|error| writing(&trace_path, error))?),
        false => None,
    };
    let mut read = || {
        let mut each = |event: &crate::model::Event| {
            analyst.event(event);
            answers.event(run, event);
            if let Some(over_time) = &mut over_time {
                over_time.event(run, event);
            }
            if let Some(tables) = &mut tables {
                tables.event(event);
            }
            if let Some(trace) = &mut trace {
                trace.event(run, event);
            }
        };
        events.for_each(&mut each)
    };
    read().map_err(Error::Read)?;
    let analysis = analyst.finish();
    if let Some(tables) = tables {
        files.extend(
            tables.finish(run, &analysis).map_err(|error| writing(&out.join("calls.parquet"), error))?,
        );
    }
    if let Some(trace) = trace {
        trace.finish().map_err(|error| writing(&trace_path, error))?;
        files.push(trace_path);
    }
    let connections = analysis.connections(run);
    let whole = classify::whole(&analysis);
    let suggestions = classify::suggest(run, &analysis, &connections, &whole);
    let program = program::Program::new(run, &analysis, &connections, &answers);
    let own = classify::own(run, &analysis, &whole);
    let about = about::About::new(run, &analysis, &program, &whole, own.as_ref(), &suggestions);
    let figures = against::figures(run, &analysis, &connections);
    if let Some(over_time) = over_time {
        let path = out.join("report.html");
        let against = other.map(|other| Against::new(&figures, other));
        let data =
            data::data(run, &analysis, &over_time, &program, &whole, &suggestions, &about, against.as_ref());
        let write = || {
            let mut file = Whole::create(&path)?;
            file.write_all(page::page(&about, &data).as_bytes())?;
            file.finish()
        };
        write().map_err(|error| writing(&path, error))?;
        files.insert(0, path);
    }
    Ok(text::summary(run, &analysis, &connections, &whole, &suggestions, &about, figures, files))
}
