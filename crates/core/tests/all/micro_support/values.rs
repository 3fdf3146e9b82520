//! Who gives and reads values.

use super::{Net, bytes_at};
use polyrail_core::micro::Time;
use polyrail_core::values::Taken;

/// The bytes of a value follow from its tag and iteration.
pub fn value(tag: u64, iteration: u64, len: usize) -> Vec<u8> {
    let from = tag.wrapping_mul(7919).wrapping_add(iteration.wrapping_mul(104_729));
    (0..len).step_by(8192).flat_map(|at| bytes_at(from + at as u64, 8192.min(len - at))).copied().collect()
}

/// Who reads one tag, and knows when its values were given.
#[derive(Default)]
pub struct Reader {
    pub tag: u64,
    /// When the values were given; the iteration of the first is 1.
    pub given: Vec<Time>,
    pub len: usize,
    pub has: u64,
    pub news: u64,
    /// Ages of what it had, at even distances.
    pub ages: Vec<Time>,
}

impl Reader {
    pub fn put(&mut self, net: &mut Net, end: usize) {
        self.given.push(net.now);
        let iteration = self.given.len() as u64;
        net.put(end, self.tag, iteration, &value(self.tag, iteration, self.len)).expect("it is taken");
    }

    pub fn look(&mut self, net: &mut Net, end: usize) {
        let now = net.now;
        match net.ends[end].inbox.take(now, self.tag) {
            Taken::New { iteration, bytes, .. } => {
                assert!(iteration > self.has, "it went back from {} to {iteration}", self.has);
                assert_eq!(bytes, value(self.tag, iteration, self.len));
                (self.has, self.news) = (iteration, self.news + 1);
            }
            Taken::Unchanged { iteration, .. } => assert_eq!(iteration, self.has),
            Taken::Nothing => assert_eq!(self.has, 0),
        }
        if self.has > 0 {
            self.ages.push(now - self.given[self.has as usize - 1]);
        }
    }

    /// Values each `interval` from now until `until`, looked at each `look`.
    pub fn run(&mut self, net: &mut Net, a: usize, interval: Time, look: Time, until: Time) {
        let (mut put, mut looks) = (net.now, net.now);
        while net.now < until {
            let next = put.min(looks);
            net.run(next);
            net.now = next;
            if put == next {
                self.put(net, a);
                put += interval;
            }
            if looks == next {
                self.look(net, a + 1);
                looks += look;
            }
        }
    }

    /// The age that so many of a thousand looks do not exceed.
    pub fn age(&mut self, thousandths: usize) -> Time {
        self.ages.sort_unstable();
        let last = self.ages.len().saturating_sub(1);
        self.ages.get(last * thousandths / 1000).copied().unwrap_or(Time::MAX)
    }
}
