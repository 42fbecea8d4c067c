//! Parquet footers: what the wanted columns need of them, and no more.
//!
//! A recording of 32,000 episodes has as many row groups, and its footers describe 200,000 column
//! chunks: as structures in memory they take ten times the bytes they have on disk, and most of the
//! time of an opening. So a footer stays what it was, bytes. One walk over them finds where each row
//! group begins, holds every column chunk against the size of the file, and keeps the statistics of
//! the id columns; the chunks of other columns are looked up when they are read.
//!
//! The schema is left to the parquet crate, once for all files that have the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{DataType, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::schema::types::SchemaDescriptor;

use super::episodes::{EPISODE, FRAME, TASK};
use super::thrift::{Cursor, Malformed, kind};

/// The columns whose statistics tell episodes and tasks, in the order in which they are kept.
const IDS: [&str; 3] = [EPISODE, FRAME, TASK];

/// What keeps a footer from being used.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The footer is no thrift, or lacks what it must have.
    Malformed,
    /// Columns are encrypted.
    Encrypted,
    /// The schema is none.
    Schema(ParquetError),
    /// What the footer says cannot be.
    Impossible(String),
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct FileSchema {
    /// As the parquet crate reads a footer with this schema and no row group.
    empty: ArrowReaderMetadata,
    ids: [Option<IdLeaf>; IDS.len()],
    /// A name that two top-level columns share.
    pub(super) twice: Option<String>,
}

/// An id column of whole numbers, one a row.
#[derive(Debug, Clone, Copy)]
struct IdLeaf {
    leaf: usize,
    unsigned: bool,
    optional: bool,
}

impl FileSchema {
    /// Reads the list of schema elements, given as it stands in a footer.
    fn decode(elements: &[u8]) -> parquet::errors::Result<Self> {
        // {1: version 1, 2: elements, 3: no rows, 4: no row groups}
        let mut footer = vec![0x15, 0x02, 0x19];
        footer.extend_from_slice(elements);
        footer.extend_from_slice(&[0x16, 0x00, 0x19, 0x0c, 0x00]);
        let empty = arrow_metadata(&footer)?;
        let mut schema = Self {
            empty,
            ids: [None; IDS.len()],
            twice: None,
        };
        schema.ids = IDS.map(|name| schema.id_leaf(name));
        let mut seen = BTreeSet::new();
        let twice = schema.names().find(|name| !seen.insert(*name));
        schema.twice = twice.map(str::to_owned);
        Ok(schema)
    }

    /// The columns as Arrow names their types.
    pub(super) fn arrow(&self) -> &Schema {
        self.empty.schema()
    }

    /// The columns as parquet nests them.
    pub(super) fn parquet(&self) -> &SchemaDescriptor {
        self.empty.parquet_schema()
    }

    /// The names of the top-level columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let fields = self.parquet().root_schema().get_fields();
        fields.iter().map(|field| field.name())
    }

    /// The one leaf of the top-level column at `root`; `None` where it has several.
    pub(super) fn leaf(&self, root: usize) -> Option<usize> {
        let schema = self.parquet();
        let mut leaves =
            (0..schema.num_columns()).filter(|&leaf| schema.get_column_root_idx(leaf) == root);
        leaves.next().filter(|_| leaves.next().is_none())
    }

    fn id_leaf(&self, name: &str) -> Option<IdLeaf> {
        let root = self.names().position(|field| field == name)?;
        let data_type = self.arrow().field(root).data_type();
        let leaf = self.leaf(root).filter(|_| data_type.is_integer())?;
        let column = self.parquet().column(leaf);
        (column.max_rep_level() == 0).then(|| IdLeaf {
            leaf,
            unsigned: matches!(
                data_type,
                DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64
            ),
            optional: column.max_def_level() > 0,
        })
    }
}

/// The schemas of a data set, each decoded once.
#[derive(Debug, Default)]
pub(super) struct Schemas(Mutex<BTreeMap<Vec<u8>, Arc<FileSchema>>>);

