//! The codec as a whole: chunks of actions to ids, and back.
//!
//! A [`Codec`] never changes, so threads and forked processes may share it. What a call needs besides
//! is made once for the call and used for all of its chunks.

use super::batch::{Batch, PIECE, Part, unusable};
use super::bpe::{Decoder, Encoder, Model, Scratch, Status};
use super::check::{check_scale, size_in, size_of};
use super::cosine::LONGEST;
use super::dct::{Block, Dct, Idct};
use super::range::{LARGEST, OnRange};
use crate::memory::zeroed;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Coefficients that stay exact, with room to spare, in all that is done to them.
const FAR: i64 = 1 << 50;
/// Chunks that a thread takes at a time.
const SHARE: usize = 128;

/// FAST: a cosine transform over time, rounded, and byte-pair encoding of what comes out.
#[derive(Debug, Clone)]
pub struct Codec {
    pub(super) scale: f64,
    pub(super) min_token: i64,
    pub(super) max_token: i64,
    /// The most frequent symbol.
    pub(super) run: u16,
    pub(super) tokens: Tokens,
    /// The scaled coefficient of each symbol of the fit.
    coefficients: Vec<f64>,
    /// For the horizon that the codec was fitted to.
    transforms: Option<(Dct, Idct)>,
}

/// What a tokenizer's own configuration says, beside its `tokenizer.json`.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Quantisation steps per unit of a coefficient.
    pub scale: f64,
    /// The smallest coefficient of the fit.
    pub min_token: i64,
    /// The largest one; without it, the largest that the vocabulary allows.
    pub max_token: Option<i64>,
    /// The steps of a chunk, where they are fixed.
    pub time_horizon: Option<usize>,
}

/// Ids of all chunks, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Those of chunk `i` begin at `offsets[i]` and end before `offsets[i + 1]`.
    pub ids: Vec<i32>,
    /// One more than there are chunks.
    pub offsets: Vec<i64>,
    /// What a person should know of.
    pub warnings: Vec<String>,
}

/// Ids of all chunks as a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// A row a chunk.
    pub ids: Vec<i32>,
    /// Where there is an id.
    pub mask: Vec<bool>,
    /// How many chunks were cut.
    pub cut: usize,
}

impl Encoded {
    /// The ids in rows of `length`: cut, or filled up with `pad`.
    pub fn padded(&self, length: usize, pad: i32) -> Result<Padded> {
        let count = self.offsets.len() - 1;
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        let size = count.saturating_mul(length);
        if ids.try_reserve_exact(size).is_err() || mask.try_reserve_exact(size).is_err() {
            return Err(Error::argument(format!(
                "{count} rows of {length} ids do not fit into memory"
            )));
        }
        let mut cut = 0;
        for ends in self.offsets.windows(2) {
            let row = &self.ids[ends[0] as usize..ends[1] as usize];
            let kept = row.len().min(length);
            cut += usize::from(row.len() > length);
            ids.extend_from_slice(&row[..kept]);
            ids.resize(ids.len() + length - kept, pad);
            mask.resize(mask.len() + kept, true);
            mask.resize(mask.len() + length - kept, false);
        }
        Ok(Padded { ids, mask, cut })
    }
}

/// Actions of all chunks, and how each decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// Row-major `(chunk, step, dim)`.
    pub actions: Vec<f64>,
    /// One [`Status`] for each chunk.
    pub status: Vec<u8>,
}

/// What stands for symbols.
#[derive(Debug, Clone)]
pub(super) enum Tokens {
    /// The ids of a byte-pair encoding.
    Merged(Box<(Encoder, Decoder)>),
    /// The symbols themselves.
    Plain,
}

