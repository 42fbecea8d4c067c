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

use super::group::group_by_task;
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
/// let ranked = vlaprep_core::stats::percentiles_by_task(&lengths, &[0; 12])?;
/// assert_eq!(ranked.boundaries[0][0], 13.65);
/// # Ok::<(), vlaprep_core::Error>(())
/// ```
pub fn percentiles_by_task(lengths: &[i64], tasks: &[i64]) -> Result<TaskBoundaries> {
    if lengths.len() != tasks.len() {
        return Err(Error::argument(format!(
            "lengths and task_index differ in length: {} and {}",
            lengths.len(),
            tasks.len()
        )));
    }
    let mut ranked = TaskBoundaries::default();
    group_by_task(lengths, tasks, |task, sorted| {
        ranked.tasks.push(task);
        ranked.boundaries.push(boundaries(sorted));
    });
    Ok(ranked)
}

/// The boundaries of one task from its ascending lengths.
fn boundaries(sorted: &[i64]) -> Boundaries {
    let distinct = 1 + sorted.windows(2).filter(|pair| pair[0] != pair[1]).count();
    if distinct < MIN_DISTINCT_LENGTHS {
        return [f64::NAN; PERCENTILES.len()];
    }
    PERCENTILES.map(|percentile| {
        // At least ten values and p ≤ 95: the right neighbour exists.
        let virtual_index = (sorted.len() - 1) as f64 * (percentile / 100.0);
        let left = virtual_index as usize;
        let (a, b) = (sorted[left], sorted[left + 1]);
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

    #[test]
    fn whole_ranks_keep_the_rounding_of_the_two_sided_rule() {
        let lengths: Vec<i64> = (0..101).map(|i| 37 + 10 * i).collect();
        let ranked = percentiles_by_task(&lengths, &[3; 101]).unwrap();
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
        let ranked = percentiles_by_task(&lengths, &tasks).unwrap();
        assert_eq!(ranked.tasks, [-2, 7]);
        assert!(ranked.boundaries[0].iter().all(|b| b.is_finite()));
        assert!(ranked.boundaries[1].iter().all(|b| b.is_nan()));
    }

    #[test]
    fn unequal_inputs_are_refused_and_empty_ones_are_not() {
        assert!(percentiles_by_task(&[1], &[]).is_err());
        assert!(percentiles_by_task(&[], &[]).unwrap().tasks.is_empty());
    }
}
