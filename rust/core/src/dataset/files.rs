//! Finding and opening files.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::template::numeric_order;
use crate::{Error, Result};

/// The most rows that a file is believed to have: beyond, its footer is damaged for sure.
const MAX_ROWS: u64 = 1 << 48;

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
    pub(super) metadata: ArrowReaderMetadata,
    /// First row of every row group, and the number of rows in all.
    pub(super) group_starts: Vec<usize>,
}

impl DataFile {
    /// Reads the footer of `root/name`.
    pub(super) fn open(root: &Path, name: &str) -> Result<Self> {
        let path = root.join(name);
        let io = |source| Error::Io {
            file: name.to_owned(),
            source,
        };
        let file = Pread::open(&path).map_err(io)?;
        let footer = footer_length(&file.file, file.length)
            .map_err(io)?
            .map_err(|reason| Error::Foreign {
                file: name.to_owned(),
                reason: reason.to_owned(),
            })?;
        // The Arrow schema that writers leave beside the data names dictionaries and extension
        // types; the parquet types alone say all that is needed here.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = guarded(name, || ArrowReaderMetadata::load(&file, options))?;
        check_extents(metadata.metadata(), file.length - footer).map_err(|reason| {
            Error::Foreign {
                file: name.to_owned(),
                reason,
            }
        })?;
        let fields = metadata.parquet_schema().root_schema().get_fields();
        let mut seen = BTreeSet::new();
        if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name())) {
            return Err(Error::Column {
                file: name.to_owned(),
                column: twice.name().to_owned(),
                reason: "the file has two columns of this name; rename or drop one".to_owned(),
            });
        }
        let mut group_starts = vec![0];
        let mut rows = 0_usize;
        for group in metadata.metadata().row_groups() {
            rows = rows.saturating_add(group.num_rows() as usize);
            if rows as u64 > MAX_ROWS {
                return Err(Error::Foreign {
                    file: name.to_owned(),
                    reason: format!("damaged parquet file: its footer claims {rows} rows"),
                });
            }
            group_starts.push(rows);
        }
        Ok(Self {
            name: name.to_owned(),
            path,
            size: file.length,
            metadata,
            group_starts,
        })
    }

    /// Rows in all row groups.
    pub(super) fn rows(&self) -> usize {
        self.group_starts.last().copied().unwrap_or(0)
    }

    /// Position of the top-level column `name`.
    pub(super) fn root_column(&self, name: &str) -> Option<usize> {
        self.column_names().position(|field| field == name)
    }

    /// The top-level columns.
    pub(super) fn column_names(&self) -> impl Iterator<Item = &str> {
        let fields = self.metadata.parquet_schema().root_schema().get_fields();
        fields.iter().map(|field| field.name())
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

/// Length of the footer with its magic, or what the file is instead of parquet.
fn footer_length(file: &File, size: u64) -> io::Result<Result<u64, &'static str>> {
    const ENCRYPTED: &str = "encrypted parquet file: decrypt it first, keys are not supported";
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
    if !head.starts_with(b"PAR1") || size < 12 {
        return Ok(Err("not a parquet file"));
    }
    let mut tail = [0; 8];
    file.read_exact_at(&mut tail, size - 8)?;
    let (length, magic) = tail.split_at(4);
    Ok(match magic {
        b"PAR1" => {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            let footer = u64::from(length) + 8;
            if footer > size {
                Err("parquet file cut short: its footer does not fit")
            } else {
                Ok(footer)
            }
        }
        b"PARE" => Err(ENCRYPTED),
        _ => Err("parquet file without a footer: cut short, or still being written"),
    })
}

/// Every column chunk must lie between the head and the footer: bytes lost in between show here.
fn check_extents(metadata: &ParquetMetaData, footer_start: u64) -> Result<(), String> {
    for (index, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() < 0 {
            return Err(format!(
                "damaged parquet file: row group {index} has {} rows",
                group.num_rows()
            ));
        }
        for column in group.columns() {
            let start = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            let end = u64::try_from(start)
                .ok()
                .zip(u64::try_from(column.compressed_size()).ok());
            let end = end.and_then(|(start, length)| start.checked_add(length));
            if end.is_none_or(|end| end > footer_start) {
                return Err(format!(
                    "damaged parquet file: column {:?} of row group {index} does not lie within the \
                     file, so bytes are missing",
                    column.column_path().string()
                ));
            }
        }
    }
    Ok(())
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
