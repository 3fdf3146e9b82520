//! Merging what several ranks changed. All checks come before anything is applied: [`check`], then [`visit`].

use crate::blob::{Change, Reader, Record};
use crate::diff::{Mask, Page, diff};
use crate::layout::PAGE;

/// Two ranks wrote different values to one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub address: u64,
    /// Who, and what (the eight bytes around it, aligned, as each has them; where several, the first two in order of ranks).
    pub ranks: [u32; 2],
    /// See `ranks`.
    pub values: [u64; 2],
    /// What it was before.
    pub before: u64,
}

/// Why nothing can be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The program is wrong.
    Conflict(Conflict),
    /// A rank's blob is not as documented, `at` so many bytes from its begin.
    Malformed {
        /// Whose.
        rank: u32,
        /// Where.
        at: usize,
    },
    /// A rank changed what is not shared here.
    Foreign {
        /// Whose.
        rank: u32,
        /// The page.
        address: u64,
    },
}

/// What all ranks agreed upon last.
pub trait Twins {
    /// Whether these pages are shared.
    fn known(&self, address: u64, pages: u64) -> bool;
    /// The twin of a page that is.
    fn twin(&self, address: u64) -> &Page;
}

/// What became of one or more pages.
#[derive(Debug)]
pub enum Step<'a, 'b> {
    /// One rank changed them.
    One(u32, Record<'a>),
    /// Several ranks changed the page at this address.
    Many(u64, &'b [(u32, Change<'a>)]),
}

struct Cursor<'a> {
    rank: u32,
    reader: Reader<'a>,
    record: Option<Record<'a>>,
}

impl Cursor<'_> {
    fn address(&self) -> u64 {
        self.record.as_ref().map_or(u64::MAX, |record| record.address)
    }
    /// Past the first `pages` of its record.
    fn advance(&mut self, pages: u64) -> Result<(), Refused> {
        if let Some(rest) = self.record.and_then(|record| record.split(pages).1) {
            self.record = Some(rest);
            return Ok(());
        }
        let next = self.reader.next().transpose();
        self.record = next.map_err(|error| Refused::Malformed { rank: self.rank, at: error.at })?;
        Ok(())
    }
}

/// Calls `f` with everything, in order of addresses.
///
/// # Errors
/// A blob is malformed, or what `f` says.
pub fn visit<'a>(
    blobs: &[&'a [u8]],
    mut f: impl FnMut(Step<'a, '_>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut cursors = Vec::with_capacity(blobs.len());
    for (rank, blob) in blobs.iter().enumerate() {
        let mut cursor = Cursor { rank: rank as u32, reader: Reader::new(blob), record: None };
        cursor.advance(1)?;
        cursors.push(cursor);
    }
    let mut changes = Vec::with_capacity(blobs.len());
    loop {
        let (mut low, mut next, mut first, mut holders) = (u64::MAX, u64::MAX, 0, 0);
        for (i, address) in cursors.iter().map(Cursor::address).enumerate() {
            if address < low {
                (low, next, first, holders) = (address, low, i, 1);
            } else if address == low && holders > 0 {
                holders += 1;
            } else {
                next = next.min(address);
            }
        }
        if holders == 0 {
            return Ok(());
        }
        if holders > 1 {
            changes.clear();
            for cursor in cursors.iter_mut().filter(|cursor| cursor.address() == low) {
                changes.extend(cursor.record.map(|record| (cursor.rank, record.change(0))));
                cursor.advance(1)?;
            }
            f(Step::Many(low, &changes))?;
            continue;
        }
        let cursor = &mut cursors[first];
        while let Some(record) = cursor.record.filter(|record| record.address < next) {
            let (record, _) = record.split((next - record.address).div_ceil(PAGE as u64));
            f(Step::One(cursor.rank, record))?;
            cursor.advance(record.pages)?;
        }
    }
}

/// Checks everything: whether it is well formed, shared, and whether no two ranks contradict each other.
///
/// `seen` is shown what is right.
///
/// # Errors
/// What is wrong first, in order of addresses.
pub fn check(
    blobs: &[&[u8]],
    twins: &impl Twins,
    mut seen: impl FnMut(&Step<'_, '_>),
) -> Result<(), Refused> {
    visit(blobs, |step| {
        check_one(&step, twins)?;
        seen(&step);
        Ok(())
    })
}

fn check_one(step: &Step<'_, '_>, twins: &impl Twins) -> Result<(), Refused> {
    match *step {
        Step::One(rank, ref record) if !twins.known(record.address, record.pages) => {
            Err(Refused::Foreign { rank, address: record.address })
        }
        Step::One(..) => Ok(()),
        Step::Many(address, changes) if !twins.known(address, 1) => {
            Err(Refused::Foreign { rank: changes[0].0, address })
        }
        Step::Many(address, changes) => {
            combine(address, twins.twin(address), changes, None).map(|_| ()).map_err(Refused::Conflict)
        }
    }
}

/// What several ranks made of a page together.
#[derive(Debug)]
pub struct Combined {
    /// The page.
    pub page: Page,
    /// The bytes that ranks other than this one changed.
    pub others: Mask,
}

/// Makes one page of the changes of several ranks; `own` is which rank's are not in [`Combined::others`].
///
/// # Errors
/// Two of them contradict each other.
pub fn combine(
    address: u64,
    twin: &Page,
    changes: &[(u32, Change<'_>)],
    own: Option<u32>,
) -> Result<Combined, Conflict> {
    let mut combined = Combined { page: *twin, others: Mask::NONE };
    let mut taken = Mask::NONE;
    for (i, (rank, change)) in changes.iter().enumerate() {
        let mask = change.mask(twin);
        let mut theirs = *twin;
        change.blend(&mut theirs);
        if let Some(at) = mask.and(&taken).and(&diff(&theirs, &combined.page)).first() {
            let (first, before) = changes[..i]
                .iter()
                .find(|(_, change)| change.mask(twin).0[at / 64] >> (at % 64) & 1 == 1)
                .map_or((*rank, *twin), |(rank, change)| {
                    let mut page = *twin;
                    change.blend(&mut page);
                    (*rank, page)
                });
            return Err(Conflict {
                address: address + at as u64,
                ranks: [first, *rank],
                values: [word(&before, at), word(&theirs, at)],
                before: word(twin, at),
            });
        }
        mask.copy(&theirs, &mut combined.page);
        taken = taken.or(&mask);
        if Some(*rank) != own {
            combined.others = combined.others.or(&mask);
        }
    }
    Ok(combined)
}

/// The aligned eight bytes around byte `at`.
pub fn word(page: &Page, at: usize) -> u64 {
    u64::from_le_bytes(page[at & !7..][..8].try_into().expect("eight bytes"))
}
