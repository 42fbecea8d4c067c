//! Quantiles of every column of a matrix, by the rule of NumPy 2.4 and newer.
//!
//! The virtual index `v = (n − 1)·q` and its fraction `g` are float64 whatever the data; the
//! interpolation between the neighbouring order statistics `a` and `b` runs in the type of the
//! data, two-sided as for percentiles:
//!
//! ```text
//! a + (b − a)·g          where g < 0.5
//! b − (b − a)·(1 − g)    where g ≥ 0.5, with 1 − g taken in float64
//! ```
//!
//! Older NumPy versions differ in some last bits for float32; this kernel answers alike on all.
//!
//! Columns of few rows are partitioned. Of many rows, a sample tells between which two values each
//! order statistic should lie, and one pass over the rows finds it: see [`Brackets`].

use super::brackets::Brackets;
use super::counter::Counter;
use super::real::Real;
use super::sample::sample_rows;
use super::select::select;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Below this many rows a sample costs more than it saves.
const FEW_ROWS: usize = 8192;

/// Numbers that one piece of work looks at: about a millisecond.
const PIECE: usize = 1 << 20;

/// The `q`-quantile of each of the `dims` columns of the row-major matrix `values`.
///
/// A column that holds a NaN answers NaN.
pub fn quantile<T: Real>(
    values: &[T],
    dims: usize,
    q: f64,
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<T>> {
    Ok(quantiles(values, dims, &[q], threads, interrupt)?.concat())
}

/// Several quantiles of each column at once: for each of `qs` what [`quantile`] answers.
pub fn quantiles<T: Real>(
    values: &[T],
    dims: usize,
    qs: &[f64],
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Vec<T>>> {
    let rows = values.len().checked_div(dims).unwrap_or(0);
    if rows == 0 || rows * dims != values.len() {
        return Err(Error::argument(format!(
            "quantile needs a matrix with at least one row and one column, got {} values in {dims} columns",
            values.len()
        )));
    }
    let positions = Position::of_all(qs, rows)?;
    if rows < FEW_ROWS {
        return Ok(by_partition(values, dims, &positions));
    }
    let mut sample = Vec::new();
    for row in sample_rows(rows) {
        sample.extend_from_slice(&values[row * dims..][..dims]);
    }
    let mut brackets = Brackets::from_sample(&sample, dims, rows, qs)?;
    loop {
        let counter = brackets.count(values, threads, interrupt)?;
        if brackets.settle(counter)? {
            return Ok(brackets.quantiles());
        }
    }
}

impl<T: Real> Brackets<T> {
    /// Counts rows on several threads.
    pub fn count(
        &self,
        rows: &[T],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Counter<T>> {
        // Each piece has a counter for each column: pieces of few rows would outweigh the rows.
        let dims = self.dims();
        let height = (PIECE / dims).max(FEW_ROWS);
        let pieces: Vec<&[T]> = rows.chunks(height * dims).collect();
        let count = |piece: &&[T]| {
            let mut counter = self.counter();
            counter.add(self, piece);
            Ok(counter)
        };
        let mut whole = self.counter();
        for counter in parallel::map(&pieces, threads, interrupt, count)? {
            whole.merge(counter?);
        }
        Ok(whole)
    }
}

fn by_partition<T: Real>(values: &[T], dims: usize, positions: &[Position]) -> Vec<Vec<T>> {
    let mut ranks: Vec<usize> = positions.iter().flat_map(|p| [p.left, p.right]).collect();
    ranks.sort_unstable();
    let mut answers = vec![Vec::with_capacity(dims); positions.len()];
    let mut column = Vec::with_capacity(values.len() / dims);
    for dim in 0..dims {
        column.clear();
        column.extend(values.chunks_exact(dims).map(|row| row[dim]));
        let nan = column.iter().fold(false, |nan, value| nan | value.is_nan());
        if !nan {
            select(&mut column, &ranks);
        }
        for (answer, position) in answers.iter_mut().zip(positions) {
            answer.push(if nan {
                T::NAN
            } else {
                position.lerp(column[position.left], column[position.right])
            });
        }
    }
    answers
}

/// Where a quantile lies among `n` ascending values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Rank of the neighbour below.
    pub(super) left: usize,
    /// Rank of the neighbour above.
    pub(super) right: usize,
    fraction: f64,
}

impl Position {
    fn of(q: f64, n: usize) -> Self {
        let last = n - 1;
        let virtual_index = last as f64 * q;
        // NumPy takes the last value for both neighbours; infinity minus itself is its NaN.
        if virtual_index >= last as f64 {
            return Self {
                left: last,
                right: last,
                fraction: 1.0,
            };
        }
        let left = virtual_index as usize;
        Self {
            left,
            right: left + 1,
            fraction: virtual_index - left as f64,
        }
    }

    /// The positions of `qs` among `n` values, at least one.
    pub(super) fn of_all(qs: &[f64], n: usize) -> Result<Vec<Self>> {
        if let Some(q) = qs.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(Error::argument(format!("q must lie in [0, 1], got {q}")));
        }
        Ok(qs.iter().map(|&q| Self::of(q, n)).collect())
    }

    /// The quantile, from the values at its two ranks.
    pub(super) fn lerp<T: Real>(&self, a: T, b: T) -> T {
        T::lerp(a, b, self.fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<T: Real>(values: &[T], dims: usize, q: f64) -> Result<Vec<T>> {
        quantile(values, dims, q, 2, &Interrupt::never())
    }

    #[test]
    fn interpolates_from_the_nearer_side() {
        assert_eq!(one(&[0.0, 1.0, 2.0, 4.0], 1, 0.5).unwrap(), [1.5]);
        assert_eq!(one(&[3.0, 0.0, 1.0, 10.0], 2, 0.75).unwrap(), [2.5, 7.5]);
    }

    #[test]
    fn the_ends_are_the_extremes() {
        let values = [5.0f32, -1.0, 3.0];
        assert_eq!(one(&values, 1, 0.0).unwrap(), [-1.0]);
        assert_eq!(one(&values, 1, 1.0).unwrap(), [5.0]);
        assert_eq!(one(&values[..1], 1, 0.3).unwrap(), [5.0]);
    }

    #[test]
    fn nan_marks_its_own_column_only() {
        for rows in [2, 20_000] {
            let mut values = [0.0, 1.0].repeat(rows);
            values[2] = f32::NAN;
            let got = one(&values, 2, 0.5).unwrap();
            assert!(got[0].is_nan());
            assert_eq!(got[1].to_bits(), 1.0f32.to_bits());
        }
    }

    #[test]
    fn empty_matrices_and_wild_q_are_refused() {
        assert!(one::<f32>(&[], 3, 0.5).is_err());
        assert!(one(&[1.0], 0, 0.5).is_err());
        assert!(one(&[1.0], 1, 1.5).is_err());
        assert!(one(&[1.0], 1, f64::NAN).is_err());
    }

    #[test]
    fn no_quantiles_are_none() {
        for rows in [1, 20_000] {
            let got = quantiles(&vec![1.0; rows], 1, &[], 1, &Interrupt::never());
            assert!(got.unwrap().is_empty());
        }
    }
}
