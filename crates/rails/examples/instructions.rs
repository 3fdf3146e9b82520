//! N tagged messages of 8 bytes between two workers of one process, over shared memory: for counting instructions.
//!
//! `bench/run instructions` runs it under callgrind with two values of N; the difference is what messages cost.

use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Filter};
use polyrail_rails::list::RailSet;
use polyrail_rails::list::Reach;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, User, Worker};

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(1000, |n| n.parse().expect("a number of messages"));
    let config = Config { rails: RailSet::ALL.without(Reach::Network), yielding: false, ..Config::default() };
    let mut a = Worker::open(config.clone()).expect("a worker");
    let mut b = Worker::open(config).expect("a worker");
    let to_b = a.peer(&b.address()).expect("an address");
    let user = User { context: 0, flags: 0 };
    let filter = Filter { source: None, matching: Matching::Tag(1), ignore: 0 };
    let (mut out, mut into) = ([1u8; 8], [0u8; 8]);
    let (out, into) = (RawIov { base: out.as_mut_ptr(), len: 8 }, RawIov { base: into.as_mut_ptr(), len: 8 });
    for _ in 0..count {
        // SAFETY: both buffers live to the end of main.
        unsafe {
            b.recv(filter, &[into], user);
            a.send(to_b, Matching::Tag(1), None, Delivery::Sent, &[out], user).expect("room");
        }
        while b.next_event().is_none() {
            if a.next_event().is_none() && count > 0 {
                b.progress();
                if !a.is_connected(to_b) {
                    a.progress();
                }
            }
        }
    }
}
