//! The program's memory: what it hands in, and where it wants answers. Null pointers and lengths that cannot be are refused here; that others lead to
//! what the header says is the program's promise.

use crate::failure::Failure;
use crate::layout::{P2Pjob, P2Psettings};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// Bytes that a later version's struct has, at most.
const LONGEST: usize = 4096;

fn check(is_null: bool, len: usize, what: &str) -> Result<(), Failure> {
    if is_null && len > 0 {
        return Err(Failure::misuse(format!("{what} is a null pointer, to {len} of them")));
    }
    if len > isize::MAX as usize {
        return Err(Failure::misuse(format!(
            "{what}: {len} of them are more than memory has; is a length negative?"
        )));
    }
    Ok(())
}

/// So many values that the program has there.
///
/// # Safety
/// They are there, and nobody writes them as long as they are used.
pub(crate) unsafe fn values<'a, T>(from: *const T, len: usize, what: &str) -> Result<&'a [T], Failure> {
    check(from.is_null(), len.saturating_mul(size_of::<T>()), what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, and no longer than memory is; the rest is what the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(from, len) })
}

/// So many bytes that the program has there.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promises it.
    unsafe { values(from.cast(), len, "bytes") }
}

/// Room for so many values.
///
/// # Safety
/// It is there, and nobody else uses it as long as this is used. What is there before is not looked at.
pub(crate) unsafe fn room<'a, T: Copy>(into: *mut T, len: usize, what: &str) -> Result<&'a mut [T], Failure> {
    check(into.is_null(), len.saturating_mul(size_of::<T>()), what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null, and no longer than memory is; the rest is what the caller promises.
    Ok(unsafe { std::slice::from_raw_parts_mut(into, len) })
}

/// Text that ends with a zero, without spaces and ends of lines around it.
///
/// # Safety
/// It does, or it is null.
pub(crate) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if from.is_null() {
        return Err(Failure::misuse(format!("{what} is a null pointer")));
    }
    // SAFETY: not null; the caller promises the zero.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str()
        .map(str::trim)
        .map_err(|_| Failure::misuse(format!("{what} is no text: it is not in UTF-8")))
}

/// A place for an answer.
pub(crate) struct Answer<T>(*mut T);

impl<T> Answer<T> {
    /// Where the program wants it; an answer for nowhere is refused.
    ///
    /// # Safety
    /// As long as this is there, the place is, for this alone.
    pub(crate) unsafe fn new(place: *mut T, what: &str) -> Result<Self, Failure> {
        if place.is_null() {
            Err(Failure::misuse(format!("{what} is a null pointer")))
        } else {
            Ok(Self(place))
        }
    }

    /// The same, where the program may not want it.
    ///
    /// # Safety
    /// As [`Answer::new`].
    pub(crate) unsafe fn optional(place: *mut T) -> Option<Self> {
        (!place.is_null()).then_some(Self(place))
    }

    /// Gives it.
    pub(crate) fn give(self, value: T) {
        // SAFETY: not null, and what `new` was promised. What was there is not dropped: it is C's.
        unsafe { self.0.write(value) };
    }
}

/// A struct that begins with its size, and to which later versions append fields that mean what they did not say when they are zero.
///
/// # Safety
/// The first field is a `usize`, the size, and any bytes are a value of it.
pub(crate) unsafe trait Growing: Copy {
    /// What it is called in the header.
    const NAME: &'static str;
}

// SAFETY: the size is its first field, and all are numbers or pointers.
unsafe impl Growing for P2Pjob {
    const NAME: &'static str = "P2Pjob";
}

// SAFETY: the size is its first field, and all are numbers.
unsafe impl Growing for P2Psettings {
    const NAME: &'static str = "P2Psettings";
}

/// The size that the program gave a struct; at least ours, as there is no earlier version.
///
/// # Safety
/// A struct with a size is there, or it is null.
unsafe fn size_of_growing<T: Growing>(from: *const T) -> Result<usize, Failure> {
    if from.is_null() {
        return Err(Failure::misuse(format!("the {} is a null pointer", T::NAME)));
    }
    // SAFETY: not null, and a `Growing` begins with its size.
    let size = unsafe { from.cast::<usize>().read() };
    if !(size_of::<T>()..=LONGEST).contains(&size) {
        let name = T::NAME;
        return Err(Failure::misuse(format!("a {name}'s size is {size}: set it to sizeof({name})")));
    }
    Ok(size)
}

/// A struct that the program filled in.
///
/// # Safety
/// As many bytes are there as it says in its first field, or it is null.
pub(crate) unsafe fn read_growing<T: Growing>(from: *const T) -> Result<T, Failure> {
    // SAFETY: the caller promises it.
    let size = unsafe { size_of_growing(from)? };
    // SAFETY: the caller promises as many bytes as the size says, which are ours and what a later version has behind them.
    let later = unsafe { std::slice::from_raw_parts(from.add(1).cast::<u8>(), size - size_of::<T>()) };
    if later.iter().any(|byte| *byte != 0) {
        return Err(Failure::misuse(format!(
            "a field of the {} is set that this library does not know: it is older than the header that the program was compiled with",
            T::NAME
        )));
    }
    // SAFETY: there are at least so many bytes, and any are a value.
    Ok(unsafe { from.read() })
}

/// Fills a struct whose size the program has set; fields of a later version become zero.
///
/// # Safety
/// As many bytes are there as it says in its first field, or it is null.
pub(crate) unsafe fn fill_growing<T: Growing>(
    into: *mut T,
    fill: impl FnOnce(usize) -> T,
) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let size = unsafe { size_of_growing(into)? };
    let value = fill(size);
    // SAFETY: ours is the beginning of the bytes that the caller promises, and what follows is no longer than the size says.
    unsafe {
        into.write(value);
        ptr::write_bytes(into.add(1).cast::<u8>(), 0, size - size_of::<T>());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Later {
        settings: P2Psettings,
        more: u64,
    }

    fn later(more: u64) -> Later {
        let settings = P2Psettings { size: size_of::<Later>(), site: 7, ..P2Psettings::default() };
        Later { settings, more }
    }

    #[test]
    fn structs_of_later_versions_are_taken_where_what_is_new_is_not_set() {
        let mut one = later(0);
        // SAFETY: it is as long as it says.
        assert_eq!(unsafe { read_growing((&raw const one).cast::<P2Psettings>()) }.unwrap().site, 7);
        one.more = 1;
        // SAFETY: the same.
        let why =
            unsafe { read_growing((&raw const one).cast::<P2Psettings>()) }.map(|_| ()).unwrap_err().text;
        assert!(why.contains("older than the header"), "{why}");
        for bad in [0, size_of::<P2Psettings>() - 1, LONGEST + 1, usize::MAX] {
            one.settings.size = bad;
            // SAFETY: nothing but the size is looked at.
            let why =
                unsafe { read_growing((&raw const one).cast::<P2Psettings>()) }.map(|_| ()).unwrap_err().text;
            assert!(why.ends_with("set it to sizeof(P2Psettings)"), "{why}");
        }
    }

    #[test]
    fn what_is_new_is_zero_when_an_older_library_fills_it() {
        let mut one = later(u64::MAX);
        let all: *mut Later = &raw mut one;
        // SAFETY: it is as long as it says.
        unsafe {
            fill_growing(all.cast::<P2Psettings>(), |size| P2Psettings { size, ..P2Psettings::default() })
        }
        .unwrap();
        assert_eq!((one.settings.size, one.settings.site, one.more), (size_of::<Later>(), 0, 0));
    }
}
