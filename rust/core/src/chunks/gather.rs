//! Chunks out of rows that are already in memory.
//!
//! A window of rows is one run of bytes, so gathering is copying at the speed of memory, as long as
//! the answer's own pages do not cost more than the copy: see [`memory`](crate::memory).

use crate::memory;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Numbers that one piece of work copies: about a quarter of a millisecond.
const PIECE: usize = 1 << 20;

/// Copies the windows of `chunk_size` rows that begin at each of `first_rows` out of the row-major
/// `(rows, dims)` matrix.
pub fn gather_chunks(
    rows: &[f32],
    dims: usize,
    first_rows: &[i64],
    chunk_size: usize,
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<f32>> {
    if chunk_size == 0 {
        return Err(Error::argument("chunk_size must be at least 1"));
    }
    let count = rows.len().checked_div(dims).unwrap_or(0);
    let last_begin = count.checked_sub(chunk_size);
    let inside = |&first: &i64| usize::try_from(first).is_ok_and(|first| Some(first) <= last_begin);
    if let Some(index) = first_rows.iter().position(|first| !inside(first)) {
        return Err(Error::argument(format!(
            "chunk {index} starts at row {}: {chunk_size} rows from there do not lie within the \
             {count} rows given",
            first_rows[index]
        )));
    }
    // Only now is a window known to be no larger than `rows`; without windows nothing is known.
    let window = dims * chunk_size.min(count);
    let total = first_rows.len().checked_mul(window);
    let mut chunks = total
        .and_then(memory::zeroed)
        .ok_or_else(|| Error::TooLarge {
            rows: first_rows.len().saturating_mul(chunk_size),
            width: dims,
        })?;
    // Empty windows make an empty answer, and so no pieces.
    let windows = (PIECE / window.max(1)).max(1);
    let pieces = chunks.chunks_mut((windows * window).max(1));
    let pieces = pieces.zip(first_rows.chunks(windows)).collect();
    parallel::each(pieces, threads, interrupt, |(piece, first_rows)| {
        for (chunk, &first) in piece.chunks_exact_mut(window).zip(first_rows) {
            chunk.copy_from_slice(&rows[first as usize * dims..][..window]);
        }
        Ok(())
    })?;
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(rows: &[f32], first_rows: &[i64], chunk_size: usize) -> Result<Vec<f32>> {
        gather_chunks(rows, 2, first_rows, chunk_size, 2, &Interrupt::never())
    }

    #[test]
    fn windows_may_overlap() {
        let rows: Vec<f32> = (0..10u8).map(f32::from).collect();
        let got = gather(&rows, &[3, 0, 2], 2).unwrap();
        assert_eq!(got, [6., 7., 8., 9., 0., 1., 2., 3., 4., 5., 6., 7.]);
    }

    #[test]
    fn windows_beyond_the_rows_are_refused() {
        let rows = [0.0; 10];
        for first in [4, -1, i64::MAX] {
            assert!(gather(&rows, &[first], 2).is_err());
        }
        assert!(gather(&rows, &[0], 0).is_err());
        assert!(gather(&rows, &[], usize::MAX).unwrap().is_empty());
    }

    #[test]
    fn an_answer_beyond_memory_is_refused() {
        // A PiB in all, beyond any address space.
        let rows = vec![0.0; 1 << 24];
        let first_rows = vec![0; 1 << 24];
        let got = gather(&rows, &first_rows, 1 << 23);
        assert!(matches!(got, Err(Error::TooLarge { .. })));
    }

    #[test]
    fn any_number_of_threads_gives_the_same() {
        let rows: Vec<f32> = (0..60_000u32).map(|i| i as f32).collect();
        let first_rows: Vec<i64> = (0..4000).map(|i| i * 7919 % 29_000).collect();
        let want: Vec<f32> = first_rows
            .iter()
            .flat_map(|&first| rows[first as usize * 2..][..2000].to_vec())
            .collect();
        for threads in [1, 2, 5] {
            let never = Interrupt::never();
            let got = gather_chunks(&rows, 2, &first_rows, 1000, threads, &never);
            assert_eq!(got.unwrap(), want);
        }
    }
}
