//! Least, greatest, mean and standard deviation of every column of rows that pass by.
//!
//! All sums are float64. Rows are taken in blocks of 512, each looked at twice while it is in cache:
//! for the sum and then, from the block's own mean, for the squared deviations; so no large mean
//! eats the digits of a small spread. Two stretches of rows with `n` and `m` rows, means `a` and `b`
//! and sums of squared deviations `s` and `t` make one with (Chan, Golub, LeVeque 1979)
//!
//! ```text
//! s + t + (b − a)²·n·m / (n + m)
//! ```
//!
//! The order of all additions follows from the numbers of the rows alone.

use super::real::Real;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Rows of a block.
const BLOCK: usize = 512;

/// Rows that are added side by side: row `i` of a block goes to sum `i % LANES`.
const LANES: usize = 4;

/// Rows between two merges, whatever the number of threads.
const PART: usize = 128 * BLOCK;

/// Statistics of the columns of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary<T> {
    /// Rows of the matrix.
    pub count: usize,
    /// Least value of each column; NaN where the column holds NaN, and so below.
    pub min: Vec<T>,
    /// Greatest value of each column.
    pub max: Vec<T>,
    /// Mean of each column.
    pub mean: Vec<f64>,
    /// Standard deviation of each column, of the population: `√(Σ(x − mean)² / count)`.
    pub std: Vec<f64>,
}

/// Gathers the statistics of rows that pass by.
///
/// It does not matter how the rows are cut for [`add`](Self::add). It does, in the last bits, where
/// [`merge`](Self::merge) joins two stretches: let it be at places that the data sets, not threads.
///
/// ```
/// let mut moments = vlaprep_core::stats::Moments::new(2);
/// moments.add(&[0.0_f32, 5.0, 2.0, 5.0]);
/// moments.add(&[4.0, 5.0]);
/// let summary = moments.summary()?;
/// assert_eq!((summary.min, summary.max), (vec![0.0, 5.0], vec![4.0, 5.0]));
/// assert_eq!((summary.mean, summary.std[1]), (vec![2.0, 5.0], 0.0));
/// # Ok::<(), vlaprep_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Moments<T> {
    dims: usize,
    rows: usize,
    columns: Vec<Column<T>>,
    /// Rows of a block that is not full yet.
    open: Vec<T>,
    lanes: Lanes<T>,
}

/// What is known of one column.
#[derive(Debug, Clone, Copy)]
struct Column<T> {
    min: T,
    max: T,
    nan: bool,
    sum: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
}

