//! PathMtu: how long the datagrams are that the path takes (RFC 8899).

use super::retransmit::patience;
use super::{Fate, MicroProtocol, NEVER, Outgoing, Sent, Settled, Shared, Time};
use crate::wire::datagram::{Chunk, write};

/// Every path takes so many bytes of UDP payload (BASE_PLPMTU: RFC 8899, 5.1.2; RFC 9000, 14).
const BASE: u32 = 1200;
/// What most paths take that do not take more: Ethernet's 1500 bytes without the headers of IPv4 and UDP.
const ETHERNET: u32 = 1472;
/// A size is tried so often before it counts as too much (MAX_PROBES: RFC 8899, 5.1.2).
const TRIES: u32 = 3;
/// The search ends when it is about less than so many bytes.
const GRAIN: u32 = 16;
/// So long after its end it begins anew, in nanoseconds (PMTU_RAISE_TIMER: RFC 8899, 5.1.1).
const RAISE: Time = 600_000_000_000;
/// So many datagrams longer than the base in a row, lost while a shorter one came, are a black hole (RFC 8899, 4.3).
const BLACK_HOLE: u32 = 6;
/// So many times in a row that nothing was heard may be one, too: then all that is sent again is short.
const SILENT: u32 = 2;

/// Begins with the base, and asks with datagrams of padding, which take nothing from window or pace and leave when no data
/// may: first for the upper bound itself, since mostly that is right, then for Ethernet's size, then between.
#[derive(Debug)]
pub struct PathMtu {
    /// Nothing longer is tried until the search begins anew.
    high: u32,
    /// How often the size was tried in vain that is tried now.
    tries: u32,
    /// The size that was asked for, by which number, and when no answer to that is awaited any more.
    asked: Option<(u32, u64, Time)>,
    /// When the search begins anew.
    raise_at: Time,
    state: State,
    /// The highest number of a datagram longer than the base that came, and how many were lost after it.
    came: u64,
    missing: u32,
    /// A shorter one came that left after those.
    short_came: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Data was never sent.
    New,
    /// The path may be dead: the search goes on when something is heard.
    Waiting,
    Searching,
    /// Until the timer.
    Done,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self {
            high: 0,
            tries: 0,
            asked: None,
            raise_at: NEVER,
            state: State::New,
            came: 0,
            missing: 0,
            short_came: false,
        }
    }
}

impl PathMtu {
    /// Asks for the next size, if there is one to ask for.
    fn search(&mut self, shared: &mut Shared) {
        let high = self.high.min(shared.most);
        (self.state, self.asked, self.raise_at) = (State::Searching, None, NEVER);
        if shared.size >= shared.most || high < shared.most && high < shared.size + GRAIN {
            (self.state, shared.path_probe) = (State::Done, 0);
            if shared.size < shared.most {
                self.raise_at = shared.now + RAISE;
            }
        } else if high == shared.most {
            shared.path_probe = high;
        } else if shared.size < ETHERNET && ETHERNET <= high {
            shared.path_probe = ETHERNET;
        } else {
            shared.path_probe = shared.size + (high - shared.size).div_ceil(2);
        }
    }

    fn restart(&mut self, shared: &mut Shared) {
        (self.high, self.tries) = (shared.most, 0);
        self.search(shared);
    }

    fn fail(&mut self, shared: &mut Shared, size: u32) {
        self.asked = None;
        if shared.timeouts > 0 {
            // nothing else is heard of either
            self.state = State::Waiting;
            return;
        }
        self.tries += 1;
        if self.tries >= TRIES {
            (self.high, self.tries) = (size - 1, 0);
        }
        self.search(shared);
    }

    /// Back to what every path takes.
    fn fall_back(&mut self, shared: &mut Shared) {
        shared.size = BASE.min(shared.most);
        (shared.path_probe, self.asked, self.state) = (0, None, State::Waiting);
        (self.high, self.tries, self.missing, self.short_came) = (shared.most, 0, 0, false);
    }
}

impl MicroProtocol for PathMtu {
    const NAME: &'static str = "PathMtu";

    fn open(&mut self, shared: &mut Shared) {
        self.high = shared.most;
        shared.size = BASE.min(shared.most);
    }

    fn to_net(&mut self, _shared: &mut Shared, out: &mut Outgoing<'_>) {
        if !out.probes_path {
            return;
        }
        write(&mut out.to, &Chunk::Ping);
        out.elicits = true;
        while out.to.room() > 0 {
            out.to.u8(0);
        }
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.probes_path {
            self.asked = Some((sent.size, sent.number, shared.now + 2 * patience(shared)));
            shared.path_probe = 0;
        } else if self.state == State::New && sent.fate == Fate::Flying {
            self.restart(shared);
        }
    }

    fn acked(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.probes_path {
            if sent.size > shared.size {
                shared.size = sent.size.min(shared.most);
                self.tries = 0;
                self.search(shared);
            }
            return;
        }
        if self.state == State::Waiting {
            self.restart(shared);
        }
        if sent.size <= BASE {
            self.short_came |= self.missing > 0;
        } else if sent.number >= self.came {
            (self.came, self.missing, self.short_came) = (sent.number, 0, false);
        }
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.probes_path {
            if self.asked.is_some_and(|(_, number, _)| number == sent.number) {
                self.fail(shared, sent.size);
            }
        } else if sent.size > BASE && sent.number > self.came {
            self.missing += 1;
        }
    }

    fn settled(&mut self, shared: &mut Shared, _settled: &Settled) {
        if self.short_came && self.missing >= BLACK_HOLE {
            self.fall_back(shared);
        }
    }

    fn timeout(&mut self, shared: &mut Shared) {
        if let Some((size, number, until)) = self.asked
            && until <= shared.now
        {
            shared.flight.settle(number);
            self.fail(shared, size);
        }
        if shared.timeouts >= SILENT && shared.size > BASE {
            self.fall_back(shared);
        }
        if self.raise_at <= shared.now {
            self.restart(shared);
        }
    }

    fn due(&self, _shared: &Shared) -> Time {
        self.asked.map_or(self.raise_at, |(_, _, until)| until.min(self.raise_at))
    }
}
