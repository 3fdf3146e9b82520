//! Why a call failed: its number, and what it says.

use crate::layout::*;
use polyrail_p2p::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

impl Failure {
    /// A call that cannot be carried out.
    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self { code: P2P_E_USE, text: text.into() }
    }

    pub(crate) fn internal(text: &str) -> Self {
        Self { code: P2P_E_INTERNAL, text: text.to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Use(_) => P2P_E_USE,
            Error::Changed => P2P_E_CHANGED,
            Error::Out => P2P_E_OUT,
            Error::Gone { .. } => P2P_E_GONE,
            Error::Breach { .. } => P2P_E_BREACH,
            Error::Refused(_) => P2P_E_REFUSED,
            Error::Silent(..) => P2P_E_SILENT,
            Error::Rails(_) => P2P_E_RAILS,
            Error::Launcher(_) | Error::Meeting(_) => P2P_E_LAUNCHER,
            // one that has no number yet: its text says what it is
            _ => P2P_E_INTERNAL,
        };
        Self { code, text: error.to_string() }
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Carries a call out; what it returns to C.
pub(crate) fn answer(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // what a panic leaves half done is behind a lock that it poisons (`handle`)
    let done = catch_unwind(AssertUnwindSafe(call));
    let fault =
        || Failure::internal("a fault of the library: the message before this says where; please report it");
    match done.unwrap_or_else(|_| Err(fault())) {
        Ok(()) => 0,
        Err(Failure { code, text }) => {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // a thread that ends has no text any more
            let _ = TEXT.try_with(|place| place.replace(text));
            code
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn P2Perror() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text() -> String {
        // SAFETY: it ends with a zero, and holds until this thread's next failure.
        unsafe { CStr::from_ptr(P2Perror()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_number_and_texts_are_the_threads() {
        assert_eq!(answer(|| Err(Failure::misuse("a\0b"))), P2P_E_USE);
        assert_eq!(text(), "a b");
        assert_eq!(answer(|| Ok(())), 0);
        assert_eq!(text(), "a b", "only failures have texts");
        std::thread::spawn(|| {
            assert_eq!(text(), "");
            assert_eq!(answer(|| panic!("on purpose")), P2P_E_INTERNAL);
            assert!(text().starts_with("a fault of the library"), "{}", text());
        })
        .join()
        .unwrap();
        assert_eq!(text(), "a b");
    }
}
