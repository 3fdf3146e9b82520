//! What a team needs of other ranks. With one rank everything here is local and returns at once.

/// Where serial code resumes after a region, and how a region is named in messages.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The compiler's function.
    pub function: usize,
    /// GCC's calling convention (one pointer) or LLVM's (`gtid`, `tid`, arguments).
    pub gomp: bool,
    /// The arguments: pointers to what is shared, values of what is not.
    pub args: &'a [usize],
    /// Threads of the team, all ranks together.
    pub team: usize,
    /// What the compiler says of the place (`ident_t`'s text), 0 if nothing.
    pub place: usize,
}

/// This rank.
pub fn rank() -> usize {
    0
}
/// Ranks.
pub fn size() -> usize {
    1
}
/// Threads of each rank as the user asked (`-t`); with one rank and no agent, `OMP_NUM_THREADS` or the processors.
pub fn threads() -> usize {
    crate::icv::environment_threads()
}

/// Rank 0's main thread, in serial code: sends what serial code changed, and the region, so that other ranks call [`team::run`](crate::team::run). `sp`: the caller's frames are above.
pub fn begin(region: &Region<'_>, sp: usize) {
    let _ = (region, sp);
}

/// A barrier of all ranks, after which all memories are equal. One thread per rank calls it, all others of the team wait meanwhile. `place` is the same number on all ranks.
pub fn exchange(place: u64) {
    let _ = place;
}

/// As [`exchange`], and the bytes `lo..hi` of thread 0's stack are at the same addresses on all ranks afterwards; gives rank 0's `word` to all.
pub fn exchange_with(place: u64, lo: usize, hi: usize, word: usize) -> usize {
    let _ = (place, lo, hi);
    word
}

/// Waits for token `token`; after it this rank sees what former holders published. `turn`: wait until the token's turn is this one (`ordered`; turns begin at 0).
/// Within a rank, threads exclude each other before they call this.
pub fn lock(token: u64, turn: Option<u64>) {
    let _ = (token, turn);
}
/// As [`lock`] without waiting: whether it was got.
pub fn try_lock(token: u64) -> bool {
    let _ = token;
    true
}
/// Publishes what this rank changed and gives the token back; `turn`: whose turn it is from now on.
pub fn unlock(token: u64, turn: Option<u64>) {
    let _ = (token, turn);
}
/// Publishes and sees what others published: `flush`.
pub fn flush() {}

/// Iterations of a loop that is shared out at run time: `number` names the loop (the same on all ranks, never used twice in a region), `total` iterations,
/// chunks of `chunk`, or ever smaller ones of at least `chunk` for `guided` threads. The first iteration and how many.
pub fn take(number: u64, total: u64, chunk: u64, guided: Option<u64>) -> Option<(u64, u64)> {
    let _ = (number, total, chunk, guided);
    None
}

/// Ranks above 0: ships `lo..hi` of the calling thread's stack, and `word`, to rank 0. Does not wait.
pub fn give(number: u64, lo: usize, hi: usize, word: usize) {
    let _ = (number, lo, hi, word);
}
/// Rank 0: waits for what `rank` gave, has it at the same addresses, and returns its word.
pub fn collect(number: u64, rank: usize) -> usize {
    let _ = (number, rank);
    0
}
