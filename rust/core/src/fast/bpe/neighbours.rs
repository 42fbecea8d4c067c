//! Which token may follow which.
//!
//! A text is encoded as `t1 t2 … tn` exactly where every two neighbours are what merging their joined
//! text by rank gives: in the run over the whole text, what happens inside two neighbouring tokens is
//! the run over these two alone, since a merge across any border would also be the lowest one there.
//! So a table of pairs decides everything.
//!
//! Let `A` and `B` be tokens. While they grow out of their atoms, what touches the border on the left
//! is first the last atom of `A`, then larger and larger right parts, at last `A`: its right spine.
//! On the right it is the left spine of `B`. `A B` falls apart where some `x` of the right spine and
//! `y` of the left one merge, with rank `r`, before either has grown further. With `R(t)` for the rank
//! of the merge that makes `t`, that is: `r < R(next of x)` and `r ≤ R(next of y)`. (Equal ranks are
//! one pair of tokens, as in `aa|a`: the leftmost goes first.) This holds where merges come in order,
//! each part before the whole, which [`Neighbours::new`] checks.
//!
//! Draw the tree in which the parent of a token is its right part, children in falling order of `R`,
//! and number it top down: the `A` with a given `x` and `r` have consecutive numbers. So have the `B`
//! in the tree of left parts. Each merge forbids a rectangle of the table.

use std::collections::BTreeMap;

use super::alphabet::NONE;
use super::merge::Last;
use super::pairs::Merge;

/// The most tokens a table is made for: 8 MiB of bits.
const MOST: usize = 8192;

/// The table, and where tokens stand in it; [`NONE`] for those that do not occur.
#[derive(Debug, Clone)]
pub(super) struct Neighbours {
    /// By number in the vocabulary. Tokens that have the same followers share a row.
    pub(super) rows: Vec<u32>,
    pub(super) columns: Vec<u32>,
    pub(super) table: Table,
}

/// A bit for each pair that cannot stand side by side.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// 64-bit words of a row.
    stride: usize,
    words: Vec<u64>,
}

impl Table {
    /// The row of the beginning of a word, which any token may follow.
    pub(super) fn start(&self) -> u32 {
        self.rows() as u32 - 1
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.words.len() / self.stride
    }

    /// Makes one of equal rows, and adds one that forbids nothing; gives the new place of each.
    fn share(&mut self) -> Vec<u32> {
        let mut places: BTreeMap<&[u64], u32> = BTreeMap::new();
        let mut words = Vec::new();
        let share = |row| {
            let next = places.len() as u32;
            *places.entry(row).or_insert_with(|| {
                words.extend_from_slice(row);
                next
            })
        };
        let shared = self.words.chunks(self.stride).map(share).collect();
        words.resize(words.len() + self.stride, 0);
        self.words = words;
        shared
    }

    /// Whether the token of `column` may follow that of `row`.
    #[inline]
    pub(super) fn allows(&self, row: u32, column: u32) -> bool {
        let word = self.words[row as usize * self.stride + column as usize / 64];
        word >> (column % 64) & 1 == 0
    }

    /// Forbids the columns from `first` up to `end` in one row.
    fn forbid(&mut self, row: u32, first: u32, end: u32) {
        let row = row as usize * self.stride;
        for word in first / 64..end.div_ceil(64) {
            let (low, high) = (word * 64, word * 64 + 64);
            let bits = u64::MAX << (first.max(low) - low);
            let bits = bits & u64::MAX >> (high - end.min(high));
            self.words[row + word as usize] |= bits;
        }
    }
}

/// How a token is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    /// It is an atom.
    Atom,
    /// By that merge, the last one in its own text.
    Merged(Last),
    /// Not at all: its own text becomes other tokens, so it occurs nowhere.
    Never,
}

impl Making {
    /// 0 for an atom, rank + 1 for a merged token.
    fn age(self) -> Option<u64> {
        match self {
            Self::Atom => Some(0),
            Self::Merged(last) => Some(u64::from(last.rank) + 1),
            Self::Never => None,
        }
    }
}

impl Neighbours {
    /// The table for tokens made in these ways and for all merges `(left, right, merge)`; nothing
    /// where merges are out of order or tokens too many.
    pub(super) fn new(makings: &[Making], merges: &[(u32, u32, Merge)]) -> Option<Self> {
        let age = |token: u32| makings[token as usize].age();
        let count = makings.iter().filter(|m| **m != Making::Never).count();
        let happens =
            |&&(left, right, _): &&(u32, u32, Merge)| age(left).is_some() && age(right).is_some();
        let in_order = merges.iter().filter(happens).all(|&(left, right, merge)| {
            let born = Some(u64::from(merge.rank) + 1);
            age(left) < born && age(right) < born
        });
        if !in_order || count > MOST {
            return None;
        }
        let lefts = Order::new(makings, |last| last.right);
        let rights = Order::new(makings, |last| last.left);
        let stride = count.div_ceil(64).max(1);
        let mut table = Table {
            stride,
            words: vec![0; count * stride],
        };
        for &(x, y, merge) in merges.iter().filter(happens) {
            let born = u64::from(merge.rank) + 1;
            let (first, end) = rights.range(y, |age| age >= born);
            let (top, bottom) = lefts.range(x, |age| age > born);
            (top..bottom).for_each(|row| table.forbid(row, first, end));
        }
        let shared = table.share();
        let row = |&place: &u32| shared.get(place as usize).copied().unwrap_or(NONE);
        Some(Self {
            rows: lefts.places.iter().map(row).collect(),
            columns: rights.places,
            table,
        })
    }
}

/// A numbering of tokens, top down in a tree of parts.
struct Order {
    places: Vec<u32>,
    /// Age of each child in falling order, and the place behind its last descendant.
    children: Vec<Vec<(u64, u32)>>,
}

impl Order {
    fn new(makings: &[Making], parent: impl Fn(&Last) -> u32) -> Self {
        let mut below = vec![Vec::new(); makings.len()];
        let mut roots = Vec::new();
        for (token, making) in (0_u32..).zip(makings) {
            match making {
                Making::Atom => roots.push(token),
                Making::Merged(last) => {
                    below[parent(last) as usize].push((u64::from(last.rank) + 1, token));
                }
                Making::Never => {}
            }
        }
        for children in &mut below {
            children.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut places = vec![NONE; makings.len()];
        let mut children: Vec<Vec<(u64, u32)>> = vec![Vec::new(); makings.len()];
        let mut next = 0;
        for root in roots {
            // A path down the tree; beside each token the number of its children that are done.
            let mut path = vec![(root, 0)];
            places[root as usize] = next;
            next += 1;
            while let Some((token, done)) = path.last_mut() {
                if let Some(&(_, child)) = below[*token as usize].get(*done) {
                    *done += 1;
                    places[child as usize] = next;
                    next += 1;
                    path.push((child, 0));
                } else {
                    let token = *token;
                    path.pop();
                    if let Some(&(above, done)) = path.last() {
                        let (age, _) = below[above as usize][done - 1];
                        debug_assert_eq!(below[above as usize][done - 1].1, token);
                        children[above as usize].push((age, next));
                    }
                }
            }
        }
        Self { places, children }
    }

    /// The places of a token and of all below those of its children whose age is `old` enough.
    fn range(&self, token: u32, old: impl Fn(u64) -> bool) -> (u32, u32) {
        let (place, children) = (self.places[token as usize], &self.children[token as usize]);
        let count = children.partition_point(|&(age, _)| old(age));
        let end = count
            .checked_sub(1)
            .map_or(place + 1, |last| children[last].1);
        (place, end)
    }
}