impl Schemas {
    fn get(&self, elements: &[u8]) -> parquet::errors::Result<Arc<FileSchema>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known.get(elements) {
            return Ok(Arc::clone(schema));
        }
        let schema = Arc::new(FileSchema::decode(elements)?);
        known.insert(elements.to_vec(), Arc::clone(&schema));
        Ok(schema)
    }
}

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
    encrypted: bool,
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
    fn lies_before(&self, end: u64) -> bool {
        let stop = self
            .place()
            .and_then(|(start, bytes)| start.checked_add(bytes));
        stop.is_some_and(|stop| stop <= end)
    }
}

/// The footer of one file.
#[derive(Debug)]
pub(super) struct Footer {
    bytes: Bytes,
    pub(super) schema: Arc<FileSchema>,
    /// Ranges of the id columns in every row group, where statistics tell them.
    ids: Vec<[Option<Range>; IDS.len()]>,
    /// Place within the footer of every column chunk, leaf after leaf, row group after row group.
    places: Vec<u32>,
    /// First row of every row group, and the number of rows in all.
    pub(super) group_starts: Vec<usize>,
}

/// The most rows that a file is believed to have: beyond, its footer is damaged for sure.
const MAX_ROWS: u64 = 1 << 48;

impl Footer {
    /// Walks over the `bytes` of a footer whose file has data up to `data_end`.
    pub(super) fn parse(bytes: Bytes, data_end: u64, schemas: &Schemas) -> Result<Self, Refusal> {
        let mut walk = Walk {
            data_end,
            schema: None,
            ids: Vec::new(),
            places: Vec::new(),
            group_starts: vec![0],
        };
        let mut cursor = Cursor::new(&bytes, 0);
        let mut last = 0;
        while let Some(field) = cursor.field(&mut last)? {
            match field {
                (2, kind::LIST) if walk.schema.is_none() => {
                    let begin = cursor.at();
                    cursor.skip(kind::LIST)?;
                    let elements = bytes.get(begin..cursor.at()).ok_or(Refusal::Malformed)?;
                    walk.schema = Some(schemas.get(elements).map_err(Refusal::Schema)?);
                }
                (4, kind::LIST) if walk.ids.is_empty() => walk.row_groups(&mut cursor)?,
                (2 | 4, _) => return Err(Refusal::Malformed),
                (8, _) => return Err(Refusal::Encrypted),
                (_, other) => cursor.skip(other)?,
            }
        }
        let Walk {
            schema,
            ids,
            places,
            group_starts,
            ..
        } = walk;
        Ok(Self {
            schema: schema.ok_or(Refusal::Malformed)?,
            ids,
            places,
            group_starts,
            bytes,
        })
    }

    /// The whole footer as the parquet crate reads it.
    pub(super) fn arrow_metadata(&self) -> parquet::errors::Result<ArrowReaderMetadata> {
        arrow_metadata(&self.bytes)
    }

    /// The ranges of `episode_index`, `frame_index` and `task_index` in a row group.
    pub(super) fn id_ranges(&self, group: usize) -> [Option<Range>; IDS.len()] {
        self.ids[group]
    }

    /// The chunks of a row group at the `leaves`.
    pub(super) fn chunks(
        &self,
        group: usize,
        leaves: &[usize],
        chunks: &mut Vec<ColumnChunk>,
    ) -> Result<(), Malformed> {
        chunks.clear();
        let all = self.schema.parquet().num_columns();
        for leaf in leaves {
            let place = self.places[group * all + leaf] as usize;
            chunks.push(column_chunk(&mut Cursor::new(&self.bytes, place))?);
        }
        Ok(())
    }
}

/// Reads a footer as the parquet crate does.
///
/// The Arrow schema that writers leave beside the data names dictionaries and extension types; the
/// parquet types alone say all that is needed here.
fn arrow_metadata(footer: &[u8]) -> parquet::errors::Result<ArrowReaderMetadata> {
    let metadata = Arc::new(ParquetMetaDataReader::decode_metadata(footer)?);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::try_new(metadata, options)
}

