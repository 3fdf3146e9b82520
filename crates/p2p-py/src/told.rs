//! What calls return.

use crate::given::written_scheme;
use polyrail_p2p as p2p;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What a receive found.
#[pyclass(frozen, get_all, module = "polyrail_p2p")]
pub struct Received {
    kind: &'static str,
    iteration: Option<u64>,
    /// Seconds.
    age: Option<f64>,
}

impl From<p2p::Received> for Received {
    fn from(received: p2p::Received) -> Self {
        match received {
            p2p::Received::New { iteration } => Self { kind: "new", iteration: Some(iteration), age: None },
            p2p::Received::Unchanged { iteration, age } => {
                Self { kind: "unchanged", iteration: Some(iteration), age: Some(age.as_secs_f64()) }
            }
            p2p::Received::Nothing => Self { kind: "nothing", iteration: None, age: None },
        }
    }
}

#[pymethods]
impl Received {
    #[getter]
    fn is_new(&self) -> bool {
        self.kind == "new"
    }

    fn __repr__(&self) -> String {
        let age = self.age.map_or("None".into(), |age| format!("{age:.6}"));
        let iteration = self.iteration.map_or("None".into(), |iteration| iteration.to_string());
        format!("Received(kind='{}', iteration={iteration}, age={age})", self.kind)
    }
}

/// What a round found, when all may stop.
#[pyclass(frozen, get_all, module = "polyrail_p2p")]
pub struct Verdict {
    round: u64,
    iteration: u64,
    norm: f64,
}

impl From<p2p::Verdict> for Verdict {
    fn from(verdict: p2p::Verdict) -> Self {
        let p2p::Verdict { round, iteration, norm } = verdict;
        Self { round, iteration, norm }
    }
}

#[pymethods]
impl Verdict {
    fn __repr__(&self) -> String {
        format!("Verdict(round={}, iteration={}, norm={:e})", self.round, self.iteration, self.norm)
    }
}

/// What has changed for a member.
#[pyclass(frozen, get_all, module = "polyrail_p2p")]
pub struct Change {
    iteration: u64,
    lost: Vec<u32>,
    set: Vec<(u32, Option<Py<PyBytes>>)>,
}

impl Change {
    pub(crate) fn new(py: Python<'_>, change: p2p::Change) -> Self {
        let bytes = |state: Vec<u8>| PyBytes::new(py, &state).unbind();
        let set = change.set.into_iter().map(|(part, state)| (part, state.map(bytes))).collect();
        Self { iteration: change.iteration, lost: change.lost, set }
    }
}

#[pymethods]
impl Change {
    fn __repr__(&self) -> String {
        let set: Vec<u32> = self.set.iter().map(|(part, _)| *part).collect();
        format!("Change(iteration={}, lost={:?}, set of parts {set:?})", self.iteration, self.lost)
    }
}

/// What is computed.
#[pyclass(frozen, module = "polyrail_p2p")]
pub struct Job(pub(crate) p2p::Job);

#[pymethods]
impl Job {
    #[getter]
    fn parts(&self) -> u32 {
        self.0.parts
    }

    #[getter]
    fn scheme<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        written_scheme(py, self.0.scheme)
    }

    #[getter]
    fn tolerance(&self) -> f64 {
        self.0.tolerance
    }

    #[getter]
    fn every(&self) -> u64 {
        self.0.every
    }

    #[getter]
    fn keep(&self) -> u64 {
        self.0.keep
    }

    #[getter]
    fn task<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.task)
    }

    fn __repr__(&self) -> String {
        let p2p::Job { parts, tolerance, .. } = &self.0;
        format!("Job(parts={parts}, scheme={:?}, tolerance={tolerance:e})", self.0.scheme)
    }
}
