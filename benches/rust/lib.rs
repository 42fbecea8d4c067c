//! Inputs that the benches share: episode tables, actions, and data sets on disk.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use criterion::Criterion;
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

/// Numbers in an action.
pub const DIMS: usize = 14;
/// Steps of a chunk.
pub const HORIZON: usize = 50;

/// What can go wrong while an input is made.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Criterion, set so that all benches together take about a minute.
#[must_use]
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

/// `count` episodes of 200 tasks: their lengths and tasks.
#[must_use]
pub fn episodes(count: i64) -> (Vec<i64>, Vec<i64>) {
    (0..count)
        .map(|i| (60 + (i * 7919) % 971, (i * 104_729) % 200))
        .unzip()
}

/// `rows` actions in [-1, 1]: a slow wave a dim, with a little noise, so few values repeat.
#[must_use]
pub fn actions(rows: usize) -> Vec<f32> {
    let value = |at: usize| {
        let (row, dim) = (at / DIMS, at % DIMS);
        let noise = (at as u32).wrapping_mul(2_654_435_761) >> 20; // Knuth's multiplicative hash
        0.99 * (row as f32 * 0.02 * (dim + 1) as f32).sin() + (noise as f32 / 4096.0 - 0.5) * 0.02
    };
    (0..rows * DIMS).map(value).collect()
}

/// The two ways in which LeRobot datasets v3.0 are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// By LeRobot's recorder: a row group per episode, lists of fixed size.
    Recorded,
    /// By its converter: a row group per file, lists of any size.
    Converted,
}

/// A v3.0 data set of two files in a temporary folder, with `lengths.len()` episodes.
pub fn dataset(lengths: &[i64], tasks: &[i64], written: Written) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    fs::create_dir(root.join("meta"))?;
    fs::create_dir_all(root.join("data/chunk-000"))?;
    fs::write(
        root.join("meta/info.json"),
        r#"{"codebase_version": "v3.0", "fps": 30, "features": {},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"}"#,
    )?;
    let half = lengths.len() / 2;
    for (file, range) in [0..half, half..lengths.len()].into_iter().enumerate() {
        let path = root.join(format!("data/chunk-000/file-{file:03}.parquet"));
        let first = range.start as i64;
        write_file(
            &path,
            first,
            &lengths[range.clone()],
            &tasks[range],
            written,
        )?;
    }
    Ok(folder)
}

fn write_file(
    path: &Path,
    first_episode: i64,
    lengths: &[i64],
    tasks: &[i64],
    written: Written,
) -> Result<()> {
    let mut writer: Option<ArrowWriter<File>> = None;
    for ((episode, &length), &task) in (first_episode..).zip(lengths).zip(tasks) {
        let batch = RecordBatch::try_from_iter([
            ("action", action_column(length as usize, written)),
            ("frame_index", integers(0..length)),
            ("episode_index", integers((0..length).map(|_| episode))),
            ("task_index", integers((0..length).map(|_| task))),
        ])?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(ArrowWriter::try_new(
                File::create(path)?,
                batch.schema(),
                None,
            )?),
        };
        writer.write(&batch)?;
        if written == Written::Recorded {
            writer.flush()?; // ends the row group
        }
    }
    if let Some(writer) = writer {
        writer.close()?;
    }
    Ok(())
}

fn integers(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn action_column(rows: usize, written: Written) -> ArrayRef {
    let values = actions(rows);
    let items = Float32Builder::new();
    match written {
        Written::Recorded => {
            let mut column = FixedSizeListBuilder::new(items, DIMS as i32);
            for row in values.chunks_exact(DIMS) {
                column.values().append_slice(row);
                column.append(true);
            }
            Arc::new(column.finish())
        }
        Written::Converted => {
            let mut column = ListBuilder::new(items);
            for row in values.chunks_exact(DIMS) {
                column.values().append_slice(row);
                column.append(true);
            }
            Arc::new(column.finish())
        }
    }
}
