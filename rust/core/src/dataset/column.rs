//! The quick way from the pages of a column to numbers in a caller's buffer.
//!
//! It serves what robots record: numbers, or lists of numbers that all have the same length, without
//! a null, PLAIN or in a dictionary. Nothing of that is taken on trust. The levels of every page up to
//! the last wanted row are held against the pattern they must form, so that the place of a row among
//! the values follows from its number, and every count against what the pages hold. Whatever differs
//! is *declined*, and [`scan`](super::scan), which reads all that parquet knows, reads it instead:
//! there are two ways to an answer, and one answer.

use std::io;
use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::chunk::{ColumnChunk, physical};
use super::columns::{Unusable, append_vectors, integers};
use super::footer::FileSchema;
use super::hybrid::{PADDING, Runs, all_are, are_lists};
use super::pages::{Codec, Header, Inflater, Source, page};

/// Why nothing more comes out of a column here.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is not what this reader serves, or it is damaged: the general reader shall tell.
    Declined,
    /// The system refused to read.
    Io(io::Error),
    /// The caller asked for it.
    Interrupted,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The largest page that is read; writers make them of a megabyte or so.
const MAX_PAGE: usize = 1 << 26;

/// A number that a column is read as.
pub(super) trait Number: Copy + Default + Send + Sync {
    /// Whether a column whose values have the Arrow type `value` reads as this number.
    fn reads(value: &DataType) -> bool;

    /// Converts PLAIN values of the physical type `from`; `bytes` holds as many as `out`.
    fn convert(from: i64, bytes: &[u8], out: &mut [Self]);

    /// Appends rows of `width` values that the Arrow reader gives.
    fn append(array: &ArrayRef, width: usize, out: &mut Vec<Self>) -> Result<(), Unusable>;
}

/// Converts each value by `$number`, eight or four bytes at a time.
macro_rules! convert {
    ($bytes:expr, $out:expr, $from:ty, $number:expr) => {
        for (number, value) in $out.iter_mut().zip($bytes.as_chunks().0) {
            *number = $number(<$from>::from_le_bytes(*value));
        }
    };
}

impl Number for f32 {
    fn reads(value: &DataType) -> bool {
        use DataType::{Float32, Float64, Int32, Int64};
        matches!(value, Float32 | Float64 | Int32 | Int64)
    }

    fn convert(from: i64, bytes: &[u8], out: &mut [Self]) {
        match from {
            physical::FLOAT => convert!(bytes, out, f32, |v| v),
            physical::DOUBLE => convert!(bytes, out, f64, |v| v as f32),
            physical::INT32 => convert!(bytes, out, i32, |v| v as f32),
            _ => convert!(bytes, out, i64, |v| v as f32),
        }
    }

    fn append(array: &ArrayRef, width: usize, out: &mut Vec<Self>) -> Result<(), Unusable> {
        append_vectors(array, width, out)
    }
}

impl Number for i64 {
    fn reads(value: &DataType) -> bool {
        matches!(value, DataType::Int32 | DataType::Int64)
    }

    fn convert(from: i64, bytes: &[u8], out: &mut [Self]) {
        match from {
            physical::INT32 => convert!(bytes, out, i32, i64::from),
            _ => convert!(bytes, out, i64, |v| v),
        }
    }

    fn append(array: &ArrayRef, _: usize, out: &mut Vec<Self>) -> Result<(), Unusable> {
        for value in integers(array)? {
            let null = || "it holds null, which no integer can express".to_owned();
            out.push(value.ok_or_else(|| Unusable::Type(null()))?);
        }
        Ok(())
    }
}

/// What the schema says of a column that can be read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Its place among the leaves.
    pub(super) leaf: usize,
    /// Values in a row.
    pub(super) width: usize,
    physical: i64,
    /// The definition level of a value that is there.
    defined: u32,
    /// Whether its rows are lists.
    lists: bool,
}

impl Shape {
    /// The shape of the column at `root` whose rows are to have `width` values; `None` where this
    /// reader does not serve its type.
    pub(super) fn of<T: Number>(schema: &FileSchema, root: usize, width: usize) -> Option<Self> {
        let (value, lists) = match schema.arrow().field(root).data_type() {
            DataType::List(item) => (item.data_type(), true),
            scalar => (scalar, false),
        };
        let leaf = schema.leaf(root).filter(|_| T::reads(value))?;
        let physical = match value {
            DataType::Float32 => physical::FLOAT,
            DataType::Float64 => physical::DOUBLE,
            DataType::Int32 => physical::INT32,
            _ => physical::INT64,
        };
        let column = schema.parquet().column(leaf);
        let fits = column.max_rep_level() == i16::from(lists) && width > 0 && (lists || width == 1);
        fits.then_some(Self {
            leaf,
            width,
            physical,
            defined: column.max_def_level().cast_unsigned().into(),
            lists,
        })
    }

