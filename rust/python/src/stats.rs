//! Order statistics.

use numpy::{PyArray1, PyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use vlaprep_core::stats::{self, Boundaries, Brackets, Moments, PERCENTILES, Real, Thinned};

use crate::arrays::{self, FloatInput, Input, column, output};
use crate::gate;
use crate::threads;

/// Least, greatest, mean and standard deviation.
type ByColumn<'py> = (
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
);

/// Rank episode lengths within each task.
///
/// Parameters
/// ----------
/// lengths : array_like of int64, shape (E,)
///     Frames of each episode.
/// task_index : array_like of int64, shape (E,)
///     Task of each episode.
/// num_threads : int, optional
///     Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
///
/// Returns
/// -------
/// tasks : int64 array, shape (T,)
///     The distinct task indices, ascending.
/// boundaries : float64 array, shape (T, 10)
///     The percentiles 5, 15, ... 95 of each task's lengths, in frames; a row of NaN where the task
///     has fewer than 10 distinct lengths.
///
/// Raises
/// ------
/// ValueError
///     If the arrays differ in length.
/// TypeError
///     If an array does not hold integers.
///
/// Notes
/// -----
/// Equal in every bit to ``np.percentile(lengths, q)`` with its linear method: between neighbours
/// ``a`` and ``b`` at the fraction ``g`` it is ``a + (b - a) * g``, from the right side
/// ``b - (b - a) * (1 - g)`` where ``g >= 0.5``.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import percentiles_by_task
/// >>> tasks, boundaries = percentiles_by_task(np.arange(12, 48, 3), np.zeros(12, np.int64))
/// >>> tasks.tolist(), boundaries[0, :3].tolist()
/// ([0], [13.65, 16.95, 20.25])
#[pyfunction]
#[pyo3(signature = (lengths, task_index, *, num_threads=None))]
#[allow(clippy::type_complexity, reason = "a pair of arrays")]
pub(crate) fn percentiles_by_task<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    task_index: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArrayDyn<f64>>)> {
    let lengths = Input::<i64>::new("lengths", lengths, 1)?;
    let tasks = Input::<i64>::new("task_index", task_index, 1)?;
    let (lengths, tasks) = (lengths.values()?, tasks.values()?);
    let threads = threads::bound(num_threads, lengths.len())?;
    let ranked = gate::run(py, |interrupt| {
        stats::percentiles_by_task(lengths, tasks, threads, interrupt)
    })?;
    let shape = [ranked.tasks.len(), PERCENTILES.len()];
    let boundaries = output(py, ranked.boundaries.into_flattened(), &shape)?;
    Ok((column(py, ranked.tasks), boundaries))
}

/// Label episodes by the rank of their length within their task.
///
/// Parameters
/// ----------
/// lengths : array_like of int64, shape (E,)
///     Frames of each episode.
/// task_index : array_like of int64, shape (E,)
///     Task of each episode.
/// tasks : array_like of int64, shape (T,)
///     The tasks that have boundaries, each once.
/// boundaries : array_like of float64, shape (T, 10)
///     Ten non-decreasing finite boundaries of each task, in frames, or a row of NaN where it is
///     sparse; as returned by `percentiles_by_task`.
/// num_threads : int, optional
///     Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
///
/// Returns
/// -------
/// int64 array, shape (E,)
///     0, 10, ... 100; 50 where the task is sparse or not among `tasks`.
///
/// Raises
/// ------
/// ValueError
///     If shapes do not pair up, a task is listed twice, or a row of boundaries is neither NaN
///     throughout nor ten non-decreasing finite numbers.
/// TypeError
///     If lengths or tasks are not integers.
///
/// Notes
/// -----
/// Equal to ``10 * np.searchsorted(boundaries, length, side="right")``: a length equal to a
/// boundary gets the higher label.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import bucketize, percentiles_by_task
/// >>> lengths, task_index = np.arange(12, 48, 3), np.zeros(12, np.int64)
/// >>> bucketize(lengths, task_index, *percentiles_by_task(lengths, task_index)).tolist()
/// [0, 10, 20, 30, 40, 50, 50, 60, 70, 80, 90, 100]
#[pyfunction]
#[pyo3(signature = (lengths, task_index, tasks, boundaries, *, num_threads=None))]
pub(crate) fn bucketize<'py>(
    py: Python<'py>,
    lengths: &Bound<'py, PyAny>,
    task_index: &Bound<'py, PyAny>,
    tasks: &Bound<'py, PyAny>,
    boundaries: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let lengths = Input::<i64>::new("lengths", lengths, 1)?;
    let task_index = Input::<i64>::new("task_index", task_index, 1)?;
    let tasks = Input::<i64>::new("tasks", tasks, 1)?;
    let boundaries = Input::<f64>::new("boundaries", boundaries, 2)?;
    if boundaries.shape()[1] != PERCENTILES.len() {
        return Err(pyo3::exceptions::PyValueError::new_err(format!(
            "boundaries must have shape (T, {}), got {:?}",
            PERCENTILES.len(),
            boundaries.shape()
        )));
    }
    let (lengths, task_index) = (lengths.values()?, task_index.values()?);
    let (tasks, (rows, _)) = (tasks.values()?, boundaries.values()?.as_chunks());
    let rows: &[Boundaries] = rows;
    let threads = threads::bound(num_threads, lengths.len())?;
    let labels = gate::run(py, |interrupt| {
        stats::bucketize(lengths, task_index, tasks, rows, threads, interrupt)
    })?;
    Ok(column(py, labels))
}

