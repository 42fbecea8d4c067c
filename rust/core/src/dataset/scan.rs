//! Rows of one file: only the wanted columns, only the row groups that hold a wanted row.

use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::errors::ParquetError;

use super::column::Number;
use super::columns::{Unusable, integers, vector_type, widths};
use super::files::{DataFile, Pread, guarded};
use crate::parallel::Interrupt;
use crate::{Error, Result};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Calls `visit(first_row, batch)` for every stretch of consecutive rows of the ascending, disjoint
/// `ranges`; the batch holds the columns at `roots` under their own names.
pub(super) fn scan(
    file: &DataFile,
    roots: &[usize],
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
    mut visit: impl FnMut(usize, &RecordBatch) -> Result<()>,
) -> Result<()> {
    let wanted: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    if wanted == 0 {
        return Ok(());
    }
    let mut reader = reader(file, roots, ranges)?;
    let mut stretches = ranges.iter().filter(|range| !range.is_empty()).cloned();
    let mut stretch = 0..0;
    let mut seen = 0;
    loop {
        interrupt.check()?;
        let Some(batch) = guarded(&file.name, || next_batch(&mut reader))? else {
            break;
        };
        let mut offset = 0;
        while offset < batch.num_rows() {
            if stretch.is_empty() {
                let Some(next) = stretches.next() else { break };
                stretch = next;
            }
            let rows = stretch.len().min(batch.num_rows() - offset);
            visit(stretch.start, &batch.slice(offset, rows))?;
            stretch.start += rows;
            offset += rows;
        }
        seen += batch.num_rows();
    }
    if seen == wanted {
        return Ok(());
    }
    Err(Error::Foreign {
        file: file.name.clone(),
        reason: format!(
            "damaged parquet file: its footer promises {wanted} rows and {seen} came out"
        ),
    })
}

fn next_batch(
    reader: &mut ParquetRecordBatchReader,
) -> parquet::errors::Result<Option<RecordBatch>> {
    reader
        .next()
        .transpose()
        .map_err(|error| ParquetError::ArrowError(error.to_string()))
}

fn reader(
    file: &DataFile,
    roots: &[usize],
    ranges: &[Range<usize>],
) -> Result<ParquetRecordBatchReader> {
    let (groups, selection) = selection(&file.footer.group_starts, ranges);
    let metadata = file.arrow_metadata()?;
    let handle = Pread::open(&file.path).map_err(|source| Error::Io {
        file: file.name.clone(),
        source,
    })?;
    guarded(&file.name, || {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(handle, metadata);
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.iter().copied());
        builder
            .with_projection(mask)
            .with_row_groups(groups)
            .with_row_selection(selection)
            .with_batch_size(BATCH_ROWS)
            .build()
    })
}

/// The row groups that the ranges touch, and the ranges counted over the rows of these groups.
fn selection(group_starts: &[usize], ranges: &[Range<usize>]) -> (Vec<usize>, RowSelection) {
    let mut groups = Vec::new();
    let mut local = Vec::new();
    let mut rows = 0;
    for (group, bounds) in group_starts.windows(2).enumerate() {
        let (start, end) = (bounds[0], bounds[1]);
        let first = ranges.partition_point(|range| range.end <= start);
        let touching = ranges[first..].iter().take_while(|range| range.start < end);
        let before = local.len();
        local.extend(
            touching.filter(|range| !range.is_empty()).map(|range| {
                rows + range.start.max(start) - start..rows + range.end.min(end) - start
            }),
        );
        if local.len() > before {
            groups.push(group);
            rows += end - start;
        }
    }
    (
        groups,
        RowSelection::from_consecutive_ranges(local.into_iter(), rows),
    )
}

/// Reads `column` over `ranges`, appending each stretch as `append` says.
fn read_column<T>(
    file: &DataFile,
    column: &str,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
    mut append: impl FnMut(&ArrayRef, &mut Vec<T>) -> Result<(), Unusable>,
) -> Result<Vec<T>> {
    let root = file.require(column, "")?;
    let mut values = Vec::new();
    scan(file, &[root], ranges, interrupt, |first_row, batch| {
        append(batch.column(0), &mut values)
            .map_err(|reason| unusable(file, column, first_row, reason))
    })?;
    Ok(values)
}

