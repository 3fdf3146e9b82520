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

/// Classes of a lane of socket calls.
pub const SOCKET_CLASSES: [&str; 4] = ["send", "receive", "wait", "other"];
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
    pub longest: BinaryHeap<Reverse<Long>>,
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
        }
    }

    pub(super) fn call(&mut self, process: u32, mpi: bool, class: usize, long: Long) {
        let shift = self.bucket.trailing_zeros();
        let lane = &mut self.lanes[process as usize * 2 + usize::from(mpi)];
        lane.calls += 1;
        if lane.longest.len() < self.kept {
            lane.longest.push(Reverse(long));
        } else if let Some(mut least) = lane.longest.peek_mut()
            && least.0.took < long.took
        {
            *least = Reverse(long);
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
        let mut took: Vec<_> = timeline.lanes[1999].longest.iter().map(|long| long.0.took).collect();
        took.sort_unstable();
        assert_eq!(took, (80..100).collect::<Vec<_>>());
    }
}
