//! The order and the names of matching, case by case.
use polyrail_core::matching::{Arrival, PostedQueue, Receive, Source, UnexpectedQueue};

const ANY_TAG: u64 = u64::MAX;

fn from(source: u32, tag: u64) -> Receive {
    Receive { source: Some(Source(source)), tag, ignore: 0 }
}

fn any_source(tag: u64) -> Receive {
    Receive { source: None, tag, ignore: 0 }
}

fn masked(tag: u64, ignore: u64) -> Receive {
    Receive { source: None, tag, ignore }
}

#[test]
fn the_earliest_posted_wins_whatever_its_mask() {
    let receives = [
        from(1, 7),
        any_source(7),
        masked(0, ANY_TAG),
        masked(6, 1),
        Receive { source: Some(Source(1)), ..masked(0, ANY_TAG) },
    ];
    // Every rotation, so that each kind is posted first once.
    for first in 0..receives.len() {
        let mut queue = PostedQueue::new(1);
        let order: Vec<usize> = (0..receives.len()).map(|i| (first + i) % receives.len()).collect();
        for &which in &order {
            queue.post(receives[which], which);
        }
        let taken: Vec<usize> =
            std::iter::from_fn(|| queue.end_match(Source(1), 7, |it| Some(*it))).collect();
        assert_eq!(taken, order);
    }
}

#[test]
fn a_message_takes_only_what_matches() {
    let mut queue = PostedQueue::new(1);
    queue.post(from(1, 7), "directed");
    queue.post(masked(0xab00, 0xff), "masked");
    assert_eq!(queue.end_match(Source(2), 7, |it| Some(*it)), None);
    assert_eq!(queue.end_match(Source(1), 8, |it| Some(*it)), None);
    assert_eq!(queue.end_match(Source(1), 0xac00, |it| Some(*it)), None);
    assert_eq!(queue.end_match(Source(9), 0xab42, |it| Some(*it)), Some("masked"));
    assert_eq!(queue.end_match(Source(9), 0xab42, |it| Some(*it)), None);
    assert_eq!(queue.end_match(Source(1), 7, |it| Some(*it)), Some("directed"));
    assert!(queue.is_empty());
}

#[test]
fn ignored_bits_of_the_receives_own_tag_do_not_matter() {
    let mut queue = PostedQueue::new(1);
    queue.post(masked(0xabff, 0xff), 1);
    queue.post(masked(0xab00, 0xff), 2);
    assert_eq!(queue.end_match(Source(0), 0xab77, |it| Some(*it)), Some(1));
    assert_eq!(queue.end_match(Source(0), 0xab77, |it| Some(*it)), Some(2));
}

#[test]
fn every_source_number_and_tag_is_usable() {
    let mut queue = PostedQueue::new(1);
    for source in [0, u32::MAX - 1, u32::MAX] {
        for tag in [0, u64::MAX - 1, u64::MAX] {
            queue.post(from(source, tag), (source, tag));
        }
    }
    for tag in [u64::MAX, 0, u64::MAX - 1] {
        for source in [u32::MAX, 0, u32::MAX - 1] {
            assert_eq!(queue.end_match(Source(source), tag, |it| Some(*it)), Some((source, tag)));
        }
    }
}

#[test]
fn cancelling_keeps_the_order_of_the_others() {
    for cancelled in 0..5 {
        let mut queue = PostedQueue::new(1);
        let handles: Vec<_> = (0..5).map(|i| queue.post(any_source(7), i)).collect();
        assert_eq!(queue.cancel(handles[cancelled]), Some(cancelled));
        queue.post(any_source(7), 5);
        let taken: Vec<usize> =
            std::iter::from_fn(|| queue.end_match(Source(0), 7, |it| Some(*it))).collect();
        let left: Vec<usize> = (0..6).filter(|&i| i != cancelled).collect();
        assert_eq!(taken, left);
    }
}

#[test]
fn receives_are_found_by_what_they_are_and_from_whom_they_are_to_come() {
    let mut queue = PostedQueue::new(1);
    let receives = [from(3, 1), any_source(7), from(3, 2), from(4, 1), masked(0, 0xff), from(3, 1)]
        .into_iter()
        .enumerate();
    let handles: Vec<_> = receives.map(|(i, receive)| queue.post(receive, i)).collect();
    assert_eq!(queue.directed(Source(3)), [handles[0], handles[2], handles[5]]);
    assert_eq!(queue.directed(Source(0)), []);
    assert_eq!(queue.find_where(|i| i % 2 == 1), Some(handles[1]), "the earliest");
    // the slots of those that went are others' now, and the order is that of posting
    assert_eq!(queue.cancel(handles[0]), Some(0));
    let last = queue.post(from(3, 9), 6);
    assert_eq!(queue.directed(Source(3)), [handles[2], handles[5], last]);
    assert_eq!(queue.find_where(|i| i % 2 == 0), Some(handles[2]));
    assert_eq!(queue.find_where(|i| *i > 6), None);
}

#[test]
fn a_receive_is_ended_where_it_is_unless_nothing_is_made_of_it() {
    let mut queue = PostedQueue::new(1);
    let handles: Vec<_> = (0..3).map(|i| queue.post(any_source(7), i)).collect();
    assert_eq!(queue.end_match(Source(1), 8, |_| panic!("nothing matches")), None::<()>);
    assert_eq!(
        queue.end_match(Source(1), 7, |i| (*i > 0).then_some(*i)),
        None,
        "the earliest alone is asked"
    );
    assert_eq!((queue.len(), queue.find_where(|_| true)), (3, Some(handles[0])), "it is still there");
    assert_eq!(queue.end_match(Source(1), 7, |i| Some(i + 10)), Some(10));
    assert_eq!((queue.len(), queue.cancel(handles[0])), (2, None));
    queue.post(any_source(7), 3);
    let order: Vec<i32> = std::iter::from_fn(|| queue.end_match(Source(1), 7, |i| Some(*i))).collect();
    assert_eq!((order, queue.is_empty()), (vec![1, 2, 3], true));
}

