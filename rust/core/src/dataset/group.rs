//! The wanted column chunks of one row group, brought within reach.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::chunk::ColumnChunk;
use super::column::{ColumnReader, Number, Scratch, Shape, Stop};
use super::footer::Footer;
use super::pages::Source;

/// Bytes between wanted column chunks that are read along with them rather than in another call.
const GAP: u64 = 1 << 12;

/// The most bytes that are read at once for several columns.
const TOGETHER: u64 = 1 << 22;

/// Memory that goes from row group to row group.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    chunks: Vec<ColumnChunk>,
    together: Vec<u8>,
}

/// Column chunks of one row group.
pub(super) struct RowGroup<'a> {
    handle: &'a File,
    rows: usize,
    leaves: &'a [usize],
    chunks: &'a [ColumnChunk],
    /// The bytes of all chunks, and where in the file they begin: where they lie close together.
    together: Option<(u64, &'a [u8])>,
}

impl<'a> RowGroup<'a> {
    /// Finds the chunks of the ascending `leaves`. Those that lie close together are read at once, as
    /// a recording has them: a row group an episode, of which each column is some kilobytes.
    pub(super) fn fetch(
        handle: &'a File,
        footer: &Footer,
        group: usize,
        leaves: &'a [usize],
        buffers: &'a mut Buffers,
    ) -> Result<Self, Stop> {
        let Buffers { chunks, together } = buffers;
        footer
            .chunks(group, leaves, chunks)
            .map_err(|_| Stop::Declined)?;
        let rows = footer.group_starts[group + 1] - footer.group_starts[group];
        let mut row_group = Self {
            handle,
            rows,
            leaves,
            chunks,
            together: None,
        };
        if let Some((start, length)) = row_group.extent() {
            together.resize(length, 0);
            handle.read_exact_at(together, start)?;
            row_group.together = Some((start, together));
        }
        Ok(row_group)
    }

    /// Where to read, and how much, to have all chunks at once; `None` where that is not worth it.
    fn extent(&self) -> Option<(u64, usize)> {
        let mut wanted = 0_u64;
        let (mut start, mut end) = (u64::MAX, 0);
        for chunk in self.chunks {
            let (first, bytes) = chunk.place()?;
            wanted = wanted.checked_add(bytes)?;
            start = start.min(first);
            end = end.max(first.checked_add(bytes)?);
        }
        let length = end.checked_sub(start)?;
        let close = length <= TOGETHER && length <= wanted.saturating_add(GAP);
        close.then_some((start, length as usize))
    }

    /// A reader of the column with this shape; `window` is used where it is not read already.
    pub(super) fn reader<'r, T: Number>(
        &self,
        shape: Shape,
        window: &'r mut Vec<u8>,
        scratch: &'r mut Scratch<T>,
    ) -> Result<ColumnReader<'r, T>, Stop>
    where
        'a: 'r,
    {
        let index = self.leaves.iter().position(|&leaf| leaf == shape.leaf);
        let chunk = index
            .and_then(|index| self.chunks.get(index))
            .ok_or(Stop::Declined)?;
        let (start, bytes) = chunk.place().ok_or(Stop::Declined)?;
        let source = match self.together {
            Some((base, all)) => {
                let begin = (start - base) as usize;
                Source::Memory(&all[begin..begin + bytes as usize])
            }
            None => Source::of_file(self.handle, start, bytes as usize, window),
        };
        ColumnReader::new(chunk, self.rows, shape, source, scratch)
    }
}
