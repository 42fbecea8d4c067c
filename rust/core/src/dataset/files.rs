//! Finding and opening files.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::reader::{ChunkReader, Length};

use super::footer::{Footer, Refusal, Schemas};
use super::template::numeric_order;
use crate::{Error, Result};

/// Whether `name` is below `root`, be it a link that leads nowhere.
pub(super) fn exists(root: &Path, name: &str) -> bool {
    fs::symlink_metadata(root.join(name)).is_ok()
}

/// Reads a UTF-8 text below `root`, without its byte order mark.
pub(super) fn read_text(root: &Path, name: &str) -> Result<String> {
    let bytes = fs::read(root.join(name)).map_err(|source| Error::Io {
        file: name.to_owned(),
        source,
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|&byte| byte == b'\n').count();
        Error::Metadata {
            file: name.to_owned(),
            line: Some(line),
            reason: "not UTF-8".to_owned(),
        }
    })?;
    Ok(text
        .strip_prefix('\u{feff}')
        .map(str::to_owned)
        .unwrap_or(text))
}

/// The parquet files below `folder`, relative to `root`, by the numbers in their names.
///
/// Names that begin with a dot, and whatever is no file, are passed over.
pub(super) fn list_parquet(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    walk(root, folder, &mut BTreeSet::new(), &mut found)?;
    found.sort_by(|a, b| numeric_order(a, b));
    Ok(found)
}

/// `visited` holds the folders that were listed, by device and inode: links may lead back to them.
fn walk(
    root: &Path,
    folder: &str,
    visited: &mut BTreeSet<(u64, u64)>,
    found: &mut Vec<String>,
) -> Result<()> {
    let here = root.join(folder);
    let refuse = |file: &str, source| Error::Io {
        file: file.to_owned(),
        source,
    };
    let (entries, metadata) = match fs::read_dir(&here).and_then(|e| Ok((e, fs::metadata(&here)?)))
    {
        Ok(both) => both,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refuse(folder, error)),
    };
    if !visited.insert((metadata.dev(), metadata.ino())) {
        return Ok(());
    }
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| refuse(folder, error))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Where data lies beside the metadata, the latter is no data.
        if name.starts_with('.') || (folder.is_empty() && name == "meta") {
            continue;
        }
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        names.push((is_link, name));
    }
    // What is really here comes before what a link leads to, whatever order the disk gives.
    names.sort_unstable();
    for (_, name) in names {
        let path = if folder.is_empty() {
            name
        } else {
            format!("{folder}/{name}")
        };
        // Through links: a Hub cache is made of them. A link that leads nowhere is a data file that
        // is not there, and nothing to pass over.
        match fs::metadata(root.join(&path)) {
            Ok(kind) if kind.is_dir() => walk(root, &path, visited, found)?,
            Ok(kind) if kind.is_file() && path.ends_with(".parquet") => found.push(path),
            Err(error) if path.ends_with(".parquet") => return Err(refuse(&path, error)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// A file that is read at given places: no shared offset, and no more bytes than asked for.
pub(super) struct Pread {
    file: Arc<File>,
    length: u64,
}

impl Pread {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file: Arc::new(file),
            length,
        })
    }
}

impl Length for Pread {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Pread {
    type T = BufReader<Tail>;

    /// Serves page headers, a hundred bytes or so each: a larger buffer would read the pages twice.
    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        const HEADER: usize = 512;
        Ok(BufReader::with_capacity(
            HEADER,
            Tail {
                file: Arc::clone(&self.file),
                offset: start,
            },
        ))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start
            .checked_add(length as u64)
            .is_none_or(|end| end > self.length)
        {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} lie behind the end"
            )));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The bytes of a file from one place on.
pub(super) struct Tail {
    file: Arc<File>,
    offset: u64,
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buffer, self.offset)?;
        self.offset += got as u64;
        Ok(got)
    }
}

/// One parquet file whose footer has been read and held against the file's size.
#[derive(Debug)]
pub(super) struct DataFile {
    /// Path relative to the root.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Bytes of the file.
    pub(super) size: u64,
    pub(super) footer: Footer,
}

