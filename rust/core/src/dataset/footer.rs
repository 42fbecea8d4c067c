//! Row-group statistics: episodes and tasks without reading a data page.

use parquet::basic::{ConvertedType, LogicalType};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

/// The smallest and the largest value of an integer column within a row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Range {
    /// The one value of the column, where it has but one.
    pub(super) fn constant(self) -> Option<i64> {
        (self.min == self.max).then_some(self.min)
    }
}

/// The range of the flat integer column whose leaf is at `leaf`.
///
/// Only where the statistics can be trusted to speak of every row: they are there and exact, they
/// count no null, and the column has as many values as the group has rows.
pub(super) fn range(group: &RowGroupMetaData, leaf: usize) -> Option<Range> {
    let column = group.columns().get(leaf)?;
    let statistics = column.statistics()?;
    let flat = column.column_descr().max_rep_level() == 0;
    let no_nulls =
        column.column_descr().max_def_level() == 0 || statistics.null_count_opt() == Some(0);
    let whole = column.num_values() == group.num_rows() && group.num_rows() > 0;
    // Old writers ordered unsigned numbers as signed ones.
    let ordered = !(unsigned(column) && statistics.is_min_max_deprecated());
    let exact = statistics.min_is_exact() && statistics.max_is_exact() && ordered;
    if !(flat && no_nulls && whole && exact) {
        return None;
    }
    let (min, max) = match statistics {
        Statistics::Int32(s) => (
            widened(*s.min_opt()?, column),
            widened(*s.max_opt()?, column),
        ),
        Statistics::Int64(s) if !unsigned(column) => (*s.min_opt()?, *s.max_opt()?),
        _ => return None,
    };
    (min <= max).then_some(Range { min, max })
}

/// A 32-bit statistic in the sign that the column's logical type gives it.
fn widened(value: i32, column: &ColumnChunkMetaData) -> i64 {
    if unsigned(column) {
        i64::from(value.cast_unsigned())
    } else {
        i64::from(value)
    }
}

fn unsigned(column: &ColumnChunkMetaData) -> bool {
    let by_logical_type = matches!(
        column.column_descr().logical_type_ref(),
        Some(LogicalType::Integer(integer)) if !integer.is_signed
    );
    let by_converted_type = matches!(
        column.column_descr().converted_type(),
        ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    );
    by_logical_type || by_converted_type
}
