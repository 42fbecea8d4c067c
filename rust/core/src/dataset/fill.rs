//! Rows of many files into flat buffers: the quick way where it serves, the general way elsewhere.
//!
//! What a call wants is cut at the borders of row groups. Each cut owns its part of every buffer, so
//! threads write where nobody else does, in whatever order they come to it.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;

use super::column::{ColumnReader, Number, Scratch, Shape, Stop};
use super::episodes::FRAME;
use super::files::DataFile;
use super::group::{Buffers, RowGroup};
use super::open::Engine;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// Rows of one file and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) file: usize,
    /// First row within the file.
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// First row of the answer.
    pub(super) out: usize,
}

/// Rows whose frames are to be seen to count up from `frame`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) file: usize,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) frame: i64,
    /// The episode, by its position in the table.
    pub(super) episode: usize,
}

/// A column that a call wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    /// Numbers in a row of float32; `None` for one integer a row.
    pub(super) width: Option<usize>,
}

/// A column of the answer, as it fills.
#[derive(Debug)]
pub(super) enum Sheet<'a> {
    /// Row-major rows of so many values.
    Floats(&'a mut [f32], usize),
    /// One value a row.
    Integers(&'a mut [i64]),
}

impl<'a> Sheet<'a> {
    /// Takes the first `rows` rows off.
    fn split_off(&mut self, rows: usize) -> Self {
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

/// What a call wants of one row group; rows count from its first.
struct GroupJob<'a> {
    group: usize,
    cuts: Vec<(Range<usize>, Vec<Option<Sheet<'a>>>)>,
    claims: Vec<(Range<usize>, Claim)>,
}

/// Row groups of one file, enough to be worth the opening.
struct Unit<'a> {
    file: usize,
    groups: Vec<GroupJob<'a>>,
}

/// Rows after which a unit is large enough.
const UNIT_ROWS: usize = 1 << 15;

/// Rows decoded between two looks at the caller's interrupt.
const BLOCK_ROWS: usize = 1 << 13;

/// Fills the `sheets` of the `wanted` columns by the `pieces`, which follow one another in the answer, and looks
/// at the `claims`.
pub(super) fn fill<'a>(
    engine: Engine,
    files: &[DataFile],
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

/// Cuts pieces and claims at the borders of row groups and deals them out.
fn units<'a>(
    files: &[DataFile],
    mut sheets: Vec<Sheet<'a>>,
    pieces: &[Piece],
    claims: &[Claim],
) -> Vec<Unit<'a>> {
    let mut cuts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let rows = piece.first_row..piece.first_row + piece.rows;
        for (group, rows) in by_group(&files[piece.file], rows) {
            let outs = sheets
                .iter_mut()
                .map(|sheet| Some(sheet.split_off(rows.len())));
            cuts.push((piece.file, group, rows.clone(), outs.collect::<Vec<_>>()));
        }
    }
    cuts.sort_by_key(|(file, group, rows, _)| (*file, *group, rows.start));
    let mut proofs = Vec::with_capacity(claims.len());
    for claim in claims {
        let file = &files[claim.file];
        let rows = claim.first_row..claim.first_row + claim.rows;
        proofs.extend(by_group(file, rows).map(|(group, rows)| {
            let first_row = file.footer.group_starts[group] + rows.start;
            let part = Claim {
                first_row,
                rows: rows.len(),
                frame: claim.frame + (first_row - claim.first_row) as i64,
                ..*claim
            };
            (claim.file, group, rows, part)
        }));
    }
    proofs.sort_by_key(|(file, group, rows, _)| (*file, *group, rows.start));

    let mut dealer = Dealer::default();
    let (mut cuts, mut proofs) = (cuts.into_iter().peekable(), proofs.into_iter().peekable());
    loop {
        let next_cut = cuts.peek().map(|(file, group, ..)| (*file, *group));
        let next_proof = proofs.peek().map(|(file, group, ..)| (*file, *group));
        let Some((file, group)) = next_cut.into_iter().chain(next_proof).min() else {
            return dealer.units;
        };
        let here = |f: usize, g: usize| (f, g) == (file, group);
        let mut job = GroupJob {
            group,
            cuts: Vec::new(),
            claims: Vec::new(),
        };
        while let Some((_, _, rows, outs)) = cuts.next_if(|(f, g, ..)| here(*f, *g)) {
            job.cuts.push((rows, outs));
        }
        while let Some((_, _, rows, claim)) = proofs.next_if(|(f, g, ..)| here(*f, *g)) {
            job.claims.push((rows, claim));
        }
        dealer.deal(file, job);
    }
}

/// The row groups that hold `rows` of a file, and which of their own rows these are.
fn by_group(file: &DataFile, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let starts = &file.footer.group_starts;
    let first = starts.partition_point(|&start| start <= rows.start) - 1;
    (first..starts.len() - 1)
        .map(|group| (group, starts[group], starts[group + 1]))
        .take_while(move |&(_, start, _)| start < rows.end)
        .filter(|(_, start, end)| start < end)
        .map({
            let rows = rows.clone();
            move |(group, start, end)| {
                (
                    group,
                    rows.start.max(start) - start..rows.end.min(end) - start,
                )
            }
        })
}

/// Puts consecutive row groups of a file into one unit, up to a number of rows.
#[derive(Default)]
struct Dealer<'a> {
    units: Vec<Unit<'a>>,
    rows: usize,
}

impl<'a> Dealer<'a> {
    fn deal(&mut self, file: usize, job: GroupJob<'a>) {
        let rows: usize = job.cuts.iter().map(|(rows, _)| rows.len()).sum();
        match self.units.last_mut() {
            Some(unit) if unit.file == file && self.rows < UNIT_ROWS => {
                unit.groups.push(job);
                self.rows += rows;
            }
            _ => {
                let groups = vec![job];
                self.units.push(Unit { file, groups });
                self.rows = rows;
            }
        }
    }
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
fn served<T>(outcome: Result<T, Stop>, file: &DataFile) -> Result<Option<T>> {
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

/// Reads `cells`, rows of one row group with the part of the answer that is theirs, in the order of
/// their first rows. They may overlap: a row that several want is decoded once.
fn read_cells<T: Number>(
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
pub(super) fn spread<T: Copy>(
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
