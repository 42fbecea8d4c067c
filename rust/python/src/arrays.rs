//! NumPy arrays in, borrowed where they allow it, and out, moved.

use numpy::{
    Element, IntoPyArray, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods,
    PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods, dtype,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

/// A C-contiguous array of `T` that stays borrowed while a kernel reads it.
pub(crate) struct Input<'py, T: Element> {
    array: PyReadonlyArrayDyn<'py, T>,
}

impl<'py, T: Element> Input<'py, T> {
    /// Takes `value` as it is when it is a C-contiguous array of `T`; else a converted copy, as long
    /// as the conversion keeps the kind (no float becomes an integer in silence).
    pub(crate) fn new(name: &str, value: &Bound<'py, PyAny>, ndim: usize) -> PyResult<Self> {
        if let Some(input) = Self::borrowed(value, ndim) {
            return Ok(input);
        }
        let py = value.py();
        let numpy = py.import(intern!(py, "numpy"))?;
        let array = numpy.call_method1(intern!(py, "asarray"), (value,))?;
        let wanted = dtype::<T>(py);
        let untyped = array.cast::<PyUntypedArray>()?;
        // An empty list has no kind of its own: NumPy calls it float64.
        let empty = untyped.is_empty() && !value.is_instance_of::<PyUntypedArray>();
        // float64 may narrow to float32; no integer may wrap.
        let casting = if wanted.kind() == b'i' {
            "safe"
        } else {
            "same_kind"
        };
        let kept = numpy
            .call_method1(intern!(py, "can_cast"), (untyped.dtype(), &wanted, casting))?
            .is_truthy()?;
        if !(kept || empty) {
            return Err(PyTypeError::new_err(format!(
                "{name} must be an array of {wanted}, got {}",
                untyped.dtype()
            )));
        }
        if untyped.ndim() != ndim {
            return Err(PyValueError::new_err(format!(
                "{name} must have {ndim} dimension(s), got shape {:?}",
                untyped.shape()
            )));
        }
        let array = numpy.call_method1(intern!(py, "require"), (array, wanted, ("C", "A")))?;
        let array = array
            .cast_into::<PyArrayDyn<T>>()?
            .try_readonly()
            .map_err(|error| {
                PyValueError::new_err(format!("{name} is being written elsewhere: {error}"))
            })?;
        Ok(Self { array })
    }

    /// Takes `value` if it can be read as it is: most are such arrays, and asking NumPy takes longer
    /// than a kernel over one chunk.
    pub(crate) fn borrowed(value: &Bound<'py, PyAny>, ndim: usize) -> Option<Self> {
        let array = value.cast_exact::<PyArrayDyn<T>>().ok()?;
        let aligned = (array.data() as usize).is_multiple_of(align_of::<T>());
        if array.ndim() != ndim || !array.is_c_contiguous() || !aligned {
            return None;
        }
        let array = array.try_readonly().ok()?;
        Some(Self { array })
    }

    /// The lengths of the axes.
    pub(crate) fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// The values in C order.
    pub(crate) fn values(&self) -> PyResult<&[T]> {
        Ok(self.array.as_slice()?)
    }
}

/// The two float types that kernels read as they are.
pub(crate) enum FloatInput<'py> {
    /// float32, or float16 widened.
    Single(Input<'py, f32>),
    /// float64, or integers widened.
    Double(Input<'py, f64>),
}

impl<'py> FloatInput<'py> {
    /// Keeps float32 and float64; widens float16 and integers, which both can hold.
    pub(crate) fn new(name: &str, value: &Bound<'py, PyAny>, ndim: usize) -> PyResult<Self> {
        if let Some(single) = Input::borrowed(value, ndim) {
            return Ok(Self::Single(single));
        }
        if let Some(double) = Input::borrowed(value, ndim) {
            return Ok(Self::Double(double));
        }
        let py = value.py();
        let array = py
            .import(intern!(py, "numpy"))?
            .call_method1(intern!(py, "asarray"), (value,))?;
        let found = array.cast::<PyUntypedArray>()?.dtype();
        if found.kind() == b'f' && found.itemsize() <= 4 {
            Input::new(name, &array, ndim).map(Self::Single)
        } else {
            Input::new(name, &array, ndim).map(Self::Double)
        }
    }
}

/// The blocks of an array that is not all there at the same time, from the first one on.
pub(crate) fn blocks<'py>(blocks: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let iterator = blocks.try_iter()?;
    if iterator.is(blocks) {
        return Err(PyTypeError::new_err(
            "blocks can be iterated only once: pass a list, or an object whose __iter__ begins anew",
        ));
    }
    Ok(iterator)
}

/// Hands `values` to Python as an array of `shape`, without a copy.
pub(crate) fn output<'py, T: Element>(
    py: Python<'py>,
    values: Vec<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    values.into_pyarray(py).reshape(shape.to_vec())
}

/// Hands `values` to Python as a one-dimensional array, without a copy.
pub(crate) fn column<T: Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyArray1<T>> {
    values.into_pyarray(py)
}
