//! What of a process is shared: data of the program and of its libraries, the main stack, the main thread's thread-local block, heaps.
//!
//! Not shared are the libraries of the system, whose data mean this process (descriptors, locks, caches), by the begin of their names (`modules`).

use polyrail_omp::diff::Mask;
use polyrail_omp::layout::{
    OTHER_TWINS, PAGE, SERIAL_HEAP, SERIAL_HEAP_BYTES, SLOT_HEAP_BYTES, SLOT_HEAPS, SLOTS, TWIN_OFFSET,
};

use crate::modules::{self, Module};
use crate::sys;

/// Data of so many pages, which are large arrays, are worth huge pages.
const ARRAYS: usize = 4 << 20 >> 12;
/// Areas of fewer pages are compared: that costs less than asking the kernel.
const FEW: usize = 16;
/// The main stack can be so large at most, whatever its limit says.
const STACK: usize = 16 << 30;

/// Pages that follow each other and whose twins do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first page.
    pub from: usize,
    /// The end. Of a heap: of what has been used.
    pub to: usize,
    /// Twins are so much higher, wrapping.
    pub offset: usize,
    /// What it is of.
    pub kind: Kind,
    /// Whether the kernel watches it.
    pub watched: bool,
}

impl Place {
    /// Where the twin of an address is.
    pub fn twin(&self, address: usize) -> usize {
        address.wrapping_add(self.offset)
    }
}

/// What an area is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data of programs and libraries, thread-local blocks.
    Data,
    /// The main stack, as far as it can grow.
    Stack,
    /// A heap.
    Heap,
}

/// Where records may be for: also heaps that are not used yet.
#[derive(Default)]
pub struct Areas {
    /// In order of addresses.
    pub list: Vec<Area>,
    /// Pages that are shared in part, in order: the bytes that are.
    pub partial: Vec<(usize, Mask)>,
    /// Whether the kernel watches heaps.
    pub watched_heaps: bool,
}

/// What is to be known of pages that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Twins are so much higher, wrapping.
    pub offset: usize,
    /// Whether the kernel watches them.
    pub watched: bool,
    /// How far this reaches.
    pub end: usize,
}

impl Areas {
    /// From bytes' ranges in any order, and the main stack's.
    pub fn new(mut data: Vec<(usize, usize)>, stack: Option<(usize, usize)>) -> Self {
        data.sort_unstable();
        let mut areas = Self::default();
        for &(from, to) in &data {
            let (first, end) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
            match areas.list.last_mut() {
                Some(last) if first < last.to => last.to = last.to.max(end),
                _ => areas.list.push(Area {
                    from: first,
                    to: end,
                    offset: 0,
                    kind: Kind::Data,
                    watched: false,
                }),
            }
            for page in [first, end - PAGE] {
                if areas.partial.iter().all(|(known, _)| *known != page) {
                    let mut mask = Mask::NONE;
                    for (from, to) in data.iter().filter(|(from, to)| *from < page + PAGE && page < *to) {
                        mask.set(from.max(&page) - page, (*to).min(page + PAGE) - page);
                    }
                    areas.partial.push((page, mask));
                }
            }
        }
        areas.partial.retain(|(_, mask)| *mask != Mask::ALL);
        areas.partial.sort_unstable_by_key(|(page, _)| *page);
        if let Some((from, to)) = stack {
            areas.list.push(Area { from, to, offset: 0, kind: Kind::Stack, watched: false });
        }
        let mut twins = OTHER_TWINS;
        for area in &mut areas.list {
            area.offset = twins.wrapping_sub(area.from);
            twins += area.to - area.from;
        }
        areas
    }
    /// Of this process: what the loader has loaded, and `more`.
    pub fn of_process(more: &[(usize, usize)]) -> Self {
        let mut data: Vec<(usize, usize)> = Vec::new();
        modules::shared().for_each(|module| shared_bytes(&module, &mut data));
        data.extend(more);
        Self::new(data, stack())
    }
    /// Adds or renews a heap. Whether it is new.
    pub fn heap(&mut self, from: usize, to: usize) -> bool {
        let to = to.next_multiple_of(PAGE);
        let at = self.list.partition_point(|area| area.from < from);
        if let Some(area) = self.list.get_mut(at).filter(|area| area.from == from) {
            area.to = to;
            return false;
        }
        let watched = self.watched_heaps;
        self.list.insert(at, Area { from, to, offset: TWIN_OFFSET, kind: Kind::Heap, watched });
        true
    }
    /// Where these bytes are, if they are of one area; of a heap, also what of it is not used yet.
    pub fn find(&self, address: usize, bytes: usize) -> Option<Place> {
        let place = self.at(address)?;
        (bytes <= place.end - address).then_some(place)
    }
    fn at(&self, address: usize) -> Option<Place> {
        let heap = |base: usize, bytes: usize| {
            Some(Place { offset: TWIN_OFFSET, watched: self.watched_heaps, end: base + bytes })
        };
        if address.wrapping_sub(SERIAL_HEAP) < SERIAL_HEAP_BYTES {
            return heap(SERIAL_HEAP, SERIAL_HEAP_BYTES);
        }
        if address.wrapping_sub(SLOT_HEAPS) < SLOTS * SLOT_HEAP_BYTES {
            return heap(address & !(SLOT_HEAP_BYTES - 1), SLOT_HEAP_BYTES);
        }
        let area = &self.list[self.list.partition_point(|area| area.from <= address).checked_sub(1)?];
        (area.kind != Kind::Heap && address < area.to).then_some(Place {
            offset: area.offset,
            watched: area.watched,
            end: area.to,
        })
    }
    /// The bytes of a page that are shared, if not all are.
    pub fn part(&self, page: usize) -> Option<&Mask> {
        let at = self.partial.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        Some(&self.partial[at].1)
    }
}

