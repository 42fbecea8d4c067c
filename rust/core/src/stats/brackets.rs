//! Order statistics of rows that pass by: exact, in bounded memory, nearly always in one pass.
//!
//! A sample of the rows says where each wanted order statistic should lie. With `s` sampled rows the
//! value at the fraction `p` of all rows stands in the sorted sample at `p·s`, give or take a few
//! times `√(s·p·(1 − p))`: the values there are the *bracket*. One pass over all rows then counts
//! what lies below the bracket and keeps what lies inside, a fraction of about `1/√s`. The wanted
//! value is the one at rank `rank − below` of what was kept.
//!
//! Two things can spoil that, and neither may cost exactness or memory:
//!
//! - *Ties*: half of a gripper's column is 1. An end of a bracket that the sample holds more than
//!   once is a heavy value, and its copies are counted instead of kept.
//! - *A misleading sample*: the value lies outside the bracket, or far more lies inside than can be
//!   kept. The pass has then counted all the same, so it is known between which two values the rank
//!   lies and how many rows are there. Another pass keeps them; where they are too many for that,
//!   it counts them in [`BINS`] bins of equal width in the bits of the type, and a bin is the next
//!   bracket. After at most six such passes a bin is a single value.

use super::counter::{Counter, Tally};
use super::quantile::Position;
use super::real::Real;
use super::sample::Place;
use super::select::select;
use crate::{Error, Result};

/// Bins of one bracket of a pass that only counts.
const BINS: u64 = 4096;

/// How many values all brackets of a pass may keep together; five quantiles of 14 dims keep half as
/// many of ten million rows.
const ROOM: usize = 1 << 24;

/// What the values between the ends of a bracket are wanted for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Aim {
    /// Keep them, and those equal to an end, up to a limit.
    Keep(usize),
    /// Keep them up to a limit; count those equal to an end.
    KeepBetween(usize),
    /// Count them in bins of `2^shift` keys each, and those equal to an end.
    Bin { shift: u32 },
}

/// Two values of a column between which some ranks should lie.
#[derive(Debug, Clone)]
pub(super) struct Bracket<T> {
    pub(super) dim: usize,
    pub(super) low: T,
    pub(super) high: T,
    pub(super) aim: Aim,
    /// A rank, and its place among all that are wanted.
    pub(super) wanted: Vec<(usize, usize)>,
    /// Whether a pass has proved the ranks to lie here.
    pub(super) proved: bool,
}

/// Quantiles being searched for in the columns of a matrix that passes by.
///
/// ```
/// use vlaprep_core::stats::{Brackets, sample_rows};
///
/// let rows: Vec<f32> = (0..100_000).map(|i| (i % 1000) as f32).collect(); // of one number each
/// let sample: Vec<f32> = sample_rows(rows.len()).map(|row| rows[row]).collect();
/// let mut brackets = Brackets::from_sample(&sample, 1, rows.len(), &[0.25, 0.5])?;
/// loop {
///     let mut counter = brackets.counter(); // one for each thread
///     for block in rows.chunks(4096) {
///         counter.add(&brackets, block);
///     }
///     if brackets.settle(counter)? {
///         break;
///     }
/// }
/// assert_eq!(brackets.quantiles(), [[249.75], [499.5]]);
/// # Ok::<(), vlaprep_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Brackets<T> {
    rows: usize,
    dims: usize,
    positions: Vec<Position>,
    /// The values at both ranks of each position, position by position in each dim.
    found: Vec<T>,
    nan: Vec<bool>,
    pending: Vec<Bracket<T>>,
    /// How many values a pass may keep.
    room: usize,
}

impl<T: Real> Brackets<T> {
    /// Prepares the search for the quantiles `qs` of `rows` rows, guided by some of them.
    ///
    /// Any rows will do, even none: the worse they stand for all, the more passes follow.
    pub fn from_sample(sample: &[T], dims: usize, rows: usize, qs: &[f64]) -> Result<Self> {
        Self::within_room(sample, dims, rows, qs, ROOM)
    }

