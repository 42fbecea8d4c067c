//! What a footer says of one column within one row group.

use super::thrift::{Cursor, Malformed, kind};

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

/// An id column of whole numbers, one a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdLeaf {
    pub(super) leaf: usize,
    pub(super) unsigned: bool,
    pub(super) optional: bool,
}

/// Where the pages of one column within one row group lie, and what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ColumnChunk {
    /// The type of its values, by parquet's number.
    pub(super) physical: i64,
    /// How its pages are compressed, by parquet's number.
    pub(super) codec: i64,
    /// Values, nulls and empty lists included.
    pub(super) values: i64,
    /// Bytes of all pages, headers included.
    pub(super) bytes: i64,
    data_page: i64,
    dictionary_page: Option<i64>,
    /// Place of the statistics within the footer.
    statistics: Option<usize>,
    /// The pages lie in another file.
    pub(super) external: bool,
    pub(super) encrypted: bool,
}

impl ColumnChunk {
    /// Where the first page lies within the file, and the bytes of all.
    pub(super) fn place(&self) -> Option<(u64, u64)> {
        let start = self.dictionary_page.unwrap_or(self.data_page);
        u64::try_from(start)
            .ok()
            .zip(u64::try_from(self.bytes).ok())
    }

    /// Whether all pages lie before `end`.
    pub(super) fn lies_before(&self, end: u64) -> bool {
        let stop = self
            .place()
            .and_then(|(start, bytes)| start.checked_add(bytes));
        stop.is_some_and(|stop| stop <= end)
    }
}

/// Reads one column chunk.
pub(super) fn column_chunk(cursor: &mut Cursor<'_>) -> Result<ColumnChunk, Malformed> {
    let mut chunk = ColumnChunk::default();
    let mut described = false;
    let mut last = 0;
    while let Some(field) = cursor.field(&mut last)? {
        match field {
            (1, kind::BINARY) => {
                chunk.external = true;
                cursor.skip(kind::BINARY)?;
            }
            (3, kind::STRUCT) => {
                described = true;
                column_metadata(cursor, &mut chunk)?;
            }
            (8 | 9, other) => {
                chunk.encrypted = true;
                cursor.skip(other)?;
            }
            (_, other) => cursor.skip(other)?,
        }
    }
    if described || chunk.encrypted {
        Ok(chunk)
    } else {
        Err(Malformed)
    }
}

/// Fields of the metadata of a column chunk that must be there, a bit each.
const REQUIRED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9;

fn column_metadata(cursor: &mut Cursor<'_>, chunk: &mut ColumnChunk) -> Result<(), Malformed> {
    let mut seen = 0_u32;
    let mut last = 0;
    while let Some((id, of_kind)) = cursor.field(&mut last)? {
        let place = match id {
            1 => &mut chunk.physical,
            4 => &mut chunk.codec,
            5 => &mut chunk.values,
            7 => &mut chunk.bytes,
            9 => &mut chunk.data_page,
            11 => chunk.dictionary_page.insert(0),
            12 => {
                chunk.statistics = Some(cursor.at());
                cursor.skip(of_kind)?;
                continue;
            }
            _ => {
                cursor.skip(of_kind)?;
                continue;
            }
        };
        if !matches!(of_kind, kind::I32 | kind::I64) {
            return Err(Malformed);
        }
        *place = cursor.integer()?;
        seen |= 1 << id;
    }
    if seen & REQUIRED == REQUIRED {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// The range that the statistics of an id column give.
///
/// Only where they can be trusted to speak of every row: they are there and exact, and they count no
/// null.
pub(super) fn id_range(cursor: &Cursor<'_>, id: IdLeaf, chunk: &ColumnChunk) -> Option<Range> {
    let statistics = Statistics::parse(&mut cursor.clone_at(chunk.statistics?)).ok()?;
    if id.optional && statistics.nulls != Some(0) || statistics.inexact {
        return None;
    }
    // Writers of long ago ordered unsigned numbers as signed ones.
    let (min, max) = match (statistics.min, statistics.max) {
        (None, None) if !id.unsigned => (statistics.old_min?, statistics.old_max?),
        (min, max) => (min?, max?),
    };
    let (min, max) = (
        id.value(min, chunk.physical)?,
        id.value(max, chunk.physical)?,
    );
    (min <= max && chunk.values > 0).then_some(Range { min, max })
}

impl IdLeaf {
    /// A statistic in the sign that the type of the column gives it.
    fn value(self, bytes: &[u8], physical: i64) -> Option<i64> {
        match (physical, self.unsigned) {
            (physical::INT32, false) => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            (physical::INT32, true) => Some(u32::from_le_bytes(bytes.try_into().ok()?).into()),
            (physical::INT64, false) => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// Parquet's numbers for the types of values that are read here.
pub(super) mod physical {
    pub(in super::super) const INT32: i64 = 1;
    pub(in super::super) const INT64: i64 = 2;
    pub(in super::super) const FLOAT: i64 = 4;
    pub(in super::super) const DOUBLE: i64 = 5;
}

/// The statistics of a column chunk, as written.
#[derive(Debug, Default)]
struct Statistics<'a> {
    old_max: Option<&'a [u8]>,
    old_min: Option<&'a [u8]>,
    nulls: Option<i64>,
    max: Option<&'a [u8]>,
    min: Option<&'a [u8]>,
    inexact: bool,
}

impl<'a> Statistics<'a> {
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let mut statistics = Self::default();
        let mut last = 0;
        while let Some(field) = cursor.field(&mut last)? {
            match field {
                (1, kind::BINARY) => statistics.old_max = Some(cursor.binary()?),
                (2, kind::BINARY) => statistics.old_min = Some(cursor.binary()?),
                (3, kind::I64) => statistics.nulls = Some(cursor.integer()?),
                (5, kind::BINARY) => statistics.max = Some(cursor.binary()?),
                (6, kind::BINARY) => statistics.min = Some(cursor.binary()?),
                (7 | 8, kind::FALSE) => statistics.inexact = true,
                (_, other) => cursor.skip(other)?,
            }
        }
        Ok(statistics)
    }
}
