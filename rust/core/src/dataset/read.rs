//! Reading rows and chunks of an open data set.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_schema::DataType;

use super::cells::{Sheet, read_sheets, union};
use super::check::ranges;
use super::episodes::Span;
use super::fill::{Cell, Left, Wanted, fill};
use super::open::Dataset;
use super::order::{disordered, sorted};
use super::scan::{find_width, probe_width, prove_rows};
use super::units::{Claim, Piece};
use crate::parallel::{self, Interrupt};
use crate::{Error, Result, memory};

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

/// A column that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// One integer a row.
    Integers(Vec<i64>),
    /// One number or one list of numbers a row, as float32.
    Floats(Matrix),
}

impl Column {
    /// Room for `rows` rows; `width` is `None` for integers.
    fn zeroed(rows: usize, width: Option<usize>) -> Result<Self> {
        Ok(match width {
            None => Self::Integers(zeroed(rows, 1)?),
            Some(width) => Self::Floats(Matrix {
                values: zeroed(rows, width)?,
                width,
            }),
        })
    }

    fn sheet(&mut self) -> Sheet<'_> {
        match self {
            Self::Integers(values) => Sheet::Integers(values),
            Self::Floats(Matrix { values, width }) => Sheet::Floats(values, *width),
        }
    }
}

/// What became of an attempt to read.
enum Attempt {
    Done(Vec<Column>),
    /// Rows of these episodes do not lie as statistics suggest; these are the spans that do.
    Reorder(BTreeMap<usize, Vec<Span>>),
    /// The column at this place has rows of this width, and not of that which metadata claims.
    Width(usize, usize),
}

/// Rows of a data set that a call wants, one window after the other: positions in the table of
/// episodes, and frames.
pub(super) type Windows = [(usize, Range<usize>)];

/// The widest vector that is believed on the word of metadata alone.
const MAX_CLAIMED_WIDTH: u64 = 1 << 16;

impl Dataset {
    /// Reads columns of the episodes at `positions`, one episode after the other.
    ///
    /// A column of integers comes as such, and a null in it is an error; every other one as rows of
    /// float32, where a null row or value is NaN.
    pub fn read(
        &self,
        columns: &[&str],
        positions: &[usize],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<Column>> {
        let length = |position: usize| self.episodes().length[position] as usize;
        let windows: Vec<_> = positions.iter().map(|&p| (p, 0..length(p))).collect();
        let wanted: Result<Vec<_>> = columns
            .iter()
            .map(|&name| Ok((name, self.value(name)? == Value::Integer)))
            .collect();
        self.gather(&wanted?, &windows, threads, interrupt)
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
        let read = self.gather(&[(column, false)], &windows?, threads, interrupt)?;
        match <[Column; 1]>::try_from(read) {
            Ok([Column::Floats(matrix)]) => Ok(matrix),
            _ => Err(Error::argument("one column of numbers was asked for")),
        }
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
            match file.footer.schema.arrow().field(root).data_type() {
                DataType::Null => {}
                integer if integer.is_integer() => return Ok(Value::Integer),
                nested if nested.is_nested() => return Ok(Value::Vector),
                _ => return Ok(Value::Scalar),
            }
        }
        Ok(Value::Vector)
    }