/// Take quantiles of every column.
///
/// Parameters
/// ----------
/// x : array_like of float32 or float64, shape (N, D)
///     At least one row and one column. float16 is widened to float32, integers to float64.
/// q : float, or sequence of Q floats
///     Between 0 and 1. Several at once share one pass over `x`.
/// num_threads : int, optional
///     Bound on threads; by default VLAPREP_NUM_THREADS, else what the machine or container allows.
///
/// Returns
/// -------
/// array, shape (D,) or (Q, D)
///     In the dtype and unit of `x`; NaN where a column holds NaN. A row is what its `q` alone gives.
///
/// Raises
/// ------
/// ValueError
///     If `x` is empty or not two-dimensional, or a `q` lies outside [0, 1].
///
/// Notes
/// -----
/// Equal in every bit to ``np.quantile(x, q, axis=0)`` of NumPy 2.4 and newer, whatever NumPy is
/// installed: virtual index ``(N - 1) * q`` and fraction in float64, interpolation between the
/// order statistics in the dtype of `x`. NumPy itself answers a sequence of `q` in float64.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import quantile
/// >>> x = np.array([[0, 10], [1, 20], [4, 30]], np.float32)
/// >>> quantile(x, 0.75)
/// array([ 2.5, 25. ], dtype=float32)
/// >>> quantile(x, [0.25, 0.75])
/// array([[ 0.5, 15. ],
///        [ 2.5, 25. ]], dtype=float32)
#[pyfunction]
#[pyo3(signature = (x, q, *, num_threads=None))]
pub(crate) fn quantile<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    q: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    match FloatInput::new("x", x, 2)? {
        FloatInput::Single(x) => quantile_of(py, &x, q, num_threads),
        FloatInput::Double(x) => quantile_of(py, &x, q, num_threads),
    }
}

fn quantile_of<'py, T: Real + numpy::Element>(
    py: Python<'py>,
    x: &Input<'py, T>,
    q: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let (values, dims) = (x.values()?, x.shape()[1]);
    let threads = threads::bound(num_threads, values.len())?;
    let several = if is_scalar(q)? {
        None
    } else {
        Some(Input::<f64>::new("q", q, 1)?)
    };
    let qs = match &several {
        Some(several) => several.values()?,
        None => &[q.extract()?],
    };
    let answers = gate::run(py, |interrupt| {
        stats::quantiles(values, dims, qs, threads, interrupt)
    })?
    .concat();
    match &several {
        Some(_) => Ok(output(py, answers, &[qs.len(), dims])?.into_any()),
        None => Ok(column(py, answers).into_any()),
    }
}

/// Quantiles of each column of a matrix that is not all there at the same time.
///
/// Parameters
/// ----------
/// blocks : iterable of array_like of float32 or float64, shape (R, D)
///     Rows, all of one width and taken in the dtype of the first block. They pass by several times,
///     so a list or an object of one's own whose ``__iter__`` begins anew.
/// q : sequence of Q floats
///     Between 0 and 1.
/// num_threads : int, optional
///     As for `quantile`.
///
/// Returns
/// -------
/// array, shape (Q, D)
///     What `quantile` gives for all rows in one matrix, to the last bit.
///
/// Raises
/// ------
/// TypeError
///     If `blocks` can be iterated only once, as a generator.
/// ValueError
///     If there is no row, widths differ, a pass gives another number of rows, or a `q` lies outside
///     [0, 1]. Other rows of the same number give the quantiles of neither.
///
/// Notes
/// -----
/// A first pass keeps a sample, which tells between which values each quantile should lie; the next
/// one counts and keeps what lies there, and where that misled, one more does. Memory is that of a
/// block and a few megabytes.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import block_quantiles
/// >>> block_quantiles([np.array([[0.0], [1.0]]), np.array([[4.0]])], [0.75])
/// array([[2.5]])
#[pyfunction]
#[pyo3(signature = (blocks, q, *, num_threads=None))]
pub(crate) fn block_quantiles<'py>(
    py: Python<'py>,
    blocks: &Bound<'py, PyAny>,
    q: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(first) = arrays::blocks(blocks)?.next().transpose()? else {
        return Err(PyValueError::new_err("blocks is empty: there is no row"));
    };
    match FloatInput::new("blocks", &first, 2)? {
        FloatInput::Single(first) => quantiles_of_blocks(py, &first, blocks, q, num_threads),
        FloatInput::Double(first) => quantiles_of_blocks(py, &first, blocks, q, num_threads),
    }
}

