//! Symbols outside the range of the fit, and what encoding has to say about a batch.

use crate::{Error, Result};

/// The largest symbol that is a character: the last before the surrogates.
pub(super) const LARGEST: u16 = 0xD7FF;

/// What encoding does with coefficients outside the fitted range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRange {
    /// Moves them to the nearer end.
    Clamp,
    /// Refuses the batch.
    Error,
    /// As the published class does: moves those below to the lower end and keeps those above, also
    /// where the vocabulary lacks their bytes; and refuses what is no character.
    Published,
}

impl OnRange {
    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "clamp" => Some(Self::Clamp),
            "error" => Some(Self::Error),
            "published" => Some(Self::Published),
            _ => None,
        }
    }
}

/// Coefficients of a batch that lie outside the fitted range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outside {
    pub(super) coefficients: usize,
    pub(super) chunks: usize,
    /// The first of them, and its chunk, frequency and dim.
    pub(super) first: (f64, usize, usize, usize),
    /// The highest symbol that any of them would have.
    pub(super) highest: f64,
}

/// Symbols of a batch whose bytes the vocabulary lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) chunks: usize,
    pub(super) lowest: u16,
}

/// What there is to say about some chunks; of chunks that follow each other it adds up.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) outside: Option<Outside>,
    pub(super) lost: Option<Lost>,
}

impl Report {
    /// The same about chunks before which there are `chunks` others.
    pub(super) fn after(mut self, chunks: usize) -> Self {
        if let Some(outside) = &mut self.outside {
            outside.first.1 += chunks;
        }
        self
    }

    /// Adds what there is to say about later chunks.
    pub(super) fn add(&mut self, later: Self) {
        self.outside = match (self.outside.take(), later.outside) {
            (Some(one), Some(other)) => Some(Outside {
                coefficients: one.coefficients + other.coefficients,
                chunks: one.chunks + other.chunks,
                first: one.first,
                highest: one.highest.max(other.highest),
            }),
            (one, other) => one.or(other),
        };
        self.lost = match (self.lost, later.lost) {
            (Some(one), Some(other)) => Some(Lost {
                chunks: one.chunks + other.chunks,
                lowest: one.lowest.min(other.lowest),
            }),
            (one, other) => one.or(other),
        };
    }

    /// The warnings for `chunks` chunks, or the error that is asked for, or due.
    pub(super) fn judge(
        &self,
        on_range: OnRange,
        chunks: usize,
        (low, high): (i64, i64),
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        if let Some(outside) = &self.outside {
            let (value, chunk, frequency, dim) = outside.first;
            let fault = format!(
                "{} coefficients in {} of {chunks} chunks are outside the fitted range [{low}, {high}], \
                 first {value:.0} at chunk {chunk}, frequency {frequency}, dim {dim}: normalise as in \
                 the fit, or fit on wider data",
                outside.coefficients, outside.chunks
            );
            let done = match on_range {
                OnRange::Clamp => "at both ends",
                OnRange::Published if outside.highest <= f64::from(LARGEST) => {
                    "below, and kept above"
                }
                OnRange::Error | OnRange::Published => {
                    return Err(Error::Vocabulary(format!(
                        "{fault}, or use on_range='clamp'"
                    )));
                }
            };
            warnings.push(format!("{fault}; clamped {done}"));
        }
        if let Some(lost) = self.lost {
            warnings.push(format!(
                "{} of {chunks} chunks hold coefficients that no chunk of the fit held, as {}: their ids \
                 leave them out and will not decode",
                lost.chunks,
                i64::from(lost.lowest) + low
            ));
        }
        Ok(warnings)
    }
}