/// Whether an area is worth the kernel's help.
pub fn is_large(area: &Area) -> bool {
    area.to - area.from >= FEW * PAGE
}

/// Whether an area is worth huge pages.
pub fn is_huge(area: &Area) -> bool {
    area.kind == Kind::Data && area.to - area.from >= ARRAYS * PAGE
}

/// The bytes of a module that its program shares.
fn shared_bytes(module: &Module, data: &mut Vec<(usize, usize)>) {
    for segment in module.segments.iter().filter(|segment| segment.writable) {
        // what is fixed after the loader's work stands at the begin
        let fixed = module.relro.as_ref().filter(|fixed| (segment.start..segment.end).contains(&fixed.start));
        let from = fixed.map_or(segment.start, |fixed| segment.start.max(fixed.end & !(PAGE - 1)));
        if from < segment.end {
            data.push((from, segment.end));
        }
    }
    data.extend(
        module.local.as_ref().filter(|local| !local.is_empty()).map(|local| (local.start, local.end)),
    );
}

/// The main stack's addresses, as far as it has grown, and where what is mapped below it ends.
fn mapped_stack() -> Option<(usize, usize, usize)> {
    let maps = sys::read(c"/proc/self/maps")?;
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    let at = maps.lines().position(|line| line.ends_with("[stack]"))?;
    let (from, to) = range(maps.lines().nth(at)?)?;
    let below =
        at.checked_sub(1).and_then(|before| range(maps.lines().nth(before)?)).map_or(0, |before| before.1);
    Some((from, to, below))
}
/// As far as it can grow.
fn stack() -> Option<(usize, usize)> {
    let (from, to, below) = mapped_stack()?;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills what is given.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    let most = usize::try_from(limit.rlim_cur).unwrap_or(STACK).min(STACK) & !(PAGE - 1);
    Some((from.min(to.saturating_sub(most).max(below)), to))
}
/// What of the main stack's area is mapped.
pub fn stack_now(area: &Area) -> (usize, usize) {
    let mapped = mapped_stack().filter(|(_, to, _)| *to == area.to);
    (mapped.map_or(area.from, |(from, ..)| from.max(area.from)), area.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_pages_and_what_of_them_is_shared() {
        let base = 0x5555_0000_0000;
        let data = vec![
            (base + 0x5100, base + 0x5200),
            (base + 0x800, base + 0x2010),
            (base + 0x5f00, base + 0x7000),
        ];
        let areas = Areas::new(data, Some((base + 0x10_0000, base + 0x20_0000)));
        let pages: Vec<_> = areas.list.iter().map(|area| (area.from - base, area.to - base)).collect();
        assert_eq!(pages, [(0, 0x3000), (0x5000, 0x7000), (0x10_0000, 0x20_0000)]);
        let part = |page: usize| areas.part(base + page).map(Mask::count);
        assert_eq!(part(0), Some(0x800));
        assert_eq!(part(0x1000), None);
        assert_eq!(part(0x2000), Some(0x10));
        assert_eq!(part(0x5000), Some(0x200), "two ranges of one page");
        assert_eq!(part(0x6000), None);
        let twin = |page: usize, bytes| {
            areas.find(base + page, bytes).map(|place| (base + page).wrapping_add(place.offset) - OTHER_TWINS)
        };
        assert_eq!(twin(0x1000, 2 * PAGE), Some(0x1000));
        assert_eq!(twin(0x1000, 3 * PAGE), None);
        assert_eq!(twin(0x3000, PAGE), None);
        assert_eq!(twin(0x6000, PAGE), Some(0x4000));
        assert_eq!(areas.find(SERIAL_HEAP + SERIAL_HEAP_BYTES - PAGE, 2 * PAGE), None);
        assert_eq!(
            areas.find(SLOT_HEAPS + SLOT_HEAP_BYTES - PAGE, PAGE).map(|place| place.offset),
            Some(TWIN_OFFSET)
        );
        assert_eq!(areas.find(SLOT_HEAPS + SLOT_HEAP_BYTES - PAGE, 2 * PAGE), None);
    }

    #[test]
    fn a_process_shares_its_own_data_and_not_the_systems() {
        static mut MINE: u64 = 1;
        let areas = Areas::of_process(&[]);
        let inside = |address: usize| areas.list.iter().any(|area| (area.from..area.to).contains(&address));
        // This test is our library, whose own data are not shared.
        assert!(!inside(&raw const MINE as usize));
        let local = 0;
        assert!(!inside(&raw const local as usize), "a thread's stack");
        // SAFETY: only its address is taken.
        assert!(!inside(unsafe { libc::__errno_location() } as usize));
        assert!(areas.list.iter().any(|area| area.kind == Kind::Stack));
    }
}
