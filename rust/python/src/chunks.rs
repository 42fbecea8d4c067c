//! Action chunks.

use numpy::PyArrayDyn;
use pyo3::prelude::*;
use vlaprep_core::chunks;

use crate::arrays::{Input, output};
use crate::gate;
use crate::threads;

/// Copy windows of consecutive rows.
///
/// Parameters
/// ----------
/// rows : array_like of float32, shape (R, D)
///     Frames in order.
/// first_row : array_like of int64, shape (N,)
///     Where each chunk begins.
/// chunk_size : int
///     Rows of a chunk, at least 1.
/// num_threads : int, optional
///     Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
///
/// Returns
/// -------
/// float32 array, shape (N, chunk_size, D)
///     ``rows[first_row[i] : first_row[i] + chunk_size]`` for every ``i``.
///
/// Raises
/// ------
/// ValueError
///     If a chunk does not lie within the rows.
/// MemoryError
///     If the chunks do not fit into memory.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import gather_chunks
/// >>> rows = np.arange(10, dtype=np.float32).reshape(5, 2)
/// >>> gather_chunks(rows, [3, 0], 2).tolist()
/// [[[6.0, 7.0], [8.0, 9.0]], [[0.0, 1.0], [2.0, 3.0]]]
#[pyfunction]
#[pyo3(signature = (rows, first_row, chunk_size, *, num_threads=None))]
pub(crate) fn gather_chunks<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    first_row: &Bound<'py, PyAny>,
    chunk_size: usize,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let rows = Input::<f32>::new("rows", rows, 2)?;
    let first_row = Input::<i64>::new("first_row", first_row, 1)?;
    let (dims, count) = (rows.shape()[1], first_row.shape()[0]);
    let (values, first) = (rows.values()?, first_row.values()?);
    let size = count.saturating_mul(chunk_size).saturating_mul(dims);
    let threads = threads::bound(num_threads, size)?;
    let gathered = gate::run(py, |interrupt| {
        chunks::gather_chunks(values, dims, first, chunk_size, threads, interrupt)
    })?;
    output(py, gathered, &[count, chunk_size, dims])
}
