//! Speed labels from episode lengths and the boundaries of their tasks.
//!
//! Lengths are whole numbers, so a label is looked up in a table of tasks by lengths, from the least
//! of all boundaries to the greatest. Where tasks or boundaries are too far apart for a table, the
//! boundaries of each task are searched.

use super::histogram::{most_cells, range};
use super::percentile::Boundaries;
use super::searchsorted::searchsorted_right;
use crate::memory;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// The labels between the boundaries: below the first 0, above the last 100.
pub const LABELS: [i64; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// The label where a task is too sparse to rank, or unknown.
pub const SPARSE_LABEL: i64 = 50;

/// Episodes that one piece of work labels: about a quarter of a millisecond.
const PIECE: usize = 1 << 17;

/// Up to here float64 holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Labels each episode by the position of its length among the boundaries of its task.
///
/// A length equal to a boundary gets the higher label. A row of NaN marks a sparse task; a row that
/// is neither that nor ten non-decreasing finite numbers is refused.
pub fn bucketize(
    lengths: &[i64],
    tasks: &[i64],
    known_tasks: &[i64],
    boundaries: &[Boundaries],
    threads: usize,
    interrupt: &Interrupt<'_>,
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
    let ranked = ranked(known_tasks, boundaries)?;
    let mut labels = memory::zeroed(lengths.len()).ok_or(Error::TooLarge {
        rows: lengths.len(),
        width: 1,
    })?;
    let inputs = lengths.chunks(PIECE).zip(tasks.chunks(PIECE));
    let pieces = labels.chunks_mut(PIECE).zip(inputs).collect();
    if let Some(table) = Table::of(known_tasks, boundaries, &ranked, lengths.len())? {
        parallel::each(pieces, threads, interrupt, |(labels, (lengths, tasks))| {
            for (label, (&length, &task)) in labels.iter_mut().zip(lengths.iter().zip(tasks)) {
                *label = table.label(length, task);
            }
            Ok(())
        })?;
    } else {
        let rows = by_task(known_tasks, boundaries, &ranked)?;
        parallel::each(pieces, threads, interrupt, |(labels, (lengths, tasks))| {
            for (label, (&length, &task)) in labels.iter_mut().zip(lengths.iter().zip(tasks)) {
                *label = match rows.binary_search_by_key(&task, |&(task, _)| task) {
                    Ok(place) => rows[place].1.map_or(SPARSE_LABEL, |row| {
                        LABELS[searchsorted_right(row, length as f64)]
                    }),
                    Err(_) => SPARSE_LABEL,
                };
            }
            Ok(())
        })?;
    }
    Ok(labels)
}

/// Which rows of boundaries rank lengths: all but those of NaN.
fn ranked(tasks: &[i64], boundaries: &[Boundaries]) -> Result<Vec<bool>> {
    let ranks = |(task, row): (&i64, &Boundaries)| {
        let sparse = row.iter().all(|b| b.is_nan());
        let ranked = row.iter().all(|b| b.is_finite()) && row.is_sorted();
        if sparse || ranked {
            return Ok(ranked);
        }
        Err(Error::argument(format!(
            "boundaries of task {task} are not {} non-decreasing finite numbers: {row:?}",
            row.len()
        )))
    };
    tasks.iter().zip(boundaries).map(ranks).collect()
}

/// The tasks, ascending, with their boundaries where they are ranked.
fn by_task<'a>(
    tasks: &[i64],
    boundaries: &'a [Boundaries],
    ranked: &[bool],
) -> Result<Vec<(i64, Option<&'a Boundaries>)>> {
    let rows = boundaries.iter().zip(ranked);
    let rows = rows.map(|(row, &ranked)| ranked.then_some(row));
    let mut rows: Vec<_> = tasks.iter().copied().zip(rows).collect();
    rows.sort_unstable_by_key(|&(task, _)| task);
    match rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(listed_twice(pair[0].0)),
        None => Ok(rows),
    }
}

fn listed_twice(task: i64) -> Error {
    Error::argument(format!("task {task} is listed twice"))
}

/// The labels of all tasks and all lengths near their boundaries.
struct Table {
    first_task: i64,
    /// Where the labels of a task begin, by its distance from the first task; the last place is for
    /// all others.
    begins: Vec<u32>,
    /// One length below the least boundary, and one that is not below the greatest.
    lengths: (i64, i64),
    /// A row for each task that is ranked, after one of `SPARSE_LABEL`.
    labels: Vec<u8>,
}

