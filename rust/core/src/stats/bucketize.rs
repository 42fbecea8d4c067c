//! Speed labels from episode lengths and the boundaries of their tasks.

use std::collections::BTreeMap;

use super::percentile::Boundaries;
use super::searchsorted::searchsorted_right;
use crate::{Error, Result};

/// The labels between the boundaries: below the first 0, above the last 100.
pub const LABELS: [i64; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// The label where a task is too sparse to rank, or unknown.
pub const SPARSE_LABEL: i64 = 50;

/// Labels each episode by the position of its length among the boundaries of its task.
///
/// A length equal to a boundary gets the higher label. A row of NaN marks a sparse task; a row that
/// is neither that nor ten non-decreasing finite numbers is refused.
pub fn bucketize(
    lengths: &[i64],
    tasks: &[i64],
    known_tasks: &[i64],
    boundaries: &[Boundaries],
) -> Result<Vec<i64>> {
    if lengths.len() != tasks.len() || known_tasks.len() != boundaries.len() {
        return Err(Error::argument(format!(
            "lengths and task_index, and tasks and boundaries, must pair up: got {} and {}, {} and {}",
            lengths.len(),
            tasks.len(),
            known_tasks.len(),
            boundaries.len()
        )));
    }
    let rows = rows_by_task(known_tasks, boundaries)?;
    let label = |(&length, task)| match rows.get(task) {
        Some(Some(row)) => LABELS[searchsorted_right(*row, length as f64)],
        Some(None) | None => SPARSE_LABEL,
    };
    Ok(lengths.iter().zip(tasks).map(label).collect())
}

/// The boundaries of each task, `None` where it is sparse.
fn rows_by_task<'a>(
    tasks: &[i64],
    boundaries: &'a [Boundaries],
) -> Result<BTreeMap<i64, Option<&'a Boundaries>>> {
    let mut rows = BTreeMap::new();
    for (&task, row) in tasks.iter().zip(boundaries) {
        let sparse = row.iter().all(|b| b.is_nan());
        let ranked = row.iter().all(|b| b.is_finite()) && row.is_sorted();
        if !sparse && !ranked {
            return Err(Error::argument(format!(
                "boundaries of task {task} are not {} non-decreasing finite numbers: {row:?}",
                row.len()
            )));
        }
        if rows.insert(task, ranked.then_some(row)).is_some() {
            return Err(Error::argument(format!("task {task} is listed twice")));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Boundaries = [10., 20., 30., 40., 50., 60., 70., 80., 90., 100.];

    #[test]
    fn a_tie_goes_up_and_unknown_or_sparse_tasks_get_the_middle() {
        let rows = [ROW, [f64::NAN; 10]];
        let labels =
            bucketize(&[9, 10, 30, 100, 5, 5], &[0, 0, 0, 0, 1, 9], &[0, 1], &rows).unwrap();
        assert_eq!(labels, [0, 10, 30, 100, SPARSE_LABEL, SPARSE_LABEL]);
    }

    #[test]
    fn rows_that_rank_nothing_are_refused() {
        let mut torn = ROW;
        torn[4] = f64::NAN;
        let mut falling = ROW;
        falling[4] = 0.0;
        for row in [torn, falling] {
            assert!(bucketize(&[1], &[0], &[0], &[row]).is_err());
        }
        assert!(bucketize(&[1], &[0], &[0, 0], &[ROW, ROW]).is_err());
    }
}
