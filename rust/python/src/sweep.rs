//! Every window of a data set.

use numpy::{Element, PyArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vlaprep_core::fast::{Extreme, Run, Sweep, Symbols, Window};

use crate::arrays::{FloatInput, Input, output};
use crate::gate;
use crate::threads;

/// Windows, those left out; runs; symbols; extremes and where they stand; the bound.
type Found<'py> = (
    usize,
    usize,
    Bound<'py, PyArrayDyn<i64>>,
    Bound<'py, PyArrayDyn<i64>>,
    Bound<'py, PyArrayDyn<f64>>,
    Bound<'py, PyArrayDyn<i64>>,
    f64,
);

/// Look at the quantised coefficients of every window of consecutive rows, one row apart.
///
/// Parameters
/// ----------
/// rows : array_like of float32 or float64, shape (R, D)
///     Normalised actions, one episode after the other.
/// lengths : array_like of int64, shape (E,)
///     Rows of each episode.
/// chunk_size : int
///     Rows of a window, H.
/// scale : float
///     Steps per unit of a coefficient.
/// first_symbol, known : int, array_like of bool, optional
///     ``known[i]`` tells whether the symbol ``first_symbol + i`` is known, and so need not be told.
///     Without it, symbols do not matter.
/// low, high : array_like of float64, shape (H, D), optional
///     The range of the coefficients so far. Without it, their range does not matter.
///
/// Returns
/// -------
/// windows, skipped : int
///     Windows of finite values, and all others, which are left out.
/// outside : int64 array, shape (N, 3)
///     Windows that hold a symbol that is not known: episode, first start, start behind the last.
/// symbols : int64 array, shape (S, 3)
///     Symbols that are not known, ascending, with episode and start of the first window that holds
///     each. Of those outside -65,536 to 65,535 only the lowest and the highest.
/// extremes : float64 array, shape (2, H, D)
///     Coefficients below `low`, and above `high`, that are the least and greatest of all but for
///     `bound`; else NaN.
/// places : int64 array, shape (2, H, D, 2)
///     Episode and start of the first window that has each; else -1.
/// bound : float
///     Twice the most by which a coefficient may be misjudged in the search for extremes. Symbols are
///     exact.
///
/// Raises
/// ------
/// ValueError
///     If shapes do not agree, or `scale` is not positive.
///
/// Notes
/// -----
/// Each transform is made from those of the two windows before, and starts anew before errors grow:
/// ``C[n+1] = 2 cos(pi k / H) C[n] - C[n-1] + …``, three operations a coefficient. Symbols near a
/// rounding boundary are decided by a transform of their own.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import sweep_windows
/// >>> rows = np.zeros((100, 1))
/// >>> rows[60] = 1.0
/// >>> windows, _, outside, symbols, *_ = sweep_windows(rows, [100], 10, 10.0, -2, [True] * 5)
/// >>> windows, outside.tolist(), symbols[:, 0].tolist()
/// (91, [[0, 51, 61]], [-4, -3, 3, 4])
#[pyfunction]
#[pyo3(signature = (
    rows, lengths, chunk_size, scale, first_symbol=0, known=None, low=None, high=None, *,
    num_threads=None,
))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn sweep_windows<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    chunk_size: usize,
    scale: f64,
    first_symbol: i64,
    known: Option<&Bound<'py, PyAny>>,
    low: Option<&Bound<'py, PyAny>>,
    high: Option<&Bound<'py, PyAny>>,
    num_threads: Option<usize>,
) -> PyResult<Found<'py>> {
    let known = known
        .map(|known| Input::<bool>::new("known", known, 1))
        .transpose()?;
    let known = known.as_ref().map(Input::values).transpose()?;
    let question = Question {
        lengths: Input::new("lengths", lengths, 1)?,
        chunk_size,
        scale,
        known: known.map(|known| Symbols::new(first_symbol, known.to_vec())),
        low: low.map(|low| Input::new("low", low, 2)).transpose()?,
        high: high.map(|high| Input::new("high", high, 2)).transpose()?,
        num_threads,
    };
    match FloatInput::new("rows", rows, 2)? {
        FloatInput::Single(rows) => question.ask(py, &rows),
        FloatInput::Double(rows) => question.ask(py, &rows),
    }
}

struct Question<'py> {
    lengths: Input<'py, i64>,
    chunk_size: usize,
    scale: f64,
    known: Option<Symbols>,
    low: Option<Input<'py, f64>>,
    high: Option<Input<'py, f64>>,
    num_threads: Option<usize>,
}

impl Question<'_> {
    fn ask<'py, T: Copy + Into<f64> + Sync + Element>(
        self,
        py: Python<'py>,
        rows: &Input<'_, T>,
    ) -> PyResult<Found<'py>> {
        let (count, dims) = (rows.shape()[0], rows.shape()[1]);
        let shape = [self.chunk_size, dims];
        let mut end = 0_usize;
        let mut episodes = Vec::new();
        for &length in self.lengths.values()? {
            let first = end;
            end = usize::try_from(length).map_or(usize::MAX, |length| first.saturating_add(length));
            episodes.push(first..end);
        }
        if end != count {
            let message = format!("lengths must add up to the {count} rows");
            return Err(PyValueError::new_err(message));
        }
        let seen = match (&self.low, &self.high) {
            (Some(low), Some(high)) if low.shape() == shape && high.shape() == shape => {
                Some((low.values()?, high.values()?))
            }
            (None, None) => None,
            _ => {
                let message = format!("low and high must both have shape {shape:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let values = rows.values()?;
        let threads = threads::bound(self.num_threads, values.len())?;
        let Self { scale, known, .. } = self;
        let swept = gate::run(py, |interrupt| {
            let sweep = Sweep::new(shape.into(), scale, known)?;
            sweep.run(values, &episodes, seen, threads, interrupt)
        })?;
        let ids = |window: Window| [window.episode as i64, window.start as i64];
        let run = |run: &Run| {
            let [episode, start] = ids(run.first);
            [episode, start, run.end as i64]
        };
        let symbol = |&(symbol, window): &(i64, Window)| {
            let [episode, start] = ids(window);
            [symbol, episode, start]
        };
        let outside: Vec<i64> = swept.outside.iter().flat_map(run).collect();
        let symbols: Vec<i64> = swept.symbols.iter().flat_map(symbol).collect();
        let extremes = || swept.low.iter().chain(&swept.high);
        let value = |extreme: &Option<Extreme>| extreme.map_or(f64::NAN, |(value, _)| value);
        let place = |extreme: &Option<Extreme>| extreme.map_or([-1; 2], |(_, window)| ids(window));
        let [horizon, dims] = shape;
        Ok((
            swept.windows,
            swept.skipped,
            output(py, outside, &[swept.outside.len(), 3])?,
            output(py, symbols, &[swept.symbols.len(), 3])?,
            output(py, extremes().map(value).collect(), &[2, horizon, dims])?,
            output(
                py,
                extremes().flat_map(place).collect(),
                &[2, horizon, dims, 2],
            )?,
            2.0 * swept.bound,
        ))
    }
}
