//! Products of a small matrix with wide rows: the inner loop of the transform.
//!
//! Each row of the answer is `out[r] = Σ_c matrix[r][c] · input[c]`, where `input[c]` is a row of
//! `width` numbers side by side, the lanes. Four rows of the answer are computed at a time for a few
//! lanes, so their sums stay in registers while the columns go by. The order of the sum is that of
//! the columns, one product and one addition at a time.
#![allow(
    clippy::inline_always,
    reason = "kernels are compiled for each set of instructions"
)]

use super::lanes::{LANES, Lanes};

/// Rows of an answer computed together.
const ROWS: usize = 4;

/// A matrix, stored in the order in which [`Panel::multiply`] reads it.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    rows: usize,
    columns: usize,
    /// Bands of [`ROWS`] rows (the last may have fewer), each column by column.
    bands: Vec<f64>,
}

impl Panel {
    /// The matrix with `value(row, column)`.
    pub(super) fn new(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let mut bands = Vec::with_capacity(rows * columns);
        for first in (0..rows).step_by(ROWS) {
            for column in 0..columns {
                bands.extend((first..rows.min(first + ROWS)).map(|row| value(row, column)));
            }
        }
        Self {
            rows,
            columns,
            bands,
        }
    }

    /// Number of columns.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Writes row `r` of the product with `input` to row `place(r)` of `out`, whose rows are as long
    /// as those of `input`.
    #[inline(always)]
    pub(super) fn multiply<L: Lanes, const VECTORS: usize>(
        &self,
        input: &impl Rows,
        out: &mut [f64],
        place: impl Fn(usize) -> usize,
    ) {
        let width = input.width();
        if self.columns == 0 {
            return;
        }
        let bands = self.bands.chunks(ROWS * self.columns);
        for (first, band) in (0..self.rows).step_by(ROWS).zip(bands) {
            let mut lane = 0;
            while lane < width {
                let vectors = ((width - lane) / LANES).min(VECTORS);
                let place = |row| place(first + row) * width + lane;
                let tile = Tile { band, lane, input };
                let rows = self.rows - first;
                match vectors {
                    1 => tile.fill_rows::<L, 1>(rows, out, place),
                    _ => tile.fill_rows::<L, 2>(rows, out, place),
                }
                lane += vectors * LANES;
            }
        }
    }
}

/// The rows of lanes that a matrix is multiplied with.
pub(super) trait Rows {
    /// Lanes of a row, a multiple of [`LANES`].
    fn width(&self) -> usize;

    /// Each column that takes part, as `R` weights of a band, with its row.
    fn terms<'a, const R: usize>(
        &'a self,
        band: &'a [f64],
    ) -> impl Iterator<Item = (&'a [f64; R], &'a [f64])>;
}

/// Rows one after the other, from that of column 0 on.
pub(super) struct Consecutive<'a> {
    pub(super) rows: &'a [f64],
    pub(super) width: usize,
}

impl Rows for Consecutive<'_> {
    #[inline(always)]
    fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    fn terms<'a, const R: usize>(
        &'a self,
        band: &'a [f64],
    ) -> impl Iterator<Item = (&'a [f64; R], &'a [f64])> {
        band.as_chunks()
            .0
            .iter()
            .zip(self.rows.chunks_exact(self.width))
    }
}

/// Some columns, each with the number of its row.
pub(super) struct Listed<'a> {
    pub(super) rows: &'a [f64],
    pub(super) width: usize,
    pub(super) terms: &'a [(usize, usize)],
}

impl Rows for Listed<'_> {
    #[inline(always)]
    fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    fn terms<'a, const R: usize>(
        &'a self,
        band: &'a [f64],
    ) -> impl Iterator<Item = (&'a [f64; R], &'a [f64])> {
        let (band, _) = band.as_chunks();
        let row = |row| &self.rows[row * self.width..][..self.width];
        self.terms
            .iter()
            .map(move |&(column, place)| (&band[column], row(place)))
    }
}

/// A few rows and lanes of an answer, from `lane` on.
struct Tile<'a, I> {
    band: &'a [f64],
    lane: usize,
    input: &'a I,
}

impl<I: Rows> Tile<'_, I> {
    #[inline(always)]
    fn fill_rows<L: Lanes, const V: usize>(
        &self,
        rows: usize,
        out: &mut [f64],
        place: impl Fn(usize) -> usize,
    ) {
        match rows {
            1 => self.fill::<L, 1, V>(out, place),
            2 => self.fill::<L, 2, V>(out, place),
            3 => self.fill::<L, 3, V>(out, place),
            _ => self.fill::<L, ROWS, V>(out, place),
        }
    }

    #[inline(always)]
    fn fill<L: Lanes, const R: usize, const V: usize>(
        &self,
        out: &mut [f64],
        place: impl Fn(usize) -> usize,
    ) {
        let mut sums = [[L::all(0.0); V]; R];
        for (weights, row) in self.input.terms::<R>(self.band) {
            let (row, _) = row[self.lane..self.lane + V * LANES].as_chunks();
            let mut values = [L::all(0.0); V];
            for (value, four) in values.iter_mut().zip(row) {
                *value = L::of(four);
            }
            for (sums, &weight) in sums.iter_mut().zip(weights) {
                let weight = L::all(weight);
                for (sum, &value) in sums.iter_mut().zip(&values) {
                    *sum = sum.plus(weight.times(value));
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let (out, _) = out[place(row)..][..V * LANES].as_chunks_mut();
            for (four, sum) in out.iter_mut().zip(sums) {
                sum.put(four);
            }
        }
    }
}