    /// Values in a row of `column`: those of the first row that is not null.
    pub(super) fn width(
        &self,
        column: &str,
        wanted: &BTreeMap<usize, Vec<Range<usize>>>,
        interrupt: &Interrupt<'_>,
    ) -> Result<usize> {
        let claimed = self.claimed_width(column);
        // Where nothing is asked for, the first row of all stands in.
        let first = self.files.iter().position(|file| file.rows() > 0);
        let stand_in = first
            .filter(|_| wanted.is_empty())
            .map(|file| (file, &[0..1][..]));
        let planned = wanted
            .iter()
            .map(|(&file, ranges)| (file, ranges.as_slice()));
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
    pub(super) fn claimed_width(&self, column: &str) -> Option<usize> {
        let shape = &self.info().features.get(column)?.shape;
        let width = shape
            .iter()
            .try_fold(1_u64, |all, &dim| all.checked_mul(dim))?;
        (1..=MAX_CLAIMED_WIDTH)
            .contains(&width)
            .then_some(width as usize)
    }

    /// Reads columns, given by name and whether they are read as integers, over `windows`.
    ///
    /// What metadata and statistics say of widths and of the order of frames is taken at first; where
    /// rows show that it is wrong, the call begins anew with what the rows say.
    pub(super) fn gather(
        &self,
        columns: &[(&str, bool)],
        windows: &Windows,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<Column>> {
        let mut reordered = BTreeMap::new();
        let mut known: Vec<Option<usize>> = vec![None; columns.len()];
        loop {
            match self.attempt(columns, &known, windows, &reordered, threads, interrupt)? {
                Attempt::Done(columns) => return Ok(columns),
                Attempt::Reorder(mut spans) => reordered.append(&mut spans),
                Attempt::Width(column, width) => known[column] = Some(width),
            }
        }
    }

    fn attempt(
        &self,
        columns: &[(&str, bool)],
        known: &[Option<usize>],
        windows: &Windows,
        reordered: &BTreeMap<usize, Vec<Span>>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Attempt> {
        let pieces = self.pieces(windows, reordered);
        let rows = windows
            .iter()
            .fold(0_usize, |all, (_, frames)| all.saturating_add(frames.len()));
        let by_file = ranges_by_file(&pieces);
        let mut wanted = Vec::with_capacity(columns.len());
        for (&(name, integers), known) in columns.iter().zip(known) {
            let width = match (integers, known.or_else(|| self.claimed_width(name))) {
                (true, _) => None,
                (false, Some(width)) => Some(width),
                (false, None) => Some(self.width(name, &by_file, interrupt)?),
            };
            for (&file, ranges) in &by_file {
                prove_rows(&self.files[file], name, ranges, interrupt)?;
            }
            wanted.push(Wanted { name, width });
        }
        let mut answer = wanted
            .iter()
            .map(|wanted| Column::zeroed(rows, wanted.width))
            .collect::<Result<Vec<_>>>()?;
        let sheets = answer.iter_mut().map(Column::sheet).collect();
        let claims = self.claims(windows, reordered);
        let left = fill(
            (self.engine, &self.files),
            &wanted,
            sheets,
            &pieces,
            &claims,
            threads,
            interrupt,
        )?;
        let suspects = self.suspects(&left, threads, interrupt)?;
        if !suspects.is_empty() {
            let sort = |&episode: &usize| {
                let spans = sorted(self.episodes(), &self.files, episode, interrupt)?;
                Ok((episode, spans))
            };
            return Ok(Attempt::Reorder(
                suspects.iter().map(sort).collect::<Result<_>>()?,
            ));
        }
        for (column, wanted) in wanted.iter().enumerate() {
            let Some(assumed) = wanted.width.filter(|_| known[column].is_none()) else {
                continue;
            };
            if left.cells.iter().any(|cell| cell.column == column) {
                let width = self.width(wanted.name, &by_file, interrupt)?;
                if width != assumed {
                    return Ok(Attempt::Width(column, width));
                }
            }
        }
        self.read_rest(&wanted, left.cells, threads, interrupt)?;
        Ok(Attempt::Done(answer))
    }

    /// The rows that hold the windows, in their order; those that follow one another as one piece.
    pub(super) fn pieces(
        &self,
        windows: &Windows,
        reordered: &BTreeMap<usize, Vec<Span>>,
    ) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(windows.len());
        let mut rows = 0;
        for (position, frames) in windows {
            let spans = reordered
                .get(position)
                .map_or_else(|| self.episodes().spans(*position), Vec::as_slice);
            for piece in cut(spans, frames, rows) {
                match pieces.last_mut() {
                    Some(last)
                        if last.file == piece.file
                            && last.first_row + last.rows == piece.first_row =>
                    {
                        last.rows += piece.rows;
                    }
                    _ => pieces.push(piece),
                }
            }
            rows += frames.len();
        }
        pieces
    }

    /// What statistics claim of the order of frames in the episodes of the windows.
    fn claims(&self, windows: &Windows, reordered: &BTreeMap<usize, Vec<Span>>) -> Vec<Claim> {
        let mut positions: Vec<usize> = windows.iter().map(|&(position, _)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        let open = positions.iter().filter(|p| !reordered.contains_key(p));
        open.flat_map(|&episode| {
            let spans = self.episodes().spans(episode).iter();
            spans.filter_map(move |span| {
                Some(Claim {
                    file: span.file,
                    first_row: span.first_row,
                    rows: span.rows,
                    frame: span.unproven?,
                    episode,
                })
            })
        })
        .collect()
    }

    /// The episodes whose rows do not lie as statistics claim.
    fn suspects(
        &self,
        left: &Left<'_>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<usize>> {
        let mut by_file: BTreeMap<usize, Vec<Claim>> = BTreeMap::new();
        for claim in &left.claims {
            by_file.entry(claim.file).or_default().push(*claim);
        }
        let mut suspects = left.disordered.clone();
        let work = |(): &mut (), (file, claims): (usize, Vec<Claim>)| {
            disordered(&self.files[file], claims, interrupt)
        };
        let found = parallel::consume(by_file, threads, interrupt, || (), work)?;
        for found in found {
            suspects.append(&mut found?);
        }
        suspects.sort_unstable();
        suspects.dedup();
        Ok(suspects)
    }

    /// Reads the general way what was left.
    fn read_rest(
        &self,
        wanted: &[Wanted<'_>],
        cells: Vec<Cell<'_>>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        let mut jobs: BTreeMap<(usize, usize), Vec<_>> = BTreeMap::new();
        for cell in cells {
            let job = jobs.entry((cell.column, cell.file)).or_default();
            job.push((cell.rows, cell.out));
        }
        let work = |(): &mut (), ((column, file), sheets): ((usize, usize), Vec<_>)| {
            read_sheets(&self.files[file], wanted[column].name, sheets, interrupt)
        };
        let done = parallel::consume(jobs, threads, interrupt, || (), work)?;
        done.into_iter().collect()
    }
}

/// The rows of each file that the pieces want: ascending, disjoint.
pub(super) fn ranges_by_file(pieces: &[Piece]) -> BTreeMap<usize, Vec<Range<usize>>> {
    let mut by_file: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
    for piece in pieces {
        let rows = piece.first_row..piece.first_row + piece.rows;
        by_file.entry(piece.file).or_default().push(rows);
    }
    for ranges in by_file.values_mut() {
        *ranges = union(std::mem::take(ranges));
    }
    by_file
}

/// Room for `rows` rows of `width` values, all zero.
fn zeroed<T: Copy + Default>(rows: usize, width: usize) -> Result<Vec<T>> {
    let values = rows.checked_mul(width).and_then(memory::zeroed);
    values.ok_or(Error::TooLarge { rows, width })
}

/// The parts of the spans that hold the `frames` of an episode, to be written from row `out` on.
fn cut(spans: &[Span], frames: &Range<usize>, out: usize) -> impl Iterator<Item = Piece> {
    let frames = frames.clone();
    let mut first_frame = 0;
    spans.iter().filter_map(move |span| {
        let here = first_frame..first_frame + span.rows;
        first_frame = here.end;
        let (begin, end) = (frames.start.max(here.start), frames.end.min(here.end));
        (begin < end).then(|| Piece {
            file: span.file,
            first_row: span.first_row + begin - here.start,
            rows: end - begin,
            out: out + begin - frames.start,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_over_several_spans_is_cut_at_their_borders() {
        let spans = [Span::new(0, 10, 3), Span::new(1, 0, 2), Span::new(0, 50, 4)];
        let got: Vec<_> = cut(&spans, &(2..7), 100)
            .map(|piece| (piece.file, piece.first_row, piece.rows, piece.out))
            .collect();
        assert_eq!(got, [(0, 12, 1, 100), (1, 0, 2, 101), (0, 50, 2, 103)]);
    }
}
