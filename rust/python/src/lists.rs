//! Python's own integers, many at once.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};

use crate::arrays::column;

/// Integers that are held at once; they and their neighbours fill half a first-level cache.
const SLICE: usize = 256;

/// Lay lists of integers end to end.
///
/// Parameters
/// ----------
/// lists : list
///     Lists of plain integers.
///
/// Returns
/// -------
/// values : int64 array, shape (N,)
///     All integers in order.
/// counts : int64 array, shape (L,)
///     How many of them each list had.
///
/// None instead of both, if a value in `lists` is no list, or holds something else than integers of
/// 64 bits: what that is worth is for NumPy to say, which is several times slower.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "a pair of arrays")]
pub(crate) fn integers_of_lists<'py>(
    py: Python<'py>,
    lists: &Bound<'py, PyList>,
) -> Option<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)> {
    let lists: Vec<Bound<'py, PyList>> = lists
        .iter()
        .map(|list| list.cast_into_exact().ok())
        .collect::<Option<_>>()?;
    let mut values = Vec::with_capacity(lists.iter().map(PyListMethods::len).sum());
    // Integers lie all over memory. Python takes hold of those of a slice in a loop so tight that the
    // waits for them overlap; afterwards they are at hand.
    for list in &lists {
        for begin in (0..list.len()).step_by(SLICE) {
            for item in list.get_slice(begin, begin + SLICE) {
                values.push(item.cast_exact::<PyInt>().ok()?.extract().ok()?);
            }
        }
    }
    let counts = lists.iter().map(|list| list.len() as i64).collect();
    Some((column(py, values), column(py, counts)))
}
