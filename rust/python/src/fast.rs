//! The FAST codec.

use std::num::NonZero;
use std::thread::available_parallelism;

use numpy::{Element, PyArray1, PyArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vlaprep_core::fast::{self, OnRange, Settings};

use crate::arrays::{FloatInput, Input, column, output};
use crate::gate;

/// A FAST tokenizer, ready to encode and decode.
///
/// What `vlaprep.codec.ActionCodec` stands on. It never changes: threads and processes may share it.
///
/// Parameters
/// ----------
/// tokenizer : str or None
///     Text of a ``tokenizer.json``; None: ids are the symbols, ``coefficient - min_token``.
/// scale : float
///     Quantisation steps per unit of a coefficient.
/// min_token : int
///     Smallest coefficient of the fit.
/// max_token : int, optional
///     Largest coefficient of the fit; by default the largest that the vocabulary allows.
/// time_horizon : int, optional
///     Steps of the chunks that are to be fast from the first one on.
///
/// Raises
/// ------
/// NotImplementedError
///     If the tokenizer asks for anything that would not be done exactly.
/// VocabularyError, ValueError
///     If its vocabulary is not of a FAST tokenizer, or a number does not fit to it.
#[pyclass(frozen, module = "vlaprep._native")]
pub(crate) struct Codec {
    inner: fast::Codec,
    tokenizer: Option<String>,
    settings: Settings,
}

/// Ids, offsets and warnings.
type Ragged<'py> = (
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<i64>>,
    Vec<String>,
);

/// Ids, mask, number of chunks that were cut, and warnings.
type Padded<'py> = (
    Bound<'py, PyArrayDyn<i32>>,
    Bound<'py, PyArrayDyn<bool>>,
    usize,
    Vec<String>,
);

/// Actions and status.
type Decoded<'py> = (Bound<'py, PyArrayDyn<f64>>, Bound<'py, PyArray1<u8>>);

#[pymethods]
impl Codec {
    #[new]
    #[pyo3(signature = (tokenizer, scale, min_token, max_token=None, time_horizon=None))]
    fn new(
        py: Python<'_>,
        tokenizer: Option<String>,
        scale: f64,
        min_token: i64,
        max_token: Option<i64>,
        time_horizon: Option<usize>,
    ) -> PyResult<Self> {
        let settings = Settings {
            scale,
            min_token,
            max_token,
            time_horizon,
        };
        let inner = gate::run(py, |_| fast::Codec::new(tokenizer.as_deref(), settings))?;
        Ok(Self {
            inner,
            tokenizer,
            settings,
        })
    }

    fn __getnewargs__(&self) -> (Option<&str>, f64, i64, Option<i64>, Option<usize>) {
        let Settings {
            scale,
            min_token,
            max_token,
            time_horizon,
        } = self.settings;
        (
            self.tokenizer.as_deref(),
            scale,
            min_token,
            max_token,
            time_horizon,
        )
    }

    /// The largest coefficient of the fit.
    #[getter]
    fn max_token(&self) -> i64 {
        self.inner.max_token()
    }

    /// Of each coefficient from ``min_token`` on, up to the last that can be a character, whether the
    /// vocabulary can spell it.
    fn spells<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let spells = gate::run(py, |_| Ok(self.inner.spells()))?;
        Ok(column(py, spells))
    }

    /// Ids of chunks (B, H, D): ``(ids, offsets, warnings)``, the ids of all chunks in one array.
    #[pyo3(signature = (actions, on_range="clamp", num_threads=1))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        on_range: &str,
        num_threads: usize,
    ) -> PyResult<Ragged<'py>> {
        let encoded = self.encoded(py, actions, on_range, num_threads)?;
        let (ids, offsets) = (column(py, encoded.ids), column(py, encoded.offsets));
        Ok((ids, offsets, encoded.warnings))
    }

    /// Ids of chunks (B, H, D) as a matrix: ``(ids, mask, number of chunks cut, warnings)``.
    #[pyo3(signature = (actions, max_length, pad_id=0, on_range="clamp", num_threads=1))]
    fn encode_padded<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        max_length: usize,
        pad_id: i32,
        on_range: &str,
        num_threads: usize,
    ) -> PyResult<Padded<'py>> {
        let encoded = self.encoded(py, actions, on_range, num_threads)?;
        let padded = gate::run(py, |_| encoded.padded(max_length, pad_id))?;
        let shape = [encoded.offsets.len() - 1, max_length];
        let (ids, mask) = (
            output(py, padded.ids, &shape)?,
            output(py, padded.mask, &shape)?,
        );
        Ok((ids, mask, padded.cut, encoded.warnings))
    }

    /// Actions (B, H, D) and the status of each chunk, of ids and offsets as `encode` gives them.
    #[pyo3(signature = (ids, offsets, time_horizon, action_dim, on_range="clamp", pad=false))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        time_horizon: usize,
        action_dim: usize,
        on_range: &str,
        pad: bool,
    ) -> PyResult<Decoded<'py>> {
        let (shape, on_range) = ((time_horizon, action_dim), range_named(on_range)?);
        let offsets = Input::<i64>::new("offsets", offsets, 1)?;
        let offsets = offsets.values()?;
        let decoded = if let Some(ids) = Input::<i32>::borrowed(ids, 1) {
            let ids = ids.values()?;
            gate::run(py, |interrupt| {
                self.inner
                    .decode(ids, offsets, shape, on_range, pad, interrupt)
            })?
        } else {
            let ids = Input::<i64>::new("ids", ids, 1)?;
            let ids = ids.values()?;
            gate::run(py, |interrupt| {
                self.inner
                    .decode(ids, offsets, shape, on_range, pad, interrupt)
            })?
        };
        let shape = [decoded.status.len(), time_horizon, action_dim];
        Ok((
            output(py, decoded.actions, &shape)?,
            column(py, decoded.status),
        ))
    }
}

