//! Fitting a tokenizer: from chunks, which pass by twice, to a vocabulary.
//!
//! A first pass finds the smallest and the largest coefficient, because the symbols count from the
//! smallest. A second one transforms again, rounds, cuts each chunk into words and counts these: that
//! is cheaper than to keep the symbols of all chunks. What is kept are the different words, so chunks
//! may come block by block, and no block is needed any more once both passes have seen it.

use super::batch::{gather, unusable};
use super::bpe::{Trained, Trainer, Words, character_of};
use super::check::{check_scale, size_in};
use super::corpus::Corpus;
use super::dct::{Block, Dct};
use super::lanes::LANES;
use super::pretokenize;
use super::quantize::{Extremes, Round};
use super::range::LARGEST;
use super::runs::Marks;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Blocks of chunks between two looks at whether the caller wants to stop.
const PATIENCE: usize = 64;

/// Up to here whole numbers are next to each other, with room for a fraction.
const FARTHEST: f64 = (1_u64 << 50) as f64;

/// What a fit is to be.
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    /// Quantisation steps per unit of a coefficient.
    pub scale: f64,
    /// What the vocabulary is to be.
    pub trainer: Trainer,
    /// What the vocabulary is made of.
    pub alphabet: Alphabet,
    /// Allows a vocabulary of more than `vocab_size` where the alphabet alone has more, as the
    /// published class does.
    pub compatible: bool,
}

/// What a vocabulary begins with, and where texts are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// The published format: one character for each symbol, which no text uses, and those that stand
    /// for the bytes of the text; words as GPT-2 cuts them.
    Bytes,
    /// One character for each symbol, which texts are made of; each chunk is one word.
    Symbols,
}

/// Row-major `(count, horizon, dims)` chunks.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a, T> {
    /// All values.
    pub values: &'a [T],
    /// Steps of a chunk.
    pub horizon: usize,
    /// Dims of a step.
    pub dims: usize,
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The smallest coefficient.
    pub min_token: i64,
    /// The largest coefficient.
    pub max_token: i64,
    /// The vocabulary.
    pub trained: Trained,
}

/// What all chunks of a fit go through, block by block.
pub trait Pass {
    /// Looks at some chunks.
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()>;
}

/// The first pass: between which whole numbers do the coefficients lie?
#[derive(Debug)]
pub struct Measuring {
    fit: Fit,
    chunks: usize,
    range: Option<(f64, f64)>,
}

/// The second pass: which words are there, and how often?
#[derive(Debug)]
pub struct Counting {
    fit: Fit,
    /// Chunks of the first pass that this one has not seen yet.
    missing: usize,
    range: (f64, f64),
    /// One for each thread, so that none waits for another.
    corpora: Vec<Corpus>,
}

impl Fit {
    /// Fits on blocks of chunks, of any shapes.
    ///
    /// The answer does not depend on the order of chunks, on how they are cut into blocks, or on the
    /// number of threads.
    pub fn run<T: Copy + Into<f64> + Sync>(
        self,
        blocks: &[Chunks<'_, T>],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Fitted> {
        let mut measuring = self.start()?;
        for &block in blocks {
            measuring.add(block, threads, interrupt)?;
        }
        let mut counting = measuring.finish()?;
        for &block in blocks {
            counting.add(block, threads, interrupt)?;
        }
        counting.train(interrupt)
    }

    /// Begins a fit on blocks of chunks that are not all there at the same time.
    pub fn start(self) -> Result<Measuring> {
        check_scale(self.scale)?;
        Ok(Measuring {
            fit: self,
            chunks: 0,
            range: None,
        })
    }
}

impl Pass for Measuring {
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        let parts = block.parts(threads, self.chunks)?;
        let scale = self.fit.scale;
        let ranges = parallel::map(&parts, threads, interrupt, |part| {
            part.range(scale, interrupt)
        })?;
        for (range, part) in ranges.into_iter().zip(&parts) {
            let (low, high) = range?;
            let seen = self.range.unwrap_or((low, high));
            self.range = Some((seen.0.min(low), seen.1.max(high)));
            self.chunks += part.count();
        }
        Ok(())
    }
}

impl Measuring {
    /// Goes on to the second pass, over the same chunks in any order and in any blocks.
    pub fn finish(self) -> Result<Counting> {
        let Self { fit, chunks, range } = self;
        let (low, high) = range.ok_or_else(|| Error::argument("no action chunk to fit on"))?;
        let range = (low + 0.0, high + 0.0); // a zero has no sign
        let most = fit.trainer.vocab_size.min(LARGEST.into());
        if range.1 - range.0 > most as f64 {
            return Err(Error::Vocabulary(format!(
                "coefficients {} at scale {}, do not fit into vocab_size {} (or {LARGEST} \
                 characters): normalise the actions to about [-1, 1], lower scale or raise \
                 vocab_size",
                readable(range),
                fit.scale,
                fit.trainer.vocab_size
            )));
        }
        if range.0 < -FARTHEST || range.1 > FARTHEST {
            return Err(Error::argument(format!(
                "coefficients around {:e} at scale {} are too large to be told apart: normalise the \
                 actions to about [-1, 1]",
                range.0, fit.scale
            )));
        }
        Ok(Counting {
            fit,
            missing: chunks,
            range,
            corpora: Vec::new(),
        })
    }
}

