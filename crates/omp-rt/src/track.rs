//! Which memory is shared, what of it changed, its twins, and applying others' changes.

use polyrail_omp::merge::Conflict;

/// How far an encoding came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes written.
    pub bytes: usize,
    /// Changes at lower addresses are all in; `u64::MAX` if all are.
    pub frontier: u64,
}

/// Finds what is to be tracked and begins. Twins are zero: the first encoding on rank 0 is all that is not zero.
///
/// # Safety
/// Before `main`, once, by the main thread.
pub unsafe fn start(compare: bool) {
    let _ = compare;
}

/// On ranks above 0, once, before the first merge: what is tracked becomes zero, as the twins are.
///
/// # Safety
/// Nothing that is tracked is in use.
pub unsafe fn clear() {}

/// Bytes of the main stack below `sp` are not shared.
pub fn stack_floor(sp: usize) {
    let _ = sp;
}

/// Lists what changed since the last call, adds it to what is pending, and watches it again.
pub fn collect() {}

/// Pages pending.
pub fn pending() -> usize {
    0
}

/// Encodes differences of pending pages from their twins, in order of addresses, as far as `out` has room. Changes nothing.
pub fn encode(out: &mut [u8]) -> Encoded {
    let _ = out;
    Encoded { bytes: 0, frontier: u64::MAX }
}

/// As [`encode`], and the twins take it at once: what is published.
pub fn publish(out: &mut [u8]) -> Encoded {
    let _ = out;
    Encoded { bytes: 0, frontier: u64::MAX }
}

/// Checks all ranks' blobs (`blobs[rank]`, [`encode`]'s of this rank included, by which nothing else has changed meanwhile) up to `frontier` against each other, then applies them:
/// others' to memory and twins, this rank's to the twins. What is pending below the frontier is done; the rest stays. On a conflict nothing is applied.
///
/// # Safety
/// No thread of the team runs program code.
pub unsafe fn merge(blobs: &[&[u8]], own: usize, frontier: u64) -> Result<(), Conflict> {
    let _ = (blobs, own, frontier);
    Ok(())
}

/// Applies what `rank` published, to memory and twins. Changes of this rank that are not published stay; where both changed a byte, differently, it is a conflict.
///
/// # Safety
/// Other threads of this rank may run; bytes that they use at the same time are a race of the program.
pub unsafe fn apply(rank: usize, entry: &[u8]) -> Result<(), Conflict> {
    let _ = (rank, entry);
    Ok(())
}

/// Whether `address` is shared.
pub fn is_shared(address: usize) -> bool {
    let _ = address;
    false
}

/// The agreed contents at a shared address: where the twin is.
pub fn twin(address: usize) -> Option<*const u8> {
    let _ = address;
    None
}
