//! The FAST codec.

use numpy::PyArrayDyn;
use pyo3::prelude::*;
use vlaprep_core::fast;

use crate::arrays::{FloatInput, Input, output};
use crate::gate;

/// Turn action chunks into the integers that a FAST tokenizer sees.
///
/// Parameters
/// ----------
/// chunks : array_like of float32 or float64, shape (N, H, D)
///     Normalised action chunks. float16 is widened to float32, integers to float64.
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
