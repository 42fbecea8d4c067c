//! Pairs by how often they occur.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::Pair;
use crate::fast::bpe::pairs::PairMap;

/// All pairs that may be merged, and which of them comes next.
///
/// What the heap says of a pair is right when it is put there. Counts only fall after that, so an
/// entry is put right when it comes up, and the one that comes up right is the greatest.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    numbers: PairMap<u32>,
    heap: BinaryHeap<(i64, Reverse<Pair>, u32)>,
}

/// A pair, how often it occurs, and all runs it may stand at.
#[derive(Debug)]
struct Entry {
    pair: Pair,
    count: i64,
    places: Vec<u32>,
}

impl Queue {
    /// Adds a pair that was not there before.
    pub(super) fn push(&mut self, pair: Pair, count: i64, places: Vec<u32>) {
        let number = self.entries.len() as u32;
        self.numbers.insert(pair.0, pair.1, number);
        self.heap.push((count, Reverse(pair), number));
        self.entries.push(Entry {
            pair,
            count,
            places,
        });
    }

    /// Lowers the count of a pair, if it has one.
    pub(super) fn lower(&mut self, pair: Pair, by: i64) {
        if let Some(number) = self.numbers.get(pair.0, pair.1) {
            self.entries[number as usize].count -= by;
        }
    }

    /// The number of the next pair, if it occurs that often.
    pub(super) fn pop(&mut self, least: i64) -> Option<u32> {
        loop {
            let mut top = self.heap.peek_mut()?;
            let (count, _, number) = *top;
            let now = self.entries[number as usize].count;
            if now != count {
                top.0 = now;
                continue;
            }
            return (now >= least).then(|| {
                PeekMut::pop(top);
                number
            });
        }
    }

    pub(super) fn pair(&self, number: u32) -> Pair {
        self.entries[number as usize].pair
    }

    /// The places of a pair, which it has no more.
    pub(super) fn take_places(&mut self, number: u32) -> Vec<u32> {
        std::mem::take(&mut self.entries[number as usize].places)
    }
}
