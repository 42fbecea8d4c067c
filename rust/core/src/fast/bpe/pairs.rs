//! Tables by two neighbouring tokens.

/// What is known of pairs of tokens.
///
/// Open addressing, a power of two of slots, at most half of them taken.
#[derive(Debug, Clone)]
pub(super) struct PairMap<V> {
    slots: Vec<(u64, V)>,
    count: usize,
}

/// A merge of two tokens: the lower its rank, the earlier it happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) whole: u32,
}

/// What becomes of two neighbours.
pub(super) type Pairs = PairMap<Merge>;

/// No pair: both tokens would have the number that stands for "none".
const FREE: u64 = u64::MAX;

impl<V: Copy + Default> Default for PairMap<V> {
    fn default() -> Self {
        Self {
            slots: vec![(FREE, V::default()); 2],
            count: 0,
        }
    }
}

impl<V: Copy + Default> PairMap<V> {
    /// The table of `(left, right, value)`; of a pair listed twice the later one counts.
    pub(super) fn new(pairs: impl Iterator<Item = (u32, u32, V)>) -> Self {
        let mut map = Self::default();
        for (left, right, value) in pairs {
            map.insert(left, right, value);
        }
        map
    }

    /// What is known of two neighbours.
    #[inline]
    pub(super) fn get(&self, left: u32, right: u32) -> Option<V> {
        let (found, value) = self.slots[self.slot(key(left, right))];
        (found != FREE).then_some(value)
    }

    /// Sets what is known of two neighbours.
    pub(super) fn insert(&mut self, left: u32, right: u32, value: V) {
        let key = key(left, right);
        let mut slot = self.slot(key);
        if self.slots[slot].0 == FREE {
            self.count += 1;
            if 2 * self.count > self.slots.len() {
                self.grow();
                slot = self.slot(key);
            }
        }
        self.slots[slot] = (key, value);
    }

    fn grow(&mut self) {
        let free = vec![(FREE, V::default()); 2 * self.slots.len()];
        for (key, value) in std::mem::replace(&mut self.slots, free) {
            if key != FREE {
                let slot = self.slot(key);
                self.slots[slot] = (key, value);
            }
        }
    }

    /// The slot of a pair, or the free one where it would go.
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

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
