//! The communication matrix, with rows put together where there are more than a screen can show.

use crate::analysis::Analysis;
use crate::model::Run;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Rows of the matrix at most.
const ROWS: usize = 160;

/// Nodes and what went between them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Matrix {
    /// Names of rows and columns.
    names: Vec<String>,
    /// How many nodes a row stands for at most.
    merged: usize,
    /// Sender, receiver, bytes, messages, sends, waited, MPI messages, MPI bytes, MPI waited.
    cells: Vec<[u64; 9]>,
}

pub(super) fn matrix(run: &Run, analysis: &Analysis, names: &[String]) -> Matrix {
    let mut nodes: Vec<u32> = analysis.links.cells.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    // ranks in their order, then other processes, then what is outside
    let key = |node: &u32| {
        let mpi = run.processes.get(*node as usize).and_then(|process| process.mpi.as_ref());
        (mpi.is_none(), mpi.map(|mpi| mpi.rank), *node)
    };
    nodes.sort_unstable_by_key(key);
    nodes.dedup();
    let merged = nodes.len().div_ceil(ROWS).max(1);
    let row: HashMap<u32, u32> =
        nodes.iter().enumerate().map(|(at, node)| (*node, (at / merged) as u32)).collect();
    let name = |group: &[u32]| match group {
        [one] => names[*one as usize].clone(),
        [first, .., last] => format!("{} … {}", names[*first as usize], names[*last as usize]),
        [] => String::new(),
    };
    let mut cells: BTreeMap<(u32, u32), [u64; 7]> = BTreeMap::new();
    for (from, to, cell) in &analysis.links.cells {
        let sum = cells.entry((row[from], row[to])).or_default();
        let parts = [
            cell.bytes,
            cell.messages,
            cell.sends,
            cell.waited,
            cell.mpi_messages,
            cell.mpi_bytes,
            cell.mpi_waited,
        ];
        sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum = sum.saturating_add(part));
    }
    Matrix {
        names: nodes.chunks(merged).map(name).collect(),
        merged,
        cells: cells
            .into_iter()
            .map(|((from, to), [a, b, c, d, e, f, g])| [from.into(), to.into(), a, b, c, d, e, f, g])
            .collect(),
    }
}
