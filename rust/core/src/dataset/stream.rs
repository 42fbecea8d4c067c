//! A column that passes by, block by block, and is never in memory as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;

use super::column::{Number, Scratch, Shape, Stop};
use super::files::DataFile;
use super::fill::{BLOCK_ROWS, served};
use super::group::{Buffers, RowGroup};
use super::open::{Dataset, Engine};
use super::scan::read_blocks;
use super::units::{UNIT_ROWS, by_group};
use crate::Result;
use crate::parallel::{self, Interrupt};

/// A column of numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream<'a> {
    pub(super) name: &'a str,
    /// Values in a row.
    pub(super) width: usize,
}

/// Rows of row groups of one file, which one thread goes through.
struct Unit {
    file: usize,
    /// Each with its wanted rows: ascending, disjoint.
    groups: Vec<(usize, Vec<Range<usize>>)>,
    rows: usize,
}

/// What a thread works with from unit to unit.
#[derive(Default)]
struct Desk<T> {
    buffers: Buffers,
    scratch: Scratch<T>,
    window: Vec<u8>,
    block: Vec<T>,
}

impl Stream<'_> {
    /// Shows the `wanted` rows of each file, ascending and disjoint, to visitors, each of which sees consecutive rows of one file; what
    /// they have seen comes in the order of the rows. How rows are dealt to visitors depends on the
    /// files alone, never on the number of threads.
    pub(super) fn show<T: Number, V: Send>(
        self,
        dataset: &Dataset,
        wanted: &BTreeMap<usize, Vec<Range<usize>>>,
        threads: usize,
        interrupt: &Interrupt<'_>,
        visitor: impl Fn() -> V + Sync,
        visit: impl Fn(&mut V, &[T]) + Sync,
    ) -> Result<Vec<V>> {
        let work = |desk: &mut Desk<T>, unit: Unit| {
            let file = &dataset.files[unit.file];
            if dataset.engine == Engine::Pages {
                let mut seen = visitor();
                let pages = self.pages(desk, file, &unit, interrupt, |rows| visit(&mut seen, rows));
                if served(pages, file)?.is_some() {
                    return Ok(seen);
                }
            }
            // Whoever has seen a part of the rows may not see them again.
            let mut seen = visitor();
            let starts = &file.footer.group_starts;
            let of_group = |(group, ranges): &(usize, Vec<Range<usize>>)| {
                let start = starts[*group];
                let shifted = ranges.iter().map(|r| start + r.start..start + r.end);
                shifted.collect::<Vec<_>>()
            };
            let ranges: Vec<_> = unit.groups.iter().flat_map(of_group).collect();
            let show = |_, rows: &[T]| visit(&mut seen, rows);
            read_blocks(file, self.name, self.width, &ranges, interrupt, show)?;
            Ok(seen)
        };
        let units = units(&dataset.files, wanted);
        let seen = parallel::consume(units, threads, interrupt, Desk::default, work)?;
        seen.into_iter().collect()
    }

    /// Shows the rows of a unit the quick way.
    fn pages<T: Number>(
        self,
        desk: &mut Desk<T>,
        file: &DataFile,
        unit: &Unit,
        interrupt: &Interrupt<'_>,
        mut show: impl FnMut(&[T]),
    ) -> Result<(), Stop> {
        let root = file.root_column(self.name).ok_or(Stop::Declined)?;
        let shape = Shape::of::<T>(&file.footer.schema, root, self.width).ok_or(Stop::Declined)?;
        let handle = File::open(&file.path)?;
        let leaves = [shape.leaf];
        for (group, ranges) in &unit.groups {
            let Desk {
                buffers,
                scratch,
                window,
                block,
            } = &mut *desk;
            let group = RowGroup::fetch(&handle, &file.footer, *group, &leaves, buffers)?;
            let mut reader = group.reader(shape, window, scratch)?;
            let mut row = 0;
            for range in ranges {
                reader.skip(range.start - row)?;
                row = range.end;
                for first in range.clone().step_by(BLOCK_ROWS) {
                    interrupt.check().map_err(|_| Stop::Interrupted)?;
                    let count = BLOCK_ROWS.min(range.end - first);
                    block.resize(count * self.width, T::default());
                    reader.read(block)?;
                    show(block);
                }
            }
        }
        Ok(())
    }
}

/// Cuts ranges at the borders of row groups and puts row groups of a file together.
fn units(files: &[DataFile], wanted: &BTreeMap<usize, Vec<Range<usize>>>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (&file, ranges) in wanted {
        let cuts = ranges
            .iter()
            .flat_map(|rows| by_group(&files[file], rows.clone()));
        for (group, rows) in cuts {
            let count = rows.len();
            match units.last_mut().filter(|unit| unit.file == file) {
                Some(Unit {
                    groups, rows: all, ..
                }) if groups.last().is_some_and(|(last, _)| *last == group) => {
                    if let Some((_, ranges)) = groups.last_mut() {
                        ranges.push(rows);
                    }
                    *all += count;
                }
                Some(unit) if unit.rows < UNIT_ROWS => {
                    unit.groups.push((group, vec![rows]));
                    unit.rows += count;
                }
                _ => units.push(Unit {
                    file,
                    groups: vec![(group, vec![rows])],
                    rows: count,
                }),
            }
        }
    }
    units
}
