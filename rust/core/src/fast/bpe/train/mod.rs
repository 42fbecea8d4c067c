//! Learning the merges of a byte-pair encoding from words with counts.
//!
//! Vocabulary, merges and their order are those of the trainer of the `tokenizers` package:
//!
//! ```text
//! repeat  until the vocabulary is full, or no pair is frequent enough:
//!     (a, b) = the most frequent pair of neighbours; of equal ones the smallest by numbers
//!     put the token a‖b in place of a b in all words, from left to right
//! ```
//!
//! How often a pair occurs is not counted anew: each merge tells what its neighbours lost and gained.
//! Where a pair occurs is known, too, because a pair comes into being in one step, the one that makes
//! the later of its two tokens. So a merge touches the places of its pair and nothing else.
//!
//! Most symbols of a FAST text are zeros, so a word is kept as [`runs`] of equal tokens: merging a
//! pair of equal tokens halves a run in one step, however long it is.
//!
//! A joined text is always new. Up to some step, what merges make inside a stretch of text that none of
//! them crosses the ends of does not depend on what lies around it. So all stretches with the text of a
//! token became that token in the same step, and none is left to be joined of other parts.

mod queue;
mod runs;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;

use crate::parallel::Interrupt;
use crate::{Error, Result};
use runs::{Changes, Runs};

/// Two neighbours, by their numbers in the vocabulary.
type Pair = (u32, u32);

/// Merges between two looks at whether the caller wants to stop.
const PATIENCE: usize = 16;

/// What a vocabulary is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trainer {
    /// How many tokens it has at most; never fewer than the alphabet.
    pub vocab_size: usize,
    /// How often a pair must occur to be merged, 1 at least.
    pub min_frequency: u64,
    /// A merge that makes a token of so many characters or more is not taken up, unless both of its
    /// parts are characters.
    pub max_token_length: usize,
}

/// A vocabulary and how its tokens come about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trained {
    /// The text of each token, by its id.
    pub tokens: Vec<String>,
    /// Ids of the two parts of each merge, the first one first.
    pub merges: Vec<(u32, u32)>,
}

/// Words to learn from, over an alphabet that is known beforehand.
#[derive(Debug, Clone)]
pub struct Words {
    alphabet: Vec<char>,
    runs: Runs,
}

impl Words {
    /// No words yet. Characters have their ids by their codes, whatever their order here.
    #[must_use]
    pub fn new(mut alphabet: Vec<char>) -> Self {
        alphabet.sort_unstable();
        alphabet.dedup();
        Self {
            alphabet,
            runs: Runs::default(),
        }
    }

    /// The words `texts`, each of which occurs as often as `counts` says, over an alphabet of their
    /// characters and those of `more`.
    pub fn of_texts(texts: &[String], counts: &[u64], more: &str) -> Result<Self> {
        if texts.len() != counts.len() {
            let (words, counts) = (texts.len(), counts.len());
            return Err(Error::argument(format!(
                "{words} words, but {counts} counts"
            )));
        }
        let seen = texts.iter().flat_map(|text| text.chars());
        let mut words = Self::new(seen.chain(more.chars()).collect());
        for (text, &count) in texts.iter().zip(counts) {
            let ids: Vec<u32> = text.chars().filter_map(|c| words.id(c)).collect();
            words.add(ids.into_iter(), count)?;
        }
        Ok(words)
    }

    /// Characters of the alphabet.
    #[must_use]
    pub fn alphabet_size(&self) -> usize {
        self.alphabet.len()
    }

    /// The id of a character of the alphabet.
    #[must_use]
    pub fn id(&self, character: char) -> Option<u32> {
        let place = self.alphabet.binary_search(&character).ok()?;
        Some(place as u32)
    }

    /// Makes room for words of so many runs of equal characters together.
    pub fn reserve(&mut self, runs: usize) -> Result<()> {
        self.runs.reserve(runs)
    }

    /// Adds a word, given by the ids of its characters, that occurs `count` times.
    ///
    /// # Panics
    ///
    /// In training, if an id is not one of the alphabet.
    pub fn add(&mut self, word: impl Iterator<Item = u32>, count: u64) -> Result<()> {
        self.runs.add(word, count)
    }
}

impl Trainer {
    /// Learns from words.
    pub fn train(&self, words: Words, interrupt: &Interrupt<'_>) -> Result<Trained> {
        let Words { alphabet, mut runs } = words;
        let mut vocabulary = Vocabulary::new(&alphabet);
        // A pair never occurs more often than when it came into being: a rare one is never merged.
        let least = i64::try_from(self.min_frequency.max(1)).unwrap_or(i64::MAX);
        let (mut queue, mut changes) = (runs.pairs(least)?, Changes::default());
        let mut merges = Vec::new();
        while vocabulary.len() < self.vocab_size {
            if merges.len().is_multiple_of(PATIENCE) {
                interrupt.check()?;
            }
            let Some(number) = queue.pop(least) else {
                break;
            };
            let pair = queue.pair(number);
            let whole = vocabulary.join(pair);
            merges.push(pair);
            let places = queue.take_places(number);
            runs.merge(pair, whole, &places, &mut changes);
            let fits = |other: u32| {
                vocabulary.length(other) + vocabulary.length(whole) < self.max_token_length
            };
            changes.report(pair, whole, least, fits, &mut queue);
        }
        Ok(Trained {
            tokens: vocabulary.tokens,
            merges,
        })
    }
}

/// The tokens so far.
#[derive(Debug)]
struct Vocabulary {
    tokens: Vec<String>,
    /// Characters of each.
    lengths: Vec<usize>,
}

impl Vocabulary {
    fn new(alphabet: &[char]) -> Self {
        Self {
            lengths: vec![1; alphabet.len()],
            tokens: alphabet.iter().copied().map(String::from).collect(),
        }
    }

    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn length(&self, token: u32) -> usize {
        self.lengths[token as usize]
    }

    /// The number of a new token, made of two.
    fn join(&mut self, (left, right): Pair) -> u32 {
        let [left, right] = [left, right].map(|token| token as usize);
        let text = format!("{}{}", self.tokens[left], self.tokens[right]);
        self.lengths.push(self.lengths[left] + self.lengths[right]);
        self.tokens.push(text);
        self.tokens.len() as u32 - 1
    }
}

/// More words, or runs of them, than can be numbered.
pub(crate) fn too_many() -> Error {
    Error::argument("too many different words to train on: draw fewer chunks")
}
