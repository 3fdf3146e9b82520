//! Completion queues.

use std::collections::VecDeque;

use polyrail_core::proto::PeerIdx;
use proptest::prelude::*;

use super::{Waiter, idle, runs};
use crate::error::Why;
use crate::ffi::*;
use crate::state::completion::{Entry, Fault};
use crate::state::cq::Cq;
use crate::state::room::{Room, entry_size};

const FORMATS: [(fi_cq_format, usize); 5] = [
    (FI_CQ_FORMAT_UNSPEC, 6),
    (FI_CQ_FORMAT_CONTEXT, 1),
    (FI_CQ_FORMAT_MSG, 3),
    (FI_CQ_FORMAT_DATA, 5),
    (FI_CQ_FORMAT_TAGGED, 6),
];
/// What nothing writes.
const UNTOUCHED: u64 = 0xdead_beef_dead_beef;

/// What arrives.
#[derive(Clone, Debug)]
enum Arrival {
    Success(Entry),
    Failure(Fault),
}

#[derive(Clone, Debug)]
enum Step {
    Push(Arrival),
    /// A read for so many, with senders or without; what progress brings meanwhile if the queue is empty.
    Read(usize, bool, Vec<Arrival>),
    ReadError,
    Close(usize),
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<[u64; 6]>(), prop::option::of((0..3usize, 0..4u32))).prop_map(|(words, from)| {
        let [context, flags, len, buf, data, tag] = words;
        let source = from.map_or(Entry::NO_SOURCE, |(endpoint, peer)| Entry::source(endpoint, PeerIdx(peer)));
        Entry { context, flags, len, buf, data, tag, source }
    })
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        4 => entry().prop_map(Arrival::Success),
        1 => (entry(), any::<u64>(), 1..99i32).prop_map(|(entry, olen, err)| {
            let why = Why { err, prov_errno: 1, data: b"why\0".to_vec() };
            Arrival::Failure(Fault { entry, olen, why })
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => arrival().prop_map(Step::Push),
        4 => (0..7usize, any::<bool>(), prop::collection::vec(arrival(), 0..6))
            .prop_map(|(count, senders, arriving)| Step::Read(count, senders, arriving)),
        2 => Just(Step::ReadError),
        1 => (0..3usize).prop_map(Step::Close),
    ]
}

/// A completion queue as the manual page has it.
#[derive(Default)]
struct Oracle {
    entries: VecDeque<Entry>,
    faults: VecDeque<Fault>,
}

impl Oracle {
    fn push(&mut self, arrival: &Arrival) {
        match arrival {
            Arrival::Success(entry) => self.entries.push_back(*entry),
            Arrival::Failure(fault) => self.faults.push_back(fault.clone()),
        }
    }

    /// What a read gets: the entries, or libfabric's number. While the queue is empty, entries that arrive go before errors.
    fn read(&mut self, count: usize, arriving: &[Arrival]) -> Result<Vec<Entry>, isize> {
        let empty = self.entries.is_empty() && self.faults.is_empty();
        if empty {
            arriving.iter().for_each(|arrival| self.push(arrival));
        }
        match (self.entries.is_empty(), self.faults.is_empty()) {
            (true, true) => Err(-(FI_EAGAIN as isize)),
            (_, false) if !empty => Err(-(FI_EAVAIL as isize)),
            (true, false) => Err(-(FI_EAVAIL as isize)),
            _ => Ok(self.entries.drain(..count.min(self.entries.len())).collect()),
        }
    }
}

fn push(cq: &mut Cq, arrival: &Arrival) {
    match arrival {
        Arrival::Success(entry) => cq.push(*entry),
        Arrival::Failure(fault) => cq.push_fault(fault.clone()),
    }
}

/// The words of C's form of an entry, which are of one size.
fn words(entry: &Entry, count: usize) -> Vec<u64> {
    [entry.context, entry.flags, entry.len, entry.buf, entry.data, entry.tag][..count].to_vec()
}

/// A read by the queue, of entries of `size` words: these and the senders, or libfabric's number. It must write nothing else.
fn read(
    cq: &mut Cq,
    size: usize,
    count: usize,
    senders: bool,
    arriving: &[Arrival],
) -> Result<(Vec<Vec<u64>>, Vec<u64>), isize> {
    let (mut at, mut from) = (vec![UNTOUCHED; size * count + 1], vec![UNTOUCHED; count + 1]);
    let sources = if senders { from.as_mut_ptr() } else { std::ptr::null_mut() };
    // SAFETY: room for as many, which nobody else is at.
    let got = unsafe {
        let room = Room::new(at.as_mut_ptr().cast(), count, cq.entry_size(), sources);
        if cq.is_empty() {
            cq.lend(room);
            arriving.iter().for_each(|arrival| push(cq, arrival));
            let got = cq.take_back(count);
            cq.lack().filter(|_| got == 0).map_or(Ok(got), Err)
        } else {
            cq.drain(room).ok_or(-(FI_EAVAIL as isize))
        }
    };
    let there = got.unwrap_or(0);
    assert!(at[there * size..].iter().all(|&word| word == UNTOUCHED), "it wrote behind the last entry");
    let noted = if senders { there } else { 0 };
    assert!(from[noted..].iter().all(|&word| word == UNTOUCHED), "it wrote behind the last sender");
    got.map(|there| (at[..there * size].chunks(size).map(<[u64]>::to_vec).collect(), from[..noted].to_vec()))
}

