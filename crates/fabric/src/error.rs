//! Failures as completion errors: libfabric's number, our number, and a sentence that names the peer.

use std::ffi::{CStr, c_char, c_int, c_void};

use polyrail_core::frame::Status;
use polyrail_core::proto::Failure;

use crate::ffi::*;
use crate::limits::ERR_DATA_MAX;

/// An error as it is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// libfabric's number, positive.
    pub err: c_int,
    /// Ours: an index into [`SENTENCES`], from 1 on.
    pub prov_errno: c_int,
    /// What `prov_errno` does not say: a sentence that names the peer, ending in NUL; or an address, for [`stranger`]. Often
    /// nothing, and that on purpose: applications read expected errors with an entry on their stack that they never
    /// initialised, whose `err_data` must not be written through.
    pub data: Vec<u8>,
}

/// What our error numbers mean, beginning with 1, and libfabric's number for each.
const SENTENCES: [(c_int, &CStr); 11] = [
    (FI_ENOTCONN, c"the peer is gone, or cannot be reached"),
    (FI_ECANCELED, c"cancelled"),
    (FI_ETRUNC, c"the message was longer than the buffer"),
    (FI_ENOMSG, c"no such message has arrived"),
    (FI_EADDRNOTAVAIL, c"the sender's address is not in the address vector"),
    (FI_EACCES, c"the key names no memory of the target, or this access to it is not allowed"),
    (FI_EFAULT, c"the range lies outside the target's memory region"),
    (FI_EOPNOTSUPP, c"the target does not support this operation"),
    (FI_EIO, c"the target could not read or write the memory"),
    (FI_ECANCELED, c"cancelled by the peer"),
    (FI_EOTHER, c"refused for no reason"),
];

const GONE: usize = 1;
const CANCELLED: usize = 2;
const TRUNCATED: usize = 3;
const NO_MESSAGE: usize = 4;
const STRANGER: usize = 5;

fn of(number: usize) -> Why {
    Why { err: SENTENCES[number - 1].0, prov_errno: number as c_int, data: Vec::new() }
}

pub fn truncated() -> Why {
    of(TRUNCATED)
}

pub fn no_message() -> Why {
    of(NO_MESSAGE)
}

/// Its data is to be the sender's address.
pub fn stranger() -> Why {
    of(STRANGER)
}

/// The failure of an operation; `reason` is a sentence that names the peer, if there is one.
pub fn failed(failure: Failure, reason: Option<&str>) -> Why {
    let mut why = of(match failure {
        Failure::PeerGone => GONE,
        Failure::Cancelled => CANCELLED,
        Failure::Refused(Status::Access) => 6,
        Failure::Refused(Status::Range) => 7,
        Failure::Refused(Status::Unsupported) => 8,
        Failure::Refused(Status::Fault) => 9,
        Failure::Refused(Status::Cancelled) => 10,
        Failure::Refused(Status::Ok) => 11,
    });
    if let (Failure::PeerGone, Some(reason)) = (failure, reason) {
        why.data = reason.bytes().filter(|&byte| byte != 0).take(ERR_DATA_MAX - 1).chain([0]).collect();
    }
    why
}

/// `fi_cq_strerror`: the sentence in `data` if it is one of ours, else what the number means.
///
/// # Safety
/// `data` is null or what an error entry with this number had; `buf` is null or writable for `len` bytes.
pub unsafe fn sentence(number: c_int, data: *const c_void, buf: *mut c_char, len: usize) -> *const c_char {
    let known = usize::try_from(number).ok().and_then(|number| SENTENCES.get(number.wrapping_sub(1)));
    let general = known.map_or(c"not an error of this provider", |(_, sentence)| *sentence);
    let specific = number == GONE as c_int && !data.is_null();
    // SAFETY: that entry's data ends in NUL, also when it was cut.
    let sentence = if specific { unsafe { CStr::from_ptr(data.cast()) } } else { general };
    if buf.is_null() || len == 0 {
        return sentence.as_ptr();
    }
    let bytes = sentence.to_bytes();
    let cut = bytes.len().min(len - 1);
    // SAFETY: room for `cut` bytes and a NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), cut);
        buf.add(cut).write(0);
    }
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_number() {
        for (failure, err) in [
            (Failure::PeerGone, FI_ENOTCONN),
            (Failure::Cancelled, FI_ECANCELED),
            (Failure::Refused(Status::Access), FI_EACCES),
            (Failure::Refused(Status::Range), FI_EFAULT),
            (Failure::Refused(Status::Unsupported), FI_EOPNOTSUPP),
            (Failure::Refused(Status::Fault), FI_EIO),
        ] {
            assert_eq!(failed(failure, None).err, err);
        }
    }

    #[test]
    fn sentences_name_the_peer_and_fit() {
        let why = failed(Failure::PeerGone, Some("peer x: connection refused"));
        let mut buf = [1; 10];
        // SAFETY: the data of an error of ours, and a buffer of that length.
        let text = unsafe {
            let _ = sentence(why.prov_errno, why.data.as_ptr().cast(), buf.as_mut_ptr(), buf.len());
            CStr::from_ptr(sentence(why.prov_errno, why.data.as_ptr().cast(), std::ptr::null_mut(), 0))
        };
        assert_eq!(text, c"peer x: connection refused");
        assert_eq!(buf.map(|c| c as u8), *b"peer x: c\0");
        let long = failed(Failure::PeerGone, Some(&"x".repeat(1000)));
        assert_eq!((long.data.len(), long.data.last()), (ERR_DATA_MAX, Some(&0)));
        for (number, expected) in [
            (0, "not an error of this provider"),
            (-1, "not an error of this provider"),
            (4, "no such message has arrived"),
        ] {
            // SAFETY: without data or buffer.
            let text = unsafe { CStr::from_ptr(sentence(number, std::ptr::null(), std::ptr::null_mut(), 0)) };
            assert_eq!(text.to_str(), Ok(expected));
        }
    }
}
