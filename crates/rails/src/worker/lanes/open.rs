//! How lanes are opened, and let in.

use super::{Lanes, Worker, nanos};
use crate::list::RailId;
use crate::rail::connect::{Joined, Sought};
use crate::rail::{self, RawIov};
use crate::set::{RailLink, Rails};
use crate::wireup::{Met, Token};
use polyrail_core::frame::Frame;
use polyrail_core::proto::PeerIdx;
use polyrail_core::session::Way;
use polyrail_core::wire::{Kind, Reject, SessionId, Transport};
use polyrail_core::wireup::Session;
use std::time::Duration;

/// How long the peer's program may take to answer in words before another attempt is worth more.
const ANSWER: Duration = Duration::from_secs(5);

impl Worker {
    /// Begins to open a lane by a path.
    pub(super) fn open_lane(
        &mut self,
        peer: PeerIdx,
        path: usize,
        number: u16,
        way: &Way,
    ) -> Result<(), String> {
        if self.wireup.closing {
            return Err("this endpoint is being closed".into());
        }
        let deadline = self.clock() + nanos(ANSWER);
        let info = &mut self.core.peers[peer.0 as usize];
        let (Some(address), Some(lanes)) = (info.address, &mut info.lanes) else { return Ok(()) };
        let its = |(rail, _): &&(RailId, _)| rail.transport() == Some(way.transport);
        let Some((rail, theirs)) = lanes.reached.iter().find(its) else {
            return Err("the other side has no such rail".into());
        };
        let connector = self.rails.connector(*rail);
        if rail.caps().lanes == rail::Lanes::ByWord {
            lanes.words.ask((path, number, *rail), connector, (&way.over, theirs), deadline)?;
            self.say_words(peer);
            return Ok(());
        }
        let sought = Sought { address: &address, here: self.wireup.host, settings: &self.config };
        let destination = connector.destination(&way.over, &sought, theirs).ok_or("it leads nowhere")?;
        let kind = Kind::Lane { session: lanes.session.id(), lane: number };
        self.wireup.open_lane((peer, path), (*rail, destination), &address, kind, &mut self.rails)
    }

    /// A lane that is being opened is not to come about.
    pub(super) fn abandon_lane(&mut self, peer: PeerIdx, path: usize) {
        self.wireup.abandon_lanes(peer, Some(path));
        let lanes = self.core.peers[peer.0 as usize].lanes.as_mut();
        if let Some(asked) = lanes.and_then(|lanes| lanes.words.take_path(path)) {
            self.rails.connector(asked.rail).withdraw(asked.proposal);
        }
    }

    /// An attempt to open a lane has come to nothing; `reached`: somebody was there.
    pub(in super::super) fn lane_refused(&mut self, peer: PeerIdx, path: usize, why: String, reached: bool) {
        let now = self.clock();
        self.session(peer, |session, _, _| session.open_failed(now, path, why, reached));
        self.follow(peer);
    }

    /// A peer has proved the key on a connection that is to be one more lane.
    pub(in super::super) fn decide_lane(&mut self, token: Token, session: Session, id: SessionId, lane: u16) {
        let peer = self.by_id.get(&session.peer).copied();
        let lanes = |peer: &PeerIdx| self.core.peers[peer.0 as usize].lanes.as_ref();
        let expected = peer.filter(|peer| lanes(peer).is_some_and(|lanes| lanes.session.expects(id, lane)));
        match (self.wireup.closing, expected) {
            (true, _) => self.wireup.refuse(token, Reject::Closing),
            (false, None) => {
                let full =
                    peer.is_some_and(|peer| lanes(&peer).is_some_and(|lanes| lanes.session.has_no_room(id)));
                self.wireup.refuse(token, if full { Reject::NoResources } else { Reject::NoSession });
            }
            (false, Some(peer)) => self.wireup.decide_lane(token, peer, session, &mut self.rails),
        }
    }

    /// A connection has become one more lane, or could not.
    pub(in super::super) fn lane_established(
        &mut self,
        met: &Met,
        id: SessionId,
        lane: u16,
        joined: Result<Joined, String>,
    ) {
        let peer = self.by_id.get(&met.session.peer).copied();
        let lanes = |peer: &PeerIdx| self.core.peers[peer.0 as usize].lanes.as_ref();
        let stands = peer.filter(|peer| lanes(peer).is_some_and(|lanes| lanes.session.is(id)));
        match (stands, joined, met.path) {
            (Some(peer), Ok(joined), path) => {
                self.lane_up(peer, lane, (met.rail, joined.link), path);
                self.settle();
            }
            (Some(peer), Err(why), Some(path)) => self.lane_refused(peer, path, why, true),
            (Some(peer), Err(_), None) => {
                self.session(peer, |session, _, _| session.accept_failed(lane));
            }
            // the session has ended in the meantime
            (None, Ok(joined), _) => self.rails.close((met.rail, joined.link)),
            (None, Err(_), _) => {}
        }
    }

