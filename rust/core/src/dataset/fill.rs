//! Rows of many files into flat buffers: the quick way where it serves, the general way elsewhere.
//!
//! What a call wants is cut at the borders of row groups. Each cut owns its part of every buffer, so
//! threads write where nobody else does, in whatever order they come to it.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;

use super::cells::{Sheet, read_cells};
use super::column::{Scratch, Shape, Stop};
use super::episodes::FRAME;
use super::files::DataFile;
use super::group::{Buffers, RowGroup};
use super::open::Engine;
use super::units::{Claim, GroupJob, Piece, Unit, units};
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// A column that a call wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    /// Numbers in a row of float32; `None` for one integer a row.
    pub(super) width: Option<usize>,
}

/// What the files could not give the quick way.
#[derive(Debug, Default)]
pub(super) struct Left<'a> {
    /// Column, file, rows of the file and where they go.
    pub(super) cells: Vec<Cell<'a>>,
    /// Claims that nobody has looked at.
    pub(super) claims: Vec<Claim>,
    /// Episodes whose claims do not hold.
    pub(super) disordered: Vec<usize>,
}

/// Rows of one column and one file, and where they go.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) column: usize,
    pub(super) file: usize,
    pub(super) rows: Range<usize>,
    pub(super) out: Sheet<'a>,
}

/// Rows decoded between two looks at the caller's interrupt.
pub(super) const BLOCK_ROWS: usize = 1 << 13;

/// Fills the `sheets` of the `wanted` columns by the `pieces`, which follow one another in the answer, and looks
/// at the `claims`.
pub(super) fn fill<'a>(
    (engine, files): (Engine, &[DataFile]),
    wanted: &[Wanted<'_>],
    sheets: Vec<Sheet<'a>>,
    pieces: &[Piece],
    claims: &[Claim],
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Left<'a>> {
    let units = units(files, sheets, pieces, claims);
    let outcomes = parallel::consume(
        units,
        threads,
        interrupt,
        || Desk::new(engine),
        |desk, unit| desk.work(&files[unit.file], wanted, unit, interrupt),
    )?;
    let mut left = Left::default();
    for outcome in outcomes {
        let mut part = outcome?;
        left.cells.append(&mut part.cells);
        left.claims.append(&mut part.claims);
        left.disordered.append(&mut part.disordered);
    }
    Ok(left)
}

/// What a thread works with from unit to unit.
struct Desk {
    engine: Engine,
    buffers: Buffers,
    window: Vec<u8>,
    floats: Bench<f32>,
    integers: Bench<i64>,
}

/// What a thread decodes numbers of one kind with.
#[derive(Default)]
struct Bench<T> {
    scratch: Scratch<T>,
    block: Vec<T>,
}

/// How a file keeps the columns of a call.
struct Shapes {
    columns: Vec<Option<Shape>>,
    frame: Option<Shape>,
    /// The leaves of the columns, ascending; and with that of the frames.
    leaves: Vec<usize>,
    leaves_and_frame: Vec<usize>,
}

impl Shapes {
    fn of(engine: Engine, file: &DataFile, wanted: &[Wanted<'_>]) -> Result<Self> {
        let schema = &file.footer.schema;
        let shape = |wanted: &Wanted<'_>| -> Result<Option<Shape>> {
            let root = file.require(wanted.name, "")?;
            Ok(match (engine, wanted.width) {
                (Engine::Arrow, _) => None,
                (Engine::Pages, Some(width)) => Shape::of::<f32>(schema, root, width),
                (Engine::Pages, None) => Shape::of::<i64>(schema, root, 1),
            })
        };
        let columns = wanted.iter().map(shape).collect::<Result<Vec<_>>>()?;
        let frame = file.root_column(FRAME).filter(|_| engine == Engine::Pages);
        let frame = frame.and_then(|root| Shape::of::<i64>(schema, root, 1));
        let leaves = |shapes: &mut dyn Iterator<Item = &Option<Shape>>| {
            let set: BTreeSet<usize> = shapes.flatten().map(|shape| shape.leaf).collect();
            set.into_iter().collect()
        };
        let (of_columns, and_frame) = (
            leaves(&mut columns.iter()),
            leaves(&mut columns.iter().chain([&frame])),
        );
        Ok(Self {
            leaves: of_columns,
            leaves_and_frame: and_frame,
            columns,
            frame,
        })
    }
}

