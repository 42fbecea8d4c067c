//! From chunks to the integers that the tokenizer sees.

use super::dct::Dct;
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
    let dct = Dct::new(horizon);
    let (mut wide, mut coefficients) = (Vec::with_capacity(size), vec![0.0; size]);
    let mut symbols = Vec::with_capacity(chunks.len());
    for (index, chunk) in chunks.chunks_exact(size).enumerate() {
        // Once here, not once for every frequency.
        wide.clear();
        wide.extend(chunk.iter().map(|&value| value.into()));
        dct.forward(&wide, dims, &mut coefficients);
        for (place, &coefficient) in coefficients.iter().enumerate() {
            let rounded = (coefficient * scale).round_ties_even();
            if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&rounded) {
                return Err(unusable(chunk, index, dims, place, rounded));
            }
            symbols.push(rounded as i32);
        }
    }
    Ok(symbols)
}

/// Names the input value that is not finite, else the coefficient that left the 32-bit range.
fn unusable<T: Copy + Into<f64>>(
    chunk: &[T],
    index: usize,
    dims: usize,
    place: usize,
    rounded: f64,
) -> Error {
    let broken = chunk.iter().position(|&value| !value.into().is_finite());
    Error::argument(match broken {
        Some(at) => format!(
            "chunk {index}, step {}, dim {} is {}: actions must be finite",
            at / dims,
            at % dims,
            chunk[at].into()
        ),
        None => format!(
            "chunk {index}, frequency {}, dim {}: quantised coefficient {rounded} does not fit into \
             32 bits; normalise the actions or lower the scale",
            place / dims,
            place % dims
        ),
    })
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
