//! Rows of a file and the places in the answer where they go.

use std::ops::Range;

use super::column::{ColumnReader, Number, Stop};
use super::files::DataFile;
use super::fill::BLOCK_ROWS;
use super::scan::read_blocks;
use crate::Result;
use crate::parallel::Interrupt;

/// A column of the answer, as it fills.
#[derive(Debug)]
pub(super) enum Sheet<'a> {
    /// Row-major rows of so many values.
    Floats(&'a mut [f32], usize),
    /// One value a row.
    Integers(&'a mut [i64]),
}

impl Sheet<'_> {
    /// Takes the first `rows` rows off.
    pub(super) fn split_off(&mut self, rows: usize) -> Self {
        match self {
            Self::Floats(values, width) => {
                let (head, tail) = std::mem::take(values).split_at_mut(rows * *width);
                *values = tail;
                Self::Floats(head, *width)
            }
            Self::Integers(values) => {
                let (head, tail) = std::mem::take(values).split_at_mut(rows);
                *values = tail;
                Self::Integers(head)
            }
        }
    }
}

/// Fills sheets, each with the rows of the file that it wants, by the Arrow reader.
pub(super) fn read_sheets(
    file: &DataFile,
    name: &str,
    sheets: Vec<(Range<usize>, Sheet<'_>)>,
    interrupt: &Interrupt<'_>,
) -> Result<()> {
    let (mut floats, mut wholes, mut width) = (Vec::new(), Vec::new(), 1);
    for (rows, sheet) in sheets {
        match sheet {
            Sheet::Floats(out, values) => {
                width = values;
                floats.push((rows, out));
            }
            Sheet::Integers(out) => wholes.push((rows, out)),
        }
    }
    if wholes.is_empty() {
        read_cells_generally(file, name, &mut floats, width, interrupt)
    } else {
        read_cells_generally(file, name, &mut wholes, 1, interrupt)
    }
}

/// Fills `cells`, rows of a file with the part of the answer that is theirs, by the Arrow reader.
fn read_cells_generally<T: Number>(
    file: &DataFile,
    name: &str,
    cells: &mut [(Range<usize>, &mut [T])],
    width: usize,
    interrupt: &Interrupt<'_>,
) -> Result<()> {
    let ranges = union(cells.iter().map(|(rows, _)| rows.clone()).collect());
    read_blocks(file, name, width, &ranges, interrupt, |first_row, block| {
        spread(first_row, block, width, cells);
    })
}

/// Reads `cells`, rows of one row group with the part of the answer that is theirs, in the order of
/// their first rows. They may overlap: a row that several want is decoded once.
pub(super) fn read_cells<T: Number>(
    reader: &mut ColumnReader<'_, T>,
    cells: &mut [(Range<usize>, &mut [T])],
    width: usize,
    block: &mut Vec<T>,
    interrupt: &Interrupt<'_>,
) -> Result<(), Stop> {
    let mut row = 0;
    let mut rest = cells;
    while !rest.is_empty() {
        let (count, rows) = first_cluster(rest);
        let (cluster, behind) = rest.split_at_mut(count);
        rest = behind;
        reader.skip(rows.start - row)?;
        row = rows.end;
        if let [(_, out)] = cluster {
            for part in out.chunks_mut(BLOCK_ROWS * width) {
                interrupt.check().map_err(|_| Stop::Interrupted)?;
                reader.read(part)?;
            }
            continue;
        }
        for first in rows.clone().step_by(BLOCK_ROWS) {
            interrupt.check().map_err(|_| Stop::Interrupted)?;
            block.resize((rows.end - first).min(BLOCK_ROWS) * width, T::default());
            reader.read(block)?;
            spread(first, block, width, cluster);
        }
    }
    Ok(())
}

/// How many cells from the first on overlap, each with one before it; and the rows of all these.
fn first_cluster<T>(cells: &[(Range<usize>, &mut [T])]) -> (usize, Range<usize>) {
    let mut rows = cells[0].0.clone();
    let mut count = 1;
    while let Some((next, _)) = cells.get(count).filter(|(next, _)| next.start < rows.end) {
        rows.end = rows.end.max(next.end);
        count += 1;
    }
    (count, rows)
}

/// Copies the rows of `values`, the first of which is `first`, to all `cells` that want them.
fn spread<T: Copy>(
    first: usize,
    values: &[T],
    width: usize,
    cells: &mut [(Range<usize>, &mut [T])],
) {
    let end = first + values.len() / width;
    for (rows, out) in cells {
        let (from, to) = (rows.start.max(first), rows.end.min(end));
        if from < to {
            let values = &values[(from - first) * width..(to - first) * width];
            out[(from - rows.start) * width..][..values.len()].copy_from_slice(values);
        }
    }
}

/// The same rows as ascending, disjoint ranges.
pub(super) fn union(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_united() {
        assert_eq!(union(vec![5..8, 20..21, 4..7]), [4..8, 20..21]);
    }

    #[test]
    fn rows_that_several_want_go_to_each() {
        let (mut a, mut b) = ([0; 4], [0; 6]);
        let mut cells = [(3..5, &mut a[..]), (4..7, &mut b[..])];
        let (count, rows) = first_cluster(&cells);
        assert_eq!((count, rows), (2, 3..7));
        spread(2, &[20, 21, 30, 31, 40, 41], 2, &mut cells);
        spread(5, &[50, 51, 60, 61], 2, &mut cells);
        assert_eq!((a, b), ([30, 31, 40, 41], [40, 41, 50, 51, 60, 61]));
    }
}
