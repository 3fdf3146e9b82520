//! Both sides of agreements by words, with rails that say what they were told.

use super::*;
use crate::config::Config;
use crate::error::Error;
use crate::rail::connect::{Agreed, Discovered, Joined};

/// A rail that makes a link of any word but an empty one.
#[derive(Default)]
struct Told {
    made: u32,
    proposed: Vec<u32>,
    long: bool,
}

impl Connector for Told {
    fn discover(_settings: &Config) -> Result<Discovered, Error> {
        Ok(Discovered { devices: Vec::new(), direct: None })
    }

    fn adopt(&mut self, _agreed: Agreed<'_>) -> Result<Joined, String> {
        Err("it has no streams".into())
    }

    fn propose(&mut self, over: &Over, theirs: &[u8]) -> Result<(u32, Vec<u8>), String> {
        let Over::Place(place, _) = over else { return Err("it goes between no interfaces".into()) };
        self.made += 1;
        self.proposed.push(self.made);
        let len = if self.long { MAX_LANE_WORD + 1 } else { 0 };
        Ok((self.made, [theirs, &place.to_le_bytes()[..], &vec![0; len][..]].concat()))
    }

    fn answer(&mut self, word: &[u8]) -> Result<(Vec<u8>, LinkId), String> {
        if word.is_empty() {
            return Err("it says nothing".into());
        }
        self.made += 1;
        Ok((word.iter().rev().copied().collect(), LinkId(self.made)))
    }

    fn withdraw(&mut self, proposal: u32) {
        self.proposed.retain(|one| *one != proposal);
    }
}

const TRANSPORT: Transport = Transport::TCP;

fn asked(words: &mut Words, rail: &mut Told, path: usize, deadline: u64) -> Result<(), String> {
    let over = Over::Place(3, 0);
    let id = RailId::of_transport(TRANSPORT).expect("a rail");
    words.ask((path, 10 + path as u16, id), rail, (&over, b"you"), deadline)
}

fn said(words: &mut Words) -> Vec<(Frame, Vec<u8>)> {
    std::iter::from_fn(|| {
        let first = words.first().cloned();
        words.said();
        first
    })
    .collect()
}

#[test]
fn what_one_rail_says_the_other_hears_and_its_answer_comes_back() {
    let (mut here, mut there) = ((Words::default(), Told::default()), (Words::default(), Told::default()));
    asked(&mut here.0, &mut here.1, 0, 100).expect("a proposal");
    let words = said(&mut here.0);
    let open = Frame::LaneOpen { lane: 10, transport: TRANSPORT };
    assert_eq!(words, [(open, b"you\x03\0".to_vec())]);
    let link = there.0.answer((10, TRANSPORT), &words[0].1, Ok(&mut there.1)).expect("room");
    assert_eq!(link, Some(LinkId(1)));
    let answer = Frame::LaneAnswer { lane: 10, transport: TRANSPORT, verdict: Ok(()) };
    assert_eq!(said(&mut there.0), [(answer, b"\0\x03uoy".to_vec())]);
    assert_eq!(here.0.take(10, Transport::UDP), None, "of another transport");
    let asked = here.0.take(10, TRANSPORT).expect("it was asked for");
    assert_eq!((asked.path, asked.proposal), (0, 1));
    assert_eq!(here.0.take(10, TRANSPORT), None, "an answer comes once");
    assert!(here.0.is_empty() && there.0.is_empty());
}

#[test]
fn refusals_and_rails_that_cannot_say_no_and_make_nothing() {
    let (mut words, mut rail) = (Words::default(), Told::default());
    assert_eq!(words.answer((1, TRANSPORT), b"", Ok(&mut rail)), Ok(None));
    assert_eq!(words.answer((2, TRANSPORT), b"x", Err(Reject::NoTransport)), Ok(None));
    let reasons: Vec<_> = said(&mut words).into_iter().collect();
    for ((frame, word), (lane, reason)) in
        reasons.iter().zip([(1, Reject::NoResources), (2, Reject::NoTransport)])
    {
        assert_eq!(*frame, Frame::LaneAnswer { lane, transport: TRANSPORT, verdict: Err(reason) });
        assert!(word.is_empty());
    }
    assert_eq!(rail.made, 0);
    rail.long = true;
    let why = asked(&mut words, &mut rail, 0, 100).expect_err("too long a word");
    assert!(why.contains("512"), "{why}");
    assert!(rail.proposed.is_empty() && words.is_empty(), "nothing is left of it");
}

#[test]
fn what_is_not_answered_in_time_or_abandoned_is_forgotten_once() {
    let (mut words, mut rail) = (Words::default(), Told::default());
    for (path, deadline) in [(0, 300), (1, 100), (2, 200)] {
        asked(&mut words, &mut rail, path, deadline).expect("a proposal");
    }
    assert_eq!(words.deadline(), Some(100));
    assert_eq!(words.take_late(99), None);
    assert_eq!(words.take_late(200).map(|one| one.path), Some(1));
    assert_eq!(words.take_late(200).map(|one| one.path), Some(2));
    assert_eq!(words.take_late(200), None);
    assert_eq!(words.take_path(1), None);
    assert_eq!(words.take_path(0).map(|one| one.number), Some(10));
    assert_eq!((words.take_all(), words.deadline()), (Vec::new(), None));
}

#[test]
fn who_asks_and_takes_no_answers_is_cut_off() {
    let (mut words, mut rail) = (Words::default(), Told::default());
    for lane in 0..WAITING as u16 {
        assert!(words.answer((lane, TRANSPORT), b"x", Ok(&mut rail)).is_ok());
    }
    assert!(words.answer((999, TRANSPORT), b"x", Ok(&mut rail)).is_err());
    assert_eq!(rail.made as usize, WAITING, "no link is made for it");
}
