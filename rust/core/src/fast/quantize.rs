//! From chunks to the integers that the tokenizer sees.

use super::dct::{Block, Dct, TakeRow};
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
    if !(scale.is_finite() && scale > 0.0) {
        return Err(Error::argument(format!(
            "scale must be a positive number, got {scale}"
        )));
    }
    let size = horizon * dims;
    if size == 0 {
        return Ok(Vec::new());
    }
    if !chunks.len().is_multiple_of(size) {
        return Err(Error::argument(format!(
            "{} values are no whole number of chunks of {horizon} x {dims}",
            chunks.len()
        )));
    }
    let (dct, mut block) = (Dct::new(horizon), Block::new(horizon, dims));
    let mut symbols = vec![0; chunks.len()];
    let most = block.most() * size;
    let blocks = chunks.chunks(most).zip(symbols.chunks_mut(most));
    for (first, (chunks, symbols)) in (0..).step_by(block.most()).zip(blocks) {
        let mut round = Round {
            scale,
            size,
            dims,
            fits: true,
            symbols,
        };
        dct.block(&mut block, chunks, &mut round);
        if !round.fits {
            return Err(unusable(&dct, chunks, first, dims, scale));
        }
    }
    Ok(symbols)
}

/// Added to a number below 2^51, it leaves the nearest whole number, half to even, in the low bits.
pub(super) const ROUNDING: f64 = 1.5 * (1_u64 << 52) as f64;

/// Rounds coefficients to 32 bits.
struct Round<'a> {
    scale: f64,
    size: usize,
    dims: usize,
    /// Whether all were numbers of 32 bits so far.
    fits: bool,
    symbols: &'a mut [i32],
}

impl TakeRow for Round<'_> {
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for each set of instructions"
    )]
    fn take(&mut self, k: usize, row: &[f64]) {
        let (scale, mut fits) = (self.scale, true);
        let chunks = self.symbols.chunks_exact_mut(self.size);
        for (symbols, row) in chunks.zip(row.chunks_exact(self.dims)) {
            for (symbol, &coefficient) in symbols[k * self.dims..].iter_mut().zip(row) {
                let shifted = coefficient * scale + ROUNDING;
                let rounded = shifted - ROUNDING; // what is too large for this stays too large
                fits &= rounded >= f64::from(i32::MIN) && rounded <= f64::from(i32::MAX);
                *symbol = shifted.to_bits() as i32;
            }
        }
        self.fits &= fits;
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
