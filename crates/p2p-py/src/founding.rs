//! Meeting.

use crate::error::Raised;
use crate::given::{GivenScheme, duration};
use crate::held::Held;
use crate::peers::Peers;
use polyrail_p2p as p2p;
use polyrail_p2p::start::{read_address, write_address};
use pyo3::prelude::*;

/// A run that is about to begin.
#[pyclass(frozen, module = "polyrail_p2p")]
pub struct Founding {
    held: Held<p2p::Founding>,
    address: String,
    raised: Raised,
}

fn settings(site: u32, weight: u16, patience: Option<f64>, raised: &Raised) -> PyResult<p2p::Settings> {
    let patience = patience.map(|seconds| duration(seconds, "a patience")).transpose()?;
    let own = p2p::Settings::from_env().map_err(|why| raised.exception(why))?;
    let site = if site == 0 { own.site } else { site };
    Ok(p2p::Settings { site, weight, patience, pause: Some(raised.pause()), ..own })
}

/// Opens an endpoint for a run that others are to join.
#[pyfunction]
#[pyo3(signature = (*, site = 0, weight = 1, patience = None))]
pub(crate) fn found(py: Python<'_>, site: u32, weight: u16, patience: Option<f64>) -> PyResult<Founding> {
    let raised = Raised::default();
    let settings = settings(site, weight, patience, &raised)?;
    let founding = py.detach(|| p2p::Founding::new(settings)).map_err(|why| raised.exception(why))?;
    let address = write_address(&founding.address());
    Ok(Founding { held: Held::new("the founding", founding), address, raised })
}

/// Joins a run, and waits until it begins.
#[pyfunction]
#[pyo3(signature = (address, *, site = 0, weight = 1, patience = None))]
pub(crate) fn join(
    py: Python<'_>,
    address: &str,
    site: u32,
    weight: u16,
    patience: Option<f64>,
) -> PyResult<Peers> {
    let raised = Raised::default();
    let address = read_address(address).map_err(|why| raised.exception(why))?;
    let settings = settings(site, weight, patience, &raised)?;
    let peers = py.detach(|| p2p::Peers::join(settings, &address)).map_err(|why| raised.exception(why))?;
    Ok(Peers::new(peers, raised))
}

/// Meets the processes that the same launcher started.
#[pyfunction]
#[pyo3(signature = (*, parts, tolerance, scheme = GivenScheme(p2p::Scheme::Synchronous), every = 16, keep = 0, task = Vec::new(), site = 0, weight = 1, patience = None))]
#[pyo3(
    text_signature = "(*, parts, tolerance, scheme='sync', every=16, keep=0, task=b'', site=0, weight=1, patience=None)"
)]
#[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
pub(crate) fn start(
    py: Python<'_>,
    parts: u32,
    tolerance: f64,
    scheme: GivenScheme,
    every: u64,
    keep: u64,
    task: Vec<u8>,
    site: u32,
    weight: u16,
    patience: Option<f64>,
) -> PyResult<Peers> {
    let job = p2p::Job { parts, scheme: scheme.0, tolerance, every, keep, task };
    let raised = Raised::default();
    let settings = settings(site, weight, patience, &raised)?;
    let peers = py.detach(|| p2p::Peers::start(settings, job)).map_err(|why| raised.exception(why))?;
    Ok(Peers::new(peers, raised))
}

#[pymethods]
impl Founding {
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    #[pyo3(signature = (*, others, parts, tolerance, scheme = GivenScheme(p2p::Scheme::Synchronous), every = 16, keep = 0, task = Vec::new()))]
    #[pyo3(text_signature = "(self, *, others, parts, tolerance, scheme='sync', every=16, keep=0, task=b'')")]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn gather(
        &self,
        py: Python<'_>,
        others: usize,
        parts: u32,
        tolerance: f64,
        scheme: GivenScheme,
        every: u64,
        keep: u64,
        task: Vec<u8>,
    ) -> PyResult<Peers> {
        let job = p2p::Job { parts, scheme: scheme.0, tolerance, every, keep, task };
        // once: what did not come about is over, too, and who has asked to join hears that
        let founding = self.held.take()?;
        let peers = py.detach(|| founding.gather(job, others, |_| Ok(())));
        let peers = peers.map_err(|why| self.raised.exception(why))?;
        Ok(Peers::new(peers, self.raised.clone()))
    }
}
