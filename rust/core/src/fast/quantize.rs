//! From chunks to the integers that the tokenizer sees.
#![allow(
    clippy::inline_always,
    reason = "kernels are compiled for each set of instructions"
)]

use super::check::{check_scale, size_in};
use super::dct::{Block, Dct, TakeRow, copy};
use super::lanes::{LANES, Lanes};
use crate::memory::zeroed;
use crate::{Error, Result};

/// `round(DCT(chunk) · scale)` of every `(horizon, dims)` chunk of the row-major `chunks`, half to
/// even.
///
/// A value that is NaN, infinite or too large for 32 bits is an error that names its place.
pub fn dct_quantize<T: Copy + Into<f64>>(
    chunks: &[T],
    horizon: usize,
    dims: usize,
    scale: f64,
) -> Result<Vec<i32>> {
    check_scale(scale)?;
    if horizon == 0 || dims == 0 || chunks.is_empty() {
        return Ok(Vec::new());
    }
    let size = size_in(chunks.len(), (horizon, dims))?;
    let (dct, mut block) = (Dct::new(horizon)?, Block::new(horizon, dims));
    let mut symbols = zeroed(chunks.len()).ok_or_else(|| {
        Error::argument(format!("{} integers do not fit into memory", chunks.len()))
    })?;
    let most = block.most() * size;
    let mut rows = vec![0; horizon * block.width(block.most())];
    let range = (f64::from(i32::MIN), f64::from(i32::MAX));
    let blocks = chunks.chunks(most).zip(symbols.chunks_mut(most));
    for (first, (chunks, symbols)) in (0..).step_by(block.most()).zip(blocks) {
        let count = chunks.len() / size;
        let mut round = Round::new(scale, range, 0, count * dims, &mut rows);
        dct.block(&mut block, chunks, &mut round);
        if !round.inside() {
            return Err(unusable(&dct, chunks, first, dims, scale));
        }
        let width = block.width(count);
        for (place, frequency) in
            (0..count).flat_map(|place| (0..horizon).map(move |frequency| (place, frequency)))
        {
            let row = &rows[frequency * width + place * dims..];
            copy(
                row,
                &mut symbols[(place * horizon + frequency) * dims..],
                dims,
                |symbol| symbol,
            );
        }
    }
    Ok(symbols)
}

/// Added to a number below 2^51, it leaves the nearest whole number, half to even, in the low bits.
pub(super) const ROUNDING: f64 = 1.5 * (1_u64 << 52) as f64;

/// What coefficients are rounded to: whole numbers, less `zero`, modulo their range.
pub(super) trait Symbol: Copy {
    /// The low bits of numbers to which [`ROUNDING`] was added.
    fn four<L: Lanes>(shifted: L, zero: Self) -> [Self; LANES];
}

impl Symbol for i32 {
    #[inline(always)]
    fn four<L: Lanes>(shifted: L, zero: Self) -> [Self; LANES] {
        shifted.low_32().map(|low| low.wrapping_sub(zero))
    }
}

impl Symbol for u16 {
    #[inline(always)]
    fn four<L: Lanes>(shifted: L, zero: Self) -> [Self; LANES] {
        shifted.low_16(zero)
    }
}

/// Rounds the coefficients of a block, rows and lanes as they come.
pub(super) struct Round<'a, S> {
    scale: f64,
    range: (f64, f64),
    zero: S,
    /// Lanes of a row that hold chunks.
    lanes: usize,
    inside: bool,
    rows: &'a mut [S],
}

impl<'a, S: Symbol> Round<'a, S> {
    /// Writes `coefficient * scale - zero` for all that is in the range before that subtraction.
    pub(super) fn new(
        scale: f64,
        range: (f64, f64),
        zero: S,
        lanes: usize,
        rows: &'a mut [S],
    ) -> Self {
        Self {
            scale,
            range,
            zero,
            lanes,
            inside: true,
            rows,
        }
    }

    /// Whether all coefficients were in the range, and so all symbols are right.
    pub(super) fn inside(&self) -> bool {
        self.inside
    }
}

impl<S: Symbol> TakeRow for Round<'_, S> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, k: usize, row: &[f64]) {
        let mut rounding = Rounding {
            scale: L::all(self.scale),
            low: L::all(self.range.0),
            high: L::all(self.range.1),
            outside: L::all(0.0),
        };
        let out = &mut self.rows[k * row.len()..][..self.lanes];
        let (fours, rest) = row[..self.lanes].as_chunks();
        let (out, out_rest) = out.as_chunks_mut();
        for (out, four) in out.iter_mut().zip(fours) {
            *out = S::four(rounding.shifted(four), self.zero);
        }
        if let Some(&first) = rest.first() {
            let mut four = [first; LANES]; // as good as any that is there
            four[..rest.len()].copy_from_slice(rest);
            let four = S::four(rounding.shifted(&four), self.zero);
            out_rest.copy_from_slice(&four[..rest.len()]);
        }
        self.inside &= rounding.outside.is_clear();
    }
}

