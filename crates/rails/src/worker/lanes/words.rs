//! Lanes that are agreed on by words on a lane that there is: those of rails whose connections are no streams to shake hands on
//! ([`Lanes::ByWord`](crate::rail::Lanes)).
//!
//! The side that opens lanes says LANE_OPEN with what its rail has to tell, the other answers LANE_ANSWER with what its own has, and
//! both make their links of that. Here is what of this one peer's session has under way; the words leave by whatever lane short
//! messages take, and travel again if that ends.

use crate::list::RailId;
use crate::rail::LinkId;
use crate::rail::connect::Connector;
use polyrail_core::frame::{Frame, MAX_LANE_WORD};
use polyrail_core::session::Over;
use polyrail_core::wire::{Reject, Transport};
use std::collections::VecDeque;

/// Most words that wait to leave. Who asks for more lanes, and does not take the answers, is cut off.
const WAITING: usize = 64;

/// A lane that was asked for and has no answer yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub path: usize,
    pub number: u16,
    pub rail: RailId,
    /// What its rail calls it.
    pub proposal: u32,
    /// Until when it has to be answered, by the clock of lanes.
    deadline: u64,
}

/// What of one peer's session is under way in words.
#[derive(Default)]
pub(in super::super) struct Words {
    asked: Vec<Asked>,
    /// What is to be said.
    out: VecDeque<(Frame, Vec<u8>)>,
}

impl Words {
    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.out.is_empty()
    }

    /// Until when something is to be answered.
    pub fn deadline(&self) -> Option<u64> {
        self.asked.iter().map(|one| one.deadline).min()
    }

    /// Asks for a lane.
    ///
    /// # Errors
    /// Why its rail cannot.
    pub fn ask(
        &mut self,
        (path, number, rail): (usize, u16, RailId),
        connector: &mut dyn Connector,
        (over, theirs): (&Over, &[u8]),
        deadline: u64,
    ) -> Result<(), String> {
        let transport = rail.transport().ok_or("it leads to no other process")?;
        let (proposal, word) = connector.propose(over, theirs)?;
        if word.len() > MAX_LANE_WORD {
            connector.withdraw(proposal);
            return Err(format!("its rail has {} bytes to say, of at most {MAX_LANE_WORD}", word.len()));
        }
        self.asked.push(Asked { path, number, rail, proposal, deadline });
        self.out.push_back((Frame::LaneOpen { lane: number, transport }, word));
        Ok(())
    }

    /// Answers a peer that asks for a lane, by the rail that is to make the link, or by a refusal: the link, if there is one.
    ///
    /// # Errors
    /// The peer takes no answers.
    pub fn answer(
        &mut self,
        (lane, transport): (u16, Transport),
        word: &[u8],
        by: Result<&mut dyn Connector, Reject>,
    ) -> Result<Option<LinkId>, &'static str> {
        if self.out.len() >= WAITING {
            return Err("it asked for lanes, and took no answers");
        }
        let made = by.and_then(|connector| connector.answer(word).map_err(|_| Reject::NoResources));
        let (verdict, reply, link) = match made {
            Ok((reply, link)) => (Ok(()), reply, Some(link)),
            Err(reason) => (Err(reason), Vec::new(), None),
        };
        debug_assert!(reply.len() <= MAX_LANE_WORD);
        self.out.push_back((Frame::LaneAnswer { lane, transport, verdict }, reply));
        Ok(link)
    }

    /// What an answer is to, if it is to anything.
    pub fn take(&mut self, number: u16, transport: Transport) -> Option<Asked> {
        let its = |one: &Asked| one.number == number && one.rail.transport() == Some(transport);
        let at = self.asked.iter().position(its)?;
        Some(self.asked.remove(at))
    }

    /// What was asked for by this path.
    pub fn take_path(&mut self, path: usize) -> Option<Asked> {
        let at = self.asked.iter().position(|one| one.path == path)?;
        Some(self.asked.remove(at))
    }

    /// The next that was not answered in time.
    pub fn take_late(&mut self, now: u64) -> Option<Asked> {
        let at = self.asked.iter().position(|one| one.deadline <= now)?;
        Some(self.asked.remove(at))
    }

    /// All that was asked for and has no answer.
    pub fn take_all(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    /// The next word to be said.
    pub fn first(&self) -> Option<&(Frame, Vec<u8>)> {
        self.out.front()
    }

    /// It was said.
    pub fn said(&mut self) {
        self.out.pop_front();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