/// What one walk over a footer gathers.
struct Walk {
    data_end: u64,
    schema: Option<Arc<FileSchema>>,
    ids: Vec<[Option<Range>; IDS.len()]>,
    places: Vec<u32>,
    group_starts: Vec<usize>,
}

impl Walk {
    fn row_groups(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
        // Without a schema before it a list of row groups says nothing.
        let schema = self.schema.clone().ok_or(Refusal::Malformed)?;
        let (length, element) = cursor.list()?;
        if element != kind::STRUCT && length > 0 {
            return Err(Refusal::Malformed);
        }
        (0..length).try_for_each(|_| self.row_group(cursor, &schema))
    }

    fn row_group(&mut self, cursor: &mut Cursor<'_>, schema: &FileSchema) -> Result<(), Refusal> {
        let (mut described, mut rows) = (false, None);
        let mut found = [None; IDS.len()];
        let mut last = 0;
        while let Some(field) = cursor.field(&mut last)? {
            match field {
                (1, kind::LIST) => {
                    self.columns(cursor, schema, &mut found)?;
                    // A second list would shift the places of all that follow.
                    if std::mem::replace(&mut described, true) {
                        return Err(Refusal::Malformed);
                    }
                }
                (3, kind::I64 | kind::I32) => rows = Some(cursor.integer()?),
                (_, other) => cursor.skip(other)?,
            }
        }
        let rows = rows.filter(|_| described).ok_or(Refusal::Malformed)?;
        let group = self.ids.len();
        let before = self.group_starts.last().copied().unwrap_or(0);
        let all = usize::try_from(rows)
            .map_err(|_| Refusal::Impossible(format!("row group {group} has {rows} rows")))?
            .saturating_add(before);
        if all as u64 > MAX_ROWS {
            return Err(Refusal::Impossible(format!("its footer claims {all} rows")));
        }
        let mut ids = [None; IDS.len()];
        for ((id, chunk), range) in schema.ids.iter().zip(found).zip(&mut ids) {
            let trusted = id.zip(chunk).filter(|(_, chunk)| chunk.values == rows);
            *range = trusted.and_then(|(id, chunk)| id_range(cursor, id, &chunk));
        }
        self.ids.push(ids);
        self.group_starts.push(all);
        Ok(())
    }

    /// Steps over the column chunks of a row group.
    fn columns(
        &mut self,
        cursor: &mut Cursor<'_>,
        schema: &FileSchema,
        found: &mut [Option<ColumnChunk>; IDS.len()],
    ) -> Result<(), Refusal> {
        let (length, element) = cursor.list()?;
        let leaves = schema.parquet().num_columns();
        if length != leaves || (element != kind::STRUCT && length > 0) {
            return Err(Refusal::Malformed);
        }
        for leaf in 0..length {
            let place = u32::try_from(cursor.at()).map_err(|_| Refusal::Malformed)?;
            self.places.push(place);
            let chunk = column_chunk(cursor)?;
            if chunk.encrypted {
                return Err(Refusal::Encrypted);
            }
            // Bytes lost somewhere in the file show here.
            if !chunk.lies_before(self.data_end) {
                let column = schema.parquet().column(leaf).path().string();
                return Err(Refusal::Impossible(format!(
                    "column {column:?} of row group {} does not lie within the file, so bytes are \
                     missing",
                    self.ids.len()
                )));
            }
            for (id, found) in schema.ids.iter().zip(&mut *found) {
                if id.is_some_and(|id| id.leaf == leaf) {
                    *found = Some(chunk);
                }
            }
        }
        Ok(())
    }
}

/// Reads one column chunk.
fn column_chunk(cursor: &mut Cursor<'_>) -> Result<ColumnChunk, Malformed> {
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
    const REQUIRED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 9;
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
fn id_range(cursor: &Cursor<'_>, id: IdLeaf, chunk: &ColumnChunk) -> Option<Range> {
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