impl Table {
    /// `None` where the table would be too large for so many episodes, or nothing is ranked.
    fn of(
        tasks: &[i64],
        boundaries: &[Boundaries],
        ranked: &[bool],
        episodes: usize,
    ) -> Result<Option<Self>> {
        let rows = || boundaries.iter().zip(ranked).filter(|(_, ranked)| **ranked);
        let ends = rows().map(|(row, _)| (row[0], row[9]));
        let ends = ends.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        let (Some((least, greatest)), Some((first_task, span))) = (ends, range(tasks)) else {
            return Ok(None);
        };
        let (least, greatest) = (least.ceil(), greatest.ceil());
        let most = most_cells(episodes).min(u32::MAX as usize);
        let width = greatest - least + 2.0;
        let cells = width * (rows().count() + 1) as f64;
        if least.abs() > EXACT || greatest.abs() > EXACT || cells > most as f64 || span > most {
            return Ok(None);
        }
        let width = width as usize;
        let mut begins = vec![0; span + 1];
        let mut labels = vec![SPARSE_LABEL as u8; width];
        let mut listed = vec![false; span];
        for (&task, (row, &ranked)) in tasks.iter().zip(boundaries.iter().zip(ranked)) {
            let place = task.wrapping_sub(first_task) as usize;
            if std::mem::replace(&mut listed[place], true) {
                return Err(listed_twice(task));
            }
            if ranked {
                begins[place] = labels.len() as u32;
                labels.resize(labels.len() + width, LABELS[0] as u8);
                let labels = &mut labels[begins[place] as usize..];
                // A boundary counts from the first whole number on that is not below it.
                for (boundary, &label) in row.iter().zip(&LABELS[1..]) {
                    labels[(boundary.ceil() - least) as usize + 1..].fill(label as u8);
                }
            }
        }
        Ok(Some(Self {
            first_task,
            begins,
            lengths: (least as i64 - 1, greatest as i64),
            labels,
        }))
    }

    fn label(&self, length: i64, task: i64) -> i64 {
        let place = task.wrapping_sub(self.first_task) as u64;
        let place = place.min(self.begins.len() as u64 - 1) as usize;
        let length = length.clamp(self.lengths.0, self.lengths.1) - self.lengths.0;
        i64::from(self.labels[self.begins[place] as usize + length as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Boundaries = [10., 20., 30., 40., 50., 60., 70., 80., 90., 100.];

    fn labels(
        lengths: &[i64],
        tasks: &[i64],
        known_tasks: &[i64],
        boundaries: &[Boundaries],
    ) -> Result<Vec<i64>> {
        bucketize(
            lengths,
            tasks,
            known_tasks,
            boundaries,
            2,
            &Interrupt::never(),
        )
    }

    #[test]
    fn a_tie_goes_up_and_unknown_or_sparse_tasks_get_the_middle() {
        let rows = [ROW, [f64::NAN; 10]];
        let got = labels(&[9, 10, 30, 100, 5, 5], &[0, 0, 0, 0, 1, 9], &[0, 1], &rows).unwrap();
        assert_eq!(got, [0, 10, 30, 100, SPARSE_LABEL, SPARSE_LABEL]);
    }

    #[test]
    fn rows_that_rank_nothing_are_refused() {
        let mut torn = ROW;
        torn[4] = f64::NAN;
        let mut falling = ROW;
        falling[4] = 0.0;
        for row in [torn, falling] {
            assert!(labels(&[1], &[0], &[0], &[row]).is_err());
        }
        for tasks in [[0, 0], [1 << 40, 1 << 40]] {
            assert!(labels(&[1], &[0], &tasks, &[ROW, ROW]).is_err());
        }
        let three = [ROW, ROW, ROW];
        assert!(labels(&[1], &[0], &[1 << 50, 3, 1 << 50], &three).is_err());
    }

    #[test]
    fn tables_and_searches_say_the_same() {
        let halves = ROW.map(|b| b * 1.5 - 0.5);
        let wide = ROW.map(|b| b * 1e15);
        let extremes = [
            f64::MIN,
            -1e300,
            -5.5,
            -5.5,
            -1.0,
            0.0,
            0.5,
            3.0,
            1e300,
            f64::MAX,
        ];
        let lengths: Vec<i64> = (-3..200)
            .chain([i64::MIN, -(1 << 60), 1 << 60, i64::MAX])
            .collect();
        for (row, task) in [
            (ROW, 7),
            (halves, 7),
            (halves, i64::MIN),
            (wide, 7),
            (extremes, 7),
        ] {
            let want: Vec<i64> = lengths
                .iter()
                .map(|&length| LABELS[searchsorted_right(&row, length as f64)])
                .collect();
            let tasks = vec![task; lengths.len()];
            // The second task is near or far, and so is looked up or searched for.
            for other in [8, i64::MAX] {
                let got = labels(&lengths, &tasks, &[other, task], &[ROW, row]).unwrap();
                assert_eq!(got, want, "{row:?}");
            }
        }
    }
}