    fn within_room(
        sample: &[T],
        dims: usize,
        rows: usize,
        qs: &[f64],
        room: usize,
    ) -> Result<Self> {
        if rows == 0 || dims == 0 || !sample.len().is_multiple_of(dims) {
            return Err(Error::argument(format!(
                "quantiles need rows and columns, got {rows} rows and a sample of {} values in \
                 {dims} columns",
                sample.len()
            )));
        }
        let positions = Position::of_all(qs, rows)?;
        let mut pending = Vec::with_capacity(dims * positions.len());
        let mut column = Vec::with_capacity(sample.len() / dims);
        for dim in 0..dims {
            column.clear();
            column.extend(sample.chunks_exact(dims).map(|row| row[dim]));
            column.retain(|value| !value.is_nan());
            let places: Vec<_> = positions
                .iter()
                .map(|position| Place::of(position, column.len(), rows))
                .collect();
            let mut ranks: Vec<usize> = places
                .iter()
                .flat_map(|p| [p.low, p.high])
                .flatten()
                .collect();
            ranks.sort_unstable();
            select(&mut column, &ranks);
            for (index, (place, position)) in places.iter().zip(&positions).enumerate() {
                let slot = 2 * (dim * positions.len() + index);
                let wanted = vec![(position.left, slot), (position.right, slot + 1)];
                pending.push(place.bracket(&column, dim, rows, wanted));
            }
        }
        limit_to(room, &mut pending);
        Ok(Self {
            rows,
            dims,
            found: vec![T::NAN; 2 * dims * positions.len()],
            positions,
            nan: vec![false; dims],
            pending,
            room,
        })
    }

    /// A counter for one pass over all rows, or over a part of them.
    #[must_use]
    pub fn counter(&self) -> Counter<T> {
        Counter::new(self.dims, &self.pending)
    }

    /// Takes in what one pass over all rows has counted; `false` asks for another pass.
    pub fn settle(&mut self, counter: Counter<T>) -> Result<bool> {
        let (rows, nan, tallies) = counter.into_parts();
        if rows != self.rows || tallies.len() != self.pending.len() {
            return Err(Error::argument(format!(
                "a pass looked at {rows} rows, the quantiles are those of {}",
                self.rows
            )));
        }
        for (known, found) in self.nan.iter_mut().zip(nan) {
            *known |= found;
        }
        let mut again = Vec::new();
        for (bracket, mut tally) in std::mem::take(&mut self.pending).into_iter().zip(tallies) {
            if self.nan[bracket.dim] {
                continue;
            }
            tally.select(bracket.wanted.iter().map(|&(rank, _)| rank));
            for &(rank, slot) in &bracket.wanted {
                match bracket.locate(&tally, rank, self.rows) {
                    Located::At(value) => self.found[slot] = value,
                    Located::Outside { .. } if bracket.proved => {
                        return Err(Error::argument(
                            "the rows differ from those of the pass before",
                        ));
                    }
                    Located::Outside { low, high, mass } | Located::Within { low, high, mass } => {
                        again.push(Bracket {
                            dim: bracket.dim,
                            low,
                            high,
                            aim: Aim::KeepBetween(mass),
                            wanted: vec![(rank, slot)],
                            proved: true,
                        });
                    }
                }
            }
        }
        limit_to(self.room, &mut again);
        self.pending = again;
        Ok(self.pending.is_empty())
    }

    /// The columns' answers, quantile by quantile, once a pass has settled them.
    #[must_use]
    pub fn quantiles(&self) -> Vec<Vec<T>> {
        let of_dim = |dim: usize, index: usize| {
            let slot = 2 * (dim * self.positions.len() + index);
            if self.nan[dim] {
                T::NAN
            } else {
                self.positions[index].lerp(self.found[slot], self.found[slot + 1])
            }
        };
        (0..self.positions.len())
            .map(|index| (0..self.dims).map(|dim| of_dim(dim, index)).collect())
            .collect()
    }

    pub(super) fn pending(&self) -> &[Bracket<T>] {
        &self.pending
    }

    pub(super) fn dims(&self) -> usize {
        self.dims
    }
}

/// Sees to it that all brackets together keep no more than `room` values: the largest are binned.
fn limit_to<T: Real>(room: usize, brackets: &mut [Bracket<T>]) {
    let limit = |bracket: &Bracket<T>| match bracket.aim {
        Aim::Keep(limit) | Aim::KeepBetween(limit) => limit,
        Aim::Bin { .. } => 0,
    };
    if brackets.iter().map(limit).sum::<usize>() <= room {
        return;
    }
    let share = room / brackets.len();
    for bracket in brackets.iter_mut().filter(|b| limit(b) > share) {
        let keys = bracket.high.key() - bracket.low.key();
        let shift = (0..u64::BITS).find(|&shift| keys >> shift < BINS);
        bracket.aim = Aim::Bin {
            shift: shift.unwrap_or(0),
        };
    }
}

