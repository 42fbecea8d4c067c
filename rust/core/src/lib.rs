//! Kernels that prepare the *action side* of LeRobot datasets for vision-language-action training.
//!
//! Two paths start at the rows of a data set:
//!
//! - **speed labels**: [`dataset`] lists every episode with its length and task, [`stats`] ranks the
//!   lengths within each task and turns ranks into labels;
//! - **action tokenizer**: [`chunks`] gathers the drawn action chunks, [`stats::quantile`] gives the
//!   bounds they are normalised by, [`fast`] turns them into the integers that a tokenizer is
//!   trained on.
//!
//! This crate reads and computes. It writes nothing, prints nothing, reads no environment variable
//! and has never heard of Python. Kernels take slices and dimensions; Arrow types stay inside
//! [`dataset`]. Same input, same bits, whatever the number of threads.

pub mod chunks;
pub mod dataset;
mod error;
pub mod fast;
pub mod memory;
pub mod parallel;
pub mod stats;

pub use error::{Error, Result};
