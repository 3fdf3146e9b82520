//! A connection that BBR controls stays as fast as it was, however little is sent by it for a while.
//!
//! BBR (Cardwell et al., ACM Queue 14(5), 2016; Linux's `net/ipv4/tcp_bbr.c`) sends at the rate at which it has seen bytes arrive within the last ten
//! round trips. Of a few packets that are sent and answered, it sees no rate but that of those few packets a round trip; beside other traffic it takes that
//! for what the way carries, paces the next message accordingly, and so on: an exchange of 32 KiB over 13 ms beside two flows of CUBIC went down to a twentieth
//! of what the way had carried before.
//!
//! So what the way carried while there was always more to send is remembered here; when there is not, BBR begins anew (its first phase only ever
//! raises the rate), with that as the most that the kernel may pace by; and when there is again, it goes on by itself. Beginning anew also puts off
//! the fifth of a second in every ten in which BBR sends nearly nothing so as to measure the round trip.
//!
//! [`Warmth::look`] is without I/O; [`super::sys::bbr`] and [`super::sys::begin_anew`] are what it needs of the kernel.

use std::time::{Duration, Instant};

/// A connection is looked at so often, at most.
pub(super) const LOOK: Duration = Duration::from_millis(5);
/// Round trips with more to send throughout after which BBR's rate is what the way carries.
const HONEST: u32 = 10;
/// How much faster than that a message may be paced: as BBR's own probes are.
const PROBE: (u64, u64) = (5, 4);
/// Of nearer peers a message is not spread over more round trips than matter to nobody.
const NEAR: Duration = Duration::from_millis(1);
/// Between two beginnings, at least: so many round trips, and so long.
const APART: u32 = 16;
const APART_MIN: Duration = Duration::from_millis(100);
/// BBR's rate is left alone down to so much of what was carried.
const SLOWER: (u64, u64) = (9, 10);
/// A new beginning before BBR slows down to measure the round trip (every 10 s).
const RENEW: Duration = Duration::from_secs(8);
/// BBR's gains, in 1/256: above which it is in its first phase; and by which its window is multiplied other than while it measures the round trip.
const STARTUP: u32 = 512;
const CWND: u32 = 512;

/// What the kernel says of a connection that BBR controls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes a second, as BBR has it.
    pub(super) rate: u64,
    /// BBR's gains: of its pace, of its window, in 1/256.
    pub(super) gains: (u32, u32),
    /// Whether packets are being lost at the moment (`tcpi_ca_state` other than open).
    pub(super) loses: bool,
    /// Whether something waits to be sent for the first time.
    pub(super) waits: bool,
    /// A round trip.
    pub(super) rtt: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// BBR is to begin anew, and the kernel to pace by no more than so many bytes a second, if that is known.
    BeginAnew(Option<u64>),
    /// The kernel is to pace by whatever BBR finds.
    SetFree,
}

/// What is remembered of a connection.
#[derive(Debug)]
pub(super) struct Warmth {
    looked: Instant,
    /// Since when there has always been more to send.
    full: Option<Instant>,
    /// What the way carried then.
    carried: Option<u64>,
    began: Instant,
    /// The kernel paces by no more than what was carried.
    bound: bool,
}

impl Warmth {
    pub(super) fn new(now: Instant) -> Self {
        Self { looked: now, full: None, carried: None, began: now, bound: false }
    }

