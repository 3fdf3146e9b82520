//! The other side's address has changed: a router that translates addresses has forgotten it, or it has another network. Its datagrams tell,
//! since they name the connection and are authenticated; and because anybody could send them on from anywhere, it is asked whether it is
//! there (CHALLENGE) before this side writes to it there (compare RFC 9000, 8.2 and 9).

use super::UdpRail;
use super::transmit::authenticate;
use polyrail_core::connection::AMPLIFY;
use polyrail_core::micro::{NEVER, Time};
use polyrail_core::wire::datagram::{HEADER, TAG};
use std::net::SocketAddr;

/// It is asked so often, and waited for an answer so long at first, in nanoseconds, and twice as long each time, beside three round trips.
const TRIES: u8 = 6;
const WAIT: Time = 100_000_000;
/// Bytes of a datagram that asks: CHALLENGE is a byte and a token.
const LEN: usize = HEADER + 1 + 8 + TAG;

/// Where the other side seems to be.
#[derive(Debug)]
pub(super) struct Elsewhere {
    at: (usize, SocketAddr),
    /// What it is asked by.
    token: [u8; 8],
    /// Bytes that came from there, and that were sent to there.
    heard: u64,
    said: u64,
    tries: u8,
    /// When it is asked again.
    pub(super) due: Time,
}

impl UdpRail {
    /// The newest datagram of a connection came from elsewhere than the other side is known to be.
    pub(super) fn came_from_elsewhere(&mut self, id: u32, at: (usize, SocketAddr), size: usize) {
        let Some(link) = self.link(id) else { return };
        match &mut link.elsewhere {
            Some(there) if there.at == at => {
                there.heard += size as u64;
                if there.due == NEVER {
                    there.due = 0;
                }
            }
            there => {
                let mut token = [0; 8];
                if getrandom::fill(&mut token).is_err() {
                    return;
                }
                *there = Some(Elsewhere { at, token, heard: size as u64, said: 0, tries: 0, due: 0 });
            }
        }
        self.ask_elsewhere(id);
    }

    /// Asks whether the other side is there, if it is time.
    pub(super) fn ask_elsewhere(&mut self, id: u32) {
        let now = self.now();
        let Some(link) = self.link(id) else { return };
        let Some(mut there) = link.elsewhere.take_if(|there| there.due <= now) else { return };
        if there.tries >= TRIES {
            // it is where it was, or nowhere
            return;
        }
        let mut room = [0; LEN];
        let allowed = AMPLIFY * there.heard >= there.said + LEN as u64;
        let made = allowed.then(|| link.connection.challenge(now, there.token, &mut room[HEADER..LEN - TAG]));
        let whole = made.flatten().and_then(|made| authenticate(link, &made, &mut room));
        let rtt = link.connection.shared().rtt.smoothed;
        let at = there.at;
        if let Some(whole) = whole {
            there.said += whole as u64;
            there.due = now + 3 * rtt + (WAIT << there.tries);
            there.tries += 1;
        } else {
            // more has to come from there
            there.due = NEVER;
        }
        link.elsewhere = Some(there);
        if let Some(whole) = whole {
            // what does not leave is asked again
            let _ = self.sockets[at.0].send(at.1, &room[..whole], whole);
        }
        self.set_timer(id);
    }

    /// The other side may have answered: it is written to where it is from now on.
    pub(super) fn look_at_response(&mut self, id: u32, now: Time) {
        let Some(link) = self.link(id) else { return };
        let Some(token) = link.connection.poll_response() else { return };
        let Some(there) = link.elsewhere.take_if(|there| there.token == token) else { return };
        let another_path = there.at.1.ip() != link.to.ip();
        (link.socket, link.to) = there.at;
        (link.refusals, link.refused) = (0, None);
        if another_path {
            // what was learnt of the path is not of this one; while a change is under way it has to be found out
            let _ = link.connection.renew(now);
        }
        self.mark_dirty(id);
    }
}
