//! Position of a value in a sorted row.

/// Number of elements of the ascending `sorted` that are not greater than `value`.
///
/// The answer of `np.searchsorted(sorted, value, side="right")`: a value equal to an element goes
/// behind it.
#[must_use]
pub fn searchsorted_right(sorted: &[f64], value: f64) -> usize {
    sorted.partition_point(|&boundary| boundary <= value)
}
