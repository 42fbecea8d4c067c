//! A damaged footer claims rows that the file does not hold: no claim may cost more than its proof.
#![allow(missing_docs, reason = "a test crate has no readers of documentation")]
#![allow(clippy::unwrap_used, reason = "what fails here is the test")]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use vlaprep_core::dataset::{Column, Dataset, Matrix};
use vlaprep_core::parallel::Interrupt;

const FILE: &str = "data/chunk-000/file-000.parquet";

/// One episode of twelve rows.
fn write_dataset(root: &Path) {
    fs::create_dir_all(root.join("meta")).unwrap();
    fs::create_dir_all(root.join("data/chunk-000")).unwrap();
    fs::write(
        root.join("meta/info.json"),
        r#"{"codebase_version": "v3.0"}"#,
    )
    .unwrap();
    let ids = Arc::new(Int64Array::from(vec![0; 12])) as ArrayRef;
    let action = Arc::new(Float32Array::from(vec![0.5; 12])) as ArrayRef;
    let columns = [
        ("episode_index", Arc::clone(&ids)),
        ("task_index", ids),
        ("action", action),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(root.join(FILE)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Rewrites the footer so that its only row group and all of its columns have `rows` rows.
fn claim(root: &Path, rows: i64) {
    let path = root.join(FILE);
    let bytes = fs::read(&path).unwrap();
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&File::open(&path).unwrap())
        .unwrap();
    let group = metadata.row_group(0);
    let columns = group
        .columns()
        .iter()
        .map(|column| {
            column
                .clone()
                .into_builder()
                .set_num_values(rows)
                .build()
                .unwrap()
        })
        .collect();
    let group = group
        .clone()
        .into_builder()
        .set_num_rows(rows)
        .set_column_metadata(columns);
    let claimed = ParquetMetaData::new(
        metadata.file_metadata().clone(),
        vec![group.build().unwrap()],
    );
    let tail = &bytes[bytes.len() - 8..bytes.len() - 4];
    let footer = u32::from_le_bytes(tail.try_into().unwrap()) as usize + 8;
    let mut whole = bytes[..bytes.len() - footer].to_vec();
    ParquetMetaDataWriter::new(&mut whole, &claimed)
        .finish()
        .unwrap();
    fs::write(&path, whole).unwrap();
}

#[test]
fn rows_that_only_a_footer_claims_are_an_error() {
    let root = tempfile::tempdir().unwrap();
    let never = Interrupt::never();
    for rows in [13, 1 << 31, 1 << 40, 1 << 62, i64::MAX] {
        write_dataset(root.path());
        claim(root.path(), rows);
        let dataset = match Dataset::open(root.path(), None, 1, &never) {
            Ok(dataset) => dataset,
            Err(error) => {
                assert!(error.to_string().contains(FILE), "{error}");
                continue;
            }
        };
        for error in [
            dataset.read(&["action"], &[0], 1, &never).unwrap_err(),
            dataset.read(&["task_index"], &[0], 1, &never).unwrap_err(),
            dataset
                .read_chunks("action", &[0], &[rows - 2], 2, 1, &never)
                .unwrap_err(),
        ] {
            assert!(error.to_string().contains(FILE), "{rows}: {error}");
        }
    }
}

#[test]
fn the_file_itself_is_whole() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    claim(root.path(), 12);
    let dataset = Dataset::open(root.path(), None, 1, &Interrupt::never()).unwrap();
    let matrix = dataset
        .read(&["action"], &[0], 1, &Interrupt::never())
        .unwrap();
    let expected = Column::Floats(Matrix {
        values: vec![0.5; 12],
        width: 1,
    });
    assert_eq!(matrix, [expected]);
}
