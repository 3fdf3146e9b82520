//! Bytes over time: of each process and of each socket, in buckets that become wider as there is more to tell, so that memory is bounded
//! however long a run is and however many sockets it has.

use super::has_other_end;
use crate::model::{CallEvent, Class, Event, Run};

/// Buckets of all processes together, and of one.
const PROCESSES: usize = 1 << 19;
const PROCESS: std::ops::RangeInclusive<usize> = 64..=4096;
/// Buckets of all sockets together, and of one direction of one.
const SOCKETS: usize = 1 << 21;
const SOCKET: std::ops::RangeInclusive<usize> = 32..=1024;

/// The narrowest bucket: 2^13 ns.
const NARROWEST: u32 = 13;

/// How much of something there was in each bucket, from the first one with any to the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Buckets since time 0 before the first that is kept.
    first: u64,
    /// A bucket is two to the power of this less [`NARROWEST`], in ns.
    wider: u32,
    values: Vec<u64>,
}

impl Series {
    fn shift(&self) -> u32 {
        NARROWEST + self.wider
    }

    /// ns of a bucket.
    pub fn bucket(&self) -> u64 {
        1 << self.shift()
    }

    /// When the first bucket begins.
    pub fn start(&self) -> u64 {
        self.first << self.shift()
    }

    /// What was in each bucket.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Spreads an amount evenly over some time; none of it is lost to rounding.
    fn add(&mut self, from: u64, to: u64, amount: u64, most: usize) {
        let to = to.max(from);
        self.reach(from, to, most);
        let shift = self.shift();
        let (first, last) = (from >> shift, to >> shift);
        if first == last {
            return self.put(first, amount);
        }
        let whole = u128::from(to - from);
        let until = |end: u128| (u128::from(amount) * (end - u128::from(from)) / whole) as u64;
        let mut given = 0;
        for bucket in first..=last {
            let end = until(((u128::from(bucket) + 1) << shift).min(to.into()));
            self.put(bucket, end - given);
            given = end;
        }
    }

    fn put(&mut self, bucket: u64, amount: u64) {
        let value = &mut self.values[(bucket - self.first) as usize];
        *value = value.saturating_add(amount);
    }

    /// Makes room for these moments, by wider buckets where there would be too many.
    fn reach(&mut self, from: u64, to: u64, most: usize) {
        loop {
            let (mut low, mut high) = (from >> self.shift(), to >> self.shift());
            if !self.values.is_empty() {
                low = low.min(self.first);
                high = high.max(self.first + self.values.len() as u64 - 1);
            }
            if high - low < most as u64 {
                if self.values.is_empty() {
                    self.first = low;
                }
                let before = (self.first - low) as usize;
                self.values.splice(0..0, std::iter::repeat_n(0, before));
                self.first = low;
                self.values.resize((high - low) as usize + 1, 0);
                return;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.wider += 1;
        let odd = (self.first & 1) as usize;
        self.first >>= 1;
        let mut wide = vec![0u64; (self.values.len() + odd).div_ceil(2)];
        for (index, value) in self.values.iter().enumerate() {
            let sum = &mut wide[(index + odd) / 2];
            *sum = sum.saturating_add(*value);
        }
        self.values = wide;
    }
}

/// What one process or socket moved.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Bytes given to calls.
    pub sent: Series,
    /// Bytes got from calls; of sockets only of those whose other end does not tell of it.
    pub received: Series,
}

/// All of them.
#[derive(Debug)]
pub struct Traffic {
    /// By [`Run::processes`], and their socket calls.
    pub processes: Vec<(Moved, Series)>,
    /// By [`Run::sockets`]; of those that moved nothing none.
    pub sockets: Vec<Option<Box<Moved>>>,
    most: (usize, usize),
}

impl Traffic {
    /// Knows the run, and none of its events.
    pub fn new(run: &Run) -> Traffic {
        let share = |all: usize, among: usize, range: std::ops::RangeInclusive<usize>| {
            (all / among.max(1)).clamp(*range.start(), *range.end())
        };
        let connected = run.sockets.iter().filter(|socket| has_other_end(socket)).count();
        Traffic {
            processes: vec![Default::default(); run.processes.len()],
            sockets: vec![None; run.sockets.len()],
            most: (share(PROCESSES, run.processes.len() * 3, PROCESS), share(SOCKETS, connected * 2, SOCKET)),
        }
    }

    /// Takes an event.
    pub fn event(&mut self, run: &Run, event: &Event) {
        if let Event::Call(call) = event {
            self.call(run, call);
        }
    }

    fn call(&mut self, run: &Run, call: &CallEvent) {
        let (most, of_socket) = self.most;
        let end = call.start.saturating_add(call.took);
        let (moved, calls) = &mut self.processes[run.threads[call.thread as usize].process as usize];
        calls.add(call.start, end, call.calls.into(), most);
        let class = call.call.class();
        let bytes = u64::from(call.bytes);
        if bytes == 0 || !matches!(class, Class::Send | Class::Receive) {
            return;
        }
        if call.call.is_direct() {
            return self.direct(run, call, end);
        }
        // a receive may wait long for what it gets: it got it at its end
        let from = if class == Class::Receive && call.calls == 1 { end } else { call.start };
        let side = |moved: &mut Moved, most| match class {
            Class::Send => moved.sent.add(from, end, bytes, most),
            _ => moved.received.add(from, end, bytes, most),
        };
        side(moved, most);
        let Some(socket) = call.socket else { return };
        let about = &run.sockets[socket as usize];
        let of_socket = if has_other_end(about) { of_socket } else { *SOCKET.start() };
        if class == Class::Send || about.peer.is_none() {
            side(self.sockets[socket as usize].get_or_insert_default(), of_socket);
        }
    }

