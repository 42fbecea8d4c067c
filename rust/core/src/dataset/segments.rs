//! Files cut into runs: consecutive rows of one episode whose frames count up by one.
//!
//! The statistics of a row group give a run at once where it holds one episode, as LeRobot writes
//! them; else its id columns are decoded.

use std::fs::File;
use std::ops::Range;

use super::column::{Scratch, Shape, Stop};
use super::columns::integers;
use super::episodes::{EPISODE, FRAME, Span, TASK};
use super::files::DataFile;
use super::fill::BLOCK_ROWS;
use super::group::{Buffers, RowGroup};
use super::open::Engine;
use super::scan::{scan, unusable};
use crate::parallel::Interrupt;
use crate::{Error, Result};

/// A span of rows whose frames, where they have any, count up by one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) episode: i64,
    pub(super) span: Span,
    /// First frame.
    pub(super) frame: Option<i64>,
    /// Task of the first row.
    pub(super) task: Option<i64>,
    pub(super) mixed_tasks: bool,
}

impl Run {
    /// The frame behind the last one.
    pub(super) fn end(&self) -> i128 {
        i128::from(self.frame.unwrap_or_default()) + self.span.rows as i128
    }
}

/// What a thread cuts files with.
pub(super) struct Cutter {
    engine: Engine,
    buffers: Buffers,
    columns: [Column; 3],
}

/// What one id column is read with.
#[derive(Default)]
struct Column {
    scratch: Scratch<i64>,
    window: Vec<u8>,
    block: Vec<i64>,
}

