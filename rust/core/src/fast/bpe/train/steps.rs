//! The reference's own steps, one by one, to compare with.
//!
//! Words are plain lists of tokens. A pair waits with the words it came into being in, and a merge
//! looks through all of these.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::{Pair, Trained, Trainer};

/// Words, counts of pairs, and the pairs that wait.
#[derive(Debug, Default)]
pub(super) struct Steps {
    words: Vec<(Vec<u32>, i64)>,
    counts: BTreeMap<Pair, i64>,
    heap: BinaryHeap<(u64, Reverse<Pair>, usize)>,
    occurs: Vec<BTreeSet<usize>>,
    tokens: Vec<String>,
    merges: Vec<Pair>,
}

impl Steps {
    pub(super) fn train(trainer: Trainer, alphabet: &[char], words: &[(Vec<u32>, u64)]) -> Trained {
        let mut steps = Self {
            words: words
                .iter()
                .map(|(word, n)| (word.clone(), *n as i64))
                .collect(),
            tokens: alphabet.iter().copied().map(String::from).collect(),
            ..Self::default()
        };
        let mut born: BTreeMap<Pair, BTreeSet<usize>> = BTreeMap::new();
        for (number, (word, weight)) in steps.words.iter().enumerate() {
            for pair in word.windows(2).map(|pair| (pair[0], pair[1])) {
                *steps.counts.entry(pair).or_default() += weight;
                born.entry(pair).or_default().insert(number);
            }
        }
        steps.wait(born);
        while steps.tokens.len() < trainer.vocab_size && steps.step(trainer) {}
        Trained {
            tokens: steps.tokens,
            merges: steps.merges,
        }
    }

    fn wait(&mut self, born: BTreeMap<Pair, BTreeSet<usize>>) {
        for (pair, words) in born {
            if self.counts[&pair] > 0 {
                self.heap
                    .push((self.counts[&pair] as u64, Reverse(pair), self.occurs.len()));
                self.occurs.push(words);
            }
        }
    }

    /// Merges the next pair; false where there is none.
    fn step(&mut self, trainer: Trainer) -> bool {
        let Some((count, Reverse(pair), number)) = self.heap.pop() else {
            return false;
        };
        let now = self.counts[&pair] as u64;
        if now != count {
            self.heap.push((now, Reverse(pair), number));
            return true;
        }
        if count < trainer.min_frequency.max(1) {
            return false;
        }
        let [left, right] = [pair.0, pair.1].map(|token| &self.tokens[token as usize]);
        let text = format!("{left}{right}");
        assert!(
            !self.tokens.contains(&text),
            "{text} comes about in two ways"
        );
        let whole = self.tokens.len() as u32;
        self.tokens.push(text);
        self.merges.push(pair);
        let length = |token: u32| self.tokens[token as usize].chars().count();
        let fits = |other: u32| length(other) + length(whole) < trainer.max_token_length;
        let mut born: BTreeMap<Pair, BTreeSet<usize>> = BTreeMap::new();
        for &word in &self.occurs[number] {
            let (tokens, weight) = &mut self.words[word];
            for (changed, sign) in replace(tokens, pair, whole, fits) {
                *self.counts.entry(changed).or_default() += sign * *weight;
                if sign > 0 {
                    born.entry(changed).or_default().insert(word);
                }
            }
        }
        self.wait(born);
        true
    }
}

/// Puts `whole` in place of a pair, from left to right; all changes to the pairs around.
fn replace(
    tokens: &mut Vec<u32>,
    (left, right): Pair,
    whole: u32,
    fits: impl Fn(u32) -> bool,
) -> Vec<(Pair, i64)> {
    let (mut changes, mut at) = (Vec::new(), 0);
    while at + 1 < tokens.len() {
        if (tokens[at], tokens[at + 1]) == (left, right) {
            if at > 0 {
                changes.push(((tokens[at - 1], left), -1));
                if fits(tokens[at - 1]) {
                    changes.push(((tokens[at - 1], whole), 1));
                }
            }
            tokens.splice(at..at + 2, [whole]);
            if let Some(&next) = tokens.get(at + 1) {
                changes.push(((right, next), -1));
                if fits(next) {
                    changes.push(((whole, next), 1));
                }
            }
        }
        at += 1;
    }
    changes
}