impl Desk {
    fn new(engine: Engine) -> Self {
        Self {
            engine,
            buffers: Buffers::default(),
            window: Vec::new(),
            floats: Bench::default(),
            integers: Bench::default(),
        }
    }

    fn work<'a>(
        &mut self,
        file: &DataFile,
        wanted: &[Wanted<'_>],
        unit: Unit<'a>,
        interrupt: &Interrupt<'_>,
    ) -> Result<Left<'a>> {
        let handle = File::open(&file.path).map_err(|error| file.io_error(error))?;
        let shapes = Shapes::of(self.engine, file, wanted)?;
        let mut left = Left::default();
        for mut job in unit.groups {
            let leaves = if job.claims.is_empty() {
                &shapes.leaves
            } else {
                &shapes.leaves_and_frame
            };
            let group =
                RowGroup::fetch(&handle, &file.footer, job.group, leaves, &mut self.buffers);
            let group = served(group, file)?;
            for (column, shape) in shapes.columns.iter().enumerate() {
                let read = match (&group, shape) {
                    (Some(group), Some(shape)) => {
                        let read = job.read(
                            column,
                            group,
                            *shape,
                            &mut self.window,
                            (&mut self.floats, &mut self.integers),
                            interrupt,
                        );
                        served(read, file)?
                    }
                    _ => None,
                };
                if read.is_none() {
                    job.leave(column, unit.file, file, &mut left.cells);
                }
            }
            let proven = match (&group, &shapes.frame) {
                (Some(group), Some(shape)) if !job.claims.is_empty() => {
                    let window = &mut self.window;
                    let proven = job.prove(group, *shape, window, &mut self.integers, interrupt);
                    served(proven, file)?
                }
                _ => None,
            };
            match proven {
                Some(mut disordered) => left.disordered.append(&mut disordered),
                None => left
                    .claims
                    .extend(job.claims.into_iter().map(|(_, claim)| claim)),
            }
        }
        Ok(left)
    }
}

/// What came out; `None` where it is left to the general reader.
pub(super) fn served<T>(outcome: Result<T, Stop>, file: &DataFile) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Declined) => Ok(None),
        Err(Stop::Io(error)) => Err(file.io_error(error)),
        Err(Stop::Interrupted) => Err(Error::Interrupted),
    }
}

impl<'a> GroupJob<'a> {
    /// Reads one column into its sheets.
    fn read(
        &mut self,
        column: usize,
        group: &RowGroup<'_>,
        shape: Shape,
        window: &mut Vec<u8>,
        (floats, integers): (&mut Bench<f32>, &mut Bench<i64>),
        interrupt: &Interrupt<'_>,
    ) -> Result<(), Stop> {
        let (mut singles, mut wholes) = (Vec::new(), Vec::new());
        for (rows, outs) in &mut self.cuts {
            match &mut outs[column] {
                Some(Sheet::Floats(out, _)) => singles.push((rows.clone(), &mut **out)),
                Some(Sheet::Integers(out)) => wholes.push((rows.clone(), &mut **out)),
                None => {}
            }
        }
        if !singles.is_empty() {
            let Bench { scratch, block } = floats;
            let mut reader = group.reader(shape, window, scratch)?;
            return read_cells(&mut reader, &mut singles, shape.width, block, interrupt);
        }
        let Bench { scratch, block } = integers;
        let mut reader = group.reader(shape, window, scratch)?;
        read_cells(&mut reader, &mut wholes, 1, block, interrupt)
    }

    /// Leaves the sheets of one column to the general reader.
    fn leave(&mut self, column: usize, index: usize, file: &DataFile, cells: &mut Vec<Cell<'a>>) {
        let start = file.footer.group_starts[self.group];
        cells.extend(self.cuts.iter_mut().filter_map(|(rows, outs)| {
            Some(Cell {
                column,
                file: index,
                rows: start + rows.start..start + rows.end,
                out: outs[column].take()?,
            })
        }));
    }

