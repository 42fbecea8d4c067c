//! How many threads a call may use.

use std::env;
use std::thread::available_parallelism;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// More than any machine has: beyond it lies a mistake.
const MOST: usize = 1024;

/// Values that are worth a second thread: less is done before it has started.
const FEW: usize = 1 << 19;

/// The bound asked for, else the environment's, else what the machine or container allows; one
/// thread where `values` are few.
///
/// Asking the system takes as long as a small call, and so only large ones do.
pub(crate) fn bound(num_threads: Option<usize>, values: usize) -> PyResult<usize> {
    if let Some(bound) = num_threads {
        return if (1..=MOST).contains(&bound) {
            Ok(bound)
        } else {
            let message = format!("num_threads must be 1 to {MOST}, got {bound}");
            Err(PyValueError::new_err(message))
        };
    }
    let text = env::var("VLAPREP_NUM_THREADS").unwrap_or_default();
    match text.parse() {
        Ok(bound @ 1..=MOST) => Ok(bound),
        Ok(0) => Ok(allowed(values)),
        Err(_) if text.is_empty() => Ok(allowed(values)),
        _ => {
            let message = format!("VLAPREP_NUM_THREADS must be 0 to {MOST}, got {text:?}");
            Err(PyValueError::new_err(message))
        }
    }
}

fn allowed(values: usize) -> usize {
    if values < FEW {
        return 1;
    }
    available_parallelism().map_or(1, usize::from)
}