    /// Whether it is to be looked at again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + LOOK
    }

    /// It was looked at: `seen`, and what follows from it.
    pub(super) fn look(&mut self, now: Instant, seen: &Seen) -> Option<Act> {
        self.looked = now;
        let in_startup = seen.gains.0 > STARTUP;
        if seen.waits {
            let full = *self.full.get_or_insert(now);
            if in_startup {
                return None;
            }
            if now >= full + seen.rtt * HONEST {
                self.carried = Some(seen.rate);
            }
            return std::mem::take(&mut self.bound).then_some(Act::SetFree);
        }
        self.full = None;
        let measures = seen.gains.1 < CWND;
        if seen.loses || measures || seen.rtt < NEAR || now < self.began + (seen.rtt * APART).max(APART_MIN) {
            return None;
        }
        let slower = self.carried.is_none_or(|carried| seen.rate < carried / SLOWER.1 * SLOWER.0);
        if !(slower && !in_startup || now >= self.began + RENEW) {
            return None;
        }
        self.began = now;
        self.bound = self.carried.is_some();
        Some(Act::BeginAnew(self.carried.map(|rate| rate.saturating_mul(PROBE.0) / PROBE.1)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::tcp::sys;

    const RTT: Duration = Duration::from_millis(10);
    const MB: u64 = 1_000_000;
    /// While BBR goes at the rate that it has found, and while it is in its first phase.
    const STEADY: Seen = Seen { rate: 20 * MB, gains: (256, 512), loses: false, waits: false, rtt: RTT };
    const FIRST: Seen = Seen { gains: (739, 739), ..STEADY };

    /// One that has sent without a break for long enough.
    fn warm(now: &mut Instant) -> Warmth {
        let mut warmth = Warmth::new(*now);
        for _ in 0..40 {
            *now += RTT;
            assert_eq!(warmth.look(*now, &Seen { waits: true, ..STEADY }), None);
        }
        warmth
    }

    #[test]
    fn what_was_carried_is_kept_when_little_is_sent() {
        let mut now = Instant::now();
        let mut warmth = warm(&mut now);
        now += RTT;
        assert_eq!(warmth.look(now, &STEADY), None, "BBR still has it");
        let slow = Seen { rate: 3 * MB, ..STEADY };
        assert_eq!(warmth.look(now, &Seen { loses: true, ..slow }), None);
        assert_eq!(warmth.look(now, &Seen { gains: (256, 256), ..slow }), None, "its window is small now");
        assert_eq!(warmth.look(now, &slow), Some(Act::BeginAnew(Some(25 * MB))));
        now += RTT;
        assert_eq!(warmth.look(now, &slow), None, "not at once again");
        now += APART * RTT;
        assert_eq!(warmth.look(now, &FIRST), None);
        assert_eq!(warmth.look(now, &slow), Some(Act::BeginAnew(Some(25 * MB))));
    }

    #[test]
    fn much_is_paced_by_what_bbr_finds() {
        let mut now = Instant::now();
        let mut warmth = warm(&mut now);
        now += RTT;
        assert!(warmth.look(now, &Seen { rate: MB, ..STEADY }).is_some());
        let much = Seen { waits: true, rate: 10 * MB, ..STEADY };
        now += RTT;
        assert_eq!(warmth.look(now, &Seen { waits: true, ..FIRST }), None, "BBR has not found anything yet");
        assert_eq!(warmth.look(now, &much), Some(Act::SetFree));
        assert_eq!(warmth.look(now, &much), None, "it is free");
        // the way carries less than it did
        now += HONEST * RTT + RTT;
        assert_eq!(warmth.look(now, &much), None);
        now += APART * RTT;
        assert_eq!(
            warmth.look(now, &Seen { rate: MB, ..STEADY }),
            Some(Act::BeginAnew(Some(10 * MB * 5 / 4)))
        );
    }

    #[test]
    fn a_rare_word_is_not_held_up_by_the_measuring_of_the_round_trip() {
        let mut now = Instant::now();
        let mut warmth = Warmth::new(now);
        let mut anew = 0;
        for _ in 0..60 {
            now += Duration::from_secs(1);
            anew += usize::from(warmth.look(now, &FIRST) == Some(Act::BeginAnew(None)));
        }
        assert_eq!(anew, 7);
        let near = Seen { rtt: NEAR / 2, ..FIRST };
        assert_eq!(warmth.look(now + RENEW, &near), None, "nearby it is over before it matters");
    }

    #[test]
    fn the_kernel_begins_anew() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("a listener")).expect("connected");
        let (mut far, _) = listener.accept().expect("connected");
        let fd = near.as_raw_fd();
        if sys::set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"bbr").is_err() {
            return polyrail_skip::lacking("a kernel that lets this user choose BBR");
        }
        // it has its gains with the first acknowledgement
        let mut first = || loop {
            near.write_all(b"word").expect("connected");
            far.read_exact(&mut [0; 4]).expect("connected");
            let seen = sys::bbr(fd).expect("BBR");
            if seen.gains.0 > STARTUP {
                break seen;
            }
        };
        let before = first();
        assert!(before.gains.1 >= CWND && !before.loses && !before.waits, "{before:?}");
        sys::begin_anew(fd).expect("as before");
        assert_eq!(sys::congestion(fd).as_deref(), Some("bbr"));
        assert_eq!(sys::bbr(fd).map(|anew| anew.rate), Some(0), "it has forgotten all");
        assert_eq!(first().gains, before.gains);
        sys::pace(fd, 3 * MB);
        let mut rate = [0; 8];
        let mut len = 8;
        // SAFETY: the kernel writes at most 8 bytes to `rate`.
        let told = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                rate.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        assert_eq!((told, u64::from_ne_bytes(rate)), (0, 3 * MB));
    }
}
