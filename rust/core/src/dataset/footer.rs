//! Parquet footers: what the wanted columns need of them, and no more.
//!
//! A recording of 32,000 episodes has as many row groups, and its footers describe 200,000 column
//! chunks: as structures in memory they take several times the bytes they have on disk, and most of
//! the time of an opening. So a footer stays what it was, bytes. One walk over them finds where each row
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

use super::chunk::{ColumnChunk, IdLeaf, Range, column_chunk, id_range};
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
