//! `polyrail bench`: how fast messages travel between two processes.
//!
//! One process measures ([`session`]), the other is its partner ([`partner`]); what they do together is a [`job`]. Both use the
//! API of `rails`, with the rails and protocols that any program would get.

mod error;
mod figures;
mod job;
mod partner;
mod plot;
mod session;
mod sizes;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::output;

pub use error::Error;
pub use figures::Point;
pub use job::Pattern;
pub use partner::serve;
pub use session::{Session, connect};
pub use sizes::written;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Figure {
    /// Time of a message from one process to the other: half a round trip
    Latency,
    /// Bytes per second one way
    Bandwidth,
    /// Messages per second one way
    Rate,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Latency => "us",
            Self::Bandwidth => "MB/s",
            Self::Rate => "messages/s",
        }
    }

    fn unit_in_names(self) -> &'static str {
        match self {
            Self::Latency => "us",
            Self::Bandwidth => "MB_per_s",
            Self::Rate => "messages_per_s",
        }
    }

    fn sizes(self) -> &'static str {
        match self {
            Self::Latency | Self::Bandwidth => "1-64M",
            Self::Rate => "1-64K",
        }
    }

    fn pattern(self, size: usize) -> Pattern {
        match self {
            Self::Latency => Pattern::PingPong,
            Self::Bandwidth | Self::Rate => Pattern::Stream { window: job::Job::window_for(size) },
        }
    }

    /// The figure, from the seconds of a round.
    fn value(self, seconds: f64, size: usize, messages_per_round: u64) -> f64 {
        let messages = messages_per_round as f64;
        match self {
            Self::Latency => seconds / 2.0 * 1e6,
            Self::Bandwidth => messages * size as f64 / seconds / 1e6,
            Self::Rate => messages / seconds,
        }
    }
}

/// Measures messages between two processes.
#[derive(clap::Args)]
#[command(
    after_help = "Without --peer it starts its own second process on this host. Settings are POLYRAIL_... variables: \
                        POLYRAIL_RAILS=tcp measures TCP on one host. polyrail info --settings lists them.\n\
                        On two hosts: polyrail bench --serve 7000 there, polyrail bench latency --peer THERE:7000 here, as the \
                        same user, with the same secret file on both."
)]
pub struct Args {
    /// What to measure
    #[arg(required_unless_present_any = ["serve", "second"])]
    figure: Option<Figure>,
    /// Message sizes: a comma list of sizes and of ranges of powers of two [default: 1-64M; of rate 1-64K]
    #[arg(long, value_name = "LIST", value_parser = |text: &str| sizes::parse(text).map(Sizes))]
    size: Option<Sizes>,
    /// Measure against polyrail bench --serve or polyrail info --listen there
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
    /// Be the partner of others, at this port
    #[arg(long, value_name = "PORT", exclusive = true, value_parser = clap::value_parser!(u16).range(1..))]
    serve: Option<u16>,
    #[arg(long, hide = true, exclusive = true)]
    second: bool,
    /// How often each size is measured
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Write the figures there
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the figures there
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone)]
struct Sizes(Vec<usize>);

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let outcome = match (args.serve, args.second, args.figure) {
        (Some(port), ..) => serve(port),
        (None, true, _) => partner::second(),
        (None, false, Some(figure)) => measure(args, figure),
        (None, false, None) => Ok(()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell!("polyrail bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args, figure: Figure) -> Result<(), Error> {
    // what cannot be written is better known before anything is measured
    for file in [&args.csv, &args.svg].into_iter().flatten() {
        fs::write(file, "").map_err(|source| Error::Write { file: file.clone(), source })?;
    }
    let mut session = match &args.peer {
        Some(text) => session::connect(text)?,
        None => Session::second()?,
    };
    session.greet()?;
    let rail = session.worker().route(session.peer()).map_or("none", |(rail, _)| rail);
    let place =
        args.peer.as_ref().map_or_else(|| "two processes of this host".into(), |peer| format!("to {peer}"));
    let title = format!("{} over {rail}, {place}, median of {}", figure.name(), args.repetitions);
    output::print_line(&format!("{title}\n{}", figures::heading(figure)));

    let sizes = match &args.size {
        Some(Sizes(sizes)) => sizes.clone(),
        None => sizes::parse(figure.sizes()).unwrap_or_default(),
    };
    let mut points = Vec::new();
    for size in sizes {
        let point = measure_size(&mut session, figure, size, args.repetitions.into())?;
        output::print_line(&figures::line(&point));
        points.push(point);
    }
    if let Some(file) = &args.csv {
        fs::write(file, figures::csv(figure, rail, &points))
            .map_err(|source| Error::Write { file: file.clone(), source })?;
    }
    if let Some(file) = &args.svg {
        plot::draw(file, figure, &title, &points)?;
    }
    Ok(())
}

/// Measures one size.
fn measure_size(session: &mut Session, figure: Figure, size: usize, times: usize) -> Result<Point, Error> {
    let pattern = figure.pattern(size);
    let (seconds, rounds) = session.measure(pattern, size, times)?;
    let per_round = match pattern {
        Pattern::PingPong => 2,
        Pattern::Stream { window } => window as u64,
    };
    let values = seconds.into_iter().map(|seconds| figure.value(seconds, size, per_round)).collect();
    Ok(Point::of(size, values, rounds * per_round))
}

/// Half the round trip of a short message: a few repetitions.
pub fn round_trip(session: &mut Session) -> Result<Point, Error> {
    measure_size(session, Figure::Latency, 8, 5)
}