#[test]
fn a_handle_goes_stale_with_its_entry_though_the_slot_is_used_again() {
    let mut posted = PostedQueue::new(1);
    let first = posted.post(any_source(7), 1);
    assert_eq!(posted.end_match(Source(0), 7, |it| Some(*it)), Some(1));
    assert_eq!(posted.cancel(first), None);
    let second = posted.post(any_source(7), 2);
    assert!(first < second, "handles are ordered as posted");
    assert_eq!(posted.cancel(first), None);
    assert_eq!(posted.cancel(second), Some(2));
    assert_eq!(posted.cancel(second), None);

    let mut unexpected = UnexpectedQueue::new(1);
    let first = unexpected.push(Source(0), 7, 1);
    assert_eq!(unexpected.remove(first), Some(1));
    assert_eq!(unexpected.remove(first), None);
    let second = unexpected.push(Source(0), 7, 2);
    assert_eq!(unexpected.get_mut(first), None);
    assert_eq!(unexpected.get_mut(second), Some(&mut 2));
    assert_eq!(unexpected.remove(first), None);
    assert_eq!(unexpected.len(), 1);
}

#[test]
fn more_masks_than_any_program_has() {
    let mut queue = PostedQueue::new(1);
    // All match tag 0; twice, so that classes are taken over when their masks are gone.
    for _ in 0..2 {
        for shift in 0..40 {
            queue.post(masked(0, 1 << shift), shift);
        }
        for shift in 0..40 {
            assert_eq!(queue.end_match(Source(0), 0, |it| Some(*it)), Some(shift));
        }
        queue.post(any_source(0), 99);
        assert_eq!(queue.end_match(Source(0), 0, |it| Some(*it)), Some(99));
    }
}

#[test]
fn a_found_receive_stays_until_cancelled() {
    let mut queue = PostedQueue::new(1);
    queue.post(masked(0, ANY_TAG), 10);
    queue.post(from(3, 4), 20);
    for room in [9, 8] {
        let (_, value) = queue.find_match(Source(3), 4).unwrap();
        *value -= 1;
        assert_eq!(*value, room);
    }
    let (handle, _) = queue.find_match(Source(3), 4).unwrap();
    assert_eq!(queue.cancel(handle), Some(8));
    assert_eq!(queue.end_match(Source(3), 4, |it| Some(*it)), Some(20));
    assert!(queue.find_match(Source(3), 4).is_none());
}

#[test]
fn a_receive_takes_the_earliest_arrived() {
    let mut queue = UnexpectedQueue::new(1);
    for (source, tag) in [(1, 7), (2, 7), (1, 8), (1, 7)] {
        queue.push(Source(source), tag, ());
    }
    let mut next =
        |receive| queue.take_match(&receive).map(|(Arrival { source, tag, .. }, ())| (source.0, tag));
    assert_eq!(next(from(3, 7)), None);
    assert_eq!(next(from(2, 7)), Some((2, 7)));
    assert_eq!(next(any_source(8)), Some((1, 8)));
    assert_eq!(next(masked(0, ANY_TAG)), Some((1, 7)));
    assert_eq!(next(any_source(7)), Some((1, 7)));
    assert_eq!(next(masked(0, ANY_TAG)), None);
}

#[test]
fn peeking_leaves_the_message_and_names_it() {
    let mut queue = UnexpectedQueue::new(1);
    assert!(queue.peek(&any_source(7)).is_none());
    let handle = queue.push(Source(1), 7, "first");
    queue.push(Source(1), 7, "second");
    let (arrival, &value) = queue.peek(&any_source(7)).unwrap();
    assert_eq!((arrival, value), (Arrival { handle, source: Source(1), tag: 7 }, "first"));
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.remove(arrival.handle), Some("first"));
    assert_eq!(queue.take_match(&from(1, 7)).unwrap().1, "second");
}

#[test]
fn a_long_queue_is_searched_through_any_number_of_masks() {
    // Tags 0..200, of which each search wants one near the end: beyond what is looked at one by one.
    let mut queue = UnexpectedQueue::new(1);
    for round in 0..3 {
        for tag in 0..200 {
            queue.push(Source((tag % 2) as u32), tag, (round, tag));
        }
    }
    for bit in 0..20 {
        let receive = masked(150 | 1 << 40, 1 << 40 | 1 << (bit + 20));
        assert_eq!(*queue.peek(&receive).unwrap().1, (0, 150));
    }
    for round in 0..3 {
        assert_eq!(queue.take_match(&from(1, 199)).unwrap().1, (round, 199));
        assert_eq!(queue.take_match(&masked(150, 1)).unwrap().1, (round, 150));
        assert_eq!(queue.take_match(&any_source(151)).unwrap().1, (round, 151));
    }
    assert!(queue.take_match(&from(1, 199)).is_none());
    assert_eq!(queue.len(), 600 - 9);
}

#[test]
fn an_index_given_up_is_built_again_when_wanted() {
    let mut queue = UnexpectedQueue::new(1);
    for tag in 0..50 {
        queue.push(Source(0), tag, tag);
    }
    assert_eq!(*queue.peek(&from(0, 49)).unwrap().1, 49);
    // Long traffic through another mask.
    for i in 0..2000 {
        queue.push(Source(0), 1000, i);
        assert_eq!(queue.take_match(&any_source(1000)).unwrap().1, i);
    }
    for tag in 0..50 {
        assert_eq!(queue.take_match(&from(0, tag)).unwrap().1, tag);
    }
}