impl Cutter {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            buffers: Buffers::default(),
            columns: Default::default(),
        }
    }

    /// Cuts the file at `index` of the data set into runs.
    pub(super) fn runs(
        &mut self,
        file: &DataFile,
        index: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<Run>> {
        if file.rows() == 0 {
            return Ok(Vec::new());
        }
        let ids = Ids::of(file)?;
        let mut runs = Vec::new();
        let mut undecided = Vec::new();
        for group in 0..file.footer.group_starts.len() - 1 {
            match ids.by_statistics(file, group, index) {
                Some(run) => runs.push(run),
                None => undecided.push(group),
            }
        }
        let left = self.decode(file, index, &ids, &undecided, &mut runs, interrupt)?;
        ids.decode_generally(file, index, &left, interrupt, &mut runs)?;
        Ok(runs)
    }

    /// Appends the runs of row groups the quick way; gives the rows that it does not serve.
    fn decode(
        &mut self,
        file: &DataFile,
        index: usize,
        ids: &Ids,
        groups: &[usize],
        runs: &mut Vec<Run>,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<Range<usize>>> {
        let mut left = Vec::new();
        if groups.is_empty() {
            return Ok(left);
        }
        let handle = File::open(&file.path).map_err(|error| file.io_error(error))?;
        let shapes = match self.engine {
            Engine::Pages => ids.shapes(file),
            Engine::Arrow => None,
        };
        for &group in groups {
            let begun = (runs.len(), runs.last().copied());
            let outcome = match &shapes {
                Some(shapes) => {
                    let mut push = |first_row, ids: [&[i64]; 3]| {
                        push_rows(runs, index, first_row, ids);
                    };
                    self.read(file, &handle, group, shapes, interrupt, &mut push)
                }
                None => Err(Stop::Declined),
            };
            match outcome {
                Ok(()) => {}
                Err(Stop::Declined) => {
                    // What came out before it stopped is read again.
                    runs.truncate(begun.0);
                    if let (Some(last), Some(run)) = (runs.last_mut(), begun.1) {
                        *last = run;
                    }
                    let starts = &file.footer.group_starts;
                    left.push(starts[group]..starts[group + 1]);
                }
                Err(Stop::Io(error)) => return Err(file.io_error(error)),
                Err(Stop::Interrupted) => return Err(Error::Interrupted),
            }
        }
        Ok(left)
    }

    /// Hands the id columns of a row group to `push`, block by block; a column that is not there is
    /// empty.
    fn read(
        &mut self,
        file: &DataFile,
        handle: &File,
        group: usize,
        shapes: &Shapes,
        interrupt: &Interrupt<'_>,
        push: &mut dyn FnMut(usize, [&[i64]; 3]),
    ) -> Result<(), Stop> {
        let starts = &file.footer.group_starts;
        let leaves = &shapes.leaves;
        let chunks = RowGroup::fetch(handle, &file.footer, group, leaves, &mut self.buffers)?;
        let mut readers = Vec::with_capacity(3);
        for (column, shape) in self.columns.iter_mut().zip(&shapes.columns) {
            let Column {
                scratch,
                window,
                block,
            } = column;
            let reader = shape
                .map(|shape| chunks.reader(shape, window, scratch))
                .transpose()?;
            readers.push((reader, block));
        }
        for first_row in (starts[group]..starts[group + 1]).step_by(BLOCK_ROWS) {
            interrupt.check().map_err(|_| Stop::Interrupted)?;
            let rows = BLOCK_ROWS.min(starts[group + 1] - first_row);
            for (reader, block) in &mut readers {
                block.resize(if reader.is_some() { rows } else { 0 }, 0);
                if let Some(reader) = reader {
                    reader.read(block)?;
                }
            }
            let [episodes, frames, tasks] = &readers[..] else {
                return Err(Stop::Declined);
            };
            push(first_row, [&*episodes.1, &*frames.1, &*tasks.1]);
        }
        Ok(())
    }
}

/// How a file keeps its id columns.
struct Shapes {
    /// In the order episode, frame, task; `None` where the column is not there.
    columns: [Option<Shape>; 3],
    /// Their leaves, ascending.
    leaves: Vec<usize>,
}

/// Positions of the id columns of a file.
struct Ids {
    episode: usize,
    frame: Option<usize>,
    task: Option<usize>,
}

impl Ids {
    fn of(file: &DataFile) -> Result<Self> {
        Ok(Self {
            episode: file.require(EPISODE, "")?,
            frame: file.root_column(FRAME),
            task: file.root_column(TASK),
        })
    }

    /// `None` where a column is of a type that the quick way does not serve.
    fn shapes(&self, file: &DataFile) -> Option<Shapes> {
        let mut columns = [None; 3];
        let roots = [Some(self.episode), self.frame, self.task];
        for (shape, root) in columns.iter_mut().zip(roots) {
            if let Some(root) = root {
                *shape = Some(Shape::of::<i64>(&file.footer.schema, root, 1)?);
            }
        }
        let mut leaves: Vec<usize> = columns.iter().flatten().map(|shape| shape.leaf).collect();
        leaves.sort_unstable();
        Some(Shapes { columns, leaves })
    }

    /// The one run of a row group that holds one episode and one task, frames without a gap.
    fn by_statistics(&self, file: &DataFile, group: usize, index: usize) -> Option<Run> {
        let [episode, frames, task] = file.footer.id_ranges(group);
        let first_row = file.footer.group_starts[group];
        let rows = file.footer.group_starts[group + 1] - first_row;
        let episode = episode?.constant()?;
        let frame = match self.frame {
            Some(_) => {
                let frames = frames?;
                let dense = i128::from(frames.max) - i128::from(frames.min) + 1 == rows as i128;
                Some(dense.then_some(frames.min)?)
            }
            None => None,
        };
        let task = match self.task {
            Some(_) => Some(task?.constant()?),
            None => None,
        };
        let span = Span {
            file: index,
            first_row,
            rows,
            unproven: frame,
        };
        Some(Run {
            episode,
            span,
            frame,
            task,
            mixed_tasks: false,
        })
    }

    /// Appends the runs of `ranges`, whatever the id columns are.
    fn decode_generally(
        &self,
        file: &DataFile,
        index: usize,
        ranges: &[Range<usize>],
        interrupt: &Interrupt<'_>,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let roots: Vec<usize> = [Some(self.episode), self.frame, self.task]
            .into_iter()
            .flatten()
            .collect();
        scan(file, &roots, ranges, interrupt, |first_row, batch| {
            let column = |name: &str| match batch.column_by_name(name) {
                Some(array) => integers(array)
                    .map(Some)
                    .map_err(|reason| unusable(file, name, first_row, reason)),
                None => Ok(None),
            };
            let demand = |values: &[Option<i64>], row: usize, name: &str| {
                values[row].ok_or_else(|| Error::Row {
                    file: file.name.clone(),
                    column: name.to_owned(),
                    row: first_row + row,
                    reason: "it is null, so the row belongs nowhere".to_owned(),
                })
            };
            let episodes = column(EPISODE)?.unwrap_or_default();
            let (frames, tasks) = (column(FRAME)?, column(TASK)?);
            for row in 0..batch.num_rows() {
                let episode = demand(&episodes, row, EPISODE)?;
                let frame = frames
                    .as_ref()
                    .map(|frames| demand(frames, row, FRAME))
                    .transpose()?;
                let task = tasks.as_ref().and_then(|tasks| tasks[row]);
                push_row(runs, index, first_row + row, episode, frame, task);
            }
            Ok(())
        })
    }
}

/// Adds rows without a null: all frames, or all tasks, are there or none is.
fn push_rows(runs: &mut Vec<Run>, file: usize, first_row: usize, ids: [&[i64]; 3]) {
    let [episodes, frames, tasks] = ids;
    let mut row = 0;
    while row < episodes.len() {
        let (frame, task) = (frames.get(row).copied(), tasks.get(row).copied());
        push_row(runs, file, first_row + row, episodes[row], frame, task);
        let rest = [episodes, frames, tasks].map(|ids| ids.get(row + 1..).unwrap_or_default());
        let (more, other_tasks) = continued(rest, episodes[row], frame, task);
        if let Some(run) = runs.last_mut() {
            run.span.rows += more;
            run.mixed_tasks |= other_tasks;
        }
        row += 1 + more;
    }
}

/// How many rows carry on behind a row with these ids, and whether one of them has another task.
fn continued(
    ids: [&[i64]; 3],
    episode: i64,
    frame: Option<i64>,
    task: Option<i64>,
) -> (usize, bool) {
    /// Rows that are compared without a branch.
    const STEP: usize = 32;
    let [episodes, frames, tasks] = ids;
    // At the end of the numbers nothing carries on by wrapping around.
    if frame.is_some_and(|frame| frame.checked_add(episodes.len() as i64).is_none()) {
        return (0, false);
    }
    let carry_on = |rows: Range<usize>| {
        let episodes = episodes[rows.clone()].iter();
        let mut differs = episodes.fold(0, |all, &id| all | (id ^ episode));
        if let Some(frame) = frame {
            let expected = frame + 1 + rows.start as i64..;
            let frames = frames[rows].iter().zip(expected);
            differs |= frames.fold(0, |all, (&frame, expected)| all | (frame ^ expected));
        }
        differs == 0
    };
    let mut rows = 0;
    while rows + STEP <= episodes.len() && carry_on(rows..rows + STEP) {
        rows += STEP;
    }
    while rows < episodes.len() && carry_on(rows..rows + 1) {
        rows += 1;
    }
    let other = task.is_some_and(|task| tasks[..rows].iter().any(|&other| other != task));
    (rows, other)
}

/// Adds one row to the last run where it continues it, else begins a new one.
fn push_row(
    runs: &mut Vec<Run>,
    file: usize,
    row: usize,
    episode: i64,
    frame: Option<i64>,
    task: Option<i64>,
) {
    if let Some(run) = runs.last_mut() {
        let follows = run.span.first_row + run.span.rows == row && run.span.unproven.is_none();
        let counts = frame.is_none_or(|frame| i128::from(frame) == run.end());
        if follows && run.episode == episode && counts {
            run.span.rows += 1;
            run.mixed_tasks |= task != run.task;
            return;
        }
    }
    let span = Span::new(file, row, 1);
    runs.push(Run {
        episode,
        span,
        frame,
        task,
        mixed_tasks: false,
    });
}
