//! What serial code of all ranks changed alike: digests, and which pages are to be told nevertheless.
#[path = "coherence_support/memory.rs"]
#[expect(dead_code, reason = "shared with the simulator")]
mod memory;

use memory::{BASE, Played};
use polyrail_omp::coherence::digest::LISTED;
use polyrail_omp::coherence::{Memory, Tracked};
use polyrail_omp::layout::PAGE;
use polyrail_omp::pages::Pages;

const PAGES: usize = 20;
/// Bytes of the first page that are not shared.
const HIDDEN: usize = 100;

/// A rank's memory after such stores.
fn rank(changed: &[(usize, u8)]) -> Tracked<Played> {
    let mut memory = Played::new(PAGES, false, HIDDEN);
    changed.iter().for_each(|(at, value)| memory.store(BASE + at, &[*value]));
    let mut pending = Pages::default();
    pending.push(BASE, BASE + PAGES * PAGE);
    Tracked::new(memory, 0..0, pending)
}

fn page_of(page: usize) -> usize {
    BASE + page * PAGE
}

#[test]
fn equal_changes_have_equal_digests() {
    let digest = |changed: &[(usize, u8)]| {
        let mut rank = rank(changed);
        (rank.digest(), rank.pending.count())
    };
    let one = digest(&[(200, 1), (5 * PAGE, 2)]);
    assert_eq!(one.1, 2);
    assert_eq!(digest(&[(200, 1), (5 * PAGE, 2)]), one);
    // what is not shared does not count, nor what is as it was
    assert_eq!(digest(&[(200, 1), (5 * PAGE, 2), (HIDDEN - 1, 7), (9000, 0)]), one);
    assert_ne!(digest(&[(200, 1), (5 * PAGE, 3)]).0, one.0);
    assert_ne!(digest(&[(200, 1), (6 * PAGE, 2)]).0, one.0);
    assert_ne!(digest(&[(200, 1)]).0, one.0);
}

#[test]
fn what_differs_is_found_and_undone() {
    // on rank 0: pages 1, 2, 3, 5 and what is not shared of page 0
    let mut zero = rank(&[(PAGE, 1), (2 * PAGE, 2), (3 * PAGE, 3), (5 * PAGE, 5), (10, 1)]);
    zero.digest();
    let mut lists = Vec::new();
    let mut from = 0;
    while from < usize::MAX {
        let mut room = [0; 3 * LISTED + 5];
        let (bytes, to) = zero.hashes(from, &mut room);
        lists.push((from..to, room[..bytes].to_vec()));
        from = to;
    }
    assert_eq!(lists.iter().map(|(_, list)| list.len() / LISTED).collect::<Vec<_>>(), [3, 1]);
    zero.agree_except(0..usize::MAX, &[page_of(3)]);
    assert_eq!(zero.pending.runs(), [(page_of(3), page_of(4))]);

    // here 1 is the same, 2 is not, 3 and 5 are not changed, 4 and 7 are
    let mut other = rank(&[(PAGE, 1), (2 * PAGE, 9), (4 * PAGE, 4), (7 * PAGE, 7), (11, 3)]);
    other.digest();
    let wanted: Vec<usize> =
        lists.into_iter().flat_map(|(range, list)| other.compare(range, &list)).collect();
    assert_eq!(wanted, [page_of(2), page_of(3), page_of(5)]);
    assert_eq!(other.pending.count(), 0);
    let bytes_of = |other: &Tracked<Played>, at: usize| {
        let (now, twin) = other.memory.page(at & !(PAGE - 1));
        (now[at % PAGE], twin[at % PAGE])
    };
    let bytes = |at| bytes_of(&other, at);
    assert_eq!((bytes(page_of(1)), bytes(page_of(2)), bytes(page_of(4))), ((1, 1), (0, 0), (0, 0)));
    assert_eq!((bytes(page_of(7)), bytes(BASE + 11)), ((0, 0), (3, 0)), "what is not shared stays");
    other.memory.store(page_of(9), &[9]);
    other.collect();
    other.agree();
    assert_eq!(bytes_of(&other, page_of(9)), (9, 9));
}
