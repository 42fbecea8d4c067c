//! Products of a small matrix with wide rows: the inner loop of the transform.
//!
//! Each row of the answer is `out[r] = Σ_c matrix[r][c] · input[c]`, where `input[c]` is a row of
//! `width` numbers side by side, the lanes. Four rows of the answer are computed at a time for a few
//! lanes, so their sums stay in registers while the columns go by. The order of the sum is that of
//! the columns, one product and one addition at a time.

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

    /// Writes row `r` of the product to row `place(r)` of `out`.
    ///
    /// `terms` lists the columns that take part, each with its row of `input`. Rows are `width`
    /// lanes, a multiple of [`LANES`].
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for each set of instructions"
    )]
    pub(super) fn multiply<const VECTORS: usize>(
        &self,
        terms: &(impl Iterator<Item = (usize, usize)> + Clone),
        input: &[f64],
        width: usize,
        out: &mut [f64],
        place: impl Fn(usize) -> usize,
    ) {
        if self.columns == 0 {
            return;
        }
        let bands = self.bands.chunks(ROWS * self.columns);
        for (first, band) in (0..self.rows).step_by(ROWS).zip(bands) {
            let mut lane = 0;
            while lane < width {
                let (terms, rows) = (terms.clone(), self.rows - first);
                let place = |row| place(first + row) * width + lane;
                let vectors = ((width - lane) / LANES).min(VECTORS);
                match vectors {
                    1 => band_of::<1>(rows, band, terms, input, width, lane, out, place),
                    2 => band_of::<2>(rows, band, terms, input, width, lane, out, place),
                    _ => band_of::<3>(rows, band, terms, input, width, lane, out, place),
                }
                lane += vectors * LANES;
            }
        }
    }
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for each set of instructions"
)]
#[allow(
    clippy::too_many_arguments,
    reason = "split for the sake of the number of rows alone"
)]
fn band_of<const V: usize>(
    rows: usize,
    band: &[f64],
    terms: impl Iterator<Item = (usize, usize)>,
    input: &[f64],
    width: usize,
    lane: usize,
    out: &mut [f64],
    place: impl Fn(usize) -> usize,
) {
    match rows {
        1 => tile::<1, V>(band, terms, input, width, lane, out, place),
        2 => tile::<2, V>(band, terms, input, width, lane, out, place),
        3 => tile::<3, V>(band, terms, input, width, lane, out, place),
        _ => tile::<ROWS, V>(band, terms, input, width, lane, out, place),
    }
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "compiled for each set of instructions"
)]
fn tile<const R: usize, const V: usize>(
    band: &[f64],
    terms: impl Iterator<Item = (usize, usize)>,
    input: &[f64],
    width: usize,
    lane: usize,
    out: &mut [f64],
    place: impl Fn(usize) -> usize,
) {
    let (band, _) = band.as_chunks::<R>();
    let mut sums = [[[0.0; LANES]; V]; R];
    for (column, row) in terms {
        let weights = &band[column];
        let (values, _) = input[row * width + lane..][..V * LANES].as_chunks::<LANES>();
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