impl Codec {
    /// The codec of a `tokenizer.json`, given as text; without one, ids are the symbols themselves,
    /// from 0 to `max_token - min_token`.
    ///
    /// [`Error::Unsupported`] where the tokenizer asks for anything that is not done exactly here.
    pub fn new(tokenizer: Option<&str>, settings: Settings) -> Result<Self> {
        let model = tokenizer.map(Model::parse).transpose()?;
        let Settings {
            scale, min_token, ..
        } = settings;
        check_scale(scale)?;
        let symbols = u32::from(LARGEST) + 1;
        let size = model
            .as_ref()
            .map_or(symbols, Model::alphabet_size)
            .min(symbols);
        if size == 0 {
            return Err(Error::Vocabulary(
                "no FAST tokenizer: its vocabulary does not begin with character 0".into(),
            ));
        }
        if !(-FAR..=FAR).contains(&min_token) {
            return Err(Error::argument(format!(
                "min_token is {min_token}, it must be from {} to {FAR}",
                -FAR
            )));
        }
        let last = min_token + i64::from(size) - 1;
        let max_token = settings.max_token.unwrap_or(last);
        if !(min_token..=last).contains(&max_token) {
            return Err(Error::argument(format!(
                "max_token is {max_token}, it must be from min_token {min_token} to {last}, the last \
                 character that the vocabulary begins with"
            )));
        }
        // Whatever decodes is a sum of at most so many of these.
        let largest = min_token.abs().max((min_token + i64::from(LARGEST)).abs()) as f64 / scale;
        if largest > f64::MAX / LONGEST as f64 {
            return Err(Error::argument(format!(
                "scale is {scale:e}, so small that coefficients overflow"
            )));
        }
        // Most coefficients are 0; where that is no symbol, most are at the nearer end.
        let run = (-min_token).clamp(0, max_token - min_token) as u16;
        let coefficient = |symbol: i64| (symbol + min_token) as f64 / scale;
        let transforms = match settings.time_horizon {
            Some(h) => Some((Dct::new(h)?, Idct::new(h)?)),
            None => None,
        };
        Ok(Self {
            scale,
            min_token,
            max_token,
            run,
            tokens: model.map_or(Tokens::Plain, |model| {
                Tokens::Merged(Box::new((Encoder::new(&model, run), Decoder::new(&model))))
            }),
            coefficients: (0..=max_token - min_token).map(coefficient).collect(),
            transforms,
        })
    }

    /// The largest coefficient of the fit.
    #[must_use]
    pub fn max_token(&self) -> i64 {
        self.max_token
    }

    /// Of each coefficient from `min_token` on, up to the last that can be a character, whether the
    /// vocabulary can spell it, and so whether it comes back from its ids.
    #[must_use]
    pub fn spells(&self) -> Vec<bool> {
        let spells = |symbol| match &self.tokens {
            Tokens::Merged(merged) => merged.0.spells(symbol),
            Tokens::Plain => true,
        };
        (0..=LARGEST).map(spells).collect()
    }

    /// Appends what stands for the symbols of a chunk, and gives the lowest symbol that was left out;
    /// `scratch.marks` are set here.
    pub(super) fn write(
        &self,
        symbols: &[u16],
        scratch: &mut Scratch,
        ids: &mut Vec<i32>,
    ) -> Option<u16> {
        match &self.tokens {
            Tokens::Merged(merged) => {
                scratch.marks.fill(symbols, self.run);
                merged.0.encode(symbols, scratch, ids)
            }
            Tokens::Plain => {
                ids.extend(symbols.iter().map(|&symbol| i32::from(symbol)));
                None
            }
        }
    }

    /// Reads the symbols of a chunk back, as [`Decoder::decode`] does.
    fn read<I: Copy + Into<i64>>(
        &self,
        ids: &[I],
        largest: u16,
        symbols: &mut [u16],
    ) -> Result<usize, Status> {
        match &self.tokens {
            Tokens::Merged(merged) => merged.1.decode(ids, largest, symbols),
            Tokens::Plain => {
                let mut inside = true;
                for (at, &id) in ids.iter().enumerate() {
                    let symbol = u16::try_from(id.into()).map_err(|_| Status::UnknownId)?;
                    inside &= symbol <= largest;
                    if let Some(place) = symbols.get_mut(at) {
                        *place = symbol;
                    }
                }
                if inside {
                    Ok(ids.len())
                } else {
                    Err(Status::OutOfAlphabet)
                }
            }
        }
    }

    /// The largest symbol that encoding writes and decoding takes.
    pub(super) fn largest(&self, on_range: OnRange) -> u16 {
        match on_range {
            OnRange::Clamp | OnRange::Error => (self.max_token - self.min_token) as u16,
            OnRange::Published => LARGEST,
        }
    }