    /// Bytes of a PLAIN value.
    fn size(&self) -> usize {
        match self.physical {
            physical::INT32 | physical::FLOAT => 4,
            _ => 8,
        }
    }
}

/// Memory that goes from chunk to chunk.
#[derive(Default)]
pub(super) struct Scratch<T> {
    page: Vec<u8>,
    table: Vec<T>,
    inflater: Inflater,
}

/// Where the values of the current page are.
#[derive(Debug, Clone, Copy)]
enum Values {
    /// PLAIN, from this place of the page on.
    Plain(usize),
    /// Indices into the table.
    Indices(Runs),
}

/// Reads the values of one column chunk from front to back.
pub(super) struct ColumnReader<'a, T> {
    source: Source<'a>,
    shape: Shape,
    codec: Codec,
    scratch: &'a mut Scratch<T>,
    /// Values of the chunk, and those of them that lie in pages not yet opened.
    total: usize,
    unopened: usize,
    /// Values of the current page not yet taken.
    left: usize,
    values: Values,
}

impl<'a, T: Number> ColumnReader<'a, T> {
    /// A reader of the `rows` rows of `chunk`, whose bytes `source` gives.
    pub(super) fn new(
        chunk: &ColumnChunk,
        rows: usize,
        shape: Shape,
        source: Source<'a>,
        scratch: &'a mut Scratch<T>,
    ) -> Result<Self, Stop> {
        let codec = Codec::of(chunk.codec).ok_or(Stop::Declined)?;
        let values = usize::try_from(chunk.values).map_err(|_| Stop::Declined)?;
        let whole = rows.checked_mul(shape.width) == Some(values);
        if !whole || chunk.physical != shape.physical || chunk.external {
            return Err(Stop::Declined);
        }
        scratch.table.clear();
        Ok(Self {
            source,
            shape,
            codec,
            scratch,
            total: values,
            unopened: values,
            left: 0,
            values: Values::Plain(0),
        })
    }

    /// Passes over `rows` rows.
    pub(super) fn skip(&mut self, rows: usize) -> Result<(), Stop> {
        let mut rest = rows.checked_mul(self.shape.width).ok_or(Stop::Declined)?;
        while rest > 0 {
            let here = self.ready()?.min(rest);
            match &mut self.values {
                Values::Plain(at) => *at += here * self.shape.size(),
                Values::Indices(runs) => {
                    if here < self.left && !runs.skip(&self.scratch.page, here) {
                        return Err(Stop::Declined);
                    }
                }
            }
            self.left -= here;
            rest -= here;
        }
        Ok(())
    }

    /// Fills `out` with the values of the next rows.
    pub(super) fn read(&mut self, mut out: &mut [T]) -> Result<(), Stop> {
        while !out.is_empty() {
            let (here, rest) = out.split_at_mut(self.ready()?.min(out.len()));
            match &mut self.values {
                Values::Plain(at) => {
                    let end = *at + here.len() * self.shape.size();
                    let bytes = self.scratch.page.get(*at..end).ok_or(Stop::Declined)?;
                    T::convert(self.shape.physical, bytes, here);
                    *at = end;
                }
                Values::Indices(runs) => {
                    if !runs.look_up(&self.scratch.page, &self.scratch.table, here) {
                        return Err(Stop::Declined);
                    }
                }
            }
            self.left -= here.len();
            out = rest;
        }
        Ok(())
    }

    /// How many values the current page still has, once there is one that has some.
    fn ready(&mut self) -> Result<usize, Stop> {
        while self.left == 0 {
            if self.unopened == 0 {
                return Err(Stop::Declined);
            }
            let header = self.source.header()?.ok_or(Stop::Declined)?;
            self.open(&header)?.ok_or(Stop::Declined)?;
        }
        Ok(self.left)
    }

