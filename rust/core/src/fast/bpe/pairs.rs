//! What becomes of two neighbours: the table of merges.

/// Rank and whole of each pair of tokens that merges.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    /// Open addressing, a power of two of slots, at most half of them taken.
    slots: Vec<(u64, Merge)>,
}

/// A merge of two tokens: the lower its rank, the earlier it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) whole: u32,
}

/// No pair: both tokens would have the number that stands for "none".
const FREE: u64 = u64::MAX;

impl Pairs {
    /// The table of `(left, right, merge)`; of a pair listed twice the later merge counts.
    pub(super) fn new(merges: impl ExactSizeIterator<Item = (u32, u32, Merge)>) -> Self {
        let count = (2 * merges.len()).next_power_of_two().max(2);
        let none = Merge { rank: 0, whole: 0 };
        let mut pairs = Self {
            slots: vec![(FREE, none); count],
        };
        for (left, right, merge) in merges {
            let slot = pairs.slot(left, right);
            pairs.slots[slot] = (key(left, right), merge);
        }
        pairs
    }

    /// The merge of two neighbours.
    #[inline]
    pub(super) fn get(&self, left: u32, right: u32) -> Option<Merge> {
        let (found, merge) = self.slots[self.slot(left, right)];
        (found != FREE).then_some(merge)
    }

    /// The slot of a pair, or the free one where it would go.
    #[inline]
    fn slot(&self, left: u32, right: u32) -> usize {
        let (key, last) = (key(left, right), self.slots.len() - 1);
        // Fibonacci hashing: the high bits of the product are well mixed.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut slot = hash as usize & last;
        while self.slots[slot].0 != key && self.slots[slot].0 != FREE {
            slot = (slot + 1) & last;
        }
        slot
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