impl Pass for Counting {
    fn add<T: Copy + Into<f64> + Sync>(
        &mut self,
        block: Chunks<'_, T>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        let parts = block.parts(threads, 0)?;
        let count = parts.iter().map(Part::count).sum();
        self.missing = self.missing.checked_sub(count).ok_or_else(changed)?;
        if self.corpora.len() < parts.len() {
            self.corpora.resize_with(parts.len(), Corpus::default);
        }
        let (fit, range) = (self.fit, self.range);
        let work = parts.into_iter().zip(&mut self.corpora).collect();
        parallel::each(work, threads, interrupt, |(part, corpus)| {
            part.count_words(&fit, range, corpus, interrupt)
        })
    }
}

impl Counting {
    /// Learns from the words.
    pub fn train(mut self, interrupt: &Interrupt<'_>) -> Result<Fitted> {
        if self.missing > 0 {
            return Err(changed());
        }
        let mut corpus = self.corpora.pop().unwrap_or_default();
        while let Some(other) = self.corpora.pop() {
            corpus.absorb(&other)?;
        }
        let (min_token, max_token) = (self.range.0 as i64, self.range.1 as i64);
        let words = self.fit.words(&corpus, (min_token, max_token))?;
        drop(corpus);
        Ok(Fitted {
            min_token,
            max_token,
            trained: self.fit.trainer.train(words, interrupt)?,
        })
    }
}

/// The ends of a range and its length, in all digits unless there are very many.
fn readable((low, high): (f64, f64)) -> String {
    if low.abs().max(high.abs()) < 1e37 {
        let [low, high] = [low, high].map(|end| end as i128);
        format!("from {low} to {high}, a range of {}", high - low)
    } else {
        format!("from {low:e} to {high:e}, a range of {:e}", high - low)
    }
}

/// The second pass saw what the first one did not.
fn changed() -> Error {
    Error::argument("the second pass over the chunks gave other chunks than the first one")
}

impl Fit {
    /// The words as a trainer takes them, after a look at whether their alphabet fits.
    fn words(&self, corpus: &Corpus, (min_token, max_token): (i64, i64)) -> Result<Words> {
        let symbols = (max_token - min_token + 1) as usize;
        let mut occurs = vec![false; symbols];
        for (word, _) in corpus.iter() {
            for &symbol in word {
                occurs[usize::from(symbol)] = true;
            }
        }
        let characters = match self.alphabet {
            Alphabet::Bytes => bytes_of,
            Alphabet::Symbols => |symbol| char::from_u32(symbol).into_iter().collect(),
        };
        let spelt: Vec<Vec<char>> = (0..symbols as u32).map(characters).collect();
        let raw = (0..symbols as u32).filter_map(char::from_u32);
        let bytes = spelt.iter().zip(&occurs).filter(|&(_, &occurs)| occurs);
        let alphabet = raw.chain(bytes.flat_map(|(spelt, _)| spelt.iter().copied()));
        let mut words = Words::new(alphabet.collect());
        let (size, wanted) = (words.alphabet_size(), self.trainer.vocab_size);
        if size > wanted && !self.compatible {
            return Err(Error::Vocabulary(format!(
                "vocab_size {wanted} is smaller than the {size} entries that a vocabulary begins with \
                 for coefficients from {min_token} to {max_token}, a range of {} at scale {}: raise \
                 vocab_size to {} or more, lower scale, or pass compatible=True for a larger \
                 vocabulary without merges",
                max_token - min_token,
                self.scale,
                size + 100
            )));
        }
        let ids: Vec<Vec<u32>> = spelt
            .iter()
            .map(|spelt| spelt.iter().filter_map(|&c| words.id(c)).collect())
            .collect();
        let runs = |word: &[u16]| -> usize {
            // Of the bytes of a symbol, only a single one goes on in the next symbol.
            let same = |run: &[u16]| match ids[usize::from(run[0])].len() {
                1 => 1,
                bytes => bytes * run.len(),
            };
            word.chunk_by(|a, b| a == b).map(same).sum()
        };
        words.reserve(corpus.iter().map(|(word, _)| runs(word)).sum())?;
        for (word, count) in corpus.iter() {
            let word = word.iter().flat_map(|&symbol| &ids[usize::from(symbol)]);
            words.add(word.copied(), count)?;
        }
        Ok(words)
    }
}

/// The characters of a symbol in a byte-level vocabulary.
fn bytes_of(symbol: u32) -> Vec<char> {
    let mut bytes = [0; 4];
    let text = char::from_u32(symbol).map(|character| &*character.encode_utf8(&mut bytes));
    text.unwrap_or_default().bytes().map(character_of).collect()
}

