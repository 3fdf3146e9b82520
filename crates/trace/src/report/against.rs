//! Two runs side by side.

use crate::analysis::Analysis;
use crate::analysis::connections::Connection;
use crate::model::{Call, Run};
use crate::units;
use serde::Serialize;
use std::fmt;

/// Functions that are compared, those with most time in either run.
const FUNCTIONS: usize = 12;

/// A figure of a run.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// In ns, bytes, or a number.
    pub value: f64,
    /// How it is shown.
    show: fn(f64) -> String,
}

fn number(value: f64) -> String {
    units::count(value as u64)
}

fn sum(all: &[u64]) -> f64 {
    all.iter().map(|&one| one as f64).sum()
}

/// The figures by which runs are compared.
pub(super) fn figures(run: &Run, analysis: &Analysis, connections: &[Connection]) -> Vec<Figure> {
    let mut figures = Vec::new();
    // a sum of nothing is -0.0
    let mut add =
        |name: &str, value: f64, show| figures.push(Figure { name: name.into(), value: value + 0.0, show });
    let cells = |get: fn(&crate::analysis::nodes::Cell) -> u64| {
        analysis.links.cells.iter().map(|(_, _, cell)| get(cell) as f64).sum::<f64>()
    };
    let of_all = |get: fn(&Connection) -> u64| connections.iter().map(|one| get(one) as f64).sum::<f64>();
    let processes =
        |get: fn(&crate::analysis::ProcessTotals) -> f64| analysis.processes.iter().map(get).sum::<f64>();
    add("time", run.span.1.saturating_sub(run.span.0) as f64, units::ns);
    add("processes", run.processes.len() as f64, number);
    add("socket calls", analysis.seen.calls as f64, number);
    add("MPI calls", analysis.seen.mpi as f64, number);
    add("in socket calls", processes(|totals| sum(&totals.sockets)), units::ns);
    add("in MPI calls", processes(|totals| sum(&totals.mpi)), units::ns);
    add("waited for others", processes(|totals| totals.waited as f64), units::ns);
    add("idle", processes(|totals| totals.idle as f64), units::ns);
    add("bytes", cells(|cell| cell.bytes), units::bytes);
    add("messages", cells(|cell| cell.messages), number);
    add("size of the median message", analysis.all.sizes.quantile(0.5).unwrap_or(0) as f64, units::bytes);
    add("median gap", analysis.all.gaps.quantile(0.5).unwrap_or(0) as f64, units::ns);
    add("MPI messages", cells(|cell| cell.mpi_messages), number);
    add("MPI bytes", cells(|cell| cell.mpi_bytes), units::bytes);
    add("connections", connections.len() as f64, number);
    add("TCP sockets never connected", analysis.never_connected(run) as f64, number);
    add("segments sent again", of_all(|one| one.retransmissions()), number);
    add("of them for nothing", of_all(|one| one.spurious()), number);
    add("retransmission timeouts", of_all(|one| one.timeouts()), number);
    add("records lost", run.threads.iter().map(|thread| thread.lost as f64).sum(), number);
    for call in Call::ALL {
        let totals = &analysis.calls[*call as u8 as usize];
        if totals.calls > 0 {
            add(&format!("{}: calls", call.name()), totals.calls as f64, number);
            add(&format!("{}: time inside", call.name()), totals.inside as f64, units::ns);
        }
    }
    figures
}

/// A run beside another one; as text what the command prints.
#[derive(Clone, Debug)]
pub struct Against {
    /// Of each figure the run's value and the other's, where they have it.
    rows: Vec<(String, Option<Figure>, Option<Figure>)>,
}

