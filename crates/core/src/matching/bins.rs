//! A hash table of first-in-first-out lists, threaded through storage that it does not own.
//!
//! Entries of one key form a ring in order of arrival. Its first entry, the *leader*, stands for the ring in the
//! chain of its bin; when it leaves, the next of the ring takes its place. A lookup thus never meets two entries of
//! one key, and 10,000 of them behind one key do not slow down their neighbours in the bin.

use super::slab::NIL;
use alloc::{boxed::Box, vec};

/// What `chain` says in an entry that does not lead its ring.
const FOLLOWER: u32 = NIL - 1;

/// Bins of a new table: a few cache lines, enough for the receives that most programs have outstanding.
const FIRST_BINS: usize = 64;

/// What entries are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub tag: u64,
    pub source: u32,
}

/// One entry's part in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    key: Key,
    /// The next leader in the bin, or `FOLLOWER`.
    chain: u32,
    prev: u32,
    next: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self::NONE
    }
}

impl Link {
    /// The part of an entry that is in no table.
    pub const NONE: Link = Link { key: Key { tag: 0, source: 0 }, chain: NIL, prev: NIL, next: NIL };

    /// What the entry is looked up by.
    pub const fn key(&self) -> Key {
        self.key
    }
}

/// Where a table's links are, by slot number.
pub(super) trait Links {
    fn link(&self, slot: u32) -> &Link;
    fn link_mut(&mut self, slot: u32) -> &mut Link;
}

impl Links for [Link] {
    #[inline]
    fn link(&self, slot: u32) -> &Link {
        &self[slot as usize]
    }
    #[inline]
    fn link_mut(&mut self, slot: u32) -> &mut Link {
        &mut self[slot as usize]
    }
}

/// The two words that a seed becomes. Tags come from peers: without the seed none can tell which tags share a bin.
///
/// Our own, because the hashers at hand take a key by way of `Hasher`, and the quickest of them leave what a single
/// multiplication leaves: tags in even steps pile up in a few bins for some seeds.
#[derive(Clone, Copy)]
pub(super) struct Seed(u64, u64);

/// 2^64 over the golden ratio: its multiples lie apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seed {
    pub fn new(seed: u64) -> Self {
        // The finalizer of splitmix64, so that poor seeds (0, 1, 2) do as well.
        let mix = |mut x: u64| {
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        // Odd, while sources go into the upper half, so that no source makes the factor zero.
        Seed(mix(seed.wrapping_add(GOLDEN)), mix(seed.wrapping_add(GOLDEN.wrapping_mul(2))) | 1)
    }

    /// 32 bits: one wide multiplication, folded, to mix what peers may choose with what they do not know; and a
    /// second one to spread what is regular in the outcome.
    #[inline]
    fn hash(self, key: Key) -> usize {
        let factor = (u64::from(key.source) << 32) ^ self.1;
        let product = u128::from(key.tag ^ self.0) * u128::from(factor);
        let folded = (product >> 64) as u64 ^ product as u64;
        (folded.wrapping_mul(GOLDEN) >> 32) as usize
    }
}

/// A leader and how it is reached, good until the table changes.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub slot: u32,
    before: u32,
    bin: usize,
}

/// The table.
pub(super) struct Bins {
    /// The first leader of each bin; a power of two of them, at least twice as many as there are keys.
    heads: Box<[u32]>,
    keys: usize,
    seed: Seed,
}

impl Bins {
    pub fn new(seed: Seed) -> Self {
        Bins { heads: vec![NIL; FIRST_BINS].into(), keys: 0, seed }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    #[inline]
    fn bin(&self, key: Key) -> usize {
        self.seed.hash(key) & (self.heads.len() - 1)
    }

    /// Finds the earliest entry with this key.
    #[inline]
    pub fn find<L: Links + ?Sized>(&self, links: &L, key: Key) -> Option<Spot> {
        let spot = self.walk(links, key);
        (spot.slot != NIL).then_some(spot)
    }

    /// Follows the chain to the leader with this key, or to its end.
    #[inline(always)]
    fn walk<L: Links + ?Sized>(&self, links: &L, key: Key) -> Spot {
        let bin = self.bin(key);
        let (mut before, mut slot) = (NIL, self.heads[bin]);
        while slot != NIL {
            let link = links.link(slot);
            if link.key == key {
                break;
            }
            (before, slot) = (slot, link.chain);
        }
        Spot { slot, before, bin }
    }

    /// Whether it is to [grow](Self::grow) before the next entry.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.keys * 2 >= self.heads.len()
    }

