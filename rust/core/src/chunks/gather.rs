//! Chunks out of rows that are already in memory.

use crate::{Error, Result};

/// Copies the windows of `chunk_size` rows that begin at each of `first_rows` out of the row-major
/// `(rows, dims)` matrix.
pub fn gather_chunks(
    rows: &[f32],
    dims: usize,
    first_rows: &[i64],
    chunk_size: usize,
) -> Result<Vec<f32>> {
    if chunk_size == 0 {
        return Err(Error::argument("chunk_size must be at least 1"));
    }
    let count = rows.len().checked_div(dims).unwrap_or(0);
    let mut begins = Vec::with_capacity(first_rows.len());
    for (index, &first) in first_rows.iter().enumerate() {
        let last_begin = count.checked_sub(chunk_size);
        match usize::try_from(first) {
            Ok(begin) if Some(begin) <= last_begin => begins.push(begin),
            _ => {
                return Err(Error::argument(format!(
                    "chunk {index} starts at row {first}: {chunk_size} rows from there do not lie \
                     within the {count} rows given"
                )));
            }
        }
    }
    // Only now is a window known to be no larger than `rows`.
    let mut chunks = Vec::with_capacity(begins.len() * dims * chunk_size.min(count));
    for begin in begins {
        chunks.extend_from_slice(&rows[begin * dims..(begin + chunk_size) * dims]);
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_may_overlap() {
        let rows: Vec<f32> = (0..10u8).map(f32::from).collect();
        let got = gather_chunks(&rows, 2, &[3, 0, 2], 2).unwrap();
        assert_eq!(got, [6., 7., 8., 9., 0., 1., 2., 3., 4., 5., 6., 7.]);
    }

    #[test]
    fn windows_beyond_the_rows_are_refused() {
        let rows = [0.0; 10];
        for first in [4, -1, i64::MAX] {
            assert!(gather_chunks(&rows, 2, &[first], 2).is_err());
        }
        assert!(gather_chunks(&rows, 2, &[0], 0).is_err());
    }
}
