//! Metadata of v3.0: parquet.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use serde_json::Value;

use super::check::Listed;
use super::columns::{integers, loose_integers};
use super::files::{DataFile, list_parquet};
use super::footer::Schemas;
use super::info::Info;
use super::scan::{scan, unusable};
use crate::parallel::Interrupt;
use crate::{Error, Result};

pub(super) const TASKS: &str = "meta/tasks.parquet";
pub(super) const EPISODES: &str = "meta/episodes";

/// The task texts by index; `None` as text where no column can be told to hold it.
pub(super) fn tasks(
    root: &Path,
    interrupt: &Interrupt<'_>,
) -> Result<BTreeMap<i64, Option<String>>> {
    const INDEX: &str = "task_index";
    let file = DataFile::open(root, TASKS, &Schemas::default())?;
    let index = file.require(INDEX, "")?;
    let text = text_column(&file);
    let roots: Vec<usize> = std::iter::once(index)
        .chain(text.as_ref().map(|t| t.0))
        .collect();
    let mut tasks = BTreeMap::new();
    let all = [0..file.rows()];
    scan(&file, &roots, &all, interrupt, |first_row, batch| {
        let indices = named(batch, INDEX).map(integers).transpose();
        let indices = indices.map_err(|reason| unusable(&file, INDEX, first_row, reason))?;
        let texts = text
            .as_ref()
            .and_then(|(_, name)| named(batch, name))
            .map(texts);
        for (row, index) in indices.unwrap_or_default().into_iter().enumerate() {
            let index = index.ok_or_else(|| Error::Row {
                file: TASKS.to_owned(),
                column: INDEX.to_owned(),
                row: first_row + row,
                reason: "it is null".to_owned(),
            })?;
            tasks.insert(index, texts.as_ref().and_then(|texts| texts[row].clone()));
        }
        Ok(())
    })?;
    Ok(tasks)
}

/// The column that holds the task text: `task`, else the pandas index, else `index`.
fn text_column(file: &DataFile) -> Option<(usize, String)> {
    let metadata = file.arrow_metadata().ok();
    let pairs = metadata
        .as_ref()
        .and_then(|metadata| metadata.metadata().file_metadata().key_value_metadata());
    let pandas = pairs
        .and_then(|pairs| pairs.iter().find(|pair| pair.key == "pandas"))
        .and_then(|pair| serde_json::from_str::<Value>(pair.value.as_deref()?).ok());
    let index = pandas
        .as_ref()
        .and_then(|pandas| pandas["index_columns"][0].as_str());
    let candidates = [
        "task",
        index.unwrap_or("task"),
        "__index_level_0__",
        "index",
    ];
    candidates.into_iter().find_map(|name| {
        let root = file.root_column(name)?;
        let field = file.footer.schema.arrow().field(root);
        matches!(
            field.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
        .then(|| (root, name.to_owned()))
    })
}

fn texts(array: &dyn Array) -> Vec<Option<String>> {
    fn owned<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<String>> {
        texts.map(|text| text.map(str::to_owned)).collect()
    }
    match array.data_type() {
        DataType::Utf8 => owned(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => owned(array.as_string::<i64>().iter()),
        DataType::Utf8View => owned(array.as_string_view().iter()),
        _ => vec![None; array.len()],
    }
}

/// The episodes as listed, ascending.
pub(super) fn episodes(root: &Path, info: &Info, interrupt: &Interrupt<'_>) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let schemas = Schemas::default();
    for name in list_parquet(root, EPISODES)? {
        let file = DataFile::open(root, &name, &schemas)?;
        file.require("episode_index", "")?;
        // Statistics of every feature stand beside these, a hundred columns and more.
        let roots: Vec<usize> = COLUMNS
            .iter()
            .filter_map(|column| file.root_column(column))
            .collect();
        let all = [0..file.rows()];
        scan(&file, &roots, &all, interrupt, |_, batch| {
            append_listed(batch, info, &mut listed);
            Ok(())
        })?;
    }
    listed.sort_by_key(|entry| entry.episode);
    Ok(listed)
}

const COLUMNS: [&str; 6] = [
    "episode_index",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
];

fn append_listed(batch: &RecordBatch, info: &Info, listed: &mut Vec<Listed>) {
    let [episode, length, chunk, file, from, to] = COLUMNS.map(|name| {
        named(batch, name).map_or_else(|| vec![None; batch.num_rows()], loose_integers)
    });
    for row in 0..batch.num_rows() {
        let Some(episode) = episode[row] else {
            continue;
        };
        let path = info.data_path.fill(|field| {
            let value = match field {
                "chunk_index" => chunk[row],
                "file_index" => file[row],
                _ => None,
            };
            value.and_then(|value| u64::try_from(value).ok())
        });
        let range = from[row]
            .zip(to[row])
            .and_then(|(from, to)| to.checked_sub(from));
        listed.push(Listed {
            episode,
            length: length[row],
            file: path,
            range,
        });
    }
}

fn named<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a dyn Array> {
    batch.column_by_name(name).map(AsRef::as_ref)
}
