//! Memory that is written all over, again and again, is not watched but compared: a fault for each page costs more than looking at a page that did not change.
//!
//! It goes by chunks of a huge page's size. A chunk that was found written all over twice within a few collections becomes *hot*: its pages are pending with each
//! collection. One that has hardly changed a few times in a row is watched again.

use std::cell::Cell;
use std::collections::BTreeMap;

use polyrail_omp::layout::PAGE;
use polyrail_omp::pages::Pages;

use super::watch::Watch;

/// Bytes of a huge page.
pub const CHUNK: usize = 2 << 20;
/// A fault costs about as much as comparing three pages, so it pays from a third on; more, because of what is not known.
const DENSE: usize = CHUNK / PAGE / 2;
/// Written all over again within so many collections.
const SOON: u32 = 8;
/// Looked at in vain so many times.
const PATIENCE: u8 = 3;

#[derive(Default)]
struct Chunk {
    /// Pages that were found changed since the last collection.
    changed: Cell<usize>,
    idle: u8,
}

/// What is hot, and what may become so.
#[derive(Default)]
pub struct Hot {
    chunks: BTreeMap<usize, Chunk>,
    /// Chunks that were written all over, and in which collection.
    dense: BTreeMap<usize, u32>,
    collection: u32,
    /// Where parts of the program hand over memory one by one, looking at so much each time would cost too much.
    never: bool,
}

impl Hot {
    /// Nothing is hot any more, nor will be if `never`.
    pub fn reset(&mut self, never: bool) {
        *self = Self { never: never || self.never, ..Self::default() };
    }
    /// A page was looked at, and it had changed.
    pub fn changed(&self, page: usize) {
        if let Some(chunk) = self.chunks.get(&(page & !(CHUNK - 1))) {
            chunk.changed.set(chunk.changed.get() + 1);
        }
    }
    /// A collection begins.
    pub fn begin(&mut self) {
        self.collection += 1;
        self.chunks.retain(|_, chunk| {
            chunk.idle = if chunk.changed.take() < DENSE / 2 { chunk.idle + 1 } else { 0 };
            chunk.idle <= PATIENCE
        });
    }
    /// As [`Watch::scan`] but for what is hot, all of which is listed if `list_hot`.
    pub fn scan(
        &self,
        watch: &mut Watch,
        from: usize,
        to: usize,
        mut f: impl FnMut(usize, usize),
        list_hot: bool,
    ) -> bool {
        let mut at = from;
        for &chunk in self.chunks.range(from & !(CHUNK - 1)..to).map(|(chunk, _)| chunk) {
            if at < chunk && !watch.scan(at, chunk, &mut f) {
                return false;
            }
            if list_hot {
                f(chunk.max(from), (chunk + CHUNK).min(to));
            }
            at = chunk + CHUNK;
        }
        at >= to || watch.scan(at, to, &mut f)
    }
    /// What a collection found.
    pub fn found(&mut self, watch: &Watch, pages: &Pages) {
        if self.never {
            return;
        }
        let mut counted: Option<(usize, usize)> = None;
        let mut dense = Vec::new();
        let mut count = |chunk: usize, pages: usize| match &mut counted {
            Some(last) if last.0 == chunk => last.1 += pages,
            other => {
                let before = other.replace((chunk, pages));
                dense.extend(before.filter(|before| before.1 >= DENSE).map(|before| before.0));
            }
        };
        for &(from, to) in pages.runs() {
            let mut at = from;
            while at < to {
                let chunk = at & !(CHUNK - 1);
                let end = to.min(chunk + CHUNK);
                count(chunk, (end - at) / PAGE);
                at = end;
            }
        }
        count(usize::MAX, 0);
        for chunk in dense {
            if self.chunks.contains_key(&chunk) {
                continue;
            }
            let before = self.dense.insert(chunk, self.collection);
            if before.is_some_and(|before| self.collection - before <= SOON) {
                self.dense.remove(&chunk);
                self.chunks.insert(chunk, Chunk { changed: Cell::new(DENSE), idle: 0 });
                watch.release(chunk, chunk + CHUNK);
            }
        }
        let collection = self.collection;
        self.dense.retain(|_, last| collection - *last <= SOON);
    }
    /// How many chunks are hot.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.chunks.len()
    }
}
