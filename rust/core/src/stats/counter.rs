//! One pass over rows, for brackets around order statistics.
//!
//! Rows come in blocks that fit the first-level cache. Each block is transposed, and each bracket
//! looks at its column in groups of 64 values: a loop of comparisons and counts without branches,
//! which compilers turn into vector instructions. Only a group that holds something to keep, one in
//! a few, is looked at again.

use super::brackets::{Aim, Bracket, Brackets};
use super::real::Real;
use super::select::select;

/// Values that are compared before asking whether one of them is to be kept.
const GROUP: usize = 64;

/// Values of a block, transposed 16 KiB of float32: what is read and what is written stay in cache.
const BLOCK: usize = 4096;

/// What a pass, or a part of one, has counted.
#[derive(Debug, Clone)]
pub struct Counter<T> {
    rows: usize,
    nan: Vec<bool>,
    tallies: Vec<Tally<T>>,
    /// The columns of a block.
    columns: Vec<T>,
}

/// What was counted around one bracket.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally<T> {
    pub(super) below: usize,
    pub(super) at_low: usize,
    pub(super) between: usize,
    pub(super) at_high: usize,
    /// How many of the values equal to an end that is zero are -0.
    negative_zeros: usize,
    /// All that lies between the ends, or nothing if that is more than the limit.
    pub(super) kept: Vec<T>,
    limit: usize,
    pub(super) bins: Vec<usize>,
}

impl<T: Real> Counter<T> {
    pub(super) fn new(dims: usize, brackets: &[Bracket<T>]) -> Self {
        Self {
            rows: 0,
            nan: vec![false; dims],
            tallies: brackets.iter().map(Tally::new).collect(),
            columns: Vec::new(),
        }
    }

    /// Looks at some rows; `brackets` are those that this counter comes from.
    pub fn add(&mut self, brackets: &Brackets<T>, rows: &[T]) {
        let (dims, pending) = (brackets.dims(), brackets.pending());
        self.rows += rows.len() / dims;
        let block = (BLOCK / dims / GROUP).clamp(1, 8) * GROUP;
        self.columns.resize(block * dims, T::default());
        for rows in rows.chunks(block * dims) {
            let height = rows.len() / dims;
            transpose(rows, dims, &mut self.columns, height);
            let columns: Vec<&[T]> = self.columns.chunks_exact(height).take(dims).collect();
            if has_nan(rows) {
                for (nan, column) in self.nan.iter_mut().zip(&columns) {
                    *nan |= has_nan(column);
                }
            }
            for (bracket, tally) in pending.iter().zip(&mut self.tallies) {
                match bracket.aim {
                    Aim::Keep(_) => tally.scan::<false>(columns[bracket.dim], bracket),
                    Aim::KeepBetween(_) | Aim::Bin { .. } => {
                        tally.scan::<true>(columns[bracket.dim], bracket);
                    }
                }
            }
        }
    }

    /// Adds what another counter of the same pass has seen of other rows.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        for (nan, found) in self.nan.iter_mut().zip(other.nan) {
            *nan |= found;
        }
        for (tally, other) in self.tallies.iter_mut().zip(other.tallies) {
            tally.merge(other);
        }
    }

    /// How many values it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.tallies.iter().map(|tally| tally.kept.len()).sum()
    }

    pub(super) fn into_parts(self) -> (usize, Vec<bool>, Vec<Tally<T>>) {
        (self.rows, self.nan, self.tallies)
    }
}

fn has_nan<T: Real>(values: &[T]) -> bool {
    values.iter().fold(false, |nan, value| nan | value.is_nan())
}

/// Lays each of the `dims` columns of `rows` out alone, `height` values each.
///
/// Eight rows at a time: read in order, and written eight values at once.
fn transpose<T: Real>(rows: &[T], dims: usize, columns: &mut [T], height: usize) {
    let (eights, rest) = rows.split_at(height / 8 * 8 * dims);
    for (eight, rows) in eights.chunks_exact(8 * dims).enumerate() {
        let rows: [&[T]; 8] = std::array::from_fn(|row| &rows[row * dims..][..dims]);
        for dim in 0..dims {
            let values: [T; 8] = std::array::from_fn(|row| rows[row][dim]);
            columns[dim * height + 8 * eight..][..8].copy_from_slice(&values);
        }
    }
    for (row, values) in rest.chunks_exact(dims).enumerate() {
        for (dim, &value) in values.iter().enumerate() {
            columns[dim * height + height / 8 * 8 + row] = value;
        }
    }
}