    /// Puts an entry under `key`, behind all others with it, in a table that is not full. Its link is written whole.
    #[inline(always)]
    pub fn append<L: Links + ?Sized>(&mut self, links: &mut L, slot: u32, key: Key) {
        debug_assert!(!self.is_full(), "chains would grow long");
        let Spot { slot: leader, bin, .. } = self.walk(links, key);
        if leader == NIL {
            *links.link_mut(slot) = Link { key, chain: self.heads[bin], prev: slot, next: slot };
            self.heads[bin] = slot;
            self.keys += 1;
            return;
        }
        let last = core::mem::replace(&mut links.link_mut(leader).prev, slot);
        *links.link_mut(slot) = Link { key, chain: FOLLOWER, prev: last, next: leader };
        links.link_mut(last).next = slot;
    }

    /// Takes a leader out, found since the table last changed.
    #[inline(always)]
    pub fn remove_leader<L: Links + ?Sized>(&mut self, links: &mut L, spot: Spot) {
        let Link { chain, prev, next, .. } = *links.link(spot.slot);
        let heir = if next == spot.slot {
            self.keys -= 1;
            chain
        } else {
            links.link_mut(prev).next = next;
            let heir = links.link_mut(next);
            (heir.prev, heir.chain) = (prev, chain);
            next
        };
        match spot.before {
            NIL => self.heads[spot.bin] = heir,
            before => links.link_mut(before).chain = heir,
        }
    }

    /// Takes an entry out, wherever in its ring it stands.
    #[inline]
    pub fn remove<L: Links + ?Sized>(&mut self, links: &mut L, slot: u32) {
        let Link { key, chain, prev, next } = *links.link(slot);
        if chain == FOLLOWER {
            links.link_mut(prev).next = next;
            links.link_mut(next).prev = prev;
        } else if let Some(spot) = self.find(links, key) {
            self.remove_leader(links, spot);
        }
    }

    /// Four times the bins. Chains are rebuilt leader by leader; rings stay as they are.
    #[cold]
    pub fn grow<L: Links + ?Sized>(&mut self, links: &mut L) {
        let more = vec![NIL; self.heads.len() * 4].into();
        for head in core::mem::replace(&mut self.heads, more) {
            let mut slot = head;
            while slot != NIL {
                let bin = self.bin(links.link(slot).key);
                let rest = core::mem::replace(&mut links.link_mut(slot).chain, self.heads[bin]);
                self.heads[bin] = slot;
                slot = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    impl Bins {
        /// Leaders that a walk to the end of each chain meets, the longest first.
        fn chains(&self, links: &[Link]) -> Vec<usize> {
            let chain = |&head: &u32| {
                let slot = |slot| (slot != NIL).then_some(slot);
                core::iter::successors(slot(head), |&at| slot(links.link(at).chain)).count()
            };
            let mut lengths: Vec<usize> = self.heads.iter().map(chain).collect();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths
        }
    }

    fn filled(seed: u64, keys: impl Iterator<Item = Key>) -> (Bins, Vec<Link>) {
        let (mut bins, mut links) = (Bins::new(Seed::new(seed)), Vec::new());
        for (slot, key) in (0..).zip(keys) {
            links.push(Link::NONE);
            if bins.is_full() {
                bins.grow(&mut links[..]);
            }
            bins.append(&mut links[..], slot, key);
        }
        (bins, links)
    }

    #[test]
    fn tags_as_programs_form_them_spread_over_the_bins() {
        const KEYS: u64 = 4096;
        for seed in [0, 1, u64::MAX, 0x5eed] {
            // A counter anywhere in the tag, alone or with the source running too; or the source alone.
            let tags = (0..=52).flat_map(|shift| [(shift, 0), (shift, 63)]).map(|(shift, peers)| {
                filled(
                    seed,
                    (0..KEYS).map(move |i| Key { tag: (i << shift) + 3, source: (i & peers) as u32 }),
                )
            });
            let sources = (0..=20).map(|shift| {
                filled(seed, (0..KEYS).map(move |i| Key { tag: 7, source: (i << shift) as u32 }))
            });
            for (bins, links) in tags.chain(sources) {
                let chains = bins.chains(&links);
                assert_eq!(chains.iter().sum::<usize>() as u64, KEYS);
                // Drawn at random, the longest would be 4 or 5, and 4608 the leaders met.
                assert!(chains[0] <= 8, "a chain of {}", chains[0]);
                let met: usize = chains.iter().map(|length| length * (length + 1) / 2).sum();
                assert!(met as u64 <= KEYS * 5 / 4, "{met} leaders met in {KEYS} lookups");
            }
        }
    }

    #[test]
    fn entries_of_one_key_take_one_place_in_the_chain() {
        let (bins, links) = filled(1, (0..10_000).map(|i| Key { tag: i % 2, source: 0 }));
        assert_eq!(bins.chains(&links).iter().sum::<usize>(), 2);
    }

    #[test]
    fn an_empty_table_has_no_leaders_left() {
        let (mut bins, mut links) = filled(1, (0..1000).map(|i| Key { tag: i % 300, source: 0 }));
        for slot in (0..1000).map(|i| i * 7 % 1000) {
            bins.remove(&mut links[..], slot);
        }
        assert!(bins.is_empty());
        assert_eq!(bins.chains(&links)[0], 0);
    }
}
