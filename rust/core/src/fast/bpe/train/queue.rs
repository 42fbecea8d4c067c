//! Pairs by how often they occur.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::Pair;

/// All pairs that may be merged, and which of them comes next.
///
/// What the heap says of a pair is right when it is put there. Counts only fall after that, so an
/// entry is put right when it comes up, and the one that comes up right is the greatest.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    numbers: Numbers,
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
        self.numbers.insert(pair, number);
        self.heap.push((count, Reverse(pair), number));
        self.entries.push(Entry {
            pair,
            count,
            places,
        });
    }

    /// Lowers the count of a pair, if it has one.
    pub(super) fn lower(&mut self, pair: Pair, by: i64) {
        if let Some(number) = self.numbers.get(pair) {
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

/// A number for each pair: open addressing, a power of two of slots, at most half of them taken.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    slots: Vec<(u64, u32)>,
    count: usize,
}

/// No pair: both tokens would have the number that stands for none.
const FREE: u64 = u64::MAX;

impl Numbers {
    /// The number of a pair.
    #[inline]
    pub(super) fn get(&self, pair: Pair) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let (key, number) = self.slots[self.slot(key(pair))];
        (key != FREE).then_some(number)
    }

    /// Gives a number to a pair that has none.
    pub(super) fn insert(&mut self, pair: Pair, number: u32) {
        self.count += 1;
        if 2 * self.count > self.slots.len() {
            let size = (2 * self.slots.len()).max(64);
            let old = std::mem::replace(&mut self.slots, vec![(FREE, 0); size]);
            for (key, number) in old.into_iter().filter(|&(key, _)| key != FREE) {
                let slot = self.slot(key);
                self.slots[slot] = (key, number);
            }
        }
        let slot = self.slot(key(pair));
        self.slots[slot] = (key(pair), number);
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        let last = self.slots.len() - 1;
        // Fibonacci hashing: the high bits of the product are well mixed.
        let mut slot = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & last;
        while self.slots[slot].0 != key && self.slots[slot].0 != FREE {
            slot = (slot + 1) & last;
        }
        slot
    }
}

fn key((left, right): Pair) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