/// Calls `visit(first_row, rows)` for every stretch of the ranges, its rows of `width` values as
/// numbers.
pub(super) fn read_blocks<T: Number>(
    file: &DataFile,
    column: &str,
    width: usize,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
    mut visit: impl FnMut(usize, &[T]),
) -> Result<()> {
    let root = file.require(column, "")?;
    let mut block = Vec::new();
    scan(file, &[root], ranges, interrupt, |first_row, batch| {
        block.clear();
        T::append(batch.column(0), width, &mut block)
            .map_err(|reason| unusable(file, column, first_row, reason))?;
        visit(first_row, &block);
        Ok(())
    })
}

/// Reads an integer column; null where there is none.
pub(super) fn read_integers(
    file: &DataFile,
    column: &str,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Option<i64>>> {
    read_column(file, column, ranges, interrupt, |array, values| {
        values.append(&mut integers(array)?);
        Ok(())
    })
}

/// Width of the first vector in `ranges` that is neither null nor empty.
pub(super) fn probe_width(
    file: &DataFile,
    column: &str,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
) -> Result<Option<usize>> {
    let Some(first) = ranges.iter().find(|range| !range.is_empty()) else {
        return Ok(None);
    };
    let first = first.start..first.start + 1;
    // One row usually answers; only where it does not, look at all of them.
    match find_width(file, column, &[first], interrupt, |width| width > 0)? {
        None => find_width(file, column, ranges, interrupt, |width| width > 0),
        found => Ok(found),
    }
}

/// The first width in `ranges` that is `wanted`.
pub(super) fn find_width(
    file: &DataFile,
    column: &str,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
    wanted: impl Fn(usize) -> bool,
) -> Result<Option<usize>> {
    let root = file.require(column, "")?;
    let mut found = None;
    scan(file, &[root], ranges, interrupt, |first_row, batch| {
        let array = batch.column(0);
        vector_type(array.data_type())
            .map_err(|reason| unusable(file, column, first_row, reason))?;
        let mut widths = widths(array).into_iter().flatten();
        found = found.or_else(|| widths.find(|&width| wanted(width)));
        Ok(())
    })?;
    Ok(found)
}

/// Decodes `column` over `ranges` for nothing but the proof that the rows are there, where the file
/// has fewer bits than rows: before room is made for rows that only a damaged footer claims.
pub(super) fn prove_rows(
    file: &DataFile,
    column: &str,
    ranges: &[Range<usize>],
    interrupt: &Interrupt<'_>,
) -> Result<()> {
    let rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    if (rows as u64) < file.size.saturating_mul(8) {
        return Ok(());
    }
    let root = file.require(column, "")?;
    scan(file, &[root], ranges, interrupt, |_, _| Ok(()))
}

/// Adds the place to the reason.
pub(super) fn unusable(file: &DataFile, column: &str, first_row: usize, reason: Unusable) -> Error {
    let (file, column) = (file.name.clone(), column.to_owned());
    match reason {
        Unusable::Type(reason) => Error::Column {
            file,
            column,
            reason,
        },
        Unusable::Row(row, reason) => Error::Row {
            file,
            column,
            row: first_row + row,
            reason,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_touched_groups_are_selected() {
        let starts = [0, 10, 20, 20, 30];
        let (groups, selection) = selection(&starts, &[3..5, 22..24, 28..30]);
        assert_eq!(groups, [0, 3]);
        let expected =
            RowSelection::from_consecutive_ranges([3..5, 12..14, 18..20].into_iter(), 20);
        assert_eq!(selection, expected);
    }

    #[test]
    fn a_range_over_several_groups_is_split_at_their_borders() {
        let (groups, selection) = selection(&[0, 4, 8, 12], &[2..9]);
        assert_eq!(groups, [0, 1, 2]);
        assert_eq!(selection.row_count(), 7);
    }
}
