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

/// Lanes come in whole vectors of so many.
pub(super) const LANES: usize = 4;
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
    pub(super) fn multiply<const VECTORS: usize>(
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
                match (self.rows - first, vectors) {
                    (1, 1) => tile.fill::<1, 1>(out, place),
                    (1, _) => tile.fill::<1, 2>(out, place),
                    (2, 1) => tile.fill::<2, 1>(out, place),
                    (2, _) => tile.fill::<2, 2>(out, place),
                    (3, 1) => tile.fill::<3, 1>(out, place),
                    (3, _) => tile.fill::<3, 2>(out, place),
                    (_, 1) => tile.fill::<ROWS, 1>(out, place),
                    _ => tile.fill::<ROWS, 2>(out, place),
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
    fn fill<const R: usize, const V: usize>(
        &self,
        out: &mut [f64],
        place: impl Fn(usize) -> usize,
    ) {
        let mut sums = [[[0.0; LANES]; V]; R];
        for (weights, row) in self.input.terms::<R>(self.band) {
            let (values, _) = row[self.lane..self.lane + V * LANES].as_chunks::<LANES>();
            for (sum, weight) in sums.iter_mut().zip(weights) {
                for (sum, values) in sum.iter_mut().zip(values) {
                    for (sum, value) in sum.iter_mut().zip(values) {
                        *sum += weight * value;
                    }
                }
            }
        }
        for (row, sum) in sums.iter().enumerate() {
            out[place(row)..][..V * LANES].copy_from_slice(sum.as_flattened());
        }
    }
}
