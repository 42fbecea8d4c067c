//! Encoding some chunks on one thread.

use super::bpe::Scratch;
use super::codec::{Codec, Encoded};
use super::dct::{Block, Dct, TakeRow};
use super::quantize::ROUNDING;
use super::range::{Lost, OnRange, Outside, Report};
use crate::{Error, Result};

/// What all chunks of a call have in common.
#[derive(Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) codec: &'a Codec,
    pub(super) dct: &'a Dct,
    pub(super) dims: usize,
    pub(super) on_range: OnRange,
}

/// Some chunks, encoded.
#[derive(Debug)]
pub(super) struct Part {
    ids: Vec<i32>,
    /// Begins with 0.
    offsets: Vec<i64>,
    report: Report,
}

impl Batch<'_> {
    /// Encodes some chunks; nothing where a value is not finite or overflows.
    pub(super) fn encode<T: Copy + Into<f64>>(&self, chunks: &[T]) -> Option<Part> {
        let size = self.dct.horizon() * self.dims;
        let mut block = Block::new(self.dct.horizon(), self.dims);
        let most = block.most();
        let mut symbols = vec![0; most.min(chunks.len() / size) * size];
        let mut scratch = Scratch::default();
        let mut part = Part {
            ids: Vec::with_capacity(chunks.len() / 8),
            offsets: Vec::with_capacity(chunks.len() / size + 1),
            report: Report::default(),
        };
        part.offsets.push(0);
        for (first, chunks) in (0..).step_by(most).zip(chunks.chunks(most * size)) {
            let symbols = &mut symbols[..chunks.len()];
            let mut rounded = Rounded::new(self.codec, size, self.dims, symbols);
            self.dct.block(&mut block, chunks, &mut rounded);
            if !rounded.inside {
                let outside = self.place_in_range(&block, first, symbols)?;
                part.report.add(Report {
                    outside: Some(outside),
                    lost: None,
                });
            }
            for symbols in symbols.chunks_exact(size) {
                let lost = self.codec.write(symbols, &mut scratch, &mut part.ids);
                part.offsets.push(part.ids.len() as i64);
                if let Some(lowest) = lost {
                    let lost = Some(Lost { chunks: 1, lowest });
                    part.report.add(Report {
                        outside: None,
                        lost,
                    });
                }
            }
        }
        Some(part)
    }

    /// Writes the symbols of a block some of which lie outside the fitted range; nothing where a
    /// coefficient is not finite. `first` is the number of its first chunk.
    fn place_in_range(&self, block: &Block, first: usize, symbols: &mut [u16]) -> Option<Outside> {
        let (size, dims) = (self.dct.horizon() * self.dims, self.dims);
        let width = block.width(symbols.len() / size);
        let low = self.codec.min_token as f64;
        let last = (self.codec.max_token - self.codec.min_token) as f64;
        let largest = f64::from(self.codec.largest(self.on_range));
        let mut found: Option<Outside> = None;
        for (place, symbols) in symbols.chunks_exact_mut(size).enumerate() {
            let mut here = 0;
            for (at, symbol) in symbols.iter_mut().enumerate() {
                let (frequency, dim) = (at / dims, at % dims);
                let coefficient = block.frequencies[frequency * width + place * dims + dim];
                let rounded = (coefficient * self.codec.scale).round_ties_even();
                if !rounded.is_finite() {
                    return None;
                }
                let wanted = rounded - low;
                *symbol = wanted.clamp(0.0, largest) as u16;
                if !(0.0..=last).contains(&wanted) {
                    here += 1;
                    let outside = found.get_or_insert(Outside {
                        coefficients: 0,
                        chunks: 0,
                        first: (rounded, first + place, frequency, dim),
                        highest: wanted,
                    });
                    outside.highest = outside.highest.max(wanted);
                }
            }
            if let Some(outside) = found.as_mut().filter(|_| here > 0) {
                outside.coefficients += here;
                outside.chunks += 1;
            }
        }
        found
    }

    /// Names the first value that is not finite; where all are, some coefficient overflows.
    pub(super) fn unusable<T: Copy + Into<f64>>(&self, chunks: &[T]) -> Error {
        let size = self.dct.horizon() * self.dims;
        let values = || chunks.iter().map(|&value| value.into());
        if let Some((at, value)) = values().enumerate().find(|(_, value)| !value.is_finite()) {
            let value = if value.is_nan() {
                "nan".into()
            } else {
                value.to_string()
            };
            let (chunk, step, dim) = (at / size, at % size / self.dims, at % self.dims);
            return Error::argument(format!(
                "actions hold {value} at chunk {chunk}, step {step}, dim {dim}: leave such chunks out"
            ));
        }
        let largest = values().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        Error::argument(format!(
            "actions up to {largest:e} overflow at scale {}: normalise",
            self.codec.scale
        ))
    }
}

impl Part {
    /// Some parts as one.
    pub(super) fn join(parts: Vec<Self>) -> Self {
        let sum = |length: fn(&Self) -> usize| parts.iter().map(length).sum();
        let mut whole = Self {
            ids: Vec::with_capacity(sum(|part| part.ids.len())),
            offsets: Vec::with_capacity(sum(|part| part.offsets.len())),
            report: Report::default(),
        };
        whole.offsets.push(0);
        for mut part in parts {
            let (chunks, ids) = (whole.offsets.len() - 1, whole.ids.len() as i64);
            whole.ids.append(&mut part.ids);
            whole
                .offsets
                .extend(part.offsets[1..].iter().map(|offset| offset + ids));
            whole.report.add(part.report.after(chunks));
        }
        whole
    }

    /// The answer, or the error that the caller wants for what lies outside the range.
    pub(super) fn finish(self, codec: &Codec, on_range: OnRange) -> Result<Encoded> {
        let range = (codec.min_token, codec.max_token);
        let warnings = self.report.judge(on_range, self.offsets.len() - 1, range)?;
        Ok(Encoded {
            ids: self.ids,
            offsets: self.offsets,
            warnings,
        })
    }
}

/// Rounds coefficients to symbols.
struct Rounded<'a> {
    scale: f64,
    low: f64,
    high: f64,
    /// What is to be taken from the low bits of a coefficient with [`ROUNDING`].
    shift: u16,
    size: usize,
    dims: usize,
    /// Whether all were in the fitted range so far, and all symbols right.
    inside: bool,
    symbols: &'a mut [u16],
}

impl<'a> Rounded<'a> {
    fn new(codec: &Codec, size: usize, dims: usize, symbols: &'a mut [u16]) -> Self {
        Self {
            scale: codec.scale,
            low: codec.min_token as f64,
            high: codec.max_token as f64,
            shift: codec.min_token as u16,
            size,
            dims,
            inside: true,
            symbols,
        }
    }
}

impl TakeRow for Rounded<'_> {
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for each set of instructions"
    )]
    fn take(&mut self, k: usize, row: &[f64]) {
        let (scale, low, high, shift) = (self.scale, self.low, self.high, self.shift);
        let mut inside = true;
        let chunks = self.symbols.chunks_exact_mut(self.size);
        for (symbols, row) in chunks.zip(row.chunks_exact(self.dims)) {
            for (symbol, &coefficient) in symbols[k * self.dims..].iter_mut().zip(row) {
                let shifted = coefficient * scale + ROUNDING;
                let rounded = shifted - ROUNDING; // what is too large for this stays outside
                inside &= rounded >= low && rounded <= high;
                *symbol = (shifted.to_bits() as u16).wrapping_sub(shift);
            }
        }
        self.inside &= inside;
    }
}