impl<T: Real> Tally<T> {
    fn new(bracket: &Bracket<T>) -> Self {
        let (limit, bins) = match bracket.aim {
            Aim::Keep(limit) | Aim::KeepBetween(limit) => (limit, 0),
            Aim::Bin { shift } => (0, 1 + bracket.bin_of(bracket.high, shift)),
        };
        Self {
            limit,
            bins: vec![0; bins],
            ..Self::default()
        }
    }

    /// Looks at a column of a block; `TIES` counts what equals an end instead of keeping it.
    fn scan<const TIES: bool>(&mut self, column: &[T], bracket: &Bracket<T>) {
        let (groups, rest) = column.as_chunks::<GROUP>();
        for group in groups {
            self.look::<TIES>(group, bracket);
        }
        self.look::<TIES>(rest, bracket);
        let zero = T::default();
        if TIES && (bracket.low == zero || bracket.high == zero) {
            self.negative_zeros += column.iter().filter(|x| x.is_negative_zero()).count();
        }
    }

    #[inline]
    fn look<const TIES: bool>(&mut self, group: &[T], bracket: &Bracket<T>) {
        let (low, high) = (bracket.low, bracket.high);
        let mut below = T::Count::default();
        let mut up_to_low = T::Count::default();
        let mut below_high = T::Count::default();
        let mut up_to_high = T::Count::default();
        // NaN counts as nothing.
        for &x in group {
            below += (x < low).into();
            up_to_high += (x <= high).into();
            if TIES {
                up_to_low += (x <= low).into();
                below_high += (x < high).into();
            }
        }
        let [below, up_to_low, below_high, up_to_high] =
            [below, up_to_low, below_high, up_to_high].map(|count| count.into() as usize);
        self.below += below;
        let between = if TIES {
            self.at_low += up_to_low - below;
            // Where both ends are one value, nothing is below the one and not up to the other.
            self.at_high += up_to_high - below_high.max(up_to_low);
            below_high.saturating_sub(up_to_low)
        } else {
            up_to_high - below
        };
        if between > 0 {
            self.between += between;
            self.take::<TIES>(group, bracket);
        }
    }

    /// Keeps or bins what lies inside the bracket.
    #[inline(never)]
    fn take<const TIES: bool>(&mut self, group: &[T], bracket: &Bracket<T>) {
        let (low, high) = (bracket.low, bracket.high);
        let mut inside = [0_u8; GROUP];
        for (inside, &x) in inside.iter_mut().zip(group) {
            *inside = u8::from(if TIES {
                x > low && x < high
            } else {
                x >= low && x <= high
            });
        }
        let mut taken = [T::default(); GROUP];
        let mut count = 0;
        for (eight, flags) in inside.as_chunks::<8>().0.iter().enumerate() {
            // The product moves the lowest bit of byte k to bit 56 + k.
            let mut bits = u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            while bits != 0 {
                taken[count] = group[8 * eight + bits.trailing_zeros() as usize];
                count += 1;
                bits &= bits - 1;
            }
        }
        self.store(&taken[..count], bracket);
    }

    fn store(&mut self, values: &[T], bracket: &Bracket<T>) {
        if let Aim::Bin { shift } = bracket.aim {
            for &value in values {
                self.bins[bracket.bin_of(value, shift)] += 1;
            }
        } else if self.between <= self.limit {
            self.kept.extend_from_slice(values);
        } else {
            self.kept = Vec::new();
        }
    }

    fn merge(&mut self, mut other: Self) {
        self.below += other.below;
        self.at_low += other.at_low;
        self.between += other.between;
        self.at_high += other.at_high;
        self.negative_zeros += other.negative_zeros;
        if self.between > self.limit {
            self.kept = Vec::new();
        } else if self.kept.is_empty() {
            self.kept = other.kept;
        } else {
            self.kept.append(&mut other.kept);
        }
        for (count, more) in self.bins.iter_mut().zip(other.bins) {
            *count += more;
        }
    }

    /// Puts the kept values of these ranks in place.
    pub(super) fn select(&mut self, ranks: impl Iterator<Item = usize>) {
        let first = self.below + self.at_low;
        let mut ranks: Vec<usize> = ranks
            .filter_map(|rank| rank.checked_sub(first))
            .filter(|&rank| rank < self.kept.len())
            .collect();
        ranks.sort_unstable();
        select(&mut self.kept, &ranks);
    }

    /// The zero at a rank among the values equal to an end that is zero: -0 comes first.
    pub(super) fn zero(&self, rank: usize) -> T {
        let negative = usize::from(rank < self.negative_zeros);
        T::from_key(T::default().key() - negative as u64)
    }
}