/// Where a rank lies after a pass.
enum Located<T> {
    /// On this value.
    At(T),
    /// Among `mass` values of the bracket, from `low` to `high`.
    Within { low: T, high: T, mass: usize },
    /// Among `mass` values outside the bracket.
    Outside { low: T, high: T, mass: usize },
}

impl<T: Real> Bracket<T> {
    /// The bin of a value between the ends, in bins of `2^shift` keys.
    pub(super) fn bin_of(&self, value: T, shift: u32) -> usize {
        ((value.key() - self.low.key()) >> shift) as usize
    }

    /// Finds a rank in the order: below, equal to `low`, between, equal to `high`, above.
    fn locate(&self, tally: &Tally<T>, rank: usize, rows: usize) -> Located<T> {
        let (low, high) = (self.low, self.high);
        let Some(mut left) = rank.checked_sub(tally.below) else {
            let mass = tally.below;
            return Located::Outside {
                low: T::NEG_INFINITY,
                high: low,
                mass,
            };
        };
        for (end, ties) in [
            (Some(low), tally.at_low),
            (None, tally.between),
            (Some(high), tally.at_high),
        ] {
            if left < ties {
                return match end {
                    Some(zero) if zero == T::default() => Located::At(tally.zero(left)),
                    Some(end) => Located::At(end),
                    None => self.locate_between(tally, left),
                };
            }
            left -= ties;
        }
        let mass = rows - (rank - left);
        Located::Outside {
            low: high,
            high: T::INFINITY,
            mass,
        }
    }