    /// Ids of the `(horizon, dims)` chunks of the row-major `chunks`.
    ///
    /// The ids are the same whatever the number of threads.
    pub fn encode<T: Copy + Into<f64> + Sync>(
        &self,
        chunks: &[T],
        (horizon, dims): (usize, usize),
        on_range: OnRange,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Encoded> {
        let size = size_in(chunks.len(), (horizon, dims))?;
        let made;
        let dct = match &self.transforms {
            Some((dct, _)) if dct.horizon() == horizon => dct,
            _ => {
                made = Dct::new(horizon)?;
                &made
            }
        };
        let batch = Batch {
            codec: self,
            dct,
            dims,
            on_range,
        };
        let encoded = if threads <= 1 || chunks.len() <= SHARE * size {
            batch.encode(chunks, interrupt)?
        } else {
            let shares: Vec<_> = chunks.chunks(SHARE * size).collect();
            let encode = |share: &&[T]| batch.encode(share, interrupt);
            let parts = parallel::map(&shares, threads, interrupt, encode)?;
            let parts = parts.into_iter().collect::<Result<Option<Vec<_>>>>()?;
            parts.map(Part::join)
        };
        match encoded {
            Some(part) => part.finish(self, on_range),
            None => Err(unusable(chunks, (horizon, dims), 0, self.scale)),
        }
    }

    /// Actions of chunks whose ids lie one after the other, those of chunk `i` from `offsets[i]` to
    /// before `offsets[i + 1]`.
    ///
    /// A chunk that is not as it should be becomes zeros; with `pad` one that is merely short or long
    /// is filled up with zero coefficients, or cut.
    pub fn decode<I: Copy + Into<i64>>(
        &self,
        ids: &[I],
        offsets: &[i64],
        (horizon, dims): (usize, usize),
        on_range: OnRange,
        pad: bool,
        interrupt: &Interrupt<'_>,
    ) -> Result<Decoded> {
        let size = size_of((horizon, dims))?;
        let rise = offsets.is_sorted() && offsets.first() == Some(&0);
        if !rise || offsets.last() != Some(&(ids.len() as i64)) {
            return Err(Error::argument(format!(
                "offsets must rise from 0 to the number of ids, {}",
                ids.len()
            )));
        }
        let count = offsets.len() - 1;
        let room = (size <= usize::MAX / 64).then(|| zeroed(count.saturating_mul(size)));
        let mut actions = room.flatten().ok_or_else(|| {
            Error::argument(format!(
                "{count} chunks of {horizon} x {dims} do not fit into memory"
            ))
        })?;
        let mut status = Vec::with_capacity(count);
        if count > 0 {
            let made;
            let idct = match &self.transforms {
                Some((_, idct)) if idct.horizon() == horizon => idct,
                _ => {
                    made = Idct::new(horizon)?;
                    &made
                }
            };
            let mut block = Block::new(horizon, dims);
            let mut symbols = vec![0; size + Decoder::ROOM];
            let most = block.most();
            let groups = offsets[..count]
                .chunks(most)
                .zip(actions.chunks_mut(most * size));
            let mut numbers = 0;
            for (group, (starts, actions)) in groups.enumerate() {
                if numbers >= PIECE {
                    interrupt.check()?;
                    numbers = 0;
                }
                numbers += actions.len();
                let ends = &offsets[group * most + 1..];
                let width = block.width(starts.len());
                block.frequencies.fill(0.0);
                for (place, (&start, &end)) in starts.iter().zip(ends).enumerate() {
                    let ids = &ids[start as usize..end as usize];
                    let found = self.read(ids, self.largest(on_range), &mut symbols);
                    let (state, count) = match found {
                        Ok(count) if count == size => (Status::Ok, size),
                        Ok(count) if count < size => (Status::Short, if pad { count } else { 0 }),
                        Ok(_) => (Status::Long, if pad { size } else { 0 }),
                        Err(state) => (state, 0),
                    };
                    status.push(state as u8);
                    let rows = block.frequencies.chunks_exact_mut(width);
                    self.dequantize(
                        &symbols[..count],
                        dims,
                        rows.map(|row| &mut row[place * dims..]),
                    );
                }
                idct.block(&mut block, actions);
            }
        }
        Ok(Decoded { actions, status })
    }

    /// Writes the coefficients of symbols over zeros.
    fn dequantize<'a>(
        &self,
        symbols: &[u16],
        dims: usize,
        rows: impl Iterator<Item = &'a mut [f64]>,
    ) {
        let coefficient = |symbol: u16| match self.coefficients.get(usize::from(symbol)) {
            Some(&coefficient) => coefficient,
            None => (i64::from(symbol) + self.min_token) as f64 / self.scale,
        };
        for (symbols, row) in symbols.chunks(dims).zip(rows) {
            if coefficient(self.run) == 0.0 && symbols.iter().all(|&symbol| symbol == self.run) {
                continue;
            }
            for (value, &symbol) in row.iter_mut().zip(symbols) {
                *value = coefficient(symbol);
            }
        }
    }
}