/// The smallest and the largest coefficient.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extremes {
    low: [f64; LANES],
    high: [f64; LANES],
    /// Lanes of a row that hold chunks.
    lanes: usize,
    finite: bool,
}

impl Extremes {
    /// Of no coefficients.
    pub(super) fn new() -> Self {
        Self {
            low: [f64::INFINITY; LANES],
            high: [f64::NEG_INFINITY; LANES],
            lanes: 0,
            finite: true,
        }
    }

    /// To be told of rows with chunks in so many lanes.
    pub(super) fn of(&mut self, lanes: usize) -> &mut Self {
        self.lanes = lanes;
        self
    }

    /// Both, if there were any and all were finite.
    pub(super) fn get(&self) -> Option<(f64, f64)> {
        let low = self.low.into_iter().fold(f64::INFINITY, f64::min);
        let high = self.high.into_iter().fold(f64::NEG_INFINITY, f64::max);
        (self.finite && low <= high).then_some((low, high))
    }
}

impl TakeRow for Extremes {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, _: usize, row: &[f64]) {
        let (mut low, mut high, mut bad) = (L::of(&self.low), L::of(&self.high), L::all(0.0));
        let mut take = |four: &[f64; LANES]| {
            let four = L::of(four);
            low = four.lower(low);
            high = four.higher(high);
            bad = bad.or(four.minus(four)); // zero, unless it is not finite
        };
        let (fours, rest) = row[..self.lanes].as_chunks();
        fours.iter().for_each(&mut take);
        if let Some(&first) = rest.first() {
            let mut four = [first; LANES];
            four[..rest.len()].copy_from_slice(rest);
            take(&four);
        }
        low.put(&mut self.low);
        high.put(&mut self.high);
        self.finite &= bad.is_clear();
    }
}

struct Rounding<L> {
    scale: L,
    low: L,
    high: L,
    /// No bit is set while all was in range.
    outside: L,
}

impl<L: Lanes> Rounding<L> {
    /// Coefficients times the scale, with [`ROUNDING`] added.
    #[inline(always)]
    fn shifted(&mut self, coefficients: &[f64; LANES]) -> L {
        let shift = L::all(ROUNDING);
        let shifted = L::of(coefficients).times(self.scale).plus(shift);
        // What clamping changes lies outside. What is too large for the shift stays too large.
        let rounded = shifted.minus(shift);
        let clamped = rounded.clamped(self.low, self.high);
        self.outside = self.outside.or(clamped.unlike(rounded));
        shifted
    }
}

/// Names the first input value that is not finite, else the first coefficient that leaves the 32-bit
/// range, of chunks one of which has either; the first of them is number `first`.
fn unusable<T: Copy + Into<f64>>(
    dct: &Dct,
    chunks: &[T],
    first: usize,
    dims: usize,
    scale: f64,
) -> Error {
    let size = dct.horizon() * dims;
    let place = |at: usize| (first + at / size, at % size / dims, at % dims);
    let wide: Vec<f64> = chunks.iter().map(|&value| value.into()).collect();
    if let Some(at) = wide.iter().position(|value| !value.is_finite()) {
        let ((chunk, step, dim), value) = (place(at), wide[at]);
        return Error::argument(format!(
            "chunk {chunk}, step {step}, dim {dim} is {value}: actions must be finite"
        ));
    }
    let mut coefficients = wide.clone();
    for (x, coefficients) in wide.chunks(size).zip(coefficients.chunks_mut(size)) {
        dct.forward(x, dims, coefficients);
    }
    let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
    let rounded = |c: &f64| (c * scale).round_ties_even();
    let at = coefficients
        .iter()
        .position(|c| !range.contains(&rounded(c)));
    let ((chunk, frequency, dim), value) = match at {
        Some(at) => (place(at), rounded(&coefficients[at])),
        None => ((first, 0, 0), f64::NAN), // the caller has seen one
    };
    Error::argument(format!(
        "chunk {chunk}, frequency {frequency}, dim {dim}: quantised coefficient {value} does not fit \
         into 32 bits; normalise the actions or lower the scale"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_even() {
        // One step: the transform is the identity.
        let got = dct_quantize(&[0.05, 0.15, 0.25, -0.05, -0.15, 1.0], 1, 1, 10.0).unwrap();
        assert_eq!(got, [0, 2, 2, 0, -2, 10]);
    }

    #[test]
    fn the_unusable_value_is_named() {
        let mut chunks = vec![0.0f32; 2 * 3 * 2];
        chunks[6 + 2 + 1] = f32::NAN;
        let error = dct_quantize(&chunks, 3, 2, 10.0).unwrap_err().to_string();
        assert!(error.contains("chunk 1, step 1, dim 1"), "{error}");
        let error = dct_quantize(&[1e300], 1, 1, 10.0).unwrap_err().to_string();
        assert!(error.contains("frequency 0, dim 0"), "{error}");
    }

    #[test]
    fn no_chunks_give_no_symbols() {
        assert!(dct_quantize::<f32>(&[], 5, 2, 10.0).unwrap().is_empty());
        assert!(dct_quantize(&[1.0; 9], 5, 2, 10.0).is_err());
    }
}