impl Against {
    /// Puts figures beside each other that have the same name. Those that neither has are left out, and functions that take little time.
    pub fn new(ours: &[Figure], theirs: &[Figure]) -> Against {
        let find = |all: &[Figure], name: &str| all.iter().find(|figure| figure.name == name).cloned();
        let others = theirs.iter().filter(|figure| find(ours, &figure.name).is_none());
        let mut rows: Vec<_> = ours
            .iter()
            .chain(others)
            .map(|figure| (figure.name.clone(), find(ours, &figure.name), find(theirs, &figure.name)))
            .filter(|(_, ours, theirs)| ours.iter().chain(theirs).any(|figure| figure.value > 0.0))
            .collect();
        let inside = |name: &str| {
            let name = format!("{name}: time inside");
            ours.iter().chain(theirs).filter(|f| f.name == name).map(|f| f.value).fold(0.0, f64::max)
        };
        let mut functions: Vec<String> =
            rows.iter().filter_map(|row| row.0.strip_suffix(": calls").map(Into::into)).collect();
        functions.sort_by(|a, b| inside(b).total_cmp(&inside(a)));
        functions.truncate(FUNCTIONS);
        rows.retain(|(name, ..)| match name.split_once(": ") {
            Some((function, _)) => functions.iter().any(|kept| kept == function),
            None => true,
        });
        Against { rows }
    }

    /// The rows as they are shown.
    pub(super) fn compared(&self) -> Vec<Compared> {
        let shown = |figure: &Option<Figure>| figure.as_ref().map_or("-".into(), |one| (one.show)(one.value));
        let ratio = |ours: f64, theirs: f64| (theirs > 0.0).then(|| ours / theirs);
        let row = |(name, ours, theirs): &(String, Option<Figure>, Option<Figure>)| Compared {
            name: name.clone(),
            ours: shown(ours),
            theirs: shown(theirs),
            ratio: ours
                .as_ref()
                .zip(theirs.as_ref())
                .and_then(|(ours, theirs)| ratio(ours.value, theirs.value)),
        };
        self.rows.iter().map(row).collect()
    }
}

/// A row of the comparison, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    name: String,
    ours: String,
    theirs: String,
    ratio: Option<f64>,
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
        writeln!(f, "  {:width$}  {:>12}  {:>12}  ratio", "", "this run", "against")?;
        for Compared { name, ours, theirs, ratio } in self.compared() {
            let ratio = ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
            writeln!(f, "  {name:width$}  {ours:>12}  {theirs:>12}  {ratio:>5}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, value: f64) -> Figure {
        Figure { name: name.into(), value, show: number }
    }

    #[test]
    fn nothing_has_no_sign() {
        let run = Run::default();
        let analysis = crate::analysis::Analyst::new(&run, Default::default()).finish();
        for figure in figures(&run, &analysis, &[]) {
            let shown = (figure.show)(figure.value);
            assert!(!shown.starts_with('-'), "{}: {shown}", figure.name);
        }
    }

    #[test]
    fn figures_of_one_name_stand_beside_each_other() {
        let ours = [
            figure("bytes", 3000.0),
            figure("nothing", 0.0),
            figure("send: calls", 4.0),
            figure("send: time inside", 1.0),
        ];
        let theirs = [
            figure("bytes", 1500.0),
            figure("nothing", 0.0),
            figure("recv: calls", 2.0),
            figure("recv: time inside", 9.0),
        ];
        let text = Against::new(&ours, &theirs).to_string();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["bytes", "3,000", "1,500", "2.00"]);
        assert_eq!(rows[1], ["send:", "calls", "4", "-", "-"]);
        assert_eq!(rows[3], ["recv:", "calls", "-", "2", "-"]);
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn functions_that_take_little_time_are_left_out() {
        let figures: Vec<_> = (0..100)
            .flat_map(|n| {
                [figure(&format!("f{n}: calls"), 1.0), figure(&format!("f{n}: time inside"), f64::from(n))]
            })
            .collect();
        let text = Against::new(&figures, &[]).to_string();
        assert_eq!(text.lines().filter(|line| line.contains(": calls")).count(), FUNCTIONS);
        assert!(text.contains("f99: calls") && !text.contains("f10: calls"));
    }
}