    /// Brings the page behind `header` into memory and proves it; `None` where that fails.
    fn open(&mut self, header: &Header) -> Result<Option<()>, Stop> {
        let (Ok(length), Ok(size)) = (
            usize::try_from(header.compressed),
            usize::try_from(header.uncompressed),
        ) else {
            return Ok(None);
        };
        if length > MAX_PAGE || size > MAX_PAGE {
            return Ok(None);
        }
        let levels = match header.page {
            page::DATA_V2 => usize::try_from(header.definition_bytes)
                .ok()
                .zip(usize::try_from(header.repetition_bytes).ok())
                .and_then(|(definition, repetition)| definition.checked_add(repetition)),
            _ => Some(0),
        };
        let Some(levels) = levels.filter(|&levels| levels <= length.min(size)) else {
            return Ok(None);
        };
        let codec = if header.plain_bytes {
            Codec::Uncompressed
        } else {
            self.codec
        };
        let (page, inflater) = (&mut self.scratch.page, &mut self.scratch.inflater);
        let done = self.source.body(length, |bytes| {
            page.resize(size + PADDING, 0);
            page[..levels].copy_from_slice(&bytes[..levels]);
            // Where nothing but levels is left, nothing is compressed either.
            if levels == size && levels == length {
                return Some(());
            }
            inflater.inflate(codec, &bytes[levels..], &mut page[levels..size])
        })?;
        Ok(done.and_then(|()| match header.page {
            page::DICTIONARY => self.open_dictionary(header, size),
            page::DATA => self.open_data(header, size, None),
            page::DATA_V2 => self.open_data(header, size, Some(levels)),
            page::INDEX => Some(()),
            _ => None,
        }))
    }

    fn open_dictionary(&mut self, header: &Header, size: usize) -> Option<()> {
        let count = usize::try_from(header.values).ok()?;
        let plain = matches!(
            header.encoding,
            encoding::PLAIN | encoding::PLAIN_DICTIONARY
        );
        if !plain || !self.scratch.table.is_empty() || count.checked_mul(self.shape.size())? > size
        {
            return None;
        }
        self.scratch.table.resize(count, T::default());
        let bytes = &self.scratch.page[..count * self.shape.size()];
        T::convert(self.shape.physical, bytes, &mut self.scratch.table);
        Some(())
    }

    /// Proves the levels of a data page and finds its values. `levels` are the bytes of the levels of
    /// version 2; those of version 1 tell themselves how long they are.
    fn open_data(&mut self, header: &Header, size: usize, levels: Option<usize>) -> Option<()> {
        let count = usize::try_from(header.values).ok()?;
        if count > self.unopened {
            return None;
        }
        let second = levels.is_some();
        let lengths = [header.repetition_bytes, header.definition_bytes];
        let [repetition, definition] = lengths.map(|bytes| second.then_some(bytes));
        let shape = self.shape;
        let repetition = self.levels(0, size, repetition, shape.lists)?;
        let definition = self.levels(repetition.end, size, definition, shape.defined > 0)?;
        let at = definition.end;
        // Where the first value of the page stands within its row.
        let phase = (self.total - self.unopened) % shape.width;
        let bits = u32::BITS - shape.defined.leading_zeros();
        let proven = header
            .level_encodings
            .iter()
            .flatten()
            .all(|&e| e == encoding::RLE)
            && (!shape.lists
                || are_lists(&self.scratch.page, repetition, shape.width, phase, count))
            && (shape.defined == 0
                || all_are(&self.scratch.page, definition, bits, shape.defined, count));
        if !proven {
            return None;
        }
        self.values = match header.encoding {
            encoding::PLAIN if count.checked_mul(self.shape.size())? <= size - at => {
                Values::Plain(at)
            }
            encoding::RLE_DICTIONARY | encoding::PLAIN_DICTIONARY => {
                let width = u32::from(*self.scratch.page[..size].get(at)?);
                Values::Indices(Runs::new(&self.scratch.page, at + 1, size, width)?)
            }
            _ => return None,
        };
        self.unopened -= count;
        self.left = count;
        Some(())
    }

    /// The stream of levels that begins at `at`: of `length` bytes where the head of the page says so,
    /// else led by its length where there are levels at all.
    fn levels(
        &self,
        at: usize,
        size: usize,
        length: Option<i64>,
        present: bool,
    ) -> Option<Range<usize>> {
        let (begin, length) = match length {
            Some(length) => (at, usize::try_from(length).ok()?),
            None if present => {
                let (length, _) = self.scratch.page[..size].get(at..)?.split_first_chunk()?;
                (at + 4, u32::from_le_bytes(*length) as usize)
            }
            None => (at, 0),
        };
        let end = begin.checked_add(length)?;
        (end <= size).then_some(begin..end)
    }
}

/// Parquet's numbers for the ways in which values are written.
mod encoding {
    pub(super) const PLAIN: i64 = 0;
    pub(super) const PLAIN_DICTIONARY: i64 = 2;
    pub(super) const RLE: i64 = 3;
    pub(super) const RLE_DICTIONARY: i64 = 8;
}