proptest! {
    #![proptest_config(runs())]

    #[test]
    fn nothing_is_lost_and_all_is_in_order(
        format in 0..FORMATS.len(), expected in 0..9usize, steps in prop::collection::vec(step(), 0..60)
    ) {
        let (format, size) = FORMATS[format];
        prop_assert_eq!(entry_size(format), Some(8 * size));
        let (mut cq, mut oracle) = (Cq::new(8 * size, expected, idle()), Oracle::default());
        for step in &steps {
            match step {
                Step::Push(arrival) => {
                    push(&mut cq, arrival);
                    oracle.push(arrival);
                }
                Step::Read(count, senders, arriving) => {
                    let wanted = oracle.read(*count, arriving).map(|entries| {
                        let from = entries.iter().filter(|_| *senders).map(|entry| entry.source).collect();
                        (entries.iter().map(|entry| words(entry, size)).collect(), from)
                    });
                    prop_assert_eq!(read(&mut cq, size, *count, *senders, arriving), wanted);
                }
                Step::ReadError => prop_assert_eq!(cq.take_fault(), oracle.faults.pop_front()),
                Step::Close(endpoint) => {
                    cq.forget(*endpoint);
                    let faults = oracle.faults.iter_mut().map(|fault| &mut fault.entry);
                    for entry in oracle.entries.iter_mut().chain(faults) {
                        if entry.source != Entry::NO_SOURCE && entry.source >> 32 == *endpoint as u64 {
                            entry.source = Entry::NO_SOURCE;
                        }
                    }
                }
            }
            prop_assert_eq!(cq.is_empty(), oracle.entries.is_empty() && oracle.faults.is_empty());
        }
        // all that is left comes out
        while let Some(fault) = oracle.faults.pop_front() {
            prop_assert_eq!(cq.take_fault(), Some(fault));
        }
        let left = oracle.entries.iter().map(|entry| words(entry, size)).collect::<Vec<_>>();
        let rest = read(&mut cq, size, 1000, false, &[]);
        prop_assert_eq!(rest, if left.is_empty() { Err(-(FI_EAGAIN as isize)) } else { Ok((left, Vec::new())) });
    }
}

#[test]
fn there_are_no_other_formats() {
    assert_eq!((entry_size(FI_CQ_FORMAT_TAGGED + 1), entry_size(u32::MAX)), (None, None));
}

/// It grows far beyond what it was opened for, and gives the memory of what was read back to what comes.
#[test]
fn a_queue_overflows_into_memory() {
    let mut cq = Cq::new(8, 1, idle());
    let (mut pushed, mut taken) = (0, 0);
    let rounds = if cfg!(miri) { 60 } else { 200 };
    for round in 0..rounds {
        for _ in 0..30 {
            cq.push(Entry { context: pushed, ..Entry::default() });
            pushed += 1;
        }
        for [context] in
            read(&mut cq, 1, round % 40, false, &[]).expect("there are some").0.iter().map(|words| [words[0]])
        {
            assert_eq!(context, taken);
            taken += 1;
        }
    }
    assert!(pushed - taken > 500, "{pushed} {taken}");
    assert_eq!(read(&mut cq, 1, 10_000, false, &[]).map(|(rest, _)| rest.len() as u64), Ok(pushed - taken));
}

#[test]
#[cfg_attr(miri, ignore = "needs epoll")]
fn successes_and_failures_wake_who_waits() {
    let (wait, waiter) = Waiter::new();
    let mut cq = Cq::new(8, 1, wait);
    waiter.is_woken_by(&mut cq, |cq| &mut cq.wait, |cq| cq.push(Entry::default()));
    waiter.is_woken_by(&mut cq, |cq| &mut cq.wait, |cq| cq.push_fault(Fault::default()));
}

#[test]
#[cfg_attr(miri, ignore = "needs epoll")]
fn a_reader_that_is_interrupted_returns_once() {
    let (wait, waiter) = Waiter::new();
    let mut cq = Cq::new(8, 1, wait);
    cq.wait.interrupt();
    assert!(waiter.is_called());
    cq.wait.lower();
    assert!(waiter.is_called(), "until the reader has heard of it");
    assert!(cq.wait.take_interrupt() && !cq.wait.take_interrupt());
    cq.wait.lower();
    assert!(!waiter.is_called());
}

/// What an application is shown of an error for which it gave no room stays until the next.
#[test]
fn an_errors_data_stays_readable() {
    let mut cq = Cq::new(8, 1, idle());
    assert_eq!(cq.show(b"first\0".to_vec()), b"first\0");
    assert_eq!(cq.show(b"second\0".to_vec()), b"second\0");
}