impl DataFile {
    /// Reads the footer of `root/name`; `schemas` remembers those seen before.
    pub(super) fn open(root: &Path, name: &str, schemas: &Schemas) -> Result<Self> {
        let path = root.join(name);
        let io = |source| Error::Io {
            file: name.to_owned(),
            source,
        };
        let file = File::open(&path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let bytes = read_footer(&file, size)
            .map_err(io)?
            .map_err(|reason| foreign(name, reason))?;
        let data_end = size - bytes.len() as u64 - TAIL;
        let footer = guarded_footer(name, &bytes, data_end, schemas)?;
        if let Some(twice) = &footer.schema.twice {
            return Err(Error::Column {
                file: name.to_owned(),
                column: twice.clone(),
                reason: "the file has two columns of this name; rename or drop one".to_owned(),
            });
        }
        Ok(Self {
            name: name.to_owned(),
            path,
            size,
            footer,
        })
    }

    /// The whole footer as the parquet crate reads it.
    pub(super) fn arrow_metadata(&self) -> Result<ArrowReaderMetadata> {
        guarded(&self.name, || self.footer.arrow_metadata())
    }

    /// The error for a failure to read the file.
    pub(super) fn io_error(&self, source: io::Error) -> Error {
        Error::Io {
            file: self.name.clone(),
            source,
        }
    }

    /// Rows in all row groups.
    pub(super) fn rows(&self) -> usize {
        self.footer.group_starts.last().copied().unwrap_or(0)
    }

    /// Position of the top-level column `name`.
    pub(super) fn root_column(&self, name: &str) -> Option<usize> {
        self.column_names().position(|field| field == name)
    }

    /// The top-level columns.
    pub(super) fn column_names(&self) -> impl Iterator<Item = &str> {
        self.footer.schema.names()
    }

    /// The position of `column`, or the error that lists what there is.
    pub(super) fn require(&self, column: &str, hint: &'static str) -> Result<usize> {
        self.root_column(column)
            .ok_or_else(|| Error::MissingColumn {
                file: self.name.clone(),
                column: column.to_owned(),
                found: self.column_names().map(str::to_owned).collect(),
                hint,
            })
    }
}

const ENCRYPTED: &str = "encrypted parquet file: decrypt it first, keys are not supported";

/// Bytes behind the footer: its length and the magic.
const TAIL: u64 = 8;

/// Reads the footer, or says what the file is instead of parquet.
fn read_footer(file: &File, size: u64) -> io::Result<Result<Bytes, &'static str>> {
    /// Most footers fit; the others take a second read.
    const GUESS: u64 = 1 << 13;
    if size == 0 {
        return Ok(Err("empty file (0 bytes): record or fetch it again"));
    }
    let mut head = [0; 64];
    let got = file.read_at(&mut head, 0)?;
    let head = &head[..got];
    if head.starts_with(b"version https://git-lfs") {
        return Ok(Err("Git LFS pointer instead of data: run `git lfs pull`"));
    }
    if head.starts_with(b"PARE") {
        return Ok(Err(ENCRYPTED));
    }
    if !head.starts_with(b"PAR1") || size < 4 + TAIL {
        return Ok(Err("not a parquet file"));
    }
    let mut end = vec![0; size.min(GUESS) as usize];
    let begin = size - end.len() as u64;
    file.read_exact_at(&mut end, begin)?;
    let (before, tail) = end.split_at(end.len() - TAIL as usize);
    let length = match tail {
        [a, b, c, d, b'P', b'A', b'R', b'1'] => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        [.., b'P', b'A', b'R', b'E'] => return Ok(Err(ENCRYPTED)),
        _ => {
            return Ok(Err(
                "parquet file without a footer: cut short, or still being written",
            ));
        }
    };
    if length as u64 + TAIL > size {
        return Ok(Err("parquet file cut short: its footer does not fit"));
    }
    if let Some(begin) = before.len().checked_sub(length) {
        return Ok(Ok(Bytes::copy_from_slice(&before[begin..])));
    }
    let mut footer = vec![0; length - before.len()];
    file.read_exact_at(&mut footer, size - TAIL - length as u64)?;
    footer.extend_from_slice(before);
    Ok(Ok(footer.into()))
}

/// Walks over a footer; where that fails, says why in the words of whoever knows best.
fn guarded_footer(name: &str, bytes: &Bytes, data_end: u64, schemas: &Schemas) -> Result<Footer> {
    let parse = || Ok(Footer::parse(bytes.clone(), data_end, schemas));
    match guarded(name, parse)? {
        Ok(footer) => Ok(footer),
        Err(Refusal::Encrypted) => Err(foreign(name, ENCRYPTED)),
        Err(Refusal::Impossible(what)) => {
            Err(foreign(name, &format!("damaged parquet file: {what}")))
        }
        Err(Refusal::Schema(source)) => Err(Error::Parquet {
            file: name.to_owned(),
            source,
        }),
        Err(Refusal::Malformed) => {
            guarded(name, || ParquetMetaDataReader::decode_metadata(bytes))?;
            let reason = "damaged parquet file: its footer breaks the rules of the format";
            Err(foreign(name, reason))
        }
    }
}

fn foreign(name: &str, reason: &str) -> Error {
    Error::Foreign {
        file: name.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Runs a piece of the parquet crate on a user's file: what it refuses, and what makes it panic,
/// comes back as an error that names the file.
pub(super) fn guarded<T>(
    file: &str,
    work: impl FnOnce() -> parquet::errors::Result<T>,
) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let words = cause
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| cause.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(ParquetError::General(format!(
            "the reader gave up: {words}"
        )))
    });
    outcome.map_err(|source| Error::Parquet {
        file: file.to_owned(),
        source,
    })
}
