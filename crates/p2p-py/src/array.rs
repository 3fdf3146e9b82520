//! The bytes of NumPy's arrays, where they are.

use crate::error::Use;
use numpy::{
    PyArray1, PyArrayDescrMethods, PyReadonlyArray1, PyReadwriteArray1, PyUntypedArray, PyUntypedArrayMethods,
};
use numpy::{PyArrayMethods, dtype};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The bytes of an array as one row, of the same memory.
fn flat<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let py = given.py();
    let Ok(array) = given.cast::<PyUntypedArray>() else {
        let kind = given.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "an array of NumPy's is wanted, not {kind}: numpy.asarray makes one"
        )));
    };
    // booleans, signed and unsigned, floating and complex
    if !b"biufc".contains(&array.dtype().kind()) {
        return Err(PyTypeError::new_err(format!("an array of numbers is wanted, not of {}", array.dtype())));
    }
    if !array.is_c_contiguous() {
        return Err(Use::new_err(format!(
            "the array of shape {:?} does not lie in one piece (C-contiguous): send numpy.ascontiguousarray(array), receive into an array of its own and copy from that; a row of a 2-D array does, a column does not",
            array.shape()
        )));
    }
    let bytes = array.call_method1("reshape", (-1,))?.call_method1("view", (dtype::<u8>(py),))?;
    bytes.cast_into().map_err(|_| {
        PyTypeError::new_err(
            "an array of one of NumPy's subclasses is no row of bytes: numpy.asarray makes it one",
        )
    })
}

/// To read from.
pub(crate) fn readable<'py>(given: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray1<'py, u8>> {
    flat(given)?.try_readonly().map_err(|why| Use::new_err(format!("the array cannot be read: {why}")))
}

/// To write to.
pub(crate) fn writable<'py>(given: &Bound<'py, PyAny>) -> PyResult<PyReadwriteArray1<'py, u8>> {
    flat(given)?.try_readwrite().map_err(|why| {
        Use::new_err(format!("the array cannot be written to: {why}; receive into a copy of it"))
    })
}

/// Bytes, or those of an array.
pub(crate) fn copied(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(bytes) = given.cast::<pyo3::types::PyByteArray>() {
        return Ok(bytes.to_vec());
    }
    Ok(readable(given)?.as_slice()?.to_vec())
}
