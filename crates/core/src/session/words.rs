//! What the two ends tell each other of their lanes.

use super::UnackedFrame;
use crate::frame::{Acked, Frame};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What the peer says that it has had from a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Which lane.
    pub number: u16,
    /// What it brought.
    pub acked: Acked,
    /// Nothing more is taken from it.
    pub retired: bool,
}

impl Told {
    /// What a GOT or RETIRE says; none of another frame, or when the payload is malformed.
    pub fn read(frame: &Frame, payload: &[u8]) -> Option<Self> {
        let (number, received, retired) = match *frame {
            Frame::Got { lane, received } => (lane, received, false),
            Frame::Retire { lane, received } => (lane, received, true),
            _ => return None,
        };
        Some(Self { number, acked: Acked::parse(received, payload)?, retired })
    }
}

/// Words that wait to be said and have a payload: the engine queues those that are a header and no more.
#[derive(Debug, Default)]
pub(super) struct Words(pub VecDeque<UnackedFrame>);

impl Words {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a word.
    pub fn push(&mut self, frame: &Frame, payload: &[u8]) {
        let header = frame.encode(payload.len());
        let bytes: Vec<u8> = header.iter().chain(payload).copied().collect();
        self.0.push_back(UnackedFrame { bytes, header: header.len(), span: None });
    }

    /// A later word about what a lane brought says all that an earlier one did.
    pub fn forget_got(&mut self, lane: u16) {
        let about =
            |word: &UnackedFrame| matches!(word.frame(), Some(Frame::Got { lane: of, .. }) if of == lane);
        self.0.retain(|word| !about(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_word_about_what_came_takes_the_place_of_the_earlier_and_of_nothing_else() {
        let range = [9u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
        let mut words = Words::default();
        let said = [
            Frame::Got { lane: 1, received: 5 },
            Frame::Got { lane: 2, received: 5 },
            Frame::Retire { lane: 1, received: 5 },
        ];
        said.iter().for_each(|frame| words.push(frame, &range));
        words.forget_got(1);
        let left: Vec<_> = words.0.iter().filter_map(UnackedFrame::frame).collect();
        assert_eq!(left, said[1..]);
        let word = &words.0[0];
        let (header, payload) = word.bytes.split_at(word.header);
        assert_eq!(Frame::parse(header), Ok((said[1], payload.len())));
        let read = Told::read(&said[1], payload).map(|told| (told.number, told.acked.end()));
        assert_eq!(read, Some((2, 10)));
    }
}
