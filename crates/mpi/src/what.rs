//! The operations, as numbers in slots' tags and messages' tags.

/// `MPI_Barrier`.
pub const BARRIER: u8 = 1;
/// `MPI_Bcast`.
pub const BCAST: u8 = 2;
/// `MPI_Reduce`.
pub const REDUCE: u8 = 3;
/// `MPI_Allreduce`.
pub const ALLREDUCE: u8 = 4;
/// `MPI_Gather`.
pub const GATHER: u8 = 5;
/// `MPI_Scatter`.
pub const SCATTER: u8 = 6;
/// `MPI_Allgather`.
pub const ALLGATHER: u8 = 7;
/// `MPI_Alltoall`.
pub const ALLTOALL: u8 = 8;
/// `MPI_Reduce_scatter_block`.
pub const REDUCE_SCATTER_BLOCK: u8 = 9;
/// `MPI_Scan`.
pub const SCAN: u8 = 10;
/// `MPI_Exscan`.
pub const EXSCAN: u8 = 11;
/// `MPI_Gatherv`.
pub const GATHERV: u8 = 12;
/// `MPI_Scatterv`.
pub const SCATTERV: u8 = 13;
/// `MPI_Allgatherv`.
pub const ALLGATHERV: u8 = 14;
/// `MPI_Alltoallv`.
pub const ALLTOALLV: u8 = 15;
/// `MPI_Alltoallw`.
pub const ALLTOALLW: u8 = 16;
/// `MPI_Reduce_scatter`.
pub const REDUCE_SCATTER: u8 = 17;

const NAMES: [&str; 17] = [
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Gather",
    "MPI_Scatter",
    "MPI_Allgather",
    "MPI_Alltoall",
    "MPI_Reduce_scatter_block",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Gatherv",
    "MPI_Scatterv",
    "MPI_Allgatherv",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Reduce_scatter",
];

/// Their names, for people.
pub fn name(what: u8) -> &'static str {
    usize::from(what).checked_sub(1).and_then(|at| NAMES.get(at)).copied().unwrap_or("something else")
}

/// The number of a name that there is, as the program is built.
pub const fn of(name: &str) -> u8 {
    let mut at = 0;
    while !is(NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at as u8 + 1
}

const fn is(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_names() {
        assert_eq!((of("MPI_Barrier"), of("MPI_Reduce_scatter")), (BARRIER, REDUCE_SCATTER));
        assert_eq!(of("MPI_Alltoall"), ALLTOALL);
        assert_eq!(name(BARRIER), "MPI_Barrier");
        assert_eq!(name(REDUCE_SCATTER), "MPI_Reduce_scatter");
        assert_eq!([0, 18, 255].map(name), ["something else"; 3]);
    }
}
