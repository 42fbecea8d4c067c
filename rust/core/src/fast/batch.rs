//! Encoding some chunks on one thread.

use super::bpe::Scratch;
use super::codec::{Codec, Encoded};
use super::dct::{Block, Dct, copy};
use super::lanes::LANES;
use super::quantize::Round;
use super::range::{Lost, OnRange, Outside, Report};
use crate::parallel::Interrupt;
use crate::{Error, Result};

/// Numbers after which a thread looks whether it is to stop: some hundredths of a second.
pub(super) const PIECE: usize = 1 << 20;

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
    pub(super) fn encode<T: Copy + Into<f64>>(
        &self,
        chunks: &[T],
        interrupt: &Interrupt<'_>,
    ) -> Result<Option<Part>> {
        let size = self.dct.horizon() * self.dims;
        let mut block = Block::new(self.dct.horizon(), self.dims);
        let most = block.most();
        let mut rows = vec![0; self.dct.horizon() * block.width(most)];
        let mut symbols = vec![0; size + LANES];
        let mut scratch = Scratch::default();
        let mut part = Part {
            ids: Vec::with_capacity(chunks.len() / 8),
            offsets: Vec::with_capacity(chunks.len() / size + 1),
            report: Report::default(),
        };
        part.offsets.push(0);
        let mut numbers = 0;
        for (first, chunks) in (0..).step_by(most).zip(chunks.chunks(most * size)) {
            if numbers >= PIECE {
                interrupt.check()?;
                numbers = 0;
            }
            numbers += chunks.len();
            let count = chunks.len() / size;
            let range = (self.codec.min_token as f64, self.codec.max_token as f64);
            let zero = self.codec.min_token as u16;
            let mut round = Round::new(self.codec.scale, range, zero, count * self.dims, &mut rows);
            self.dct.block(&mut block, chunks, &mut round);
            if !round.inside() {
                let Some(outside) = self.place_in_range(&block, first, count, &mut rows) else {
                    return Ok(None);
                };
                part.report.add(Report {
                    outside: Some(outside),
                    lost: None,
                });
            }
            for place in 0..count {
                gather(&rows, (place, count), self.dims, &mut symbols);
                let lost = self
                    .codec
                    .write(&symbols[..size], &mut scratch, &mut part.ids);
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
        Ok(Some(part))
    }

    /// Writes the symbols of a block some of which lie outside the fitted range; nothing where a
    /// coefficient is not finite. `first` is the number of the first of `count` chunks.
    fn place_in_range(
        &self,
        block: &Block,
        first: usize,
        count: usize,
        rows: &mut [u16],
    ) -> Option<Outside> {
        let (dims, width) = (self.dims, block.width(count));
        let low = self.codec.min_token as f64;
        let last = (self.codec.max_token - self.codec.min_token) as f64;
        let largest = f64::from(self.codec.largest(self.on_range));
        let mut found: Option<Outside> = None;
        for place in 0..count {
            let mut here = 0;
            for at in 0..self.dct.horizon() * dims {
                let (frequency, dim) = (at / dims, at % dims);
                let lane = frequency * width + place * dims + dim;
                let rounded = (block.frequencies[lane] * self.codec.scale).round_ties_even();
                if !rounded.is_finite() {
                    return None;
                }
                let wanted = rounded - low;
                rows[lane] = wanted.clamp(0.0, largest) as u16;
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
}

/// Writes the symbols of one of `count` chunks of a block side by side to `symbols`, which has room
/// for [`LANES`] more.
pub(super) fn gather(
    rows: &[u16],
    (place, count): (usize, usize),
    dims: usize,
    symbols: &mut [u16],
) {
    let width = (count * dims).next_multiple_of(LANES);
    for frequency in 0..(symbols.len() - LANES) / dims {
        let row = &rows[frequency * width + place * dims..];
        copy(row, &mut symbols[frequency * dims..], dims, |symbol| symbol);
    }
}

/// Names the first value that is not finite; where all are, some coefficient overflows. `first` is the
/// number of the first chunk.
pub(super) fn unusable<T: Copy + Into<f64>>(
    chunks: &[T],
    (horizon, dims): (usize, usize),
    first: usize,
    scale: f64,
) -> Error {
    let size = horizon * dims;
    let values = || chunks.iter().map(|&value| value.into());
    if let Some((at, value)) = values().enumerate().find(|(_, value)| !value.is_finite()) {
        let value = if value.is_nan() {
            "nan".into()
        } else {
            value.to_string()
        };
        let (chunk, step, dim) = (first + at / size, at % size / dims, at % dims);
        return Error::argument(format!(
            "actions hold {value} at chunk {chunk}, step {step}, dim {dim}: leave such chunks out"
        ));
    }
    let largest = values().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    Error::argument(format!(
        "actions up to {largest:e} overflow at scale {scale}: normalise"
    ))
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
