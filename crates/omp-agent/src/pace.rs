//! When the agent sleeps. It shares processors with programs that compute, and yet what waits for it waits as long.
//!
//! While something is awaited from the network it looks all the time at first, giving way to whoever can run; then it sleeps for a sixteenth of the time that it has
//! waited, so that sleeping adds little to any wait, and a long wait costs nothing. While its program computes, rank 0 looks for others' requests every 50 to
//! 1000 microseconds, the others, to whom only the end can come, more and more rarely. A request of its own program ends any sleep.
//!
//! Where all ranks ring the bell nothing comes but with it. While a thread waits, and so needs no processor, the agent looks as above; while none does it sleeps: if it gave way, who computes would go on
//! for milliseconds, and who asks next would not know that the agent is to be woken.
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::mapping::Mapping;
use crate::sys;

/// How often it is looked at whether things beside the network have changed.
pub const GLANCE: Duration = Duration::from_millis(50);
const SPIN: Duration = Duration::from_micros(300);
const LONGEST_NAP: Duration = Duration::from_micros(500);
/// Where all ranks ring the bell: for the end of the program or of the launcher.
const RUNG_NAP: Duration = Duration::from_millis(2);

/// What an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A thread, or another rank, waits for an answer.
    pub answer: bool,
    /// An exchange is under way.
    pub exchange: bool,
}

/// Since when nothing has happened.
pub struct Pace {
    serves: bool,
    alone: bool,
    rung: bool,
    idle_since: Instant,
}

impl Pace {
    /// `serves`: other ranks ask this one, by messages; `rung`: all ranks ring this one's bell.
    pub fn new(serves: bool, rung: bool, size: usize, now: Instant) -> Self {
        Self { serves, rung, alone: size == 1, idle_since: now }
    }

    /// How long to sleep; `None`: not at all, only give way.
    fn nap(&self, waiting: Waiting, idle: Duration) -> Option<Duration> {
        let between = |share: u32, least: u64, most: Duration| {
            Some((idle / share).clamp(Duration::from_micros(least), most))
        };
        match waiting {
            Waiting { answer: false, exchange: false } if self.alone => Some(GLANCE),
            _ if self.rung => (!waiting.answer || idle >= SPIN).then_some(RUNG_NAP),
            Waiting { answer: false, exchange: false } if self.serves => {
                between(16, 50, Duration::from_micros(1000))
            }
            Waiting { answer: false, exchange: false } => between(16, 50, Duration::from_millis(2)),
            _ if idle < SPIN => None,
            _ => between(16, 20, LONGEST_NAP),
        }
    }

    /// Rests as is right after a turn in which something happened (`busy`) or not.
    pub fn rest(&mut self, busy: bool, waiting: Waiting, now: Instant, mapping: &Mapping, bell: u32) {
        if busy {
            self.idle_since = now;
            return;
        }
        let Some(nap) = self.nap(waiting, now - self.idle_since) else { return sys::give_way() };
        // the program rings, then looks whether to wake us; we say that we sleep, then look whether it has rung
        mapping.asleep().store(1, Ordering::SeqCst);
        if mapping.doorbell().load(Ordering::SeqCst) == bell {
            sys::futex_wait(mapping.doorbell(), bell, nap);
        }
        mapping.asleep().store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_in_proportion() {
        let micros = Duration::from_micros;
        let now = Instant::now();
        let nothing = Waiting { answer: false, exchange: false };
        let exchange = Waiting { answer: false, exchange: true };
        let (first, other, alone) =
            (Pace::new(true, false, 2, now), Pace::new(false, false, 2, now), Pace::new(true, false, 1, now));
        assert_eq!(first.nap(exchange, micros(299)), None);
        assert_eq!(first.nap(exchange, micros(800)), Some(micros(50)));
        assert_eq!(first.nap(exchange, micros(9_000_000)), Some(LONGEST_NAP));
        assert_eq!(first.nap(nothing, micros(0)), Some(micros(50)));
        assert_eq!(first.nap(nothing, micros(9_000_000)), Some(micros(1000)));
        assert_eq!(other.nap(nothing, micros(9_000_000)), Some(micros(2000)));
        let rung = Pace::new(false, true, 2, now);
        assert_eq!([0, 8000].map(|idle| rung.nap(nothing, micros(idle))), [Some(RUNG_NAP), Some(RUNG_NAP)]);
        let answer = Waiting { answer: true, exchange: false };
        assert_eq!((rung.nap(answer, micros(299)), rung.nap(answer, micros(300))), (None, Some(RUNG_NAP)));
        assert!(alone.nap(nothing, micros(0)) > Some(micros(10_000)));
    }
}
