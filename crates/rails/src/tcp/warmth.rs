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
//! BBR leaves its first phase, in which it has three times as much under way as a round trip carries, when its rate grows no more although the kernel has more
//! to send. Where the kernel has room for no more than is under way at once that is never so, however much waits here: it fills queues, and loses what they cannot
//! hold, and sends it again. So the kernel then paces by a little less than got through, until BBR has seen that something waits.
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
/// What was carried counts for one part in so many less when packets are lost.
const LOST: u64 = 8;
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
    /// Whether something did since the last look, because the kernel had no room for it.
    pub(super) refused: bool,
    /// Bytes that the peer's kernel has acknowledged.
    pub(super) acked: u64,
    /// A round trip.
    pub(super) rtt: Duration,
    /// For how long the peer's window has held it up (`tcpi_rwnd_limited`), in microseconds.
    pub(super) narrow: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// BBR is to begin anew, and the kernel to pace by no more than so many bytes a second, if that is known.
    BeginAnew(Option<u64>),
    /// The kernel is to pace by no more than so many bytes a second.
    Bind(u64),
    /// The kernel is to pace by whatever BBR finds.
    SetFree,
}

/// What is remembered of a connection.
#[derive(Debug)]
pub(super) struct Warmth {
    looked: Instant,
    /// Since when there has always been more to send.
    full: Option<Instant>,
    /// Since when BBR has been in its first phase all that time; its rate then, and what was acknowledged.
    first: Option<(Instant, u64, u64)>,
    /// What the way carried then.
    carried: Option<u64>,
    began: Instant,
    /// For how long the peer's window had held it up, and whether it was losing.
    narrow: u64,
    loses: bool,
    /// The kernel paces by no more than what was carried, or by less than got through.
    bound: bool,
    /// By less: not again before BBR has left its first phase, or begun anew.
    slowed: bool,
}

impl Warmth {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            looked: now,
            full: None,
            first: None,
            carried: None,
            began: now,
            narrow: 0,
            loses: false,
            bound: false,
            slowed: false,
        }
    }

    /// Whether it is to be looked at again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + LOOK
    }

    /// It was looked at: `seen`, and what follows from it.
    pub(super) fn look(&mut self, now: Instant, seen: &Seen) -> Option<Act> {
        let gap = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        let narrow = std::mem::replace(&mut self.narrow, seen.narrow) != seen.narrow;
        let lost_before = std::mem::replace(&mut self.loses, seen.loses);
        // before the first acknowledgement BBR knows nothing
        let in_startup = seen.gains.0 > STARTUP || seen.rate == 0;
        // what got through is counted, so that a look now and then does
        let much = (seen.waits || seen.refused) && !narrow && gap <= 4 * LOOK.max(seen.rtt);
        if !(in_startup && much) {
            self.first = None;
        } else if let Some(act) = self.end_first(now, seen) {
            return Some(act);
        }
        if seen.waits {
            // what was not looked at, and what the reader did not take, says nothing of the way
            if narrow || gap > (4 * LOOK).max(seen.rtt) {
                self.full = None;
            }
            let full = *self.full.get_or_insert(now);
            if in_startup {
                return None;
            }
            if now >= full + seen.rtt * HONEST {
                self.carried = Some(seen.rate);
            }
            self.slowed = false;
            return std::mem::take(&mut self.bound).then_some(Act::SetFree);
        }
        self.full = None;
        if seen.loses && !lost_before {
            // others may be there now
            self.carried = self.carried.map(|carried| (carried - carried / LOST).max(seen.rate.min(carried)));
        }
        let measures = seen.gains.1 < CWND;
        if seen.loses
            || seen.refused
            || measures
            || seen.rtt < NEAR
            || now < self.began + (seen.rtt * APART).max(APART_MIN)
        {
            return None;
        }
        let slower = self.carried.is_none_or(|carried| seen.rate < carried / SLOWER.1 * SLOWER.0);
        if !(slower && !in_startup || now >= self.began + RENEW) {
            return None;
        }
        if in_startup {
            // or they have gone
            self.carried = self.carried.map(|carried| carried.max(seen.rate.min(faster(carried))));
        }
        self.began = now;
        (self.bound, self.slowed) = (self.carried.is_some(), false);
        Some(Act::BeginAnew(self.carried.map(faster)))
    }

    /// BBR is in its first phase, and there is much to send: ends it, if it does not end although no more gets through.
    fn end_first(&mut self, now: Instant, seen: &Seen) -> Option<Act> {
        let (since, rate, acked) = *self.first.get_or_insert((now, seen.rate, seen.acked));
        let took = now.saturating_duration_since(since);
        if took < seen.rtt * HONEST {
            return None;
        }
        self.first = None;
        let carried = u128::from(seen.acked.saturating_sub(acked)) * 1_000_000_000 / took.as_nanos().max(1);
        let carried = u64::try_from(carried).unwrap_or(u64::MAX);
        // BBR itself goes on as long as it finds a quarter more; and where much less gets through than it has found there were breaks
        let ends = seen.rate < faster(rate) && carried > seen.rate / 2 && seen.rtt >= NEAR;
        if !ends || std::mem::replace(&mut self.slowed, true) {
            return None;
        }
        self.bound = true;
        Some(Act::Bind(carried / SLOWER.1 * SLOWER.0))
    }
}