fn quantiles_of_blocks<'py, T: Real + numpy::Element>(
    py: Python<'py>,
    first: &Input<'py, T>,
    blocks: &Bound<'py, PyAny>,
    q: &Bound<'py, PyAny>,
    num_threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let dims = first.shape()[1];
    let q = Input::<f64>::new("q", q, 1)?;
    let mut thinned = Thinned::new(dims);
    for_rows(blocks, dims, |rows| {
        thinned.add(rows);
        Ok(())
    })?;
    let mut brackets =
        Brackets::<T>::from_sample(thinned.rows(), dims, thinned.seen(), q.values()?)
            .map_err(|error| gate::raise(&error))?;
    loop {
        let mut counter = brackets.counter();
        for_rows(blocks, dims, |rows| {
            let threads = threads::bound(num_threads, rows.len())?;
            let seen = gate::run(py, |interrupt| brackets.count(rows, threads, interrupt))?;
            counter.merge(seen);
            Ok(())
        })?;
        if brackets
            .settle(counter)
            .map_err(|error| gate::raise(&error))?
        {
            break;
        }
    }
    let answer = brackets.quantiles().concat();
    Ok(output(py, answer, &[q.values()?.len(), dims])?.into_any())
}

/// Least, greatest, mean and standard deviation of each column of a matrix, as it passes by.
///
/// Parameters
/// ----------
/// blocks : iterable of array_like of float32 or float64, shape (R, D)
///     Rows, all of one width; they pass by once.
///
/// Returns
/// -------
/// min, max, mean, std : float64 array, shape (D,)
///     NaN where a column holds NaN; the standard deviation is that of the population.
///
/// Raises
/// ------
/// ValueError
///     If there is no row, or widths differ.
///
/// Notes
/// -----
/// Sums are float64, in an order that follows from the number of each row: how rows are cut into
/// blocks does not change a bit. Stretches of 512 rows are joined as in Chan, Golub, LeVeque (1979).
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import block_moments
/// >>> low, high, mean, std = block_moments([np.array([[0.0], [2.0]]), np.array([[4.0]])])
/// >>> low.item(), high.item(), mean.item(), round(std.item(), 3)
/// (0.0, 4.0, 2.0, 1.633)
#[pyfunction]
pub(crate) fn block_moments<'py>(
    py: Python<'py>,
    blocks: &Bound<'py, PyAny>,
) -> PyResult<ByColumn<'py>> {
    let mut moments: Option<(usize, Moments<f64>)> = None;
    for block in blocks.try_iter()? {
        let block = Input::<f64>::new("blocks", &block?, 2)?;
        let dims = block.shape()[1];
        let (width, moments) = moments.get_or_insert_with(|| (dims, Moments::new(dims)));
        check_width(dims, *width)?;
        let values = block.values()?;
        gate::run(py, |_| {
            moments.add(values);
            Ok(())
        })?;
    }
    let moments = moments.map_or_else(|| Moments::new(0), |(_, moments)| moments);
    let all = moments.summary().map_err(|error| gate::raise(&error))?;
    let [low, high, mean, std] =
        [all.min, all.max, all.mean, all.std].map(|values| column(py, values));
    Ok((low, high, mean, std))
}

/// Hands over the rows of every block.
fn for_rows<T: Real + numpy::Element>(
    blocks: &Bound<'_, PyAny>,
    dims: usize,
    mut visit: impl FnMut(&[T]) -> PyResult<()>,
) -> PyResult<()> {
    for block in arrays::blocks(blocks)? {
        let block = Input::<T>::new("blocks", &block?, 2)?;
        check_width(block.shape()[1], dims)?;
        visit(block.values()?)?;
    }
    Ok(())
}

fn check_width(found: usize, wanted: usize) -> PyResult<()> {
    if found == wanted && wanted > 0 {
        return Ok(());
    }
    let message =
        format!("blocks must have rows of one width of at least 1, got {wanted} and {found}");
    Err(PyValueError::new_err(message))
}

/// Whether NumPy takes this for one number.
fn is_scalar(q: &Bound<'_, PyAny>) -> PyResult<bool> {
    if q.is_instance_of::<PyFloat>() {
        return Ok(true);
    }
    let array = q
        .py()
        .import(intern!(q.py(), "numpy"))?
        .call_method1(intern!(q.py(), "asarray"), (q,))?;
    Ok(array.cast::<PyUntypedArray>()?.ndim() == 0)
}
