//! The reference's own steps, for vocabularies in which a text comes about in two ways.
//!
//! A token may then be made a second time, so a pair can come into being again after it was merged:
//! it waits a second time, at other words, and begins with the count that its merge left behind. All
//! that is copied here, with words as plain lists of tokens. A merge looks through all of the words in
//! which its pair came into being.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::queue::Queue;
use super::runs::Runs;
use super::{PATIENCE, Pair, Trained, Trainer, Vocabulary};
use crate::Result;
use crate::parallel::Interrupt;

/// Words, counts of pairs, and the pairs that wait.
#[derive(Debug)]
pub(super) struct Plain {
    words: Vec<(Vec<u32>, i64)>,
    counts: BTreeMap<Pair, i64>,
    heap: BinaryHeap<(u64, Reverse<Pair>, usize)>,
    /// Of each pair that waits or waited: the words it came into being in.
    occurs: Vec<Vec<u32>>,
}

impl Plain {
    /// Goes on where runs have got to.
    pub(super) fn new(runs: &Runs, queue: Queue) -> Self {
        let mut plain = Self {
            words: runs.words(),
            counts: BTreeMap::new(),
            heap: BinaryHeap::new(),
            occurs: Vec::new(),
        };
        for entry in queue.into_entries() {
            plain.counts.insert(entry.pair, entry.count);
            if entry.waits {
                let words: BTreeSet<u32> = entry.places.iter().map(|&at| runs.word(at)).collect();
                plain.wait(entry.pair, words);
            }
        }
        plain
    }

    /// Lets a pair wait, which came into being in `words`.
    fn wait(&mut self, pair: Pair, words: BTreeSet<u32>) {
        let count = self.counts[&pair] as u64;
        self.heap.push((count, Reverse(pair), self.occurs.len()));
        self.occurs.push(words.into_iter().collect());
    }

    /// Merges until the vocabulary is full or no pair is left.
    pub(super) fn train(
        mut self,
        trainer: &Trainer,
        mut vocabulary: Vocabulary,
        mut merges: Vec<Pair>,
        interrupt: &Interrupt<'_>,
    ) -> Result<Trained> {
        while vocabulary.len() < trainer.vocab_size {
            if merges.len().is_multiple_of(PATIENCE) {
                interrupt.check()?;
            }
            let Some((count, Reverse(pair), number)) = self.heap.pop() else {
                break;
            };
            let now = self.counts[&pair] as u64;
            if now != count {
                self.heap.push((now, Reverse(pair), number));
                continue;
            }
            if count < trainer.min_frequency.max(1) {
                break;
            }
            let whole = vocabulary.join(pair).unwrap_or_else(|old| old);
            merges.push(pair);
            let fits = |other: u32| {
                vocabulary.length(other) + vocabulary.length(whole) < trainer.max_token_length
            };
            for (pair, words) in self.merge(pair, whole, number, fits) {
                if self.counts[&pair] > 0 {
                    self.wait(pair, words);
                }
            }
        }
        Ok(vocabulary.with(merges))
    }

    /// Merges a pair in its words; gives the pairs that came into being, and where.
    fn merge(
        &mut self,
        pair: Pair,
        whole: u32,
        number: usize,
        fits: impl Fn(u32) -> bool,
    ) -> BTreeMap<Pair, BTreeSet<u32>> {
        let mut born: BTreeMap<Pair, BTreeSet<u32>> = BTreeMap::new();
        for word in std::mem::take(&mut self.occurs[number]) {
            let (tokens, weight) = &mut self.words[word as usize];
            let counts = &mut self.counts;
            replace(
                tokens,
                pair,
                whole,
                |other, sign| {
                    *counts.entry(other).or_default() += sign * *weight;
                    if sign > 0 {
                        born.entry(other).or_default().insert(word);
                    }
                },
                &fits,
            );
        }
        born
    }
}

/// Puts `whole` in place of a pair, from left to right, and tells of each change to the pairs around.
fn replace(
    tokens: &mut Vec<u32>,
    (left, right): Pair,
    whole: u32,
    mut change: impl FnMut(Pair, i64),
    fits: impl Fn(u32) -> bool,
) {
    let (mut from, mut to) = (0, 0);
    while from < tokens.len() {
        if tokens[from] != left || tokens.get(from + 1) != Some(&right) {
            tokens[to] = tokens[from];
            (from, to) = (from + 1, to + 1);
            continue;
        }
        if let Some(&before) = tokens[..to].last() {
            change((before, left), -1);
            if fits(before) {
                change((before, whole), 1);
            }
        }
        tokens[to] = whole;
        (from, to) = (from + 2, to + 1);
        if let Some(&after) = tokens.get(from) {
            change((right, after), -1);
            if fits(after) {
                change((whole, after), 1);
            }
        }
    }
    tokens.truncate(to);
}
