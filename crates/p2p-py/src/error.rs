//! Errors as exceptions, and waits that signals end.

use polyrail_p2p::{Error, Pause};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

mod exceptions {
    pyo3::import_exception!(polyrail_p2p._errors, Rails);
    pyo3::import_exception!(polyrail_p2p._errors, Gone);
    pyo3::import_exception!(polyrail_p2p._errors, Breach);
    pyo3::import_exception!(polyrail_p2p._errors, Changed);
    pyo3::import_exception!(polyrail_p2p._errors, Out);
    pyo3::import_exception!(polyrail_p2p._errors, Refused);
    pyo3::import_exception!(polyrail_p2p._errors, Silent);
    pyo3::import_exception!(polyrail_p2p._errors, Use);
    pyo3::import_exception!(polyrail_p2p._errors, Error);
}
pub(crate) use exceptions::Use;

/// What a signal's handler raised, while a call waited.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Looks for signals while a call waits.
    pub(crate) fn pause(&self) -> Pause {
        let Self(raised) = self.clone();
        Pause::new(move || {
            // none: the interpreter ends, and nobody wants what is waited for
            let signals = Python::try_attach(|py| py.check_signals());
            let Some(Err(why)) = signals else {
                return if signals.is_some() { Ok(()) } else { Err(Error::Interrupted) };
            };
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            Err(Error::Interrupted)
        })
    }

    /// The exception that a call raises.
    pub(crate) fn exception(&self, error: Error) -> PyErr {
        let text = error.to_string();
        match error {
            Error::Interrupted => {
                let raised = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(text))
            }
            Error::Rails(_) => exceptions::Rails::new_err(text),
            Error::Gone { .. } => exceptions::Gone::new_err(text),
            Error::Breach { .. } => exceptions::Breach::new_err(text),
            Error::Changed => {
                exceptions::Changed::new_err(format!("{text}: Peers.change() says what that means here"))
            }
            Error::Out => exceptions::Out::new_err(text),
            Error::Refused(_) => exceptions::Refused::new_err(text),
            Error::Silent(..) => exceptions::Silent::new_err(text),
            Error::Use(_) => Use::new_err(text),
            _ => exceptions::Error::new_err(text),
        }
    }
}
