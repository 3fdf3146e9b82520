//! Which way operations went, counted, and told to `polyrail top` through the provider.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polyrail_core::coll::layout::Layout;
use polyrail_pmpi::in_file;

use crate::what;

macro_rules! ways {
    ($($way:ident $algorithm:literal $why:literal;)*) => {
        /// How an operation is carried out, and why so.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Way {
            $(#[doc = concat!($algorithm, ": ", $why)] $way),*
        }

        /// Names and reasons, for people.
        const TEXTS: &[(&str, &str)] = &[$(($algorithm, $why)),*];
    };
}

ways! {
    Slots "slots" "all ranks share a host";
    Parts "slots, of which each rank combines a part" "all ranks share a host, and it is long";
    Copies "copies from rank to rank" "all ranks share a host, and parts are long, or of lengths of their own";
    Rounds "rounds of hosts" "ranks of several hosts";
    Tree "a tree of hosts" "short, of several hosts";
    Doubling "hosts exchange all they have" "short, of several hosts";
    Sites "sites exchange once" "short, of several sites";
    Line "a line of hosts, in pieces" "long, of several hosts";
    Cast "multicast" "long, of several hosts";
    Faster "a line of hosts, in pieces" "long; as fast as multicast, or tried beside it";
    Lossy "a line of hosts, in pieces" "long; multicast loses too much, or does not reach all hosts";
    Mended "multicast" "long, of several hosts; what was lost came again to its host alone";
    Unable "a line of hosts, in pieces" "long; too long for multicast, or this rank cannot send so";
    Alone "a line of hosts, in pieces" "long; no network of IPv4 carries multicast to all hosts, or none may";
    Behind "slots" "long, of several hosts: another rank gets it from there";
    HostParts "hosts combine a part each" "long, of several hosts";
    SiteParts "hosts combine a part each at each site" "long, of several sites";
    SiteBlocks "a block from site to site" "parts of a site's ranks cross together";
    Blocks "a block from host to host" "parts of a host's ranks travel together";
    First "the MPI's" "a communicator's first operations";
    Passing "the MPI's" "a communicator of one rank, of several groups, or that found no memory";
    Unreached "the MPI's" "the kernel lets ranks not copy out of each other's memory";
    Kind "the MPI's" "its type, its operation, or that operation's order";
    Length "the MPI's" "without bytes, or longer than what is carried out here between hosts";
    Lengths "the MPI's" "parts of lengths of their own, and several hosts";
    Singles "the MPI's" "several hosts of one rank each";
}

const OPERATIONS: usize = what::REDUCE_SCATTER as usize + 1;
/// How often each operation went each way, and of how many bytes of a rank.
static COUNTS: [[[AtomicU64; 2]; TEXTS.len()]; OPERATIONS] =
    [const { [const { [const { AtomicU64::new(0) }; 2] }; TEXTS.len()] }; OPERATIONS];

/// Which ranks are of which sites, and how that is known, where there are several.
static SITES: OnceLock<(String, &str)> = OnceLock::new();
/// The longest text of that.
const LONGEST: usize = 200;

/// These are the sites of all ranks, and that is how they are known.
pub fn tell_sites(sites: &[u64], why: &'static str) {
    let groups = Layout::new(sites);
    if groups.hosts() > 1 {
        let all: Vec<String> = (0..groups.hosts()).map(|site| ranges(groups.members(site))).collect();
        let mut text = format!("{} sites, of ranks {}", all.len(), all.join(" and "));
        if text.len() > LONGEST {
            text.truncate(LONGEST);
            text.push_str("...");
        }
        SITES.get_or_init(|| (text, why));
    }
}

/// Numbers in order, those that follow each other as one range.
fn ranges(numbers: &[u32]) -> String {
    let range = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect(),
    };
    let runs: Vec<String> = numbers.chunk_by(|one, next| one + 1 == *next).map(range).collect();
    runs.join(",")
}

/// An operation has gone this way.
#[inline]
pub fn count(what: u8, way: Way, bytes: usize) {
    let [calls, all] = &COUNTS[usize::from(what)][way as usize];
    calls.fetch_add(1, Ordering::Relaxed);
    all.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// All that was counted, as `polyrail_rails::top::Collective` reads it.
fn document() -> String {
    let mut text = String::from("[");
    if let Some((sites, why)) = SITES.get() {
        let _ = write!(
            text,
            r#"{{"operation":"MPI_Init","algorithm":"{sites}","why":"{why}","calls":1,"bytes":0}}"#
        );
    }
    for (operation, ways) in COUNTS.iter().enumerate() {
        for ([calls, bytes], (algorithm, why)) in ways.iter().zip(TEXTS) {
            let (calls, bytes) = (calls.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            if calls > 0 {
                let comma = if text.len() > 1 { "," } else { "" };
                let operation = what::name(operation as u8);
                // names and reasons have nothing that JSON would have to hide
                let _ = write!(
                    text,
                    r#"{comma}{{"operation":"{operation}","algorithm":"{algorithm}","why":"{why}","calls":{calls},"bytes":{bytes}}}"#
                );
            }
        }
    }
    text.push(']');
    text
}

/// Writes it, if there is room; its bytes.
unsafe extern "C" fn tell(into: *mut u8, room: usize) -> usize {
    let text = document();
    if text.len() <= room {
        // SAFETY: the caller's room
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), into, text.len()) };
    }
    text.len()
}

/// From now on the provider may ask. As MPI has started, which has loaded it.
pub fn offer() {
    type Tell = unsafe extern "C" fn(*mut u8, usize) -> usize;
    let found = in_file(&[b"libpolyrail_fi"], c"polyrail_collectives");
    // SAFETY: null, which is none, or the provider's function of this name
    let found = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn(Tell)>>(found) };
    if let Some(asks) = found {
        asks(tell);
    }
}

#[cfg(test)]
mod tests {
    use polyrail_rails::top::Collective;

    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 3]), "0-3");
        assert_eq!(ranges(&[0, 2, 3, 7]), "0,2-3,7");
    }

    #[test]
    fn what_is_counted_is_told() {
        tell_sites(&[7, 7, 7], "one is nothing to tell");
        tell_sites(&[1, 1, 2, 1], "measured");
        assert!(TEXTS.iter().all(|(algorithm, why)| !format!("{algorithm}{why}").contains(['"', '\\'])));
        count(what::SCAN, Way::Slots, 100);
        count(what::SCAN, Way::Slots, 28);
        count(what::SCAN, Way::Length, 0);
        let told = Collective::parse(document().as_bytes());
        assert_eq!((told[0].operation.as_str(), told[0].why.as_str()), ("MPI_Init", "measured"));
        assert_eq!(told[0].algorithm, "2 sites, of ranks 0-1,3 and 2");
        let scans: Vec<_> = told.iter().filter(|one| one.operation == "MPI_Scan").collect();
        assert_eq!(scans.len(), 2);
        assert_eq!((scans[0].algorithm.as_str(), scans[0].calls, scans[0].bytes), ("slots", 2, 128));
        assert_eq!(scans[1].why, TEXTS[Way::Length as usize].1);
        // SAFETY: room for nothing
        assert_eq!(unsafe { tell(std::ptr::null_mut(), 0) }, document().len());
    }
}
