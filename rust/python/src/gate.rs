//! The one gate between Python and long calls.
//!
//! Every kernel passes through [`run`]: the interpreter lock is released, and errors come out as the
//! classes of `vlaprep.errors`. Calls that read files, kernels that share their work among threads, and
//! the codec look at Ctrl-C between pieces of it; other kernels over arrays in memory run to their end.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyOSError, PyValueError};
use pyo3::prelude::*;
use vlaprep_core::parallel::Interrupt;
use vlaprep_core::{Error, Result};

mod errors {
    pyo3::import_exception!(vlaprep.errors, DatasetFormatError);
    pyo3::import_exception!(vlaprep.errors, DatasetNotFoundError);
    pyo3::import_exception!(vlaprep.errors, EpisodeSelectionError);
    pyo3::import_exception!(vlaprep.errors, VocabularyError);
}

/// Runs `work` without the interpreter lock.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let signal = Mutex::new(None);
    let poll = || {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(raised) => {
                *signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
                true
            }
        })
    };
    let outcome = py.detach(|| work(&Interrupt::new(&poll)));
    match signal.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(raised) => Err(raised),
        None => outcome.map_err(|error| raise(&error)),
    }
}

/// The Python class of each error.
pub(crate) fn raise(error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Argument(_) => PyValueError::new_err(message),
        Error::Vocabulary(_) => errors::VocabularyError::new_err(message),
        Error::Unsupported(_) => PyNotImplementedError::new_err(message),
        Error::NotFound { .. } | Error::NoEpisodes { .. } => {
            errors::DatasetNotFoundError::new_err(message)
        }
        Error::Selection { .. } => errors::EpisodeSelectionError::new_err(message),
        Error::Foreign { .. }
        | Error::Parquet { .. }
        | Error::Metadata { .. }
        | Error::MissingColumn { .. }
        | Error::Column { .. }
        | Error::Row { .. }
        | Error::DuplicateFrame { .. }
        | Error::MissingEpisodes { .. }
        | Error::Several(_)
        | Error::Io { .. } => errors::DatasetFormatError::new_err(message),
        Error::TooLarge { .. } => PyMemoryError::new_err(message),
        // Only a raised signal interrupts, and `run` has it in hand.
        Error::Interrupted => PyOSError::new_err(message),
    }
}
