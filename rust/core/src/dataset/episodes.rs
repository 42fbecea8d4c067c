//! The episodes of a data set, as the rows tell them.
//!
//! The runs of an episode, wherever they lie, are put in the order of their frames; see
//! [`segments`](super::segments) for where runs come from.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use super::check::Findings;
use super::files::DataFile;
use super::segments::Run;
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
