//! Everything that can go wrong, on one page.

use std::path::PathBuf;

use parquet::errors::ParquetError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: the cause first, then the file, column, row or id, then the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for the work to stop.
    #[error("interrupted")]
    Interrupted,

    /// A kernel was called with values or dimensions that fit no answer.
    #[error("{0}")]
    Argument(String),

    /// Symbols do not fit into the range that a tokenizer was fitted on.
    #[error("{0}")]
    Vocabulary(String),

    /// A tokenizer asks for what this codec does not do; the package it is made for may do it.
    #[error("not supported: {0}")]
    Unsupported(String),

    /// There is no data set at this place.
    #[error("no dataset at {path}: {reason}", path = path.display())]
    NotFound {
        /// The folder that was asked for.
        path: PathBuf,
        /// What is missing there.
        reason: String,
    },

    /// The operating system refused to read a file.
    #[error("cannot read {file}: {source}")]
    Io {
        /// Path relative to the data set.
        file: String,
        /// The system's own words.
        source: std::io::Error,
    },

    /// A file is not what its name says.
    #[error("{reason}: {file}")]
    Foreign {
        /// Path relative to the data set.
        file: String,
        /// What the file is instead, and what to do about it.
        reason: String,
    },

    /// The parquet reader refused a file.
    #[error("unreadable parquet file {file}: {source}; fetch or convert this file again")]
    Parquet {
        /// Path relative to the data set.
        file: String,
        /// The reader's own words.
        source: ParquetError,
    },

    /// A metadata file does not hold what its format demands.
    #[error("malformed metadata in {file}{at}: {reason}", at = line.map(|n| format!(", line {n}")).unwrap_or_default())]
    Metadata {
        /// Path relative to the data set.
        file: String,
        /// The line, counted from 1, in files that have lines.
        line: Option<usize>,
        /// What is wrong there.
        reason: String,
    },

    /// A column that the job needs is not in a file.
    #[error("no column {column:?} in {file}; it has {found}{hint}", found = found.join(", "))]
    MissingColumn {
        /// Path relative to the data set.
        file: String,
        /// The column that was asked for.
        column: String,
        /// The columns that are there.
        found: Vec<String>,
        /// How to choose another one, where that makes sense; empty otherwise.
        hint: &'static str,
    },

    /// A column has a type or shape that the job cannot use.
    #[error("column {column:?} of {file}: {reason}")]
    Column {
        /// Path relative to the data set.
        file: String,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },

    /// One row of a column cannot be used.
    #[error("column {column:?} of {file}, row {row}: {reason}")]
    Row {
        /// Path relative to the data set.
        file: String,
        /// The column.
        column: String,
        /// Row within the file, counted from 0.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },

    /// Two rows claim to be the same frame of the same episode.
    #[error(
        "episode {episode} has frame {frame} twice, in {first} and in {second}; remove one of them"
    )]
    DuplicateFrame {
        /// The episode both rows name.
        episode: i64,
        /// The frame both rows name.
        frame: i64,
        /// File of the one row.
        first: String,
        /// File of the other row.
        second: String,
    },

    /// Metadata lists episodes of which no row is left.
    #[error(
        "metadata lists episodes {episodes} but no data file holds their rows{files}; restore the \
         files, or select the episodes that are there (episodes=...)"
    )]
    MissingEpisodes {
        /// The ids as ranges, such as `0-4, 7`.
        episodes: String,
        /// The absent files that metadata names, led by a colon; empty where it names none.
        files: String,
    },

    /// A selection names episodes that do not exist.
    #[error("no such episode: {missing}; the dataset has {count} episodes, {known}")]
    Selection {
        /// The unknown ids as ranges.
        missing: String,
        /// How many episodes there are.
        count: usize,
        /// The known ids as ranges.
        known: String,
    },

    /// There are data files, and none holds a row.
    #[error("no episodes in {path}: its {files} data file(s) hold no rows", path = path.display())]
    NoEpisodes {
        /// The folder of the data set.
        path: PathBuf,
        /// How many data files were looked at.
        files: usize,
    },

    /// The answer does not fit into memory.
    #[error("{rows} rows of {width} values do not fit into memory; read fewer episodes at a time")]
    TooLarge {
        /// Rows of the answer.
        rows: usize,
        /// Values in a row.
        width: usize,
    },

    /// Several files are broken.
    #[error("{count} data files are broken:\n{list}", count = .0.len(), list = list(.0))]
    Several(Vec<Error>),
}

/// How many broken files one message lists.
const LISTED: usize = 20;

fn list(errors: &[Error]) -> String {
    let mut lines: Vec<String> = errors
        .iter()
        .take(LISTED)
        .map(|e| format!("  {e}"))
        .collect();
    if errors.len() > LISTED {
        lines.push(format!("  ... and {} more", errors.len() - LISTED));
    }
    lines.join("\n")
}

impl Error {
    /// An error about values that fit no answer.
    pub fn argument(reason: impl Into<String>) -> Self {
        Self::Argument(reason.into())
    }
}
