//! The episodes of a data set, as the rows tell them.
//!
//! Each file is cut into *runs*: consecutive rows of one episode whose frames count up by one. The
//! statistics of a row group give a run at once where it holds one episode, as LeRobot writes
//! them; else its id columns are decoded. The runs of an episode, wherever they lie, are then put in
//! the order of their frames.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use super::check::Findings;
use super::columns::integers;
use super::files::DataFile;
use super::footer;
use super::scan::{scan, unusable};
use crate::parallel::Interrupt;
use crate::{Error, Result};

pub(super) const EPISODE: &str = "episode_index";
pub(super) const FRAME: &str = "frame_index";
pub(super) const TASK: &str = "task_index";

/// The task index of an episode whose task is unknown.
pub(super) const UNRESOLVED: i64 = -1;

/// Consecutive rows of one file that belong to one episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Position of the file in [`Dataset::files`](super::Dataset::files).
    pub file: usize,
    /// First row within the file.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// First frame where the order of the rows follows from statistics alone, and so is likely but
    /// not proven.
    pub(super) unproven: Option<i64>,
}

impl Span {
    /// The span of the rows `first_row .. first_row + rows` of a file.
    #[must_use]
    pub fn new(file: usize, first_row: usize, rows: usize) -> Self {
        Self {
            file,
            first_row,
            rows,
            unproven: None,
        }
    }
}

impl Span {
    /// Whether `next` carries on where this span ends.
    pub(super) fn continues_in(&self, next: &Self) -> bool {
        let frames = match (self.unproven, next.unproven) {
            (None, None) => true,
            (Some(frame), Some(next)) => frame.checked_add(self.rows as i64) == Some(next),
            _ => false,
        };
        self.file == next.file && self.first_row + self.rows == next.first_row && frames
    }
}

/// Every episode with its length, its task and the rows that hold it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpisodeTable {
    /// Ids, ascending; not necessarily dense.
    pub episode_index: Vec<i64>,
    /// Number of frames.
    pub length: Vec<i64>,
    /// Task of the first frame; -1 where it has none, or one that the data set does not define.
    pub task_index: Vec<i64>,
    /// Where the spans of each episode begin in `spans`; one entry more than there are episodes.
    pub span_offsets: Vec<usize>,
    /// The rows of every episode, in the order of its frames.
    pub spans: Vec<Span>,
}

impl EpisodeTable {
    /// The number of episodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.episode_index.len()
    }

    /// Whether there is no episode.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.episode_index.is_empty()
    }

    /// Position of the episode with the id `episode`.
    #[must_use]
    pub fn position(&self, episode: i64) -> Option<usize> {
        self.episode_index.binary_search(&episode).ok()
    }

    /// The rows of the episode at `position`.
    #[must_use]
    pub fn spans(&self, position: usize) -> &[Span] {
        &self.spans[self.span_offsets[position]..self.span_offsets[position + 1]]
    }

    /// Puts the runs of all files together.
    pub(super) fn assemble(
        mut runs: Vec<Run>,
        files: &[DataFile],
        findings: &mut Findings,
    ) -> Result<Self> {
        runs.sort_unstable_by_key(|run| (run.episode, run.span.file, run.span.first_row));
        let mut table = Self {
            span_offsets: vec![0],
            ..Self::default()
        };
        for episode in runs.chunk_by_mut(|a, b| a.episode == b.episode) {
            order(episode, files, findings)?;
            let first = episode[0];
            if episode
                .iter()
                .any(|run| run.mixed_tasks || run.task != first.task)
            {
                findings.mixed_tasks.push(first.episode);
            }
            table.episode_index.push(first.episode);
            table
                .length
                .push(episode.iter().map(|run| run.span.rows as i64).sum());
            table.task_index.push(first.task.unwrap_or(UNRESOLVED));
            table.push_spans(episode);
        }
        Ok(table)
    }

    /// Appends the spans of one episode, those that continue one another as one.
    fn push_spans(&mut self, runs: &[Run]) {
        let begin = self.spans.len();
        for Run { span, .. } in runs {
            match self.spans[begin..].last_mut() {
                Some(last) if last.continues_in(span) => last.rows += span.rows,
                _ => self.spans.push(*span),
            }
        }
        self.span_offsets.push(self.spans.len());
    }

    /// Keeps the episodes whose ids are in the ascending list `selected`, all of which exist.
    pub(super) fn select(&self, selected: &[i64]) -> Self {
        let mut table = Self {
            span_offsets: vec![0],
            ..Self::default()
        };
        for position in selected
            .iter()
            .filter_map(|&episode| self.position(episode))
        {
            table.episode_index.push(self.episode_index[position]);
            table.length.push(self.length[position]);
            table.task_index.push(self.task_index[position]);
            table.spans.extend_from_slice(self.spans(position));
            table.span_offsets.push(table.spans.len());
        }
        table
    }
}