    /// The episodes whose claims do not hold.
    fn prove(
        &self,
        group: &RowGroup<'_>,
        shape: Shape,
        window: &mut Vec<u8>,
        Bench { scratch, block }: &mut Bench<i64>,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<usize>, Stop> {
        let mut reader = group.reader(shape, window, scratch)?;
        let mut disordered = Vec::new();
        let mut row = 0;
        for (rows, claim) in &self.claims {
            // An episode may be claimed but once, so claims follow one another.
            reader.skip(rows.start.checked_sub(row).ok_or(Stop::Declined)?)?;
            row = rows.end;
            let mut expected = claim.frame;
            let mut left = rows.len();
            while left > 0 {
                interrupt.check().map_err(|_| Stop::Interrupted)?;
                block.resize(left.min(BLOCK_ROWS), 0);
                reader.read(block)?;
                let counts = block
                    .iter()
                    .zip(0..)
                    .all(|(&frame, row)| frame.wrapping_sub(row) == expected);
                if !counts {
                    disordered.push(claim.episode);
                }
                expected = expected.wrapping_add(block.len() as i64);
                left -= block.len();
            }
        }
        Ok(disordered)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use arrow_array::types::Float32Type;
    use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, Encoding, ZstdLevel};
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

    use super::*;
    use crate::dataset::Dataset;

    const FILE: &str = "data/chunk-000/file-000.parquet";

    /// Two episodes of 60 frames.
    fn write(root: &Path, properties: WriterPropertiesBuilder) {
        fs::create_dir_all(root.join("meta")).unwrap();
        fs::create_dir_all(root.join("data/chunk-000")).unwrap();
        fs::write(
            root.join("meta/info.json"),
            r#"{"codebase_version": "v3.0"}"#,
        )
        .unwrap();
        let row = |row: i64| Some(vec![Some((row % 7) as f32), Some(0.5), Some(row as f32)]);
        let action = ListArray::from_iter_primitive::<Float32Type, _, _>((0..120).map(row));
        let ids = |of: fn(i64) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..120).map(of)))
        };
        let batch = RecordBatch::try_from_iter([
            ("action", Arc::new(action) as ArrayRef),
            ("frame_index", ids(|row| row % 60)),
            ("episode_index", ids(|row| row / 60)),
        ]);
        let batch = batch.unwrap();
        let properties = properties
            .set_max_row_group_row_count(Some(60))
            .set_write_batch_size(16)
            .set_data_page_row_count_limit(32)
            .build();
        let file = File::create(root.join(FILE)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    /// How many cells and claims are left to the Arrow reader.
    fn left(properties: WriterPropertiesBuilder) -> (usize, usize) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), properties);
        let never = Interrupt::never();
        let dataset = Dataset::open(root.path(), None, 1, &never).unwrap();
        let (mut action, mut frames) = (vec![0.0; 360], vec![0; 120]);
        let wanted = [("action", Some(3)), ("frame_index", None)];
        let wanted = wanted.map(|(name, width)| Wanted { name, width });
        let sheets = vec![Sheet::Floats(&mut action, 3), Sheet::Integers(&mut frames)];
        let piece = |first_row| Piece {
            file: 0,
            first_row,
            rows: 60,
            out: first_row,
        };
        let claim = Claim {
            file: 0,
            first_row: 60,
            rows: 60,
            frame: 0,
            episode: 1,
        };
        let (engine, files) = (Engine::Pages, &dataset.files);
        let pieces = [piece(0), piece(60)];
        let left = fill(
            (engine, files),
            &wanted,
            sheets,
            &pieces,
            &[claim],
            1,
            &never,
        )
        .unwrap();
        assert!(left.disordered.is_empty());
        (left.cells.len(), left.claims.len())
    }

    #[test]
    fn what_robots_record_is_read_from_its_pages() {
        let base = WriterProperties::builder;
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let served = [
            base(),
            base().set_compression(Compression::SNAPPY),
            base()
                .set_compression(zstd)
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_encoding(Encoding::PLAIN)
                .set_dictionary_enabled(false),
            base()
                .set_dictionary_page_size_limit(64)
                .set_compression(Compression::SNAPPY),
            base()
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_dictionary_enabled(true),
        ];
        for (index, properties) in served.into_iter().enumerate() {
            // Version 2 falls back from dictionaries to encodings of differences for integers.
            assert_eq!(left(properties), (0, 0), "writer {index}");
        }
        let split = base()
            .set_encoding(Encoding::BYTE_STREAM_SPLIT)
            .set_dictionary_enabled(false);
        assert_eq!(left(split), (4, 1));
    }
}