    /// A peer asks for a lane, or answers to that.
    pub(super) fn hear_word(&mut self, peer: PeerIdx, frame: &Frame, word: &[u8]) {
        let heard = match *frame {
            Frame::LaneOpen { lane, transport } => self.asked_for_lane(peer, lane, transport, word),
            Frame::LaneAnswer { lane, transport, verdict } => {
                self.lane_answered(peer, (lane, transport), verdict, word)
            }
            _ => Ok(()),
        };
        if let Err(why) = heard {
            self.gone(peer, format!("it broke the protocol: {why}"));
        }
        self.say_words(peer);
    }

    fn asked_for_lane(
        &mut self,
        peer: PeerIdx,
        lane: u16,
        transport: Transport,
        word: &[u8],
    ) -> Result<(), &'static str> {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return Ok(()) };
        let its = |(rail, _): &&(RailId, _)| {
            rail.transport() == Some(transport) && rail.caps().lanes == rail::Lanes::ByWord
        };
        let rail = lanes.reached.iter().find(its).map(|(rail, _)| *rail);
        let by = match (self.wireup.closing, lanes.session.expects(lanes.session.id(), lane), rail) {
            (true, ..) => Err(Reject::Closing),
            (_, false, _) => Err(Reject::NoSession),
            (_, _, None) => Err(Reject::NoTransport),
            (false, true, Some(rail)) => Ok(self.rails.connector(rail)),
        };
        let link = lanes.words.answer((lane, transport), word, by)?;
        // the asker has the lane once it has heard so
        self.say_words(peer);
        if let (Some(rail), Some(link)) = (rail, link) {
            self.lane_up(peer, lane, (rail, link), None);
        }
        Ok(())
    }

    fn lane_answered(
        &mut self,
        peer: PeerIdx,
        (lane, transport): (u16, Transport),
        verdict: Result<(), Reject>,
        word: &[u8],
    ) -> Result<(), &'static str> {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return Ok(()) };
        let Some(asked) = lanes.words.take(lane, transport) else {
            // it comes too late, or was never asked for
            let agreed = verdict.is_ok();
            return self.session(peer, |s, traffic, _| s.decline(lane, agreed, traffic)).unwrap_or(Ok(()));
        };
        let connector = self.rails.connector(asked.rail);
        let made = match verdict {
            Ok(()) => connector.conclude(asked.proposal, word),
            Err(reason) => {
                connector.withdraw(asked.proposal);
                Err(format!("it refused: {reason}"))
            }
        };
        match made {
            Ok(link) => self.lane_up(peer, lane, (asked.rail, link), Some(asked.path)),
            Err(why) => {
                self.session(peer, |s, traffic, _| s.decline(lane, verdict.is_ok(), traffic));
                self.lane_refused(peer, asked.path, why, true);
            }
        }
        Ok(())
    }

    /// Says again what found no room, and forgets what is not answered.
    pub(super) fn look_at_words(&mut self, peer: PeerIdx, now: u64) {
        loop {
            let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
            if lanes.words.is_empty() {
                return;
            }
            let Some(late) = lanes.words.take_late(now) else { break };
            self.rails.connector(late.rail).withdraw(late.proposal);
            // it may have heard of it, and have a link by now
            self.lane_refused(peer, late.path, "the peer's program does not answer".into(), true);
        }
        self.say_words(peer);
    }

    /// Says what there is to say of lanes, by the lane that short messages take.
    fn say_words(&mut self, peer: PeerIdx) {
        while let Some(current) = self.core.lane(peer)
            && let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes
            && let Some((frame, word)) = lanes.words.first()
        {
            let answered = match frame {
                Frame::LaneAnswer { lane, verdict: Ok(()), .. } => Some(*lane),
                _ => None,
            };
            let its = |link: RailLink| answered.is_some() && lanes.session.number(link) == answered;
            let other = || lanes.session.lanes().iter().map(|lane| lane.link()).find(|link| !its(*link));
            let Some(link) = Some(current).filter(|link| !its(*link)).or_else(other) else { return };
            let iov = RawIov { base: word.as_ptr().cast_mut(), len: word.len() };
            // SAFETY: the word lives through the call.
            if unsafe { self.rails.send(link, &frame.encode(word.len()), &[iov], None) }.is_err() {
                return;
            }
            lanes.words.said();
        }
    }
}

impl Lanes {
    /// The session is over: nothing that was asked for is to come about.
    pub(in super::super) fn withdraw_all(&mut self, rails: &mut Rails) {
        for asked in self.words.take_all() {
            rails.connector(asked.rail).withdraw(asked.proposal);
        }
    }
}