    /// One process copies what is in the memory of two.
    fn direct(&mut self, run: &Run, call: &CallEvent, end: u64) {
        let (most, of_socket) = self.most;
        let reads = call.call.class() == Class::Receive;
        let peer = call.socket.and_then(|socket| run.sockets[socket as usize].peer);
        let here = run.threads[call.thread as usize].process;
        let there = peer.map(|peer| run.sockets[peer as usize].process);
        let (from, to) = if reads { (there, Some(here)) } else { (Some(here), there) };
        let bytes = u64::from(call.bytes);
        if let Some(from) = from {
            self.processes[from as usize].0.sent.add(call.start, end, bytes, most);
        }
        if let Some(to) = to {
            self.processes[to as usize].0.received.add(call.start, end, bytes, most);
        }
        if let Some(sender) = if reads { peer.or(call.socket) } else { call.socket } {
            let moved = self.sockets[sender as usize].get_or_insert_default();
            let side = if reads && peer.is_none() { &mut moved.received } else { &mut moved.sent };
            side.add(call.start, end, bytes, of_socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Kind, Process, Socket, Thread};
    use proptest::prelude::*;

    #[test]
    fn bytes_are_where_they_were_moved() {
        let mut series = Series::default();
        let bucket = 1 << NARROWEST;
        series.add(10 * bucket, 10 * bucket, 5, 8);
        series.add(12 * bucket, 14 * bucket, 100, 8);
        assert_eq!((series.start(), series.bucket()), (10 * bucket, bucket));
        assert_eq!(series.values(), [5, 0, 50, 50, 0]);
        // earlier than anything before
        series.add(8 * bucket, 8 * bucket, 1, 8);
        assert_eq!((series.start(), series.values()), (8 * bucket, &[1, 0, 5, 0, 50, 50, 0][..]));
        let mut last = Series::default();
        last.add(u64::MAX - 5 * bucket, u64::MAX, 10, 8);
        assert_eq!(last.values().iter().sum::<u64>(), 10, "the last moment that there is");
        // more than there is room for: buckets of twice the width
        series.add(17 * bucket, 17 * bucket, 7, 8);
        assert_eq!((series.start(), series.bucket()), (8 * bucket, 2 * bucket));
        assert_eq!(series.values(), [1, 5, 100, 0, 7]);
    }

    #[test]
    fn many_sockets_share_the_memory() {
        let many = |sockets| {
            Traffic::new(&Run {
                sockets: vec![Socket { peer: Some(0), ..Socket::default() }; sockets],
                ..Run::default()
            })
        };
        assert_eq!([1, 2048, 10_000_000].map(|sockets| many(sockets).most.1), [1024, 512, 32]);
        assert!(many(10).sockets.iter().all(Option::is_none), "a socket that moved nothing takes no room");
    }

    #[test]
    fn what_is_copied_from_another_process_is_sent_by_that_one() {
        let socket =
            |process, peer| Socket { kind: Kind::Memory, process, peer: Some(peer), ..Socket::default() };
        let run = Run {
            processes: vec![Process::default(); 2],
            threads: vec![Thread { process: 1, ..Thread::default() }],
            sockets: vec![socket(0, 1), socket(1, 0)],
            ..Run::default()
        };
        let copy = |call| CallEvent {
            thread: 0,
            call,
            start: 100,
            took: 50,
            inside: 50,
            calls: 1,
            socket: Some(1),
            result: 8,
            bytes: 8,
            asked: 8,
            to: None,
            in_mpi: false,
            peeked: false,
        };
        let mut traffic = Traffic::new(&run);
        traffic.call(&run, &copy(Call::ProcessVmReadV));
        let sum = |series: &Series| series.values().iter().sum::<u64>();
        let moved = |traffic: &Traffic| {
            [0, 1].map(|process: usize| {
                let moved = &traffic.processes[process].0;
                (sum(&moved.sent), sum(&moved.received))
            })
        };
        assert_eq!(moved(&traffic), [(8, 0), (0, 8)]);
        assert_eq!(traffic.sockets[0].as_ref().map(|moved| sum(&moved.sent)), Some(8));
        assert!(traffic.sockets[1].is_none());
        traffic.call(&run, &copy(Call::ProcessVmWriteV));
        assert_eq!(moved(&traffic), [(8, 8), (8, 8)]);
        assert_eq!(traffic.sockets[1].as_ref().map(|moved| sum(&moved.sent)), Some(8));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_there_are_never_too_many(
            adds in prop::collection::vec((0u64..1 << 50, 0u64..1 << 40, 0u64..1 << 32), 1..60), most in 1usize..100,
        ) {
            let mut series = Series::default();
            for (from, took, amount) in &adds {
                series.add(*from, from + took, *amount, most);
            }
            prop_assert!(series.values().len() <= most);
            prop_assert_eq!(series.values().iter().sum::<u64>(), adds.iter().map(|add| add.2).sum::<u64>());
            let end = series.start() + series.bucket() * series.values().len() as u64;
            prop_assert!(adds.iter().all(|(from, took, _)| series.start() <= *from && from + took < end));
        }
    }
}