/// Sums of a block, `LANES` for each column.
#[derive(Debug, Clone)]
struct Lanes<T> {
    min: Vec<T>,
    max: Vec<T>,
    sum: Vec<f64>,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl<T: Real> Moments<T> {
    /// Of no rows yet, with `dims` columns.
    #[must_use]
    pub fn new(dims: usize) -> Self {
        let column = Column {
            min: T::INFINITY,
            max: T::NEG_INFINITY,
            nan: false,
            sum: 0.0,
            squares: 0.0,
        };
        let width = LANES * dims;
        Self {
            dims,
            rows: 0,
            columns: vec![column; dims],
            open: Vec::new(),
            lanes: Lanes {
                min: vec![T::INFINITY; width],
                max: vec![T::NEG_INFINITY; width],
                sum: vec![0.0; width],
                mean: vec![0.0; width],
                squares: vec![0.0; width],
            },
        }
    }

    /// Looks at some rows.
    pub fn add(&mut self, mut rows: &[T]) {
        let block = BLOCK * self.dims;
        if !self.open.is_empty() {
            let (head, tail) = rows.split_at(rows.len().min(block - self.open.len()));
            self.open.extend_from_slice(head);
            rows = tail;
            if self.open.len() < block {
                return;
            }
            self.close();
        }
        let mut blocks = rows.chunks_exact(block.max(1));
        for block in &mut blocks {
            self.add_block(block);
        }
        self.open.extend_from_slice(blocks.remainder());
    }

    /// Adds the rows that `other` has seen behind those that `self` has.
    pub fn merge(&mut self, mut other: Self) {
        self.close();
        other.close();
        let (n, m) = (self.rows, other.rows);
        for (column, other) in self.columns.iter_mut().zip(other.columns) {
            column.merge(n, other, m);
        }
        self.rows += m;
    }

    /// The statistics; an error where there were no rows.
    pub fn summary(mut self) -> Result<Summary<T>> {
        self.close();
        if self.rows == 0 {
            return Err(Error::argument("statistics need at least one row"));
        }
        let count = self.rows;
        let or_nan = |column: &Column<T>, value: T| if column.nan { T::NAN } else { value };
        let columns = self.columns.iter();
        Ok(Summary {
            count,
            min: columns.clone().map(|c| or_nan(c, c.min)).collect(),
            max: columns.clone().map(|c| or_nan(c, c.max)).collect(),
            mean: columns.clone().map(|c| c.sum / count as f64).collect(),
            std: columns.map(|c| (c.squares / count as f64).sqrt()).collect(),
        })
    }

    /// Ends the open block early.
    fn close(&mut self) {
        let rows = std::mem::take(&mut self.open);
        if !rows.is_empty() {
            self.add_block(&rows);
        }
    }

    fn add_block(&mut self, block: &[T]) {
        let height = block.len() / self.dims;
        self.lanes.look_at(block, self.dims, height);
        for (dim, column) in self.columns.iter_mut().enumerate() {
            let mut of_block = self.lanes.column(dim, self.dims);
            // Only NaN and infinity have deviations that are NaN.
            of_block.nan = of_block.squares.is_nan()
                && block[dim..].iter().step_by(self.dims).any(|x| x.is_nan());
            column.merge(self.rows, of_block, height);
        }
        self.rows += height;
    }
}

impl<T: Real> Column<T> {
    fn merge(&mut self, n: usize, other: Self, m: usize) {
        if n == 0 || m == 0 {
            if n == 0 {
                *self = other;
            }
            return;
        }
        let (n, m) = (n as f64, m as f64);
        let apart = other.sum / m - self.sum / n;
        self.squares += other.squares + apart * apart * (n * m / (n + m));
        self.sum += other.sum;
        self.nan |= other.nan;
        self.min = lesser(self.min, other.min);
        self.max = greater(self.max, other.max);
    }
}

impl<T: Real> Lanes<T> {
    /// Goes over a block twice; loops over all lanes of all columns at once, so without a carry.
    fn look_at(&mut self, block: &[T], dims: usize, height: usize) {
        self.min.fill(T::INFINITY);
        self.max.fill(T::NEG_INFINITY);
        self.sum.fill(0.0);
        self.squares.fill(0.0);
        for rows in block.chunks(LANES * dims) {
            for (&x, min) in rows.iter().zip(&mut self.min) {
                *min = lesser(*min, x);
            }
            for (&x, max) in rows.iter().zip(&mut self.max) {
                *max = greater(*max, x);
            }
            for (&x, sum) in rows.iter().zip(&mut self.sum) {
                *sum += x.into();
            }
        }
        for dim in 0..dims {
            let mean = of_lanes(&self.sum, dim, dims, |a, b| a + b) / height as f64;
            for lane in self.mean[dim..].iter_mut().step_by(dims) {
                *lane = mean;
            }
        }
        for rows in block.chunks(LANES * dims) {
            for ((&x, mean), squares) in rows.iter().zip(&self.mean).zip(&mut self.squares) {
                let deviation = x.into() - mean;
                *squares += deviation * deviation;
            }
        }
    }

