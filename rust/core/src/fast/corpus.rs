//! The words of many chunks, each once, with how often it occurs.
//!
//! Chunks are alike: of the words that a million of them are cut into, a small part is different. So
//! memory and training time grow with the different ones.

use super::bpe::too_many;
use crate::Result;
use crate::memory::zeroed;

/// Words and their counts.
#[derive(Debug, Default)]
pub(super) struct Corpus {
    /// All words, one after the other.
    symbols: Vec<u16>,
    words: Vec<Word>,
    /// Open addressing by hash, a power of two of slots, at most half of them taken: upper bits of the
    /// hash, and the number of the word, from 1 on.
    slots: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    start: usize,
    length: u32,
    count: u64,
}

impl Corpus {
    /// Counts a word; an error where there are more of them than can be numbered.
    pub(super) fn add(&mut self, word: &[u16], count: u64) -> Result<()> {
        if 2 * (self.words.len() + 1) > self.slots.len() {
            self.grow()?;
        }
        let hash = hash_of(word);
        let (mark, slot) = ((hash >> 32) as u32, self.slot(hash, word));
        let number = self.slots[slot].1;
        if let Some(found) = (number as usize)
            .checked_sub(1)
            .and_then(|place| self.words.get_mut(place))
        {
            found.count += count;
            return Ok(());
        }
        let number = u32::try_from(self.words.len() + 1).map_err(|_| too_many())?;
        let length = u32::try_from(word.len()).map_err(|_| too_many())?;
        self.slots[slot] = (mark, number);
        self.words.push(Word {
            start: self.symbols.len(),
            length,
            count,
        });
        self.symbols.extend_from_slice(word);
        Ok(())
    }

    /// Counts all words of another corpus.
    pub(super) fn absorb(&mut self, other: &Self) -> Result<()> {
        other
            .iter()
            .try_for_each(|(word, count)| self.add(word, count))
    }

    /// All words with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u16], u64)> {
        self.words.iter().map(|word| (self.text(*word), word.count))
    }

    fn text(&self, word: Word) -> &[u16] {
        &self.symbols[word.start..word.start + word.length as usize]
    }

    /// The slot of a word, or the free one where it would go.
    fn slot(&self, hash: u64, word: &[u16]) -> usize {
        let (mark, last) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut slot = hash as usize & last;
        loop {
            let (found, number) = self.slots[slot];
            if number == 0 || found == mark && self.text(self.words[number as usize - 1]) == word {
                return slot;
            }
            slot = (slot + 1) & last;
        }
    }

    fn grow(&mut self) -> Result<()> {
        let last = (2 * self.slots.len()).max(1024) - 1;
        self.slots = zeroed(last + 1).ok_or_else(too_many)?;
        for (number, word) in (1..).zip(&self.words) {
            let hash = hash_of(self.text(*word));
            let mut slot = hash as usize & last;
            while self.slots[slot].1 != 0 {
                slot = (slot + 1) & last;
            }
            self.slots[slot] = ((hash >> 32) as u32, number);
        }
        Ok(())
    }
}

/// Mixes four symbols at a time: both halves of a 128-bit product depend on all bits of it.
fn hash_of(word: &[u16]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, four: [u16; 4]| {
        let [a, b, c, d] = four.map(u64::from);
        let product = u128::from(hash ^ (a | b << 16 | c << 32 | d << 48)) * u128::from(ODD);
        (product as u64) ^ (product >> 64) as u64
    };
    let (fours, rest) = word.as_chunks();
    let hash = fours
        .iter()
        .fold(word.len() as u64 ^ ODD, |hash, &four| mix(hash, four));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    // Twice, so that the last symbols reach all bits, too.
    mix(mix(hash, last), [0; 4])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_word_is_counted_as_often_as_it_came() {
        let mut corpora = [Corpus::default(), Corpus::default()];
        let mut want: BTreeMap<Vec<u16>, u64> = BTreeMap::new();
        let mut state = 1_u32;
        for round in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = 1 + (state >> 28) as usize % 9;
            let word: Vec<u16> = (0..length)
                .map(|i| (state >> (3 * i) & 3) as u16 * 60)
                .collect();
            corpora[round % 2].add(&word, 1 + round as u64 % 3).unwrap();
            *want.entry(word).or_default() += 1 + round as u64 % 3;
        }
        let [mut all, other] = corpora;
        all.absorb(&other).unwrap();
        let mut got: Vec<_> = all.iter().map(|(w, n)| (w.to_vec(), n)).collect();
        got.sort_unstable();
        assert_eq!(got, want.into_iter().collect::<Vec<_>>());
    }
}
