//! Memory of unexpected messages, and of copies of injected ones, for those that follow. Where one rank runs ahead of another, or sends more
//! than a ring holds, there are always some, and what an allocator gives back to the kernel and takes again costs more than their copies.

use super::buffers::Owned;

/// Lengths that are kept: powers of two from the first to the last.
const SHORTEST: usize = 2 << 10;
const CLASSES: usize = 6;
const LONGEST: usize = SHORTEST << (CLASSES - 1);
/// Most bytes that are kept: about as many as one peer may have here unexpectedly.
const MOST: usize = 2 << 20;

/// What is kept, by length.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    kept: [Vec<Owned>; CLASSES],
    bytes: usize,
}

/// The class of memory that has room for so many bytes.
fn class(len: usize) -> Option<usize> {
    let class = len.max(SHORTEST).div_ceil(SHORTEST).next_power_of_two().ilog2() as usize;
    (len > SHORTEST / 2 && len <= LONGEST).then_some(class)
}

impl Spare {
    /// So many bytes. What they are is not said: perhaps an earlier message's.
    pub fn take(&mut self, len: usize) -> Owned {
        let Some(class) = class(len) else { return Owned::zeros(len) };
        let room = SHORTEST << class;
        let found = self.kept[class].pop();
        self.bytes -= if found.is_some() { room } else { 0 };
        found.unwrap_or_else(|| Owned::zeros(room)).cut(len)
    }

    /// Keeps what is needed no more, or frees it.
    pub fn keep(&mut self, owned: Owned) {
        let room = owned.room();
        if let Some(class) =
            class(room).filter(|class| room == SHORTEST << class && self.bytes + room <= MOST)
        {
            self.bytes += room;
            self.kept[class].push(owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_taken_again_where_it_is_long_enough() {
        let mut spare = Spare::default();
        for len in [1, 1024, 1025, 2048, 2049, 16 << 10, (16 << 10) + 1, 64 << 10, (64 << 10) + 1, 1 << 20] {
            let first = spare.take(len);
            let at = first.memory().base;
            assert_eq!(first.memory().len, len);
            spare.keep(first);
            let again = spare.take(len);
            assert_eq!(again.memory().len, len);
            let kept = (1025..=64 << 10).contains(&len);
            assert!(!kept || again.memory().base == at, "{len}");
            spare.keep(again);
            assert_eq!(spare.bytes > 0, kept, "{len}");
            spare = Spare::default();
        }
    }

    #[test]
    fn no_more_is_kept_than_is_said() {
        let mut spare = Spare::default();
        let many: Vec<_> = (0..1000).map(|i| spare.take(2000 + 37 * i)).collect();
        many.into_iter().for_each(|owned| spare.keep(owned));
        let kept: usize = spare.kept.iter().flatten().map(Owned::room).sum();
        assert_eq!(kept, spare.bytes);
        assert!((MOST - LONGEST..=MOST).contains(&kept), "{kept}");
        while spare.bytes > 0 {
            (0..CLASSES).for_each(|class| drop(spare.take(SHORTEST << class)));
        }
        assert!(spare.kept.iter().all(Vec::is_empty));
    }
}
