//! A handshake's turn, and what comes of it.

use super::handshake::{Handshake, Role, Turn, UNSEALED};
use super::news::Agreement;
use super::{Interest, News, Token, Wireup};
use crate::set::Rails;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Kind, Reject};
use polyrail_core::wireup::{PeerEvent, PeerState};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long the peer's program may take to answer on a further lane before another attempt is worth more.
pub(crate) const LANE_ANSWER: Duration = Duration::from_secs(5);

impl Wireup {
    /// Gives a handshake its turn; whether something came of it, as a number.
    pub(super) fn shake(&mut self, token: Token, rails: &mut Rails) -> usize {
        let Some(handshake) = self.handshakes.get_mut(&token) else { return 0 };
        let reached = handshake.reached;
        let turn = handshake.turn(rails.connector(handshake.rail));
        if handshake.reached && !reached {
            // from here on it only has to find the time
            let lane = matches!(handshake.role, Role::Lane(..));
            handshake.deadline = Instant::now() + if lane { LANE_ANSWER } else { self.config.answer_timeout };
        }
        if let Some(peer) = handshake.first()
            && handshake.proving
            && let Some(state) = self.peers.get_mut(&peer)
            && state.state() == PeerState::Connecting
        {
            state.must(PeerEvent::Proving);
        }
        match turn {
            Turn::Wait => {
                self.wait_for_more(token);
                return 0;
            }
            Turn::Proven(session) => self.news.push_back(News::Proven(token, session)),
            Turn::Done(session, leftover) => {
                let Some(handshake) = self.handshakes.remove(&token) else { return 0 };
                self.epoll.remove(handshake.channel.fd().as_raw_fd());
                let agreement = Agreement::new(handshake, session, leftover);
                self.news.push_back(News::Agreed(Box::new(agreement)));
            }
            Turn::Rejected(reason) => self.rejected(token, reason, rails),
            Turn::Cut(why) => self.failed(token, &why, true, rails),
            Turn::Denied(why) if handshake.stranger().is_none() => {
                let why = format!("{why}{}", self.keys.doubt());
                self.failed(token, &why, false, rails);
            }
            Turn::Denied(why) | Turn::Failed(why) => self.failed(token, &why, false, rails),
        }
        1
    }

    fn wait_for_more(&mut self, token: Token) {
        let Some(handshake) = self.handshakes.get_mut(&token) else { return };
        let (writing, fd) = (handshake.wants_write(), handshake.channel.fd().as_raw_fd());
        if std::mem::replace(&mut handshake.writing, writing) != writing {
            self.hear(fd, token.0, if writing { Interest::Write } else { Interest::Read });
        }
    }

    fn rejected(&mut self, token: Token, reason: Reject, rails: &mut Rails) {
        let Some(Handshake { rail, role, .. }) = self.handshakes.remove(&token) else { return };
        let (peer, destination) = match role {
            Role::First(_, peer, destination) => (peer, destination),
            Role::Lane(_, peer, path) => {
                let (why, forgotten) = (format!("it refused: {reason}"), reason == Reject::NoSession);
                return self.news.push_back(News::LaneRefused { peer, path, why, reached: true, forgotten });
            }
            Role::Accepting(..) => return,
        };
        let why = format!("{destination}: it refused: {reason}");
        let attempt = self.attempts.get_mut(&peer);
        match reason {
            Reject::Simultaneous => {
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.must(PeerEvent::Simultaneous);
                }
                // the peer's own connection comes, or we do not wait for it for ever
                if let Some(attempt) = attempt {
                    attempt.resume = Some(Instant::now() + self.config.connect_timeout);
                }
                return;
            }
            // the end of the earlier session is news that it has not heard yet
            Reject::Exists => {
                if let Some(attempt) = attempt {
                    attempt.exists(rail, destination);
                }
            }
            Reject::Unsealed => {
                return self.try_next(peer, format!("{destination}: {reason}: {UNSEALED}"), rails);
            }
            _ => {}
        }
        self.try_next(peer, why, rails);
    }

    /// `again`: the same place is worth another try.
    fn failed(&mut self, token: Token, why: &str, again: bool, rails: &mut Rails) {
        let Some(handshake) = self.handshakes.remove(&token) else { return };
        let Handshake { rail, role, channel, reached, .. } = handshake;
        match role {
            Role::First(_, peer, destination) => {
                let told = format!("{destination}: {why}");
                if let Some(attempt) = self.attempts.get_mut(&peer) {
                    match again {
                        true => attempt.once_more(rail, destination),
                        false if reached => attempt.was_answered(),
                        false => {}
                    }
                }
                self.try_next(peer, told, rails);
            }
            Role::Lane(_, peer, path) => {
                let (why, forgotten) = (why.to_owned(), false);
                self.news.push_back(News::LaneRefused { peer, path, why, reached, forgotten });
            }
            Role::Accepting(_, Some((_, session))) if session.kind != Kind::Session => {}
            Role::Accepting(_, Some((peer, _))) => {
                let lost = self.peers.get_mut(&peer).map(|p| p.on(PeerEvent::Lost));
                if let Some(Ok(_)) = lost {
                    let why = format!("the connection ended while it was made: {why}");
                    self.news.push_back(if again { News::Cut(peer, why) } else { News::Lost(peer, why) });
                }
            }
            Role::Accepting(_, None) => self.refused(format!("{}: {why}", channel.name())),
        }
    }

    /// Drops the connections that are being made for further lanes to a peer; by one path, or all.
    pub fn abandon_lanes(&mut self, peer: PeerIdx, path: Option<usize>) {
        self.handshakes.retain(|_, handshake| {
            !matches!(handshake.role, Role::Lane(_, of, at) if of == peer && path.is_none_or(|path| path == at))
        });
    }

    pub(super) fn expire_handshakes(&mut self, now: Instant, rails: &mut Rails) {
        let late: Vec<_> = self.handshakes.iter().filter(|(_, h)| h.deadline <= now).collect();
        let late: Vec<_> = late.into_iter().map(|(token, h)| (*token, h.rail, h.reached)).collect();
        for (token, rail, reached) in late {
            let why = match reached {
                // a datagram that was sent tells nothing of who is there
                true if rail.caps().stands_in => {
                    "no answer by udp: its program makes no progress, or something on the way lets no udp through"
                }
                true => "it is there, but does not answer; does its program make progress?",
                false => "no answer in time",
            };
            self.failed(token, why, false, rails);
        }
    }
}
