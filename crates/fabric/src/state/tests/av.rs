//! Address vectors.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use polyrail_core::wire::{Address, HostId, Ip, Key, PeerId};
use proptest::prelude::*;

use super::runs;
use crate::state::av::Av;

/// Some addresses.
static PEERS: LazyLock<Vec<Address>> = LazyLock::new(|| {
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let key = |n: u8| Key::new([n + 1; Key::LEN]).expect("a key");
    (0..5).map(|n| Address::new(&key(n), HostId(1), false, 1, ip).expect("an address")).collect()
});

/// Their identities: hashes, which take Miri a second each.
static IDS: LazyLock<Vec<PeerId>> = LazyLock::new(|| PEERS.iter().map(Address::id).collect());

#[derive(Clone, Debug)]
enum Step {
    /// One call that inserts these peers; nothing stands for an address that is none.
    Insert(Vec<Option<usize>>),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(prop::option::weighted(0.8, 0..5usize), 0..5).prop_map(Step::Insert),
        (0..12usize).prop_map(Step::Remove),
    ]
}

/// An address vector as the manual page has it: a list of places, looked through each time.
#[derive(Default)]
struct Oracle {
    places: Vec<Option<usize>>,
    /// The number that stands for a peer: the first that it got, then the lowest that is left.
    stands: [Option<usize>; 5],
}

impl Oracle {
    fn insert(&mut self, from: usize, peer: Option<usize>) -> usize {
        let number = (from..).find(|&at| self.places.get(at).is_none_or(Option::is_none)).expect("endless");
        if let Some(peer) = peer {
            self.places.resize(self.places.len().max(number + 1), None);
            self.places[number] = Some(peer);
            self.stands[peer].get_or_insert(number);
        }
        number
    }

    fn remove(&mut self, number: usize) -> bool {
        let Some(peer) = self.places.get_mut(number).and_then(Option::take) else { return false };
        if self.stands[peer] == Some(number) {
            self.stands[peer] = self.places.iter().position(|&place| place == Some(peer));
        }
        true
    }
}

/// The number that the next address of a call gets, as `fi_av_insert` gives them out.
fn insert(av: &mut Av, from: usize, peer: Option<usize>) -> usize {
    let number = av.free(from);
    if let Some(peer) = peer {
        av.insert(number, PEERS[peer]);
    }
    number
}

proptest! {
    #![proptest_config(runs())]

    #[test]
    fn numbers_are_those_of_the_oracle(steps in prop::collection::vec(step(), 0..if cfg!(miri) { 8 } else { 40 })) {
        let (mut av, mut oracle) = (Av::new(3, false), Oracle::default());
        for step in &steps {
            match step {
                Step::Insert(peers) => {
                    let mut next = 0;
                    for &peer in peers {
                        let number = insert(&mut av, next, peer);
                        prop_assert_eq!(number, oracle.insert(next, peer));
                        next = number + 1;
                    }
                }
                Step::Remove(number) => prop_assert_eq!(av.remove(*number), oracle.remove(*number)),
            }
            for number in 0..oracle.places.len() + 2 {
                let expected = oracle.places.get(number).copied().flatten().map(|peer| PEERS[peer]);
                prop_assert_eq!(av.get(number as u64).copied(), expected);
            }
            for (&id, stands) in IDS.iter().zip(oracle.stands) {
                prop_assert_eq!(av.number_of(id), stands);
            }
        }
    }
}

#[test]
fn numbers_that_cannot_be_are_nobodys() {
    let mut av = Av::new(0, false);
    assert_eq!((av.free(0), av.free(7)), (0, 7));
    assert!(av.get(0).is_none() && av.get(u64::MAX).is_none() && !av.remove(usize::MAX));
    av.insert(2, PEERS[0]);
    assert_eq!((av.free(0), av.free(2), av.number_of(PEERS[1].id())), (0, 3, None));
    assert!(av.remove(2) && !av.remove(2));
    assert_eq!(av.free(0), 0);
}

/// With a look through all places for each, this would be two thousand million looks.
#[test]
#[cfg_attr(miri, ignore = "many addresses")]
fn a_large_vector_is_filled_in_time() {
    let mut av = Av::new(0, false);
    const MANY: usize = 1 << 16;
    for at in 0..MANY {
        assert_eq!(insert(&mut av, 0, Some(at % 5)), at);
    }
    for at in (0..MANY).step_by(2) {
        assert!(av.remove(at));
    }
    for at in (0..MANY).step_by(2) {
        assert_eq!(insert(&mut av, 0, Some(at % 5)), at);
    }
    assert_eq!(insert(&mut av, 0, Some(0)), MANY);
}
