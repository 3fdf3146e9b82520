//! Time lines that a screen can show: of each process two lanes (MPI calls above socket calls), cut into buckets in which
//! the time of each class is summed, and the longest calls one by one. What comes out is bounded, however many calls there were.

use crate::model::{Class, Run};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buckets of all lanes together.
const BUCKETS: u64 = 1 << 20;
/// Buckets of a lane.
const LANE_BUCKETS: u64 = 1 << 16;
/// Calls kept one by one, of all lanes together.
const KEPT: usize = 40_000;

/// Waiting calls of a thread of which it is not known yet whether they brought anything; what was before them counts as waiting.
const UNDECIDED: usize = 256;

/// Classes of a lane of socket calls. Those of the last are waiting calls, too, that ended with nothing from anybody.
pub const SOCKET_CLASSES: [&str; 5] = ["send", "receive", "wait", "other", "idle"];
const WAIT: usize = 2;
const IDLE: usize = 4;
/// Since when what ended with nothing was for somebody.
pub(super) const NOTHING: u64 = u64::MAX;
/// Classes of a lane of MPI calls.
pub const MPI_CLASSES: [&str; 6] =
    ["MPI send", "MPI receive", "MPI wait", "MPI collective", "MPI one-sided", "MPI other"];

/// Whether a class is MPI's, and its number in its lane.
pub fn lane_class(class: Class) -> (bool, usize) {
    match class {
        Class::Send => (false, 0),
        Class::Receive => (false, 1),
        Class::Wait => (false, 2),
        Class::Open | Class::Close | Class::Other => (false, 3),
        Class::MpiSend => (true, 0),
        Class::MpiReceive => (true, 1),
        Class::MpiWait => (true, 2),
        Class::MpiCollective => (true, 3),
        Class::MpiOneSided => (true, 4),
        Class::MpiOther => (true, 5),
    }
}

/// A call that is kept as it was; ordered by how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Long {
    /// ns.
    pub took: u64,
    /// When it began.
    pub start: u64,
    /// Index into [`Run::threads`].
    pub thread: u32,
    /// Number of the function.
    pub call: u8,
    /// Index of the socket plus one; 0: none. Of an MPI call: the peer plus one where there is one.
    pub other: u32,
    /// What was moved.
    pub bytes: u64,
    /// How many in one.
    pub calls: u32,
    /// Error number; 0: none.
    pub error: u32,
}

/// A kept call and its class in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// The call.
    pub long: Long,
    /// Index into [`SOCKET_CLASSES`] or [`MPI_CLASSES`].
    pub class: u8,
}

/// Time per bucket of one class: what touches a bucket's edge, and how many calls cover how many whole buckets.
#[derive(Clone, Debug, Default)]
struct Track {
    partial: Vec<f32>,
    whole: Vec<i32>,
}

/// One lane.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    tracks: Vec<Track>,
    /// The longest calls.
    pub longest: BinaryHeap<Reverse<Kept>>,
    /// All calls (a run counts as one).
    pub calls: u64,
}

/// All lanes.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// First moment.
    pub start: u64,
    /// ns of a bucket, a power of two.
    pub bucket: u64,
    /// Buckets of a lane.
    pub buckets: usize,
    /// How many calls a lane keeps.
    pub kept: usize,
    /// Two per process: socket calls, MPI calls.
    pub lanes: Vec<Lane>,
    /// By thread: waiting calls, and whose, of which it is not known yet what ended them.
    undecided: Vec<Vec<(u32, Long)>>,
}

impl Timeline {
    pub(super) fn new(run: &Run) -> Timeline {
        let (start, end) = run.span;
        // longer than a century is not a time
        let span = end.saturating_sub(start).clamp(1, 1 << 62);
        let lanes = (run.processes.len() * 2).max(1);
        let most = (BUCKETS / lanes as u64).clamp(64, LANE_BUCKETS);
        let mut shift = 0;
        while span >> shift >= most {
            shift += 1;
        }
        Timeline {
            start,
            bucket: 1 << shift,
            buckets: (span >> shift) as usize + 1,
            kept: (KEPT / lanes).max(20),
            lanes: vec![Lane::default(); lanes],
            undecided: vec![Vec::new(); run.threads.len()],
        }
    }

    pub(super) fn call(&mut self, process: u32, mpi: bool, class: usize, long: Long) {
        if !mpi && class == WAIT {
            if self.undecided[long.thread as usize].len() == UNDECIDED {
                self.waited(long.thread, 0);
            }
            return self.undecided[long.thread as usize].push((process, long));
        }
        self.draw(process, mpi, class, long);
    }

    /// A thread's waiting has ended: it was for somebody since a moment, and before that for nobody.
    pub(super) fn waited(&mut self, thread: u32, since: u64) {
        let mut calls = std::mem::take(&mut self.undecided[thread as usize]);
        for (process, long) in calls.drain(..) {
            let ended = long.start.saturating_add(long.took);
            self.draw(process, false, if ended > since { WAIT } else { IDLE }, long);
        }
        self.undecided[thread as usize] = calls;
    }