/// Cuts chunks into words.
struct Cutter {
    run: u16,
    split: bool,
    symbols: Vec<u16>,
    marks: Marks,
}

impl Cutter {
    fn new(run: u16, split: bool) -> Self {
        Self {
            run,
            split,
            symbols: Vec::new(),
            marks: Marks::default(),
        }
    }

    /// Where the symbols of a chunk go, and [`LANES`] more.
    fn room(&mut self, size: usize) -> &mut [u16] {
        self.symbols.resize(size + LANES, 0);
        &mut self.symbols
    }

    /// Counts the words of the chunk.
    fn count(&mut self, corpus: &mut Corpus) -> Result<()> {
        let symbols = &self.symbols[..self.symbols.len() - LANES];
        if !self.split {
            return corpus.add(symbols, 1);
        }
        self.marks.fill(symbols, self.run);
        let classes = pretokenize::classes();
        let mut words = pretokenize::Words::new(symbols, &self.marks, classes, self.run);
        let mut start = 0;
        while start < symbols.len() {
            let (end, _) = words.next(start);
            corpus.add(&symbols[start..end], 1)?;
            start = end;
        }
        Ok(())
    }
}

/// Chunks for one thread.
struct Part<'a, T> {
    chunks: Chunks<'a, T>,
    /// The number of its first chunk.
    first: usize,
}

impl<'a, T> Chunks<'a, T> {
    /// Parts of about the same size, one for each thread; the first chunk has the number `first`.
    fn parts(self, threads: usize, first: usize) -> Result<Vec<Part<'a, T>>> {
        let size = size_in(self.values.len(), (self.horizon, self.dims))?;
        let share = (self.values.len() / size).div_ceil(threads.max(1)).max(1);
        let parts = (first..)
            .step_by(share)
            .zip(self.values.chunks(share * size));
        Ok(parts
            .map(|(first, values)| Part {
                chunks: Chunks { values, ..self },
                first,
            })
            .collect())
    }
}

impl<T: Copy + Into<f64>> Part<'_, T> {
    fn count(&self) -> usize {
        self.chunks.values.len() / (self.chunks.horizon * self.chunks.dims)
    }

    /// The smallest and the largest rounded coefficient.
    fn range(&self, scale: f64, interrupt: &Interrupt<'_>) -> Result<(f64, f64)> {
        let mut extremes = Extremes::new();
        self.transform(interrupt, |block, dct, chunks, lanes, _| {
            dct.block(block, chunks, extremes.of(lanes));
            Ok(())
        })?;
        let rounded = |c: f64| (c * scale).round_ties_even();
        match extremes
            .get()
            .map(|(low, high)| (rounded(low), rounded(high)))
        {
            Some((low, high)) if low.is_finite() && high.is_finite() => Ok((low, high)),
            _ => {
                let Chunks {
                    values,
                    horizon,
                    dims,
                } = self.chunks;
                Err(unusable(values, (horizon, dims), self.first, scale))
            }
        }
    }

    /// Counts the words of all chunks, whose coefficients lie in `range`.
    fn count_words(
        &self,
        fit: &Fit,
        range: (f64, f64),
        corpus: &mut Corpus,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        // Most coefficients are 0; where that is no symbol, most are at the nearer end.
        let run = (-range.0).clamp(0.0, range.1 - range.0) as u16;
        let zero = range.0 as i64 as u16;
        let mut cutter = Cutter::new(run, fit.alphabet == Alphabet::Bytes);
        let dims = self.chunks.dims;
        self.transform(interrupt, |block, dct, chunks, lanes, rows| {
            let mut round = Round::new(fit.scale, range, zero, lanes, rows);
            dct.block(block, chunks, &mut round);
            if !round.inside() {
                return Err(changed());
            }
            let count = lanes / dims;
            for place in 0..count {
                let symbols = cutter.room(dct.horizon() * dims);
                gather(rows, (place, count), dims, symbols);
                cutter.count(corpus)?;
            }
            Ok(())
        })
    }

    /// Hands over the chunks of each block, with how many lanes they take and room for their symbols.
    fn transform(
        &self,
        interrupt: &Interrupt<'_>,
        mut work: impl FnMut(&mut Block, &Dct, &[T], usize, &mut [u16]) -> Result<()>,
    ) -> Result<()> {
        let Chunks {
            values,
            horizon,
            dims,
        } = self.chunks;
        let (dct, mut block) = (Dct::new(horizon)?, Block::new(horizon, dims));
        let mut rows = vec![0; horizon * block.width(block.most())];
        let size = horizon * dims;
        for (number, chunks) in values.chunks(block.most() * size).enumerate() {
            if number % PATIENCE == 0 {
                interrupt.check()?;
            }
            work(&mut block, &dct, chunks, chunks.len() / horizon, &mut rows)?;
        }
        Ok(())
    }
}
