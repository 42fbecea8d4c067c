//! Whole numbers counted per group.

use crate::Result;
use crate::parallel::{self, Interrupt};

/// How often each length occurs in each task: a table of tasks by lengths.
pub(super) struct Histogram {
    shape: Shape,
    counts: Vec<u32>,
}

/// Which cell is whose.
struct Shape {
    first_task: i64,
    first_length: i64,
    /// Lengths of a row.
    width: usize,
    cells: usize,
}

impl Shape {
    fn of(lengths: &[i64], tasks: &[i64]) -> Option<Self> {
        let from = |(first_task, height): (i64, usize), (first_length, width): (i64, usize)| {
            Some(Self {
                first_task,
                first_length,
                width,
                cells: height.checked_mul(width)?,
            })
        };
        // An upper bound takes a third of the time.
        let rough = upper_bound(tasks).zip(upper_bound(lengths));
        let rough = rough.and_then(|(tasks, lengths)| from((0, tasks), (0, lengths)));
        match rough {
            Some(rough) if rough.cells <= lengths.len() => Some(rough),
            _ => from(range(tasks)?, range(lengths)?),
        }
    }

    fn count(&self, lengths: &[i64], tasks: &[i64]) -> Vec<u32> {
        let mut counts = vec![0; self.cells];
        for (&length, &task) in lengths.iter().zip(tasks) {
            let row = task.wrapping_sub(self.first_task) as usize;
            let column = length.wrapping_sub(self.first_length) as usize;
            counts[row * self.width + column] += 1;
        }
        counts
    }
}

/// Episodes that one thread counts: about a quarter of a millisecond.
const PART: usize = 1 << 17;

impl Histogram {
    /// Counts lengths and tasks that pair up; `None` where the table would be too large for them,
    /// or where there are none.
    pub(super) fn of(
        lengths: &[i64],
        tasks: &[i64],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Option<Self>> {
        let most = most_cells(lengths.len());
        let Some(shape) = Shape::of(lengths, tasks).filter(|shape| shape.cells <= most) else {
            return Ok(None);
        };
        if u32::try_from(lengths.len()).is_err() {
            return Ok(None);
        }
        // Each thread has a table of its own, as far as that is worth its memory.
        let parts = threads
            .min(most / shape.cells)
            .clamp(1, lengths.len().div_ceil(PART));
        let part = lengths.len().div_ceil(parts);
        let parts: Vec<_> = lengths.chunks(part).zip(tasks.chunks(part)).collect();
        let count = |&(lengths, tasks): &(&[i64], &[i64])| Ok(shape.count(lengths, tasks));
        let mut tables = parallel::map(&parts, threads, interrupt, count)?.into_iter();
        let mut counts = tables.next().transpose()?.unwrap_or_default();
        for table in tables {
            for (count, more) in counts.iter_mut().zip(table?) {
                *count += more;
            }
        }
        Ok(Some(Self { shape, counts }))
    }

    /// The tasks that occur, ascending, and their lengths.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (i64, TaskLengths<'_>)> {
        let rows = (self.shape.first_task..).zip(self.counts.chunks_exact(self.shape.width));
        rows.filter_map(|(task, counts)| {
            let total = counts.iter().map(|&count| count as usize).sum();
            let of_task = TaskLengths {
                first: self.shape.first_length,
                counts,
                total,
                distinct: counts.iter().filter(|&&count| count > 0).count(),
                cell: 0,
                through: counts[0] as usize,
            };
            (total > 0).then_some((task, of_task))
        })
    }
}

/// The most cells that a table for `count` values may have: as much memory as sorting them takes,
/// or little.
pub(super) fn most_cells(count: usize) -> usize {
    (16 * count + 4096).min(4 * count + (1 << 20))
}

/// A number above all values, less than twice the greatest; `None` where one is negative.
fn upper_bound(values: &[i64]) -> Option<usize> {
    let bits = values.iter().fold(0, |bits, value| bits | value);
    let bits = usize::try_from(bits).ok()?;
    bits.checked_add(1)?.checked_next_power_of_two()
}

/// The least value, and how many there are from it to the greatest.
pub(super) fn range(values: &[i64]) -> Option<(i64, usize)> {
    let &first = values.first()?;
    let (least, greatest) = values
        .iter()
        .fold((first, first), |(least, greatest), &value| {
            (least.min(value), greatest.max(value))
        });
    let span = greatest.checked_sub(least)?.checked_add(1)?;
    Some((least, usize::try_from(span).ok()?))
}

/// How often each length occurs in one task.
pub(super) struct TaskLengths<'a> {
    first: i64,
    counts: &'a [u32],
    /// How many values there are.
    pub(super) total: usize,
    /// How many different ones.
    pub(super) distinct: usize,
    /// A length, as a place among the counts.
    cell: usize,
    /// How many values there are up to this length.
    through: usize,
}

impl TaskLengths<'_> {
    /// The values at a rank and at the next one, which must exist; ranks come in ascending order.
    pub(super) fn pair(&mut self, rank: usize) -> (i64, i64) {
        while self.through <= rank {
            self.cell += 1;
            self.through += self.counts[self.cell] as usize;
        }
        let mut next = self.cell;
        if self.through <= rank + 1 {
            next += 1;
            while self.counts[next] == 0 {
                next += 1;
            }
        }
        (self.first + self.cell as i64, self.first + next as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(lengths: &[i64], tasks: &[i64]) -> Option<Histogram> {
        Histogram::of(lengths, tasks, 2, &Interrupt::never()).unwrap()
    }

    #[test]
    fn tasks_come_in_order_with_what_occurs() {
        let histogram = histogram(&[7, 9, 7, -1, 8], &[3, 3, 3, 1, 3]).unwrap();
        let mut tasks = histogram.tasks();
        let (task, counts) = tasks.next().unwrap();
        assert_eq!((task, counts.total, counts.distinct), (1, 1, 1));
        let (task, mut counts) = tasks.next().unwrap();
        assert_eq!((task, counts.total, counts.distinct), (3, 4, 3));
        let pairs = [0, 0, 1, 2].map(|rank| counts.pair(rank));
        assert_eq!(pairs, [(7, 7), (7, 7), (7, 8), (8, 9)]);
        assert!(tasks.next().is_none());
    }

    #[test]
    fn a_table_never_grows_with_the_ids() {
        assert!(histogram(&[1, 2], &[0, 1 << 40]).is_none());
        assert!(histogram(&[i64::MIN, i64::MAX], &[0, 0]).is_none());
        assert!(histogram(&[1, 2], &[i64::MAX, i64::MIN]).is_none());
        assert!(histogram(&[5, 5], &[i64::MAX, i64::MAX]).is_some());
        assert!(histogram(&[], &[]).is_none());
    }

    #[test]
    fn parts_add_up() {
        let lengths: Vec<i64> = (0..400_000).map(|i| i % 700).collect();
        let tasks: Vec<i64> = (0..400_000).map(|i| i % 9).collect();
        for first in [0, -4] {
            let tasks: Vec<i64> = tasks.iter().map(|task| task + first).collect();
            let never = Interrupt::never();
            let of = |threads| Histogram::of(&lengths, &tasks, threads, &never);
            let one = of(1).unwrap().unwrap();
            assert_eq!(one.counts.iter().sum::<u32>(), 400_000);
            for threads in [2, 7] {
                assert_eq!(of(threads).unwrap().unwrap().counts, one.counts);
            }
        }
    }
}
