//! The calls.

use crate::array::{copied, readable, writable};
use crate::error::Raised;
use crate::given::{GivenLink, duration};
use crate::held::Held;
use crate::told::{Change, Job, Received, Verdict};
use polyrail_p2p as p2p;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::time::Duration;

/// How long to wait for others at the end of a block that an exception has ended.
const SOON: Duration = Duration::from_millis(500);

/// One process of a run.
#[pyclass(frozen, module = "polyrail_p2p")]
pub struct Peers {
    held: Held<p2p::Peers>,
    raised: Raised,
}

impl Peers {
    pub(crate) fn new(peers: p2p::Peers, raised: Raised) -> Self {
        Self { held: Held::new("the peers' run", peers), raised }
    }

    /// What is known without waiting.
    fn get<R>(&self, get: impl FnOnce(&p2p::Peers) -> R) -> PyResult<R> {
        self.held.with(|peers| Ok(get(peers)))
    }

    /// A call that may wait.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut p2p::Peers) -> Result<R, p2p::Error> + Send,
    ) -> PyResult<R> {
        self.held.with(|peers| py.detach(|| call(peers)).map_err(|why| self.raised.exception(why)))
    }

    fn end(&self, py: Python<'_>, most: Duration) -> PyResult<()> {
        let peers = self.held.lock()?.take();
        py.detach(|| peers.into_iter().for_each(|peers| peers.leave(most)));
        Ok(())
    }
}

#[pymethods]
impl Peers {
    #[getter]
    fn job(&self) -> PyResult<Job> {
        self.get(|peers| Job(peers.view().job.clone()))
    }

    #[getter]
    fn me(&self) -> PyResult<usize> {
        self.get(p2p::Peers::me)
    }

    #[getter]
    fn members(&self) -> PyResult<usize> {
        self.get(|peers| peers.view().members.len())
    }

    #[getter]
    fn owners(&self) -> PyResult<Vec<u16>> {
        self.get(|peers| peers.view().owners.clone())
    }

    #[getter]
    fn parts(&self) -> PyResult<Vec<u32>> {
        self.get(|peers| peers.parts().to_vec())
    }

    #[getter]
    fn iteration(&self) -> PyResult<u64> {
        self.get(p2p::Peers::iteration)
    }

    #[getter]
    fn stage(&self) -> PyResult<u32> {
        self.get(p2p::Peers::stage)
    }

    #[getter]
    fn judged(&self) -> PyResult<bool> {
        self.get(p2p::Peers::judged)
    }

    #[getter]
    fn keeps(&self) -> PyResult<bool> {
        self.get(p2p::Peers::keeps)
    }

    #[getter]
    fn is_alone(&self) -> PyResult<bool> {
        self.get(p2p::Peers::is_alone)
    }

    fn send(&self, py: Python<'_>, link: GivenLink, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = readable(array)?;
        let bytes = array.as_slice()?;
        self.call(py, |peers| peers.send(link.0, bytes))
    }

    fn receive(&self, py: Python<'_>, link: GivenLink, array: &Bound<'_, PyAny>) -> PyResult<Received> {
        let mut array = writable(array)?;
        let bytes = array.as_slice_mut()?;
        self.call(py, |peers| peers.receive(link.0, bytes)).map(Received::from)
    }

    #[pyo3(signature = (links = Vec::new(), most = 0.0), text_signature = "(self, links=(), most=0.0)")]
    fn wait(&self, py: Python<'_>, links: Vec<GivenLink>, most: f64) -> PyResult<bool> {
        let most = duration(most, "a wait")?;
        let links: Vec<p2p::Link> = links.into_iter().map(|link| link.0).collect();
        self.call(py, |peers| peers.wait(&links, most))
    }

    fn converged(&self, py: Python<'_>, norm: f64) -> PyResult<Option<Verdict>> {
        Ok(self.call(py, |peers| peers.converged(norm))?.map(Verdict::from))
    }

    fn next_stage(&self, py: Python<'_>) -> PyResult<u32> {
        self.call(py, p2p::Peers::next_stage)
    }

    fn keep(&self, py: Python<'_>, part: u32, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = copied(state)?;
        self.call(py, |peers| peers.keep(part, state))
    }

    fn change(&self, py: Python<'_>) -> PyResult<Change> {
        self.call(py, p2p::Peers::change).map(|change| Change::new(py, change))
    }

    fn tell(&self, py: Python<'_>, member: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = copied(data)?;
        self.call(py, |peers| peers.tell(member, &bytes))
    }

    fn told<'py>(&self, py: Python<'py>, member: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let told = self.call(py, |peers| Ok(peers.told(member)))?;
        Ok(told.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn post_to(&self, py: Python<'_>, member: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = copied(data)?;
        self.call(py, |peers| peers.post_to(member, &bytes))
    }

    #[pyo3(signature = (most = 0.0))]
    fn posted<'py>(&self, py: Python<'py>, most: f64) -> PyResult<Option<(usize, Bound<'py, PyBytes>)>> {
        let most = duration(most, "a wait")?;
        let posted = self.call(py, |peers| peers.posted(most))?;
        Ok(posted.map(|(member, bytes)| (member, PyBytes::new(py, &bytes))))
    }

    fn is_gone(&self, member: usize) -> PyResult<Option<String>> {
        self.get(|peers| peers.is_gone(member))
    }

    #[pyo3(signature = (most = 10.0))]
    fn leave(&self, py: Python<'_>, most: f64) -> PyResult<()> {
        self.end(py, duration(most, "a wait")?)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (kind, value, trace, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (value, trace);
        self.end(py, if kind.is_none() { Duration::from_secs(10) } else { SOON })
    }
}
