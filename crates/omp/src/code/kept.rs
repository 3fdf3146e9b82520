//! Which functions of a file have something to look for, kept from one run for the next: large libraries take seconds to look through, and most functions have nothing.
//!
//! One entry for each file, in [`directory()`] by its [`State::name`]:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `PRCODE1` and a zero |
//! | 112 | the states ([`State`]) of the file and of the library that has looked it through, seven words of 8 bytes each |
//! | 8 | 1 if jumps back were looked for, too; else 0 |
//! | 8 | how many functions |
//! | 12 each | where one begins, as in the file (8), and how long it is (4); in order |
//! | 16 | XXH3-128 of all before |
//!
//! All numbers little endian. An entry counts only if it is of just that file and of just that library, each unchanged.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use twox_hash::XxHash3_128;

const MAGIC: &[u8; 8] = b"PRCODE1\0";
const WORDS: usize = 7;
const HEAD: usize = MAGIC.len() + 2 * WORDS * 8 + 16;
const FUNCTION: usize = 12;

/// Which file, and as what it was last changed: device, inode, bytes, seconds and nanoseconds of the last change of its content and of anything (`stat(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub [u64; WORDS]);

impl State {
    /// Of an entry about that file, whatever its state: a changed file's takes the place of the one before.
    pub fn name(&self) -> String {
        let [device, inode, ..] = self.0;
        format!("{device:x}-{inode:x}")
    }
}

/// What is kept of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Jumps back were looked for, besides atomic instructions.
    pub with_jumps: bool,
    /// Functions that have any, by addresses as in the file, in order.
    pub functions: Vec<Range<u64>>,
}

/// Where entries are, by the environment (XDG Base Directory Specification); none if that does not tell.
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // a path that does not begin at the root would be another in each directory
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")))?;
    Some(cache.join("polyrail").join("code"))
}

impl Kept {
    /// An entry's bytes. None if a function is longer than can be written down.
    pub fn write(&self, file: &State, by: &State) -> Option<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        let head = file.0.iter().chain(&by.0).copied();
        head.chain([self.with_jumps.into(), self.functions.len() as u64])
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        for function in &self.functions {
            bytes.extend(function.start.to_le_bytes());
            let length = u32::try_from(function.end.checked_sub(function.start)?).ok()?;
            bytes.extend(length.to_le_bytes());
        }
        bytes.extend(XxHash3_128::oneshot(&bytes).to_le_bytes());
        Some(bytes)
    }

    /// What an entry says of a file, as that library has looked it through. None if it is of another, or damaged.
    pub fn read(bytes: &[u8], file: &State, by: &State) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        let (head, functions) = bytes.split_at_checked(HEAD)?;
        if XxHash3_128::oneshot(bytes) != u128::from_le_bytes(*sum) || !head.starts_with(MAGIC) {
            return None;
        }
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
        let words = || head[MAGIC.len()..].chunks_exact(8).filter_map(word);
        if !words().take(2 * WORDS).eq(file.0.iter().chain(&by.0).copied()) {
            return None;
        }
        let mut last = words().skip(2 * WORDS);
        let with_jumps = match last.next()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        if last.next()? != (functions.len() / FUNCTION) as u64 || !functions.len().is_multiple_of(FUNCTION) {
            return None;
        }
        let mut all = Vec::with_capacity(functions.len() / FUNCTION);
        let mut before = 0;
        for bytes in functions.chunks_exact(FUNCTION) {
            let (start, length) = bytes.split_first_chunk()?;
            let start = u64::from_le_bytes(*start);
            let end = start.checked_add(u32::from_le_bytes(*length.first_chunk()?).into())?;
            if start < before {
                return None;
            }
            before = start;
            all.push(start..end);
        }
        Some(Self { with_jumps, functions: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: State = State([1, 2, 3, 4, 5, 6, 7]);
    const BY: State = State([8, 9, 10, 11, 12, 13, 14]);

    #[test]
    fn an_entry_is_as_it_is_written_down() {
        let kept = Kept { with_jumps: true, functions: vec![0x1000..0x1010, 0x2000..0x2001] };
        let bytes = kept.write(&FILE, &BY).unwrap();
        assert_eq!(bytes.len(), HEAD + 2 * FUNCTION + 16);
        assert_eq!(bytes[..16], *b"PRCODE1\0\x01\0\0\0\0\0\0\0");
        assert_eq!(bytes[HEAD - 16..HEAD], *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        assert_eq!(bytes[HEAD..HEAD + FUNCTION], *b"\0\x10\0\0\0\0\0\0\x10\0\0\0");
        assert_eq!(bytes[bytes.len() - 16..], 0x15f5_e3da_89d1_556d_d912_aeb7_f70d_aa59_u128.to_le_bytes());
        assert_eq!(Kept::read(&bytes, &FILE, &BY), Some(kept));
        // of another file, by another library
        assert_eq!((Kept::read(&bytes, &BY, &BY), Kept::read(&bytes, &FILE, &FILE)), (None, None));
    }

    #[test]
    fn places() {
        let of = |variables: &'static [(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|one| one.0 == name).map(|one| one.1.into());
            directory(value).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(of(&[("HOME", "/h")]).as_deref(), Some("/h/.cache/polyrail/code"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]).as_deref(), Some("/c/polyrail/code"));
        assert_eq!(
            of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")]).as_deref(),
            Some("/h/.cache/polyrail/code")
        );
        assert_eq!((of(&[("HOME", "h")]), of(&[])), (None, None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(with_jumps: bool, mut functions in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..50)) {
            functions.sort_unstable();
            let range = |(start, length): (u32, u32)| u64::from(start)..u64::from(start) + u64::from(length);
            let kept = Kept { with_jumps, functions: functions.into_iter().map(range).collect() };
            let bytes = kept.write(&FILE, &BY).unwrap();
            prop_assert_eq!(Kept::read(&bytes, &FILE, &BY), Some(kept));
        }

        /// Nothing of a damaged entry is believed.
        #[test]
        fn damage_is_seen(at in 0..200_usize, with in 1..=255_u8, end in 0..200_usize) {
            let kept = Kept { with_jumps: false, functions: (0..5).map(|i| i * 64..i * 64 + 9).collect() };
            let bytes = kept.write(&FILE, &BY).unwrap();
            let mut broken = bytes.clone();
            let at = at % bytes.len();
            broken[at] ^= with;
            prop_assert_eq!(Kept::read(&broken, &FILE, &BY), None);
            prop_assert_eq!(Kept::read(&bytes[..end % bytes.len()], &FILE, &BY), None);
        }

        /// With a sum that is right, and of that file, functions are in order or none are believed.
        #[test]
        fn what_is_no_entry_does_no_harm(with_jumps in 0..3_u64, count in 0..6_u64, rest in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..70)) {
            let mut bytes = MAGIC.to_vec();
            let head = FILE.0.iter().chain(&BY.0).copied().chain([with_jumps, count]);
            head.for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(&rest);
            bytes.extend(XxHash3_128::oneshot(&bytes).to_le_bytes());
            if let Some(kept) = Kept::read(&bytes, &FILE, &BY) {
                prop_assert_eq!((kept.functions.len(), rest.len()), (count as usize, count as usize * FUNCTION));
                prop_assert!(kept.functions.iter().all(|one| one.start <= one.end));
                prop_assert!(kept.functions.is_sorted_by_key(|one| one.start));
            }
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(Kept::read(&bytes, &FILE, &BY), None);
        }
    }
}
