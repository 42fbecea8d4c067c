//! The pages of a column chunk: their heads, and their bytes without compression.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::thrift::{Cursor, Malformed, kind};

/// The most bytes of a column chunk that are in memory at once, but for a page that is larger.
const WINDOW: usize = 1 << 20;

/// The bytes of one column chunk, read from front to back.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// All of it lies in memory.
    Memory(&'a [u8]),
    /// It is read from a file, a window at a time.
    File {
        file: &'a File,
        /// Place of the first byte behind the window.
        next: u64,
        /// Bytes behind the window.
        left: usize,
        window: &'a mut Vec<u8>,
        /// Bytes of the window that are used up.
        used: usize,
    },
}

impl<'a> Source<'a> {
    pub(super) fn of_file(
        file: &'a File,
        start: u64,
        bytes: usize,
        window: &'a mut Vec<u8>,
    ) -> Self {
        window.clear();
        Self::File {
            file,
            next: start,
            left: bytes,
            window,
            used: 0,
        }
    }

    /// The bytes ahead: `wanted` of them, or as many as there are.
    fn ahead(&mut self, wanted: usize) -> io::Result<&[u8]> {
        match self {
            Self::Memory(bytes) => Ok(&bytes[..wanted.min(bytes.len())]),
            Self::File {
                file,
                next,
                left,
                window,
                used,
            } => {
                let have = window.len() - *used;
                if have < wanted && *left > 0 {
                    window.copy_within(*used.., 0);
                    *used = 0;
                    let more = (*left).min(wanted.max(WINDOW) - have);
                    window.resize(have + more, 0);
                    file.read_exact_at(&mut window[have..], *next)?;
                    *next += more as u64;
                    *left -= more;
                }
                let end = window.len().min(*used + wanted);
                Ok(&window[*used..end])
            }
        }
    }

    /// Steps over bytes that were seen ahead.
    fn advance(&mut self, count: usize) {
        match self {
            Self::Memory(bytes) => *bytes = &bytes[count.min(bytes.len())..],
            Self::File { used, .. } => *used += count,
        }
    }

    /// Reads the head of the next page; `None` at the end or where there is none.
    pub(super) fn header(&mut self) -> io::Result<Option<Header>> {
        // Most heads are this short; statistics of long values make longer ones.
        for most in [256, 1 << 16] {
            let ahead = self.ahead(most)?;
            let mut cursor = Cursor::new(ahead, 0);
            if let Ok(header) = Header::parse(&mut cursor) {
                let length = cursor.at();
                self.advance(length);
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// Hands the next `length` bytes to `work`; `None` where there are not so many.
    pub(super) fn body<R>(
        &mut self,
        length: usize,
        work: impl FnOnce(&[u8]) -> Option<R>,
    ) -> io::Result<Option<R>> {
        let ahead = self.ahead(length)?;
        if ahead.len() < length {
            return Ok(None);
        }
        let result = work(ahead);
        self.advance(length);
        Ok(result)
    }
}

/// What kind of page it is, by parquet's numbers.
pub(super) mod page {
    pub(in super::super) const DATA: i64 = 0;
    pub(in super::super) const INDEX: i64 = 1;
    pub(in super::super) const DICTIONARY: i64 = 2;
    pub(in super::super) const DATA_V2: i64 = 3;
}

/// The head of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) page: i64,
    pub(super) uncompressed: i64,
    pub(super) compressed: i64,
    /// Values, nulls included.
    pub(super) values: i64,
    pub(super) encoding: i64,
    /// Encodings of the levels; those of version 2 have but one.
    pub(super) level_encodings: [Option<i64>; 2],
    /// Bytes of the levels of version 2, which lie before the values and are not compressed.
    pub(super) definition_bytes: i64,
    pub(super) repetition_bytes: i64,
    /// Values of version 2 may be left uncompressed.
    pub(super) plain_bytes: bool,
    described: bool,
}

impl Header {
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let mut header = Self::default();
        let mut last = 0;
        while let Some(field) = cursor.field(&mut last)? {
            match field {
                (1, kind::I32) => header.page = cursor.integer()?,
                (2, kind::I32) => header.uncompressed = cursor.integer()?,
                (3, kind::I32) => header.compressed = cursor.integer()?,
                (5 | 7, kind::STRUCT) => header.describe(cursor, false)?,
                (8, kind::STRUCT) => header.describe(cursor, true)?,
                (_, other) => cursor.skip(other)?,
            }
        }
        if header.described || header.page == page::INDEX {
            Ok(header)
        } else {
            Err(Malformed)
        }
    }

    /// Reads what is particular to a kind of page.
    fn describe(&mut self, cursor: &mut Cursor<'_>, second: bool) -> Result<(), Malformed> {
        self.described = true;
        let mut last = 0;
        while let Some(field) = cursor.field(&mut last)? {
            match (field, second) {
                ((1, kind::I32), _) => self.values = cursor.integer()?,
                ((2, kind::I32), false) | ((4, kind::I32), true) => {
                    self.encoding = cursor.integer()?;
                }
                ((3, kind::I32), false) => self.level_encodings[0] = Some(cursor.integer()?),
                ((4, kind::I32), false) => self.level_encodings[1] = Some(cursor.integer()?),
                ((5, kind::I32), true) => self.definition_bytes = cursor.integer()?,
                ((6, kind::I32), true) => self.repetition_bytes = cursor.integer()?,
                ((7, kind::FALSE), true) => self.plain_bytes = true,
                ((_, other), _) => cursor.skip(other)?,
            }
        }
        Ok(())
    }
}

/// How pages are compressed, as far as they are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Uncompressed,
    Snappy,
    Zstd,
}

impl Codec {
    /// The codec of parquet's number.
    pub(super) fn of(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Uncompressed),
            1 => Some(Self::Snappy),
            6 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Takes pages out of their compression; keeps what that needs from page to page.
#[derive(Default)]
pub(super) struct Inflater {
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Inflater {
    /// Fills `out` with what `bytes` hold; `None` where they hold anything but `out.len()` bytes.
    pub(super) fn inflate(&mut self, codec: Codec, bytes: &[u8], out: &mut [u8]) -> Option<()> {
        let length = match codec {
            Codec::Uncompressed if bytes.len() == out.len() => {
                out.copy_from_slice(bytes);
                out.len()
            }
            Codec::Uncompressed => return None,
            Codec::Snappy => self.snappy.decompress(bytes, out).ok()?,
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = Some(zstd::bulk::Decompressor::new().ok()?);
                }
                self.zstd.as_mut()?.decompress_to_buffer(bytes, out).ok()?
            }
        };
        (length == out.len()).then_some(())
    }
}