    fn draw(&mut self, process: u32, mpi: bool, class: usize, long: Long) {
        let shift = self.bucket.trailing_zeros();
        let lane = &mut self.lanes[process as usize * 2 + usize::from(mpi)];
        lane.calls += 1;
        let kept = Kept { long, class: class as u8 };
        if lane.longest.len() < self.kept {
            lane.longest.push(Reverse(kept));
        } else if let Some(mut least) = lane.longest.peek_mut()
            && least.0.long.took < long.took
        {
            *least = Reverse(kept);
        }
        if class >= lane.tracks.len() {
            lane.tracks.resize(class + 1, Track::default());
        }
        let track = &mut lane.tracks[class];
        if track.partial.is_empty() {
            track.partial = vec![0.0; self.buckets];
            track.whole = vec![0; self.buckets + 1];
        }
        let most = (self.buckets as u64) << shift;
        let from = long.start.saturating_sub(self.start).min(most - 1);
        let to = long.start.saturating_add(long.took).saturating_sub(self.start).min(most - 1);
        let (first, last) = ((from >> shift) as usize, (to >> shift) as usize);
        if first == last {
            track.partial[first] += (to - from) as f32;
        } else {
            track.partial[first] += (((first as u64 + 1) << shift) - from) as f32;
            track.partial[last] += (to - ((last as u64) << shift)) as f32;
            track.whole[first + 1] += 1;
            track.whole[last] -= 1;
        }
    }

    /// Of each class of a lane, how much of each bucket it took, in 255ths; together never more than all of it. Something is never shown as nothing.
    pub fn shares(&self, lane: &Lane) -> Vec<Vec<u8>> {
        let times: Vec<Vec<f32>> = lane
            .tracks
            .iter()
            .map(|track| {
                let mut covering = 0i32;
                let cover = track.whole.iter().map(|change| {
                    covering = covering.wrapping_add(*change);
                    covering.max(0) as f32 * self.bucket as f32
                });
                track.partial.iter().zip(cover).map(|(partial, whole)| partial + whole).collect()
            })
            .collect();
        let mut shares = vec![Vec::new(); times.len()];
        for bucket in 0..self.buckets {
            let all: f32 = times.iter().filter_map(|track| track.get(bucket)).sum();
            let scale = 255.0 / all.max(self.bucket as f32);
            for (class, track) in times.iter().enumerate() {
                if let Some(&time) = track.get(bucket) {
                    let share = time * scale;
                    shares[class].push(if share > 0.0 { share.round().max(1.0) as u8 } else { 0 });
                }
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    fn long(start: u64, took: u64) -> Long {
        Long { took, start, thread: 0, call: 20, other: 0, bytes: 0, calls: 1, error: 0 }
    }

    #[test]
    fn time_goes_where_it_was_spent() {
        let run =
            Run { span: (1000, 1000 + (1 << 20) - 1), processes: vec![Process::default()], ..Run::default() };
        let mut timeline = Timeline::new(&run);
        assert_eq!((timeline.bucket, timeline.buckets), (16, 65536));
        timeline.call(0, false, 1, long(1008, 96));
        timeline.call(0, false, 0, long(1000, 4));
        let shares = timeline.shares(&timeline.lanes[0]);
        assert_eq!(shares[1][..8], [128, 255, 255, 255, 255, 255, 128, 0]);
        assert_eq!(shares[0][..2], [64, 0]);
        assert_eq!(timeline.lanes[0].calls, 2);
    }

    #[test]
    fn the_longest_are_kept() {
        let run = Run { span: (0, 1000), processes: vec![Process::default(); 1000], ..Run::default() };
        let mut timeline = Timeline::new(&run);
        assert_eq!(timeline.kept, 20);
        (0..100).for_each(|n| timeline.call(999, true, 3, long(n, (n * 37) % 100)));
        let mut took: Vec<_> = timeline.lanes[1999].longest.iter().map(|kept| kept.0.long.took).collect();
        took.sort_unstable();
        assert_eq!(took, (80..100).collect::<Vec<_>>());
    }

    #[test]
    fn waiting_for_nothing_is_idleness() {
        let run = Run {
            span: (0, 1 << 20),
            processes: vec![Process::default()],
            threads: vec![Default::default(); 2],
            ..Run::default()
        };
        let mut timeline = Timeline::new(&run);
        timeline.call(0, false, WAIT, long(0, 1600));
        timeline.call(0, false, WAIT, Long { thread: 1, ..long(1600, 1600) });
        timeline.waited(0, 0);
        timeline.waited(1, NOTHING);
        let lane = &timeline.lanes[0];
        let classes: Vec<_> =
            lane.longest.iter().map(|kept| (kept.0.long.start, kept.0.class as usize)).collect();
        assert!(classes.contains(&(0, WAIT)) && classes.contains(&(1600, IDLE)), "{classes:?}");
        let shares = timeline.shares(lane);
        assert_eq!((shares[WAIT][5], shares[IDLE][5], shares[IDLE][75]), (255, 0, 255));
        // memory is bounded also where nothing ever ends it
        (0..1000).for_each(|n| timeline.call(0, false, WAIT, long(n, 1)));
        assert!(timeline.undecided[0].len() <= UNDECIDED);
    }
}