/// Puts the runs of one episode, given in file order, in the order of their frames.
fn order(runs: &mut [Run], files: &[DataFile], findings: &mut Findings) -> Result<()> {
    let episode = runs[0].episode;
    if runs.iter().any(|run| run.frame.is_none()) {
        if runs.iter().any(|run| run.frame.is_some()) {
            findings.partly_framed.push(episode);
        }
        return Ok(());
    }
    if !runs.is_sorted_by_key(|run| run.frame) {
        findings.frame_order.push(episode);
        runs.sort_by_key(|run| run.frame);
    }
    let mut gap = runs[0].frame != Some(0);
    for pair in runs.windows(2) {
        let (end, start) = (pair[0].end(), i128::from(pair[1].frame.unwrap_or_default()));
        if start < end {
            let name = |run: &Run| files[run.span.file].name.clone();
            return Err(Error::DuplicateFrame {
                episode,
                frame: start as i64,
                first: name(&pair[0]),
                second: name(&pair[1]),
            });
        }
        gap |= start > end;
    }
    if gap {
        findings.frame_gaps.push(episode);
    }
    Ok(())
}

/// A span of rows whose frames, where they have any, count up by one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) episode: i64,
    pub(super) span: Span,
    /// First frame.
    frame: Option<i64>,
    /// Task of the first row.
    task: Option<i64>,
    mixed_tasks: bool,
}

impl Run {
    /// The frame behind the last one.
    fn end(&self) -> i128 {
        i128::from(self.frame.unwrap_or_default()) + self.span.rows as i128
    }
}

/// Cuts the file at `index` of the data set into runs.
pub(super) fn runs(file: &DataFile, index: usize, interrupt: &Interrupt<'_>) -> Result<Vec<Run>> {
    if file.rows() == 0 {
        return Ok(Vec::new());
    }
    let ids = Ids::of(file)?;
    let mut runs = Vec::new();
    let mut undecided = Vec::new();
    for (group, bounds) in file.group_starts.windows(2).enumerate() {
        let rows = bounds[0]..bounds[1];
        match ids.by_statistics(file, group, index) {
            Some(run) => runs.push(run),
            None => undecided.push(rows),
        }
    }
    ids.decode(file, index, &undecided, interrupt, &mut runs)?;
    Ok(runs)
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

    /// The one run of a row group that holds one episode and one task, frames without a gap.
    fn by_statistics(&self, file: &DataFile, group: usize, index: usize) -> Option<Run> {
        let metadata = file.metadata.metadata().row_group(group);
        let schema = file.metadata.parquet_schema();
        let range = |root: usize| {
            // What decoding would refuse, statistics must not let pass.
            file.metadata
                .schema()
                .field(root)
                .data_type()
                .is_integer()
                .then_some(())?;
            let leaf =
                (0..schema.num_columns()).find(|&l| schema.get_column_root_idx(l) == root)?;
            footer::range(metadata, leaf)
        };
        let rows = file.group_starts[group + 1] - file.group_starts[group];
        let episode = range(self.episode)?.constant()?;
        let frame = match self.frame {
            Some(root) => {
                let frames = range(root)?;
                let dense = i128::from(frames.max) - i128::from(frames.min) + 1 == rows as i128;
                Some(dense.then_some(frames.min)?)
            }
            None => None,
        };
        let task = match self.task {
            Some(root) => Some(range(root)?.constant()?),
            None => None,
        };
        let first_row = file.group_starts[group];
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

    /// Appends the runs of `ranges`, read from the id columns.
    fn decode(
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

impl EpisodeTable {
    /// The table as one Arrow record batch: `episode_index`, `length`, `task_index` (int64; null
    /// where unresolved) and `spans`, a list of `{file, first_row, rows}`.
    pub fn to_arrow(&self) -> Result<RecordBatch> {
        let ids = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let column = |value: fn(&Span) -> usize| {
            let values: Int64Array = self.spans.iter().map(|span| value(span) as i64).collect();
            Arc::new(values) as ArrayRef
        };
        let field = |name: &str| Field::new(name, DataType::Int64, false);
        let members = Fields::from(vec![field("file"), field("first_row"), field("rows")]);
        let columns = vec![
            column(|s| s.file),
            column(|s| s.first_row),
            column(|s| s.rows),
        ];
        let refuse =
            |error: ArrowError| Error::argument(format!("malformed episode table: {error}"));
        let spans = StructArray::try_new(members.clone(), columns, None).map_err(refuse)?;
        let item = Arc::new(Field::new("item", DataType::Struct(members), false));
        let offsets: Vec<i64> = self
            .span_offsets
            .iter()
            .map(|&offset| offset as i64)
            .collect();
        if !offsets.is_sorted() || offsets.len() != self.len() + 1 {
            return Err(Error::argument(
                "malformed episode table: span_offsets do not fit",
            ));
        }
        let offsets = OffsetBuffer::new(offsets.into());
        let spans = LargeListArray::try_new(item.clone(), offsets, Arc::new(spans), None);
        let resolved = self
            .task_index
            .iter()
            .map(|&task| (task != UNRESOLVED).then_some(task));
        let schema = Schema::new(vec![
            field(EPISODE),
            field("length"),
            Field::new(TASK, DataType::Int64, true),
            Field::new("spans", DataType::LargeList(item), false),
        ]);
        let task: ArrayRef = Arc::new(resolved.collect::<Int64Array>());
        let columns = vec![
            ids(&self.episode_index),
            ids(&self.length),
            task,
            Arc::new(spans.map_err(refuse)?),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).map_err(refuse)
    }
}
