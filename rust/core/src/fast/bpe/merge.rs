//! BPE as it is defined: merge the pair of lowest rank, the leftmost among equals, until none is left.
//!
//! Candidates wait in a heap ordered by rank and place. A merge makes two new ones, with the
//! neighbours on either side; those that it broke are recognised when they come up. So a word of `n`
//! tokens takes `O(n log n)`. This is what every other way of encoding is measured against.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::Pairs;

/// No token, and no place.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Symbol {
    /// [`NONE`] once it is part of the symbol on its left.
    token: u32,
    left: u32,
    right: u32,
}

/// The last merge of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) rank: u32,
}

/// Room for the work, kept between words.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    waiting: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Merger {
    /// Merges the tokens of a word and appends those that are left to `out`.
    pub(super) fn merge(
        &mut self,
        pairs: &Pairs,
        word: impl Iterator<Item = u32>,
        out: &mut Vec<u32>,
    ) -> Option<Last> {
        self.symbols.clear();
        let symbols = (0_u32..).zip(word).map(|(at, token)| Symbol {
            token,
            left: at.wrapping_sub(1), // of the first: NONE
            right: at + 1,
        });
        self.symbols.extend(symbols);
        if let Some(last) = self.symbols.last_mut() {
            last.right = NONE;
        }
        self.waiting.clear();
        for at in 0..self.symbols.len() as u32 {
            self.consider(pairs, at);
        }
        let mut last = None;
        while let Some(Reverse((rank, at))) = self.waiting.pop() {
            let Symbol { token, right, .. } = self.symbols[at as usize];
            if token == NONE || right == NONE {
                continue;
            }
            let next = self.symbols[right as usize];
            let Some(merge) = pairs.get(token, next.token).filter(|m| m.rank == rank) else {
                continue;
            };
            let (left, right) = (token, next.token);
            last = Some(Last { left, right, rank });
            self.join(at, merge.whole);
            self.consider(pairs, at);
            self.consider(pairs, self.symbols[at as usize].left);
        }
        out.extend(self.symbols.iter().map(|s| s.token).filter(|&t| t != NONE));
        last
    }

    /// Adds the symbol at `at` and its right neighbour to the candidates, if they merge.
    fn consider(&mut self, pairs: &Pairs, at: u32) {
        let Some(symbol) = self.symbols.get(at as usize) else {
            return;
        };
        if let Some(next) = self.symbols.get(symbol.right as usize)
            && let Some(merge) = pairs.get(symbol.token, next.token)
        {
            self.waiting.push(Reverse((merge.rank, at)));
        }
    }

    /// Makes one symbol, `whole`, of the one at `at` and its right neighbour.
    fn join(&mut self, at: u32, whole: u32) {
        let gone = self.symbols[at as usize].right;
        let right = self.symbols[gone as usize].right;
        self.symbols[gone as usize].token = NONE;
        self.symbols[at as usize] = Symbol {
            token: whole,
            right,
            ..self.symbols[at as usize]
        };
        if let Some(next) = self.symbols.get_mut(right as usize) {
            next.left = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pairs::Merge;
    use super::*;

    #[test]
    fn the_lowest_rank_goes_first_and_the_leftmost_among_equals() {
        // a = 0, b = 1, aa = 2, ab = 3, aaab = 4
        let merges = [(0, 0, 2), (0, 1, 3), (2, 3, 4)];
        let merges = merges.into_iter().zip(0..);
        let merges =
            merges.map(|((left, right, whole), rank)| (left, right, Merge { rank, whole }));
        let pairs = Pairs::new(merges.collect::<Vec<_>>().into_iter());
        for (word, want, rank) in [
            (&[0, 0, 0][..], &[2, 0][..], Some(0)),
            (&[0, 0, 0, 1], &[4], Some(2)),
            (&[0, 0, 1], &[2, 1], Some(0)),
            (&[1, 0, 1, 1], &[1, 3, 1], Some(1)),
            (&[1], &[1], None),
            (&[], &[], None),
        ] {
            let mut got = Vec::new();
            let last = Merger::default().merge(&pairs, word.iter().copied(), &mut got);
            assert_eq!(got, want);
            assert_eq!(last.map(|last| last.rank), rank);
        }
    }
}
