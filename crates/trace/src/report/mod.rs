//! `polyrail report`: what a recorded run was, as a page to look at, as files for notebooks and viewers, and as text.
//!
//! | module | makes |
//! |---|---|
//! | `about` | names, the headline, what must be known before anything is believed |
//! | `data` | the figures of the page |
//! | `page` | one HTML file that needs nothing else |
//! | `text` | what the command prints |

mod about;
mod data;
mod matrix;
mod page;
mod text;

pub use text::Summary;

use crate::analysis::{Analyst, Settings};
use crate::model::Events;
use crate::{classify, parquet, perfetto};
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

/// Reads a run once and writes `report.html`, the Parquet files and `trace.perfetto-trace` to a directory, which is made if there is
/// none; files of an earlier report are replaced.
///
/// # Errors
/// The run cannot be read, or a file not written.
pub fn write(events: &dyn Events, out: &Path, options: &Options) -> Result<Summary, Error> {
    let run = events.run();
    let writing = |path: &Path, error| Error::Write { path: path.to_owned(), error };
    std::fs::create_dir_all(out).map_err(|error| writing(out, error))?;
    let mut analyst = Analyst::new(run, options.settings);
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
            if let Some(tables) = &mut tables {
                tables.event(event);
            }
            if let Some(trace) = &mut trace {
                trace.event(event);
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
    let about = about::About::new(run, &analysis, &whole, &suggestions);
    if options.html {
        let path = out.join("report.html");
        let data = data::data(run, &analysis, &connections, &whole, &suggestions, &about);
        std::fs::write(&path, page::page(&about, &data)).map_err(|error| writing(&path, error))?;
        files.insert(0, path);
    }
    Ok(text::summary(run, &analysis, &connections, &whole, &suggestions, &about, files))
}
