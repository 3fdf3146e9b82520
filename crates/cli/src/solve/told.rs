//! What is printed of a run that has ended.

use std::fmt::Write;
use std::path::Path;

use polyrail_p2p::Scheme;
use polyrail_solve::certify::Certificate;
use polyrail_solve::gather::{Did, Solution};
use polyrail_solve::run::Task;
use polyrail_solve::sweep::Method;
use serde::Serialize;

use crate::table;

/// A run's summary, also as JSON.
#[derive(Serialize)]
pub struct Told {
    /// What this is, and how it is to be read.
    version: u32,
    task: Task,
    scheme: String,
    peers: usize,
    parts: u32,
    /// What was asked for.
    wanted: f64,
    /// The proof: each value is within its bound of the solution of the difference equations.
    certificate: Certificate,
    /// Those of all time steps, one after the other, where there are some: the bounds are of all steps until then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Certificate>,
    /// The same, computed anew of the whole solution; of the last time step alone, where there are some.
    certificate_of_the_whole: Certificate,
    /// The largest difference from the solution between the points, where that is known.
    error: Option<f64>,
    /// From the first process's start to the whole solution.
    seconds: f64,
    members: Vec<Did>,
}

impl Told {
    /// The summary of a solution.
    pub fn new(
        solution: &Solution,
        scheme: Scheme,
        peers: usize,
        parts: u32,
        wanted: f64,
        seconds: f64,
    ) -> Self {
        Self {
            version: 1,
            task: solution.task,
            scheme: scheme_name(scheme),
            peers,
            parts,
            wanted,
            certificate: solution.certificate,
            steps: if solution.task.problem.dt.is_some() { solution.steps.clone() } else { Vec::new() },
            certificate_of_the_whole: solution.again,
            error: solution.error,
            seconds,
            members: solution.shares.clone(),
        }
    }
}

/// A scheme, for people.
pub fn scheme_name(scheme: Scheme) -> String {
    match scheme {
        Scheme::Synchronous => "synchronous".into(),
        Scheme::Asynchronous => "asynchronous".into(),
        Scheme::Hybrid => "hybrid".into(),
        Scheme::Bounded(bound) => format!("values at most {bound} iterations old"),
    }
}

/// What is proven, where this was asked for.
pub fn proven(task: &Task, bound: f64, wanted: f64) -> String {
    let of = match task.problem.dt {
        Some(_) => "what the difference equations have there after these steps",
        None => "the solution of the difference equations",
    };
    format!("proven: each value is within {bound:.2e} of {of} (asked for: {wanted:.2e})\n")
}

/// What is solved, and how.
pub fn heading(task: &Task, scheme: &str) -> String {
    let n = task.problem.n;
    let method = match task.method {
        Method::Richardson => "projected Richardson",
        Method::Psor => "projected over-relaxation",
        Method::Multigrid => "projected multigrid",
    };
    let time = match task.problem.dt {
        Some(dt) => {
            format!(", {} of {dt} by implicit Euler", counted(task.steps as usize, "time step", "time steps"))
        }
        None => String::new(),
    };
    format!("obstacle problem {:?}, {n} x {n} x {n} points{time}: {method}, {scheme}", task.problem.instance)
}

/// The same for people.
pub fn summary(told: &Told, files: Option<&Path>) -> String {
    let mut text = format!(
        "{}, {} in {}\n",
        heading(&told.task, &told.scheme),
        counted(told.peers, "process", "processes"),
        counted(told.parts as usize, "part", "parts"),
    );
    let rows = told.members.iter().map(|share| {
        let progress = share.progress;
        vec![
            share.member.to_string(),
            progress.iterations.to_string(),
            format!("{:.2}", progress.seconds),
            format!("{:.0} %", 100.0 * progress.waited / progress.seconds.max(1e-9)),
            progress.changes.to_string(),
        ]
    });
    let head = ["PEER", "ITERATIONS", "SECONDS", "WAITED", "CHANGES"].map(String::from).to_vec();
    text += &table::aligned(std::iter::once(head).chain(rows));
    text += &proven(&told.task, told.certificate.bound, told.wanted);
    if let Some(error) = told.error {
        let _ = writeln!(
            text,
            "and {error:.4e} at most from the solution between the points, which is known here"
        );
    }
    let _ = writeln!(text, "{:.2} s in all", told.seconds);
    if let Some(files) = files {
        let _ = writeln!(
            text,
            "written: solution.vti, solution.svg, convergence.svg, timelines.svg, summary.json in {}",
            files.display()
        );
    }
    text
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