impl Codec {
    fn encoded<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        on_range: &str,
        num_threads: usize,
    ) -> PyResult<fast::Encoded> {
        let on_range = range_named(on_range)?;
        match FloatInput::new("actions", actions, 3)? {
            FloatInput::Single(actions) => self.encoded_of(py, &actions, on_range, num_threads),
            FloatInput::Double(actions) => self.encoded_of(py, &actions, on_range, num_threads),
        }
    }

    fn encoded_of<T: Copy + Into<f64> + Sync + Element>(
        &self,
        py: Python<'_>,
        actions: &Input<'_, T>,
        on_range: OnRange,
        num_threads: usize,
    ) -> PyResult<fast::Encoded> {
        let (values, shape) = (actions.values()?, (actions.shape()[1], actions.shape()[2]));
        let threads = match num_threads {
            0 => available_parallelism().map_or(1, NonZero::get),
            some => some,
        };
        gate::run(py, |interrupt| {
            self.inner
                .encode(values, shape, on_range, threads, interrupt)
        })
    }
}

fn range_named(name: &str) -> PyResult<OnRange> {
    OnRange::named(name).ok_or_else(|| {
        PyValueError::new_err(format!(
            "on_range must be one of clamp, error, published, not {name:?}"
        ))
    })
}

/// Turn action chunks into the integers that a FAST tokenizer sees.
///
/// Parameters
/// ----------
/// chunks : array_like of float32 or float64, shape (N, H, D)
///     Normalised action chunks of at most 4,096 steps. float16 is widened to float32, integers to float64.
/// scale : float
///     Steps per unit of a coefficient, positive; the published tokenizer uses 10.
///
/// Returns
/// -------
/// int32 array, shape (N, H, D)
///     Axis 1 is frequency, from 0 up.
///
/// Raises
/// ------
/// ValueError
///     If a value is NaN or infinite, or a coefficient does not fit into 32 bits; the message names
///     chunk, step (or frequency) and dim.
///
/// Notes
/// -----
/// ``np.around(scipy.fft.dct(chunks.astype(float64), axis=1, norm="ortho") * scale)``, rounding
/// half to even. Equal to it except where the exact coefficient lies within 1e-9 of a half. The
/// transform is the orthonormal DCT-II of Pertsch et al., "FAST: Efficient Action Tokenization for
/// Vision-Language-Action Models", 2025.
///
/// Examples
/// --------
/// >>> import numpy as np
/// >>> from vlaprep.kernels import dct_quantize
/// >>> dct_quantize(np.ones((1, 4, 1)), scale=10).ravel().tolist()
/// [20, 0, 0, 0]
#[pyfunction]
pub(crate) fn dct_quantize<'py>(
    py: Python<'py>,
    chunks: &Bound<'py, PyAny>,
    scale: f64,
) -> PyResult<Bound<'py, PyArrayDyn<i32>>> {
    match FloatInput::new("chunks", chunks, 3)? {
        FloatInput::Single(chunks) => dct_quantize_of(py, &chunks, scale),
        FloatInput::Double(chunks) => dct_quantize_of(py, &chunks, scale),
    }
}

fn dct_quantize_of<'py, T: Copy + Into<f64> + Sync + numpy::Element>(
    py: Python<'py>,
    chunks: &Input<'py, T>,
    scale: f64,
) -> PyResult<Bound<'py, PyArrayDyn<i32>>> {
    let shape = chunks.shape();
    let (values, horizon, dims) = (chunks.values()?, shape[1], shape[2]);
    let symbols = gate::run(py, |_| fast::dct_quantize(values, horizon, dims, scale))?;
    output(py, symbols, shape)
}
