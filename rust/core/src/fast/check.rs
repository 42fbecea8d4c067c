//! What the kernels of this room ask of scales and shapes.

use super::cosine::check_horizon;
use crate::{Error, Result};

/// Refuses a scale that is no positive number.
pub(super) fn check_scale(scale: f64) -> Result<()> {
    if scale.is_finite() && scale > 0.0 {
        return Ok(());
    }
    Err(Error::argument(format!(
        "scale must be a positive number, got {scale}"
    )))
}

/// How many numbers a chunk has.
pub(super) fn size_of((horizon, dims): (usize, usize)) -> Result<usize> {
    check_horizon(horizon)?;
    match horizon.checked_mul(dims) {
        Some(size) if size > 0 => Ok(size),
        _ => Err(Error::argument(format!(
            "there are no chunks of {horizon} x {dims}"
        ))),
    }
}

/// The same, of chunks that `count` values are made of.
pub(super) fn size_in(count: usize, (horizon, dims): (usize, usize)) -> Result<usize> {
    let size = size_of((horizon, dims))?;
    if count.is_multiple_of(size) {
        return Ok(size);
    }
    Err(Error::argument(format!(
        "{count} values are no whole number of chunks of {horizon} x {dims}"
    )))
}
