//! What a sample of rows says of all.

use super::brackets::{Aim, Bracket};
use super::quantile::Position;
use super::real::Real;

/// Half the width of a bracket, in standard deviations of what the sample may be off by.
const DEVIATIONS: f64 = 4.5;

/// The rows of a good sample of `rows` rows, ascending and each once; the same at every call.
///
/// The rows are cut into runs of equal length and one of each run is taken at random, so whatever
/// repeats in the data meets no rhythm. The size grows as `rows^(2/3)`: then sampling, keeping and
/// the pass stay in proportion.
#[must_use]
pub fn sample_rows(rows: usize) -> impl ExactSizeIterator<Item = usize> {
    let size = ((1.2 * (rows as f64).cbrt().powi(2)) as usize).clamp(rows.min(256), rows);
    let (step, rest) = (rows / size.max(1), rows % size.max(1));
    let begin = move |run: usize| run * step + run * rest / size;
    (0..size).map(move |run| {
        let length = begin(run + 1) - begin(run);
        begin(run) + mixed(run as u64) as usize % length
    })
}

/// The most rows that [`Thinned`] keeps.
const MOST: usize = 1 << 16;

/// Some of the rows that pass by, evenly spread over all of them, however many there are.
///
/// The rows are cut into runs of equal length, one row of each is kept, and where there are too many
/// the runs are joined in twos.
#[derive(Debug, Clone)]
pub struct Thinned<T> {
    dims: usize,
    seen: usize,
    /// Rows of a run, a power of two.
    run: usize,
    rows: Vec<T>,
}

impl<T: Real> Thinned<T> {
    /// Of no rows yet, with `dims` columns.
    #[must_use]
    pub fn new(dims: usize) -> Self {
        Self {
            dims: dims.max(1),
            seen: 0,
            run: 1,
            rows: Vec::new(),
        }
    }

    /// Looks at some rows.
    pub fn add(&mut self, rows: &[T]) {
        let end = self.seen + rows.len() / self.dims;
        loop {
            let kept = self.rows.len() / self.dims;
            let pick = kept * self.run + mixed(kept as u64) as usize % self.run;
            if pick >= end {
                break;
            }
            let at = (pick - self.seen) * self.dims;
            self.rows.extend_from_slice(&rows[at..at + self.dims]);
            if kept + 1 == MOST {
                self.thin();
            }
        }
        self.seen = end;
    }

    /// How many rows have passed.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Those that were kept.
    #[must_use]
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Joins the runs in twos; either row of two may be the one that stays.
    fn thin(&mut self) {
        for joined in 0..MOST / 2 {
            let stays = 2 * joined + mixed(joined as u64) as usize % 2;
            let (from, to) = (stays * self.dims, joined * self.dims);
            self.rows.copy_within(from..from + self.dims, to);
        }
        self.rows.truncate(MOST / 2 * self.dims);
        self.run *= 2;
    }
}

/// SplitMix64: the numbers 0, 1, 2, … become such as chance would give.
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The ranks in a sorted sample between which a position should lie; `None` where the sample ends.
pub(super) struct Place {
    pub(super) low: Option<usize>,
    pub(super) high: Option<usize>,
    sampled: usize,
}

impl Place {
    pub(super) fn of(position: &Position, sampled: usize, rows: usize) -> Self {
        let at = |rank: usize, sign: f64| {
            let p = (rank as f64 + 0.5) / rows as f64;
            let s = sampled as f64;
            // The constant is for the tails, where counts are few and skewed.
            let place = p * s - 0.5 + sign * (DEVIATIONS * (s * p * (1.0 - p)).sqrt() + 8.0);
            (place >= 0.0 && place < s - 1.0).then_some(place as usize)
        };
        Self {
            low: at(position.left, -1.0),
            high: at(position.right, 1.0).map(|place| place + 1),
            sampled,
        }
    }

    /// The bracket, from a sample with its ranks in place.
    pub(super) fn bracket<T: Real>(
        &self,
        sample: &[T],
        dim: usize,
        rows: usize,
        wanted: Vec<(usize, usize)>,
    ) -> Bracket<T> {
        let low = self.low.map_or(T::NEG_INFINITY, |rank| sample[rank]);
        let high = self.high.map_or(T::INFINITY, |rank| sample[rank]);
        let inside = self.high.unwrap_or(self.sampled) - self.low.unwrap_or(0) + 1;
        let expected = inside as f64 / (self.sampled + 1) as f64 * rows as f64;
        let limit = (1.25 * expected) as usize + 4096;
        let heavy = |end| sample.iter().filter(|&&value| value == end).count() > 1;
        Bracket {
            dim,
            low,
            high,
            aim: if heavy(low) || heavy(high) {
                Aim::KeepBetween(limit)
            } else {
                Aim::Keep(limit)
            },
            wanted,
            proved: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_passing_rows_is_spread_over_all() {
        let rows: Vec<f32> = (0..300_000).flat_map(|i| [i as f32, -(i as f32)]).collect();
        let mut whole = Thinned::new(2);
        whole.add(&rows);
        let mut pieces = Thinned::new(2);
        for piece in rows.chunks(2 * 777) {
            pieces.add(piece);
        }
        assert_eq!((whole.seen(), pieces.seen()), (300_000, 300_000));
        assert_eq!(whole.rows(), pieces.rows());
        let kept: Vec<f32> = whole.rows().iter().copied().step_by(2).collect();
        assert!((MOST / 2..=MOST).contains(&kept.len()), "{}", kept.len());
        let gaps = kept.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.into_iter().all(|gap| gap > 0.0 && gap < 32.0));
        let few = [1.0_f32, 2.0, 3.0];
        let mut all = Thinned::new(1);
        all.add(&few);
        assert_eq!(all.rows(), few);
    }

    #[test]
    fn a_sample_is_ascending_and_within() {
        for rows in [1, 2, 100, 256, 257, 10_000, 123_457] {
            let sample: Vec<usize> = sample_rows(rows).collect();
            assert!(sample.is_sorted_by(|a, b| a < b));
            assert!(sample.len() >= rows.min(256) && sample[sample.len() - 1] < rows);
        }
        assert_eq!(sample_rows(0).len(), 0);
        assert!(sample_rows(usize::MAX >> 16).nth(1_000_000).is_some());
    }
}
