//! Reading rows and chunks of an open data set.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_schema::DataType;

use super::check::ranges;
use super::episodes::Span;
use super::files::DataFile;
use super::open::Dataset;
use super::order::reorder;
use super::scan::{find_width, probe_width, prove_rows, read_integers, read_vectors};
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// A row-major matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// The values, row by row.
    pub values: Vec<f32>,
    /// Values in a row.
    pub width: usize,
}

/// What one row of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// One integer.
    Integer,
    /// One number of another kind.
    Scalar,
    /// A list of numbers.
    Vector,
}

/// What a call needs of one file.
#[derive(Debug)]
struct FilePlan {
    file: usize,
    pieces: Vec<Piece>,
    /// The rows of all pieces: ascending, disjoint.
    ranges: Vec<Range<usize>>,
}

/// What a call needs of all files, in their order.
#[derive(Debug)]
struct Plan {
    files: Vec<FilePlan>,
    /// Rows of the answer.
    rows: usize,
}

/// The widest vector that is believed on the word of metadata alone.
const MAX_CLAIMED_WIDTH: u64 = 1 << 16;

/// Rows of one file and where they go.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first_row: usize,
    rows: usize,
    /// First row of the output.
    out: usize,
}

impl Dataset {
    /// Reads a numeric column of the episodes at `positions`, one after the other, as rows of
    /// float32; a null row or value is NaN.
    pub fn read_vectors(
        &self,
        column: &str,
        positions: &[usize],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Matrix> {
        let windows = self.whole(positions);
        self.gather_vectors(column, &windows, threads, interrupt)
    }

    /// Reads an integer column of the episodes at `positions`, one after the other; a null is an
    /// error.
    pub fn read_integers(
        &self,
        column: &str,
        positions: &[usize],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<i64>> {
        let plan = self.plan(&self.whole(positions), threads, interrupt)?;
        self.gather(column, &plan, 1, threads, interrupt, |file, ranges| {
            let values = read_integers(file, column, ranges, interrupt)?;
            values
                .into_iter()
                .collect::<Option<Vec<i64>>>()
                .ok_or_else(|| Error::Column {
                    file: file.name.clone(),
                    column: column.to_owned(),
                    reason: "it holds null, which no integer can express".to_owned(),
                })
        })
    }

    /// Reads the chunks of `chunk_size` frames of a numeric column that begin at frame `start[i]` of
    /// the episode with the id `episode_index[i]`: row-major `(chunks, chunk_size, width)`.
    ///
    /// Only the row groups that hold a frame of a chunk are read.
    pub fn read_chunks(
        &self,
        column: &str,
        episode_index: &[i64],
        start: &[i64],
        chunk_size: usize,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Matrix> {
        if episode_index.len() != start.len() {
            return Err(Error::argument(format!(
                "episode_index and start differ in length: {} and {}",
                episode_index.len(),
                start.len()
            )));
        }
        let windows: Result<Vec<_>> = episode_index
            .iter()
            .zip(start)
            .map(|(&episode, &start)| self.window(episode, start, chunk_size))
            .collect();
        self.gather_vectors(column, &windows?, threads, interrupt)
    }

    /// All frames of the episodes at `positions`.
    fn whole(&self, positions: &[usize]) -> Vec<(usize, Range<usize>)> {
        let length = |position: usize| self.episodes().length[position] as usize;
        positions.iter().map(|&p| (p, 0..length(p))).collect()
    }

    /// The frames of one chunk, once they are known to exist.
    fn window(&self, episode: i64, start: i64, chunk: usize) -> Result<(usize, Range<usize>)> {
        let table = self.episodes();
        let position = table.position(episode).ok_or_else(|| Error::Selection {
            missing: episode.to_string(),
            count: table.len(),
            known: ranges(&table.episode_index),
        })?;
        let length = table.length[position] as usize;
        let first = usize::try_from(start).ok();
        let last = first
            .and_then(|first| first.checked_add(chunk))
            .filter(|&end| end <= length);
        match (first, last) {
            (Some(first), Some(end)) if chunk > 0 => Ok((position, first..end)),
            _ => Err(Error::argument(format!(
                "a chunk of {chunk} frames from frame {start} does not lie within the {length} frames \
                 of episode {episode}"
            ))),
        }
    }

    /// What one row of `column` is, in the first file that tells.
    pub fn value(&self, column: &str) -> Result<Value> {
        for file in self.files.iter().filter(|file| file.rows() > 0) {
            let root = file.require(column, "")?;
            match file.metadata.schema().field(root).data_type() {
                DataType::Null => {}
                integer if integer.is_integer() => return Ok(Value::Integer),
                nested if nested.is_nested() => return Ok(Value::Vector),
                _ => return Ok(Value::Scalar),
            }
        }
        Ok(Value::Vector)
    }

    fn gather_vectors(
        &self,
        column: &str,
        windows: &[(usize, Range<usize>)],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Matrix> {
        let plan = self.plan(windows, threads, interrupt)?;
        let width = self.width(column, &plan, interrupt)?;
        let read = |file: &DataFile, ranges: &[Range<usize>]| {
            read_vectors(file, column, width, ranges, interrupt)
        };
        let values = self.gather(column, &plan, width, threads, interrupt, read)?;
        Ok(Matrix { values, width })
    }

    /// What the windows need of each file.
    fn plan(
        &self,
        windows: &[(usize, Range<usize>)],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Plan> {
        let mut positions: Vec<usize> = windows.iter().map(|&(position, _)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        let reordered = reorder(self.episodes(), &self.files, &positions, threads, interrupt)?;
        let mut by_file: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
        let mut rows = 0_usize;
        for (position, frames) in windows {
            let spans = reordered
                .get(position)
                .map_or_else(|| self.episodes().spans(*position), Vec::as_slice);
            for (span, piece) in pieces(spans, frames, rows) {
                by_file.entry(span.file).or_default().push(piece);
            }
            rows = rows.saturating_add(frames.len());
        }
        let files = by_file.into_iter().map(|(file, pieces)| {
            let ranges = union(&pieces);
            FilePlan {
                file,
                pieces,
                ranges,
            }
        });
        Ok(Plan {
            files: files.collect(),
            rows,
        })
    }

    /// Values in a row of `column`: those of the first row that is not null.
    fn width(&self, column: &str, plan: &Plan, interrupt: &Interrupt<'_>) -> Result<usize> {
        let claimed = self.claimed_width(column);
        // Where nothing is asked for, the first row of all stands in.
        let first = self.files.iter().position(|file| file.rows() > 0);
        let stand_in = first
            .filter(|_| plan.files.is_empty())
            .map(|file| (file, &[0..1][..]));
        let planned = plan
            .files
            .iter()
            .map(|part| (part.file, part.ranges.as_slice()));
        let mut rest = planned
            .chain(stand_in)
            .map(|(file, ranges)| (&self.files[file], ranges));
        while let Some((file, ranges)) = rest.next() {
            let Some(width) = probe_width(file, column, ranges, interrupt)? else {
                continue;
            };
            // Rows decide, but where some have the width that metadata gives, the others are wrong.
            let Some(other) = claimed.filter(|&claimed| claimed != width) else {
                return Ok(width);
            };
            for (file, ranges) in std::iter::once((file, ranges)).chain(rest) {
                if find_width(file, column, ranges, interrupt, |w| w == other)?.is_some() {
                    return Ok(other);
                }
            }
            return Ok(width);
        }
        // Nothing but nulls: the metadata's word is as good as any.
        Ok(claimed.unwrap_or(1))
    }

    /// Values in a row of `column` by the word of metadata, within reason.
    fn claimed_width(&self, column: &str) -> Option<usize> {
        let shape = &self.info().features.get(column)?.shape;
        let width = shape
            .iter()
            .try_fold(1_u64, |all, &dim| all.checked_mul(dim))?;
        (1..=MAX_CLAIMED_WIDTH)
            .contains(&width)
            .then_some(width as usize)
    }

    /// Decodes the files of the plan, as many at a time as there are threads, and puts each piece in
    /// its place among rows of `width` values.
    fn gather<T: Copy + Default + Send>(
        &self,
        column: &str,
        plan: &Plan,
        width: usize,
        threads: usize,
        interrupt: &Interrupt<'_>,
        read: impl Fn(&DataFile, &[Range<usize>]) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        for part in &plan.files {
            prove_rows(&self.files[part.file], column, &part.ranges, interrupt)?;
        }
        let mut out = zeroed(plan.rows, width)?;
        for wave in plan.files.chunks(threads.max(1)) {
            let decoded = parallel::map(wave, threads, interrupt, |part| {
                read(&self.files[part.file], &part.ranges)
            })?;
            for (part, values) in wave.iter().zip(decoded) {
                scatter(&values?, part, &mut out, width);
            }
        }
        Ok(out)
    }
}

/// Room for `rows` rows of `width` values, all zero.
fn zeroed<T: Clone + Default>(rows: usize, width: usize) -> Result<Vec<T>> {
    let refuse = || Error::TooLarge { rows, width };
    let length = rows.checked_mul(width).ok_or_else(refuse)?;
    // An allocation that fails takes the process down: ask first.
    Vec::<T>::new()
        .try_reserve_exact(length)
        .map_err(|_| refuse())?;
    Ok(vec![T::default(); length])
}

/// The parts of the spans that hold the `frames` of an episode, to be written from row `out` on.
fn pieces<'a>(
    spans: &'a [Span],
    frames: &Range<usize>,
    out: usize,
) -> impl Iterator<Item = (&'a Span, Piece)> {
    let frames = frames.clone();
    let mut first_frame = 0;
    spans.iter().filter_map(move |span| {
        let here = first_frame..first_frame + span.rows;
        first_frame = here.end;
        let (begin, end) = (frames.start.max(here.start), frames.end.min(here.end));
        (begin < end).then(|| {
            let first_row = span.first_row + begin - here.start;
            (
                span,
                Piece {
                    first_row,
                    rows: end - begin,
                    out: out + begin - frames.start,
                },
            )
        })
    })
}

/// The rows of all pieces: ascending, disjoint ranges.
fn union(pieces: &[Piece]) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = pieces
        .iter()
        .map(|piece| piece.first_row..piece.first_row + piece.rows)
        .collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Copies every piece out of `values`, which holds the rows of the ranges one after the other.
fn scatter<T: Copy>(values: &[T], part: &FilePlan, out: &mut [T], width: usize) {
    let FilePlan { pieces, ranges, .. } = part;
    let mut before = Vec::with_capacity(ranges.len());
    let mut rows = 0;
    for range in ranges {
        before.push(rows);
        rows += range.len();
    }
    for piece in pieces {
        let range = ranges.partition_point(|range| range.end <= piece.first_row);
        let from = (before[range] + piece.first_row - ranges[range].start) * width;
        let length = piece.rows * width;
        out[piece.out * width..][..length].copy_from_slice(&values[from..from + length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_over_several_spans_is_cut_at_their_borders() {
        let spans = [Span::new(0, 10, 3), Span::new(1, 0, 2), Span::new(0, 50, 4)];
        let got: Vec<_> = pieces(&spans, &(2..7), 100)
            .map(|(span, piece)| (span.file, piece.first_row, piece.rows, piece.out))
            .collect();
        assert_eq!(got, [(0, 12, 1, 100), (1, 0, 2, 101), (0, 50, 2, 103)]);
    }

    #[test]
    fn overlapping_pieces_are_decoded_once_and_copied_each() {
        let pieces = [
            Piece {
                first_row: 4,
                rows: 3,
                out: 0,
            },
            Piece {
                first_row: 5,
                rows: 3,
                out: 3,
            },
            Piece {
                first_row: 20,
                rows: 1,
                out: 6,
            },
        ];
        let ranges = union(&pieces);
        assert_eq!(ranges, [4..8, 20..21]);
        let values = [4, 5, 6, 7, 20];
        let mut out = [0; 7];
        let part = FilePlan {
            file: 0,
            pieces: pieces.to_vec(),
            ranges,
        };
        scatter(&values, &part, &mut out, 1);
        assert_eq!(out, [4, 5, 6, 5, 6, 7, 20]);
    }
}
