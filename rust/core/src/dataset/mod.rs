//! What lies on disk: LeRobot datasets of the layouts v2.0, v2.1 and v3.0.
//!
//! One parser per layout ([`v2`], [`v3`]) feeds one model that knows no version. Opening reads
//! metadata and parquet footers; data pages are read only where footers cannot answer. What the
//! rows say wins: metadata serves to cross-check, and where the two disagree a [`Finding`] says so.

mod cells;
mod check;
mod chunk;
mod column;
mod columns;
mod episodes;
mod files;
mod fill;
mod footer;
mod group;
mod hybrid;
mod info;
mod json;
mod open;
mod order;
mod pages;
mod read;
mod scan;
mod segments;
mod stats;
mod stream;
mod template;
mod thrift;
mod units;
mod v2;
mod v3;

pub use check::{Finding, Kind};
pub use episodes::{EpisodeTable, Span};
pub use info::{Feature, Info, Layout};
pub use open::{Dataset, Engine};
pub use read::{Column, Matrix, Value};
pub use stats::ColumnStats;
