//! What Python gives as links, schemes, seconds.

use crate::error::Use;
use polyrail_p2p::{Link, Scheme};
use pyo3::prelude::*;
use std::time::Duration;

/// Seconds at most: more than thirty years.
const SECONDS: f64 = 1e9;

/// A link: `(from, to)` or `(from, to, tag)`.
pub(crate) struct GivenLink(pub(crate) Link);

impl<'py> FromPyObject<'_, 'py> for GivenLink {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let pair = given.extract::<(u32, u32)>().map(|(from, to)| Link::new(from, to));
        let link = pair.or_else(|_| given.extract().map(|(from, to, tag)| Link { from, to, tag }));
        link.map(Self).map_err(|_: PyErr| Use::new_err(format!("{given:?} is no link: that is (from, to) or (from, to, tag), the numbers of two parts and one of several links between them")))
    }
}

/// A scheme: a word, or `("bounded", iterations)`.
pub(crate) struct GivenScheme(pub(crate) Scheme);

impl<'py> FromPyObject<'_, 'py> for GivenScheme {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let word: PyResult<String> = given.extract();
        let bounded: PyResult<(String, u64)> = given.extract();
        match (word.as_deref(), &bounded) {
            (Ok("sync"), _) => Ok(Self(Scheme::Synchronous)),
            (Ok("async"), _) => Ok(Self(Scheme::Asynchronous)),
            (Ok("hybrid"), _) => Ok(Self(Scheme::Hybrid)),
            (_, Ok((word, most))) if word == "bounded" => Ok(Self(Scheme::Bounded(*most))),
            _ => Err(Use::new_err(format!(
                "{given:?} is no scheme: there are \"sync\", \"async\", \"hybrid\" and bounded(iterations)"
            ))),
        }
    }
}

/// A scheme as Python gives it.
pub(crate) fn written_scheme(py: Python<'_>, scheme: Scheme) -> PyResult<Bound<'_, PyAny>> {
    let word = match scheme {
        Scheme::Synchronous => "sync",
        Scheme::Asynchronous => "async",
        Scheme::Hybrid => "hybrid",
        Scheme::Bounded(most) => return ("bounded", most).into_pyobject(py).map(Bound::into_any),
    };
    Ok(word.into_pyobject(py)?.into_any())
}

/// A length of time in seconds.
pub(crate) fn duration(seconds: f64, what: &str) -> PyResult<Duration> {
    if (0.0..=SECONDS).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Use::new_err(format!("{what} of {seconds} s is not possible: 0 to {SECONDS:e} s")))
}
