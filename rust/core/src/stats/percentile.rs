//! Percentiles of episode lengths within each task.
//!
//! NumPy's linear rule: the `p`-th percentile of `n` sorted values lies at the virtual index
//! `v = (n − 1) · p/100`, between its neighbours `a` and `b` at the fraction `g = v − ⌊v⌋`. The
//! interpolation is two-sided,
//!
//! ```text
//! a + (b − a)·g          where g < 0.5
//! b − (b − a)·(1 − g)    where g ≥ 0.5
//! ```
//!
//! which is not the same in floating point: at whole ranks it can miss the order statistic by one
//! unit in the last place, and an episode of just that length then gets the lower label. Trainers
//! rank by these very numbers, so the order of operations is part of the answer.
//!
//! Lengths are whole numbers in a narrow range, so counting them per task orders them; only where
//! ids or lengths are too far apart for a table are they sorted.

use super::group::group_by_task;
use super::histogram::Histogram;
use crate::parallel::Interrupt;
use crate::{Error, Result};

/// The percentiles that bound the speed labels.
pub const PERCENTILES: [f64; 10] = [5., 15., 25., 35., 45., 55., 65., 75., 85., 95.];

/// A task with fewer *distinct* lengths than this is too sparse to rank.
pub const MIN_DISTINCT_LENGTHS: usize = 10;

/// One boundary per entry of [`PERCENTILES`].
pub type Boundaries = [f64; PERCENTILES.len()];

/// The boundaries of every task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskBoundaries {
    /// Task indices, ascending.
    pub tasks: Vec<i64>,
    /// Boundaries in the order of `tasks`; a row of NaN where the task is sparse.
    pub boundaries: Vec<Boundaries>,
}

/// Ranks `lengths` within each task.
///
/// ```
/// let lengths: Vec<i64> = (0..12).map(|i| 12 + 3 * i).collect();
/// let never = vlaprep_core::parallel::Interrupt::never();
/// let ranked = vlaprep_core::stats::percentiles_by_task(&lengths, &[0; 12], 1, &never)?;
/// assert_eq!(ranked.boundaries[0][0], 13.65);
/// # Ok::<(), vlaprep_core::Error>(())
/// ```
pub fn percentiles_by_task(
    lengths: &[i64],
    tasks: &[i64],
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<TaskBoundaries> {
    if lengths.len() != tasks.len() {
        return Err(Error::argument(format!(
            "lengths and task_index differ in length: {} and {}",
            lengths.len(),
            tasks.len()
        )));
    }
    let mut ranked = TaskBoundaries::default();
    let mut push = |task, boundaries| {
        ranked.tasks.push(task);
        ranked.boundaries.push(boundaries);
    };
    if let Some(histogram) = Histogram::of(lengths, tasks, threads, interrupt)? {
        for (task, mut counts) in histogram.tasks() {
            push(
                task,
                boundaries(counts.total, counts.distinct, |rank| counts.pair(rank)),
            );
        }
    } else {
        group_by_task(lengths, tasks, |task, sorted| {
            let distinct = 1 + sorted.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let pair = |rank: usize| (sorted[rank], sorted[rank + 1]);
            push(task, boundaries(sorted.len(), distinct, pair));
        });
    }
    Ok(ranked)
}

/// The boundaries of one task of `total` lengths; `pair` gives those at a rank and at the next one,
/// asked for in ascending order.
fn boundaries(
    total: usize,
    distinct: usize,
    mut pair: impl FnMut(usize) -> (i64, i64),
) -> Boundaries {
    if distinct < MIN_DISTINCT_LENGTHS {
        return [f64::NAN; PERCENTILES.len()];
    }
    PERCENTILES.map(|percentile| {
        // At least ten values and p ≤ 95: the right neighbour exists.
        let virtual_index = (total - 1) as f64 * (percentile / 100.0);
        let left = virtual_index as usize;
        let (a, b) = pair(left);
        // NumPy takes the difference in the integers' own type.
        let difference = b.wrapping_sub(a) as f64;
        let fraction = virtual_index - left as f64;
        if fraction >= 0.5 {
            b as f64 - difference * (1.0 - fraction)
        } else {
            a as f64 + difference * fraction
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentiles(lengths: &[i64], tasks: &[i64]) -> Result<TaskBoundaries> {
        percentiles_by_task(lengths, tasks, 2, &Interrupt::never())
    }

    #[test]
    fn whole_ranks_keep_the_rounding_of_the_two_sided_rule() {
        let lengths: Vec<i64> = (0..101).map(|i| 37 + 10 * i).collect();
        let ranked = percentiles(&lengths, &[3; 101]).unwrap();
        assert_eq!(ranked.tasks, [3]);
        assert_eq!(
            ranked.boundaries[0][5].to_bits(),
            587.000_000_000_000_1_f64.to_bits()
        );
    }

    #[test]
    fn nine_distinct_lengths_are_sparse_and_ten_are_not() {
        let lengths: Vec<i64> = (0..90)
            .map(|i| i % 9)
            .chain((0..90).map(|i| i % 10))
            .collect();
        let tasks: Vec<i64> = (0..180).map(|i| if i < 90 { 7 } else { -2 }).collect();
        let ranked = percentiles(&lengths, &tasks).unwrap();
        assert_eq!(ranked.tasks, [-2, 7]);
        assert!(ranked.boundaries[0].iter().all(|b| b.is_finite()));
        assert!(ranked.boundaries[1].iter().all(|b| b.is_nan()));
    }

    #[test]
    fn a_table_and_a_sort_say_the_same() {
        let lengths: Vec<i64> = (0..5000).map(|i| 40 + i * i % 997).collect();
        let tasks: Vec<i64> = (0..5000).map(|i| i * 7 % 13 - 5).collect();
        let ranked = percentiles(&lengths, &tasks).unwrap();
        // Far apart, nothing is counted in a table.
        let far: Vec<i64> = tasks.iter().map(|task| task << 40).collect();
        let sorted = percentiles(&lengths, &far).unwrap();
        assert_eq!(ranked.boundaries, sorted.boundaries);
        assert_eq!(ranked.tasks, (-5..8).collect::<Vec<i64>>());
    }

    #[test]
    fn unequal_inputs_are_refused_and_empty_ones_are_not() {
        assert!(percentiles(&[1], &[]).is_err());
        assert!(percentiles(&[], &[]).unwrap().tasks.is_empty());
    }
}
