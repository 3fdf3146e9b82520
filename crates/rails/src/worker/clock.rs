//! What time it is, and for how long the kernel had a thread wait for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Where [`Idle`](super::Idle) gets its times from.
pub trait Clock {
    /// What time it is.
    fn now(&self) -> Instant;

    /// For how long the calling thread, since it began, could have run and had no processor. Not every kernel tells. It takes about a
    /// microsecond to find out.
    fn delay(&self) -> Option<Delay>;
}

/// See [`Clock::delay`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    /// Whose: threads that live at the same time differ.
    pub thread: usize,
    pub time: Duration,
}

/// The machine's clocks; `/proc/thread-self/schedstat` of kernels with `CONFIG_SCHED_INFO`.
#[derive(Debug, Default)]
pub struct Machine;

thread_local! {
    static SCHEDSTAT: Option<File> = File::open("/proc/thread-self/schedstat").ok();
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn delay(&self) -> Option<Delay> {
        let mut text = [0; 80];
        let read = |file: &Option<File>| {
            Some((file.as_ref()?.read_at(&mut text, 0).ok()?, file as *const _ as usize))
        };
        let (len, thread) = SCHEDSTAT.try_with(read).ok()??;
        Some(Delay { thread, time: parse(text.get(..len)?)? })
    }
}

/// Nanoseconds on a processor, those of waiting for one, and how many times it had one.
fn parse(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_figure_is_it() {
        assert_eq!(parse(b"346131 4519 2\n"), Some(Duration::from_nanos(4519)));
        for text in ["", "346131", "346131 x 2", "346131 99999999999999999999999 2"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&[b'1', b' ', 0xff]), None);
    }

    #[test]
    fn it_only_grows() {
        let Some(before) = Machine.delay() else {
            return polyrail_testing::lacking("a kernel with CONFIG_SCHED_INFO");
        };
        std::thread::yield_now();
        let after = Machine.delay().unwrap();
        assert!(after.time >= before.time && after.thread == before.thread);
        let other = std::thread::spawn(|| Machine.delay().unwrap().thread).join().unwrap();
        assert_ne!(other, before.thread);
    }
}
