//! Both queues against a plain list that is searched from the front, with few tags, sources and masks, so that
//! everything collides with everything.
use polyrail_core::matching::{Handle, PostedQueue, Receive, Source, UnexpectedQueue};
use proptest::collection::vec;
use proptest::prelude::*;

/// fi_tagged(3), to the letter: send_tag & ~ignore == recv_tag & ~ignore.
fn matches(receive: &Receive, source: u32, tag: u64) -> bool {
    tag & !receive.ignore == receive.tag & !receive.ignore
        && receive.source.is_none_or(|only| only.0 == source)
}

fn source() -> impl Strategy<Value = u32> {
    0..4u32
}

fn tag() -> impl Strategy<Value = u64> {
    // Bits at both ends, and many tags once in a while, so that tables grow.
    prop_oneof![4 => (0..4u64, 0..4u64).prop_map(|(high, low)| high << 62 | low), 1 => 0..1000u64]
}

fn receive() -> impl Strategy<Value = Receive> {
    let usual = prop::sample::select(vec![0, 3 << 62, 3 << 62 | 3, u64::MAX]);
    let strange = (0..4u64, 0..8u64).prop_map(|(high, low)| high << 62 | low);
    (prop::option::of(source()), tag(), prop_oneof![6 => usual, 1 => strange])
        .prop_map(|(source, tag, ignore)| Receive { source: source.map(Source), tag, ignore })
}

#[derive(Clone, Debug)]
enum Op {
    Post(Receive),
    Arrive(u32, u64),
    Find(u32, u64),
    /// Cancels or removes the entry that was made by this one of all handles: mostly of late, often stale.
    Withdraw(usize),
    Take(Receive),
    Peek(Receive),
    Drain,
    /// Several at once, so that queues get long, and indexes get old.
    Burst(u64, Receive),
}

fn posted_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        100 => receive().prop_map(Op::Post),
        80 => (source(), tag()).prop_map(|(source, tag)| Op::Arrive(source, tag)),
        10 => (source(), tag()).prop_map(|(source, tag)| Op::Find(source, tag)),
        40 => (0..60usize).prop_map(Op::Withdraw),
        1 => Just(Op::Drain),
        2 => (10..150u64, receive()).prop_map(|(count, receive)| Op::Burst(count, receive)),
    ]
}

fn unexpected_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        100 => (source(), tag()).prop_map(|(source, tag)| Op::Arrive(source, tag)),
        80 => receive().prop_map(Op::Take),
        20 => receive().prop_map(Op::Peek),
        20 => (0..60usize).prop_map(Op::Withdraw),
        1 => Just(Op::Drain),
        3 => (10..400u64, receive()).prop_map(|(count, receive)| Op::Burst(count, receive)),
    ]
}

/// Values are numbers in order of entry.
type Entries = Vec<(Handle, usize)>;

fn withdrawn(made: &Entries, back: usize) -> Option<(Handle, usize)> {
    made.len().checked_sub(back + 1).map(|at| made[at])
}

fn take_where<E>(list: &mut Vec<E>, wanted: impl Fn(&E) -> bool) -> Option<E> {
    list.iter().position(wanted).map(|at| list.remove(at))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn posted(seed: u64, ops in vec(posted_op(), 1..1500)) {
        let mut queue = PostedQueue::new(seed);
        let mut list: Vec<(usize, Receive)> = Vec::new();
        let mut made = Entries::new();
        for op in ops {
            match op {
                Op::Post(receive) => {
                    made.push((queue.post(receive, made.len()), made.len()));
                    list.push((made.len() - 1, receive));
                }
                Op::Burst(count, receive) => for i in 0..count {
                    let receive = Receive { tag: receive.tag + i % 64, ..receive };
                    made.push((queue.post(receive, made.len()), made.len()));
                    list.push((made.len() - 1, receive));
                },
                Op::Arrive(source, tag) => {
                    let expected = take_where(&mut list, |(_, receive)| matches(receive, source, tag));
                    prop_assert_eq!(queue.end_match(Source(source), tag, |it| Some(*it)), expected.map(|(value, _)| value));
                }
                Op::Find(source, tag) => {
                    let expected = list.iter().find(|(_, receive)| matches(receive, source, tag));
                    let found = queue.find_match(Source(source), tag).map(|(handle, &mut value)| (handle, value));
                    prop_assert_eq!(found, expected.map(|&(value, _)| made[value]));
                }
                Op::Withdraw(back) => if let Some((handle, value)) = withdrawn(&made, back) {
                    let expected = take_where(&mut list, |entry| entry.0 == value).map(|(value, _)| value);
                    prop_assert_eq!(queue.cancel(handle), expected);
                },
                Op::Drain => prop_assert!(queue.drain().eq(list.drain(..).map(|(value, _)| value))),
                Op::Take(_) | Op::Peek(_) => unreachable!("not an operation of this queue"),
            }
            prop_assert_eq!(queue.len(), list.len());
        }
        prop_assert!(queue.drain().eq(list.into_iter().map(|(value, _)| value)));
    }

    #[test]
    fn unexpected(seed: u64, ops in vec(unexpected_op(), 1..1500)) {
        let mut queue = UnexpectedQueue::new(seed);
        let mut list: Vec<(usize, u32, u64)> = Vec::new();
        let mut made = Entries::new();
        for op in ops {
            match op {
                Op::Arrive(source, tag) => {
                    made.push((queue.push(Source(source), tag, made.len()), made.len()));
                    list.push((made.len() - 1, source, tag));
                }
                Op::Burst(count, receive) => for i in 0..count {
                    let (source, tag) = (receive.source.map_or(0, |source| source.0), receive.tag + i % 64);
                    made.push((queue.push(Source(source), tag, made.len()), made.len()));
                    list.push((made.len() - 1, source, tag));
                    if i % 3 > 0 {
                        let expected = take_where(&mut list, |&(_, source, tag)| matches(&receive, source, tag));
                        let taken = queue.take_match(&receive).map(|(_, value)| value);
                        prop_assert_eq!(taken, expected.map(|entry| entry.0));
                    }
                },
                Op::Take(receive) => {
                    let expected = take_where(&mut list, |&(_, source, tag)| matches(&receive, source, tag));
                    let taken = queue.take_match(&receive).map(|(info, value)| {
                        (info.handle, (value, info.source.0, info.tag))
                    });
                    prop_assert_eq!(taken, expected.map(|entry| (made[entry.0].0, entry)));
                }
                Op::Peek(receive) => {
                    let expected = list.iter().copied().find(|&(_, source, tag)| matches(&receive, source, tag));
                    let found = queue.peek(&receive).map(|(info, &value)| (value, info.source.0, info.tag));
                    prop_assert_eq!(found, expected);
                }
                Op::Withdraw(back) => if let Some((handle, value)) = withdrawn(&made, back) {
                    let expected = take_where(&mut list, |entry| entry.0 == value).map(|entry| entry.0);
                    prop_assert_eq!(queue.get_mut(handle).copied(), expected);
                    prop_assert_eq!(queue.remove(handle), expected);
                },
                Op::Drain => {
                    let drained = queue.drain();
                    prop_assert!(drained.map(|(info, value)| (value, info.source.0, info.tag)).eq(list.drain(..)));
                }
                Op::Post(_) | Op::Find(..) => unreachable!("not an operation of this queue"),
            }
            prop_assert_eq!(queue.len(), list.len());
        }
        prop_assert!(queue.drain().map(|(_, value)| value).eq(list.into_iter().map(|entry| entry.0)));
    }
}