    /// Finds a rank among the values between the ends.
    fn locate_between(&self, tally: &Tally<T>, rank: usize) -> Located<T> {
        let (low, high) = (self.low, self.high);
        let Aim::Bin { shift } = self.aim else {
            return match tally.kept.get(rank) {
                Some(&value) if tally.kept.len() == tally.between => Located::At(value),
                _ => Located::Within {
                    low,
                    high,
                    mass: tally.between,
                },
            };
        };
        let mut left = rank;
        let bin = tally.bins.iter().position(|&count| {
            let here = left < count;
            left -= if here { 0 } else { count };
            here
        });
        let first = low.key() + ((bin.unwrap_or(0) as u64) << shift);
        let last = (first + ((1 << shift) - 1)).min(high.key());
        if first == last {
            return Located::At(T::from_key(first));
        }
        Located::Within {
            low: T::from_key(first),
            high: T::from_key(last),
            mass: bin.map_or(0, |bin| tally.bins[bin]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{mixed, sample_rows};
    use super::*;

    const QS: [f64; 7] = [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0];

    /// How many passes over the rows of one column it takes to be right.
    fn passes<T: Real>(column: &[T], sample: &[T], room: usize) -> usize {
        let rows = column.len();
        let mut brackets = Brackets::within_room(sample, 1, rows, &QS, room).unwrap();
        let mut passes = 0;
        loop {
            passes += 1;
            let mut counter = brackets.counter();
            for part in column.chunks(rows / 3 + 1) {
                let mut other = brackets.counter();
                other.add(&brackets, part);
                counter.merge(other);
            }
            assert!(counter.kept() <= room);
            if brackets.settle(counter).unwrap() {
                break;
            }
        }
        let mut sorted = column.to_vec();
        sorted.sort_by(T::total_cmp);
        for (q, got) in QS.iter().zip(brackets.quantiles()) {
            let position = Position::of_all(&[*q], sorted.len()).unwrap()[0];
            let want = position.lerp(sorted[position.left], sorted[position.right]);
            assert!(
                got[0].total_cmp(&want).is_eq() || got[0].is_nan() && want.is_nan(),
                "q {q}"
            );
        }
        passes
    }

    /// Numbers as chance would give, between 0 and 1.
    fn random(count: u64) -> Vec<f64> {
        (0..count)
            .map(|i| mixed(i) as f64 / 2_f64.powi(64))
            .collect()
    }

    fn sampled<T: Copy>(column: &[T]) -> Vec<T> {
        sample_rows(column.len()).map(|row| column[row]).collect()
    }

    #[test]
    fn a_good_sample_needs_one_pass() {
        let mut column = random(30_000);
        assert_eq!(passes(&column, &sampled(&column), ROOM), 1);
        column.sort_by(f64::total_cmp);
        assert_eq!(passes(&column, &sampled(&column), ROOM), 1);
        column.reverse();
        assert_eq!(passes(&column, &sampled(&column), ROOM), 1);
        let gripper: Vec<f32> = column
            .iter()
            .map(|x| (x * 3.0 - 1.5).clamp(-1.0, 1.0) as f32)
            .collect();
        assert_eq!(passes(&gripper, &sampled(&gripper), ROOM), 1);
        let ticks: Vec<f64> = column.iter().map(|x| (x * 40.0).floor()).collect();
        assert_eq!(passes(&ticks, &sampled(&ticks), ROOM), 1);
        let blocks: Vec<f32> = (0..30_000).map(|i| (i / 1000) as f32).collect();
        assert_eq!(passes(&blocks, &sampled(&blocks), ROOM), 1);
    }

    #[test]
    fn ties_are_counted_and_not_kept() {
        let column: Vec<f32> = random(100_000)
            .iter()
            .map(|x| if *x < 0.7 { 1.0 } else { -1.0 })
            .collect();
        let brackets = Brackets::from_sample(&sampled(&column), 1, column.len(), &QS).unwrap();
        let mut counter = brackets.counter();
        counter.add(&brackets, &column);
        assert_eq!(counter.kept(), 0);
    }

    #[test]
    fn a_misleading_sample_costs_passes_only() {
        let column = random(20_000);
        let singles: Vec<f32> = column.iter().map(|&x| (x - 0.5) as f32).collect();
        for sample in [
            vec![],
            vec![0.3],
            vec![7.0; 500],
            vec![-7.0; 500],
            vec![0.123; 500],
        ] {
            assert!(passes(&column, &sample, ROOM) <= 2);
            // Nothing can be kept, so that bins lead to single values.
            assert!((2..=7).contains(&passes(&column, &sample, 0)));
            let sample: Vec<f32> = sample.iter().map(|&x| x as f32).collect();
            assert!((2..=5).contains(&passes(&singles, &sample, 0)));
            assert!(passes(&singles, &sample, 500) <= 4);
        }
        // All that was sampled lies on one side, and most of the rest far within the bracket.
        let mut spiked = vec![0.5; 20_000];
        for row in sample_rows(spiked.len()) {
            spiked[row] = column[row] + 10.0;
        }
        let sample = sampled(&spiked);
        assert!(passes(&spiked, &sample, ROOM) <= 2);
        assert!(passes(&spiked, &sample, 0) <= 7);
    }

    #[test]
    fn extremes_and_both_zeros_are_found() {
        let extremes = [
            f64::NEG_INFINITY,
            f64::MIN,
            -0.0,
            0.0,
            5e-324,
            f64::MAX,
            f64::INFINITY,
        ];
        let column: Vec<f64> = (0..20_000)
            .map(|i| extremes[mixed(i) as usize % 7])
            .collect();
        let zeros: Vec<f32> = (0..20_000)
            .map(|i| {
                if mixed(i).is_multiple_of(3) {
                    -0.0
                } else {
                    0.0
                }
            })
            .collect();
        for room in [0, ROOM] {
            passes(&column, &sampled(&column), room);
            passes(&column, &[], room);
            passes(&column, &[0.0; 300], room);
            passes(&zeros, &sampled(&zeros), room);
            passes(&zeros, &[], room);
            passes(&zeros, &[-1.0, 1.0], room);
        }
    }

    #[test]
    fn nan_answers_nan_whatever_the_sample() {
        let mut column = random(20_000);
        column[19_999] = f64::NAN;
        for sample in [vec![f64::NAN; 30], sampled(&column), vec![0.1; 300]] {
            let mut brackets = Brackets::from_sample(&sample, 1, 20_000, &QS).unwrap();
            let mut counter = brackets.counter();
            counter.add(&brackets, &column);
            assert!(brackets.settle(counter).unwrap());
            assert!(brackets.quantiles().concat().iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn rows_that_are_missing_or_change_are_an_error() {
        let column = random(20_000);
        let mut brackets = Brackets::from_sample(&[7.0; 300], 1, 20_000, &QS).unwrap();
        let mut counter = brackets.counter();
        counter.add(&brackets, &column[1..]);
        assert!(brackets.clone().settle(counter.clone()).is_err());
        counter.add(&brackets, &column[..1]);
        assert!(!brackets.settle(counter).unwrap());
        let mut counter = brackets.counter();
        counter.add(&brackets, &vec![9.0; 20_000]);
        assert!(brackets.settle(counter).is_err());
        assert!(Brackets::from_sample(&[1.0; 3], 2, 20_000, &QS).is_err());
        assert!(Brackets::<f32>::from_sample(&[], 2, 0, &QS).is_err());
    }
}