/// By how much more than what was carried is tried.
fn faster(rate: u64) -> u64 {
    rate.saturating_mul(PROBE.0) / PROBE.1
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
    const STEADY: Seen = Seen {
        rate: 20 * MB,
        gains: (256, 512),
        loses: false,
        waits: false,
        refused: false,
        acked: 0,
        rtt: RTT,
        narrow: 0,
    };
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
        // an eighth less after a loss, and a fourth more to be tried
        let kept = 20 * MB / 8 * 7 * 5 / 4;
        assert_eq!(warmth.look(now, &Seen { loses: true, ..slow }), None);
        assert_eq!(warmth.look(now, &Seen { gains: (256, 256), ..slow }), None, "its window is small now");
        assert_eq!(warmth.look(now, &slow), Some(Act::BeginAnew(Some(kept))));
        now += RTT;
        assert_eq!(warmth.look(now, &slow), None, "not at once again");
        now += APART * RTT;
        assert_eq!(warmth.look(now, &FIRST), None);
        assert_eq!(warmth.look(now, &slow), Some(Act::BeginAnew(Some(kept))));
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
        for _ in 0..=HONEST {
            now += RTT;
            assert_eq!(warmth.look(now, &much), None);
        }
        now += APART * RTT;
        assert_eq!(
            warmth.look(now, &Seen { rate: MB, ..STEADY }),
            Some(Act::BeginAnew(Some(10 * MB * 5 / 4)))
        );
    }

    #[test]
    fn what_says_nothing_of_the_way_is_not_taken_for_what_it_carries() {
        let busy = Seen { waits: true, rate: MB, ..STEADY };
        let looks = |pause: Duration, seen: &dyn Fn(u64) -> Seen| {
            let mut now = Instant::now();
            let mut warmth = Warmth::new(now);
            for look in 0..40 {
                now += pause;
                assert_eq!(warmth.look(now, &seen(look)), None);
            }
            now += pause;
            warmth.look(now, &Seen { rate: MB / 2, ..STEADY })
        };
        assert_eq!(looks(RTT, &|_| busy), Some(Act::BeginAnew(Some(MB * 5 / 4))));
        assert_eq!(looks(100 * RTT, &|_| busy), Some(Act::BeginAnew(None)), "nobody looked");
        let slow_reader = |look| Seen { narrow: look * 1000, ..busy };
        assert_eq!(looks(RTT, &slow_reader), Some(Act::BeginAnew(None)));
        let unacknowledged = |_| Seen { rate: 0, gains: (0, 0), ..busy };
        assert_eq!(looks(RTT, &unacknowledged), Some(Act::BeginAnew(None)));
    }

    #[test]
    fn a_first_phase_that_does_not_end_is_ended() {
        let mut now = Instant::now();
        let fills = |at: u64| Seen { loses: true, refused: true, acked: at * MB / 10, ..FIRST };
        type Sees = fn(u64, Seen) -> Seen;
        let cases: [(&str, Sees, Option<Act>); 8] = [
            ("it finds no more", |_, seen| seen, Some(Act::Bind(18 * MB))),
            ("it knows nothing yet", |_, seen| Seen { acked: 0, rate: 0, ..seen }, None),
            ("it finds more and more", |at, seen| Seen { rate: MB + at * MB / 10, ..seen }, None),
            (
                "there is no more to send, now and then",
                |at, seen| Seen { refused: at % 10 > 0, ..seen },
                None,
            ),
            ("messages with breaks between them", |_, seen| Seen { acked: seen.acked / 3, ..seen }, None),
            ("its reader takes little", |at, seen| Seen { narrow: at, ..seen }, None),
            ("it is over", |_, seen| Seen { gains: STEADY.gains, ..seen }, None),
            ("it is near", |_, seen| Seen { rtt: NEAR / 2, ..seen }, None),
        ];
        for (name, sees, act) in cases {
            let mut warmth = Warmth::new(now);
            let acts: Vec<Act> = (1..=60)
                .filter_map(|at| {
                    now += RTT / 2;
                    warmth.look(now, &sees(at, fills(at))).filter(|act| !matches!(act, Act::BeginAnew(_)))
                })
                .collect();
            assert_eq!(acts, Vec::from_iter(act), "once: {name}");
            now += RTT;
            let steady = Seen { waits: true, ..STEADY };
            assert_eq!(warmth.look(now, &steady), act.map(|_| Act::SetFree), "{name}");
        }
    }

    #[test]
    fn before_it_is_acknowledged_a_long_message_keeps_its_bound() {
        let mut now = Instant::now();
        let mut warmth = warm(&mut now);
        now += RTT;
        assert!(warmth.look(now, &Seen { rate: MB, ..STEADY }).is_some());
        for gains in [(0, 0), (256, 256)] {
            now += LOOK;
            assert_eq!(warmth.look(now, &Seen { rate: 0, gains, waits: true, ..STEADY }), None);
        }
        assert_eq!(warmth.look(now, &Seen { waits: true, ..STEADY }), Some(Act::SetFree));
    }

    #[test]
    fn losses_lower_what_was_carried_and_what_arrives_raises_it() {
        let mut now = Instant::now();
        let mut warmth = warm(&mut now);
        for _ in 0..3 {
            for loses in [true, true, false] {
                now += RTT;
                assert_eq!(warmth.look(now, &Seen { loses, ..FIRST }).filter(|_| loses), None);
            }
        }
        assert_eq!(warmth.carried, Some(20 * MB), "BBR has seen as much since");
        for _ in 0..3 {
            for loses in [true, true, false] {
                now += RTT;
                warmth.look(now, &Seen { loses, rate: MB, ..FIRST });
            }
        }
        let lowered = warmth.carried.expect("it was warm");
        assert!(lowered < 14 * MB && lowered > 13 * MB, "{lowered}");
        now += RENEW;
        let act = warmth.look(now, &Seen { rate: 15 * MB, ..FIRST });
        assert_eq!(act, Some(Act::BeginAnew(Some(15 * MB * 5 / 4))));
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
            return polyrail_testing::lacking("a kernel that lets this user choose BBR");
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
        // what is acknowledged later would tell it something
        while sys::unacknowledged(fd) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
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