    fn column(&self, dim: usize, dims: usize) -> Column<T> {
        Column {
            min: of_lanes(&self.min, dim, dims, lesser),
            max: of_lanes(&self.max, dim, dims, greater),
            nan: false,
            sum: of_lanes(&self.sum, dim, dims, |a, b| a + b),
            squares: of_lanes(&self.squares, dim, dims, |a, b| a + b),
        }
    }
}

/// Joins the lanes of a column, the first to the last.
fn of_lanes<V: Copy>(lanes: &[V], dim: usize, dims: usize, join: impl Fn(V, V) -> V) -> V {
    let others = lanes[dim..].iter().step_by(dims).skip(1);
    others.fold(lanes[dim], |joined, &lane| join(joined, lane))
}

/// The lesser; NaN is passed over.
fn lesser<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// The greater; NaN is passed over.
fn greater<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// The statistics of each of the `dims` columns of the row-major matrix `values`.
pub fn summary<T: Real>(
    values: &[T],
    dims: usize,
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Summary<T>> {
    let parts: Vec<&[T]> = values.chunks((PART * dims).max(1)).collect();
    let part = |rows: &&[T]| {
        let mut moments = Moments::new(dims);
        moments.add(rows);
        Ok(moments)
    };
    let mut whole = Moments::new(dims);
    for moments in parallel::map(&parts, threads, interrupt, part)? {
        whole.merge(moments?);
    }
    whole.summary()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(values: &[f64], dims: usize, threads: usize) -> Summary<f64> {
        summary(values, dims, threads, &Interrupt::never()).unwrap()
    }

    /// Two passes over a column, as NumPy goes.
    fn by_definition(column: &[f64]) -> (f64, f64) {
        let n = column.len() as f64;
        let mean = column[0] + column.iter().map(|x| x - column[0]).sum::<f64>() / n;
        let squares: f64 = column.iter().map(|x| (x - mean).powi(2)).sum();
        (mean, (squares / n).sqrt())
    }

    #[test]
    fn a_small_spread_beside_a_large_mean_keeps_its_digits() {
        let values: Vec<f64> = (0..200_003)
            .map(|i| 1e6 + f64::from(i * 7919 % 1000) * 1e-6)
            .collect();
        let got = whole(&values, 1, 1);
        let (mean, std) = by_definition(&values);
        assert_eq!((got.count, got.min[0]), (200_003, 1e6));
        assert!((got.mean[0] - mean).abs() < 1e-9, "{} {mean}", got.mean[0]);
        assert!(
            (got.std[0] / std - 1.0).abs() < 1e-6,
            "{} {std}",
            got.std[0]
        );
    }

    #[test]
    fn neither_threads_nor_cuts_matter() {
        let values: Vec<f64> = (0..450_003).map(|i| (f64::from(i) * 0.37).sin()).collect();
        let one = whole(&values, 3, 1);
        assert_eq!(one, whole(&values, 3, 2));
        assert_eq!(one, whole(&values, 3, 5));
        let cut = |rows: usize| {
            let mut moments = Moments::new(3);
            values.chunks(3 * rows).for_each(|rows| moments.add(rows));
            moments.summary().unwrap()
        };
        let uncut = cut(150_001);
        for rows in [1, 511, 512, 513, 1024, 70_000] {
            assert_eq!(cut(rows), uncut);
        }
    }

    #[test]
    fn nan_and_infinity_go_where_numpy_lets_them() {
        let mut values = [1.0, 2.0, 3.0].repeat(2000);
        values[3 * 1500] = f64::NAN;
        values[3 * 600 + 1] = f64::INFINITY;
        let got = whole(&values, 3, 1);
        assert!(got.min[0].is_nan() && got.max[0].is_nan() && got.mean[0].is_nan());
        assert!(got.std[0].is_nan());
        assert_eq!((got.min[1], got.max[1]), (2.0, f64::INFINITY));
        assert!(got.mean[1].is_infinite() && got.std[1].is_nan());
        assert_eq!((got.min[2], got.max[2], got.mean[2]), (3.0, 3.0, 3.0));
        assert_eq!(got.std[2].to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn no_rows_have_no_statistics() {
        assert!(summary::<f32>(&[], 3, 1, &Interrupt::never()).is_err());
        assert!(summary::<f32>(&[], 0, 1, &Interrupt::never()).is_err());
    }
}
