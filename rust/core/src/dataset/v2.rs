//! Metadata of v2.0 and v2.1: JSON lines.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::check::Listed;
use super::files::read_text;
use super::info::{Info, whole};
use super::json;
use crate::{Error, Result};

pub(super) const TASKS: &str = "meta/tasks.jsonl";
pub(super) const EPISODES: &str = "meta/episodes.jsonl";

/// The task texts by index; `None` as text where a line has none.
pub(super) fn tasks(root: &Path) -> Result<BTreeMap<i64, Option<String>>> {
    let mut tasks = BTreeMap::new();
    for (line, row) in rows(root, TASKS)? {
        let index = integer(&row, "task_index", TASKS, line)?;
        let text = row.get("task").and_then(Value::as_str).map(str::to_owned);
        tasks.insert(index, text);
    }
    Ok(tasks)
}

/// The episodes as listed, ascending.
pub(super) fn episodes(root: &Path, info: &Info) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for (line, row) in rows(root, EPISODES)? {
        let episode = integer(&row, "episode_index", EPISODES, line)?;
        let file = u64::try_from(episode).ok().and_then(|episode| {
            info.data_path.fill(|field| match field {
                "episode_index" => Some(episode),
                "episode_chunk" => Some(episode / info.chunks_size),
                _ => None,
            })
        });
        let length = row
            .get("length")
            .and_then(whole)
            .and_then(|length| length.try_into().ok());
        listed.push(Listed {
            episode,
            length,
            file,
            range: None,
        });
    }
    listed.sort_by_key(|entry| entry.episode);
    Ok(listed)
}

/// The JSON objects of a file of lines, each with its line number; blank lines are passed over.
fn rows(root: &Path, name: &str) -> Result<Vec<(usize, Value)>> {
    let text = read_text(root, name)?;
    let lines = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty());
    lines
        .map(|(text, line)| match json::parse(text) {
            Ok(row @ Value::Object(_)) => Ok((line, row)),
            Ok(_) => Err(malformed(name, line, "not a JSON object".to_owned())),
            Err((_, reason)) => Err(malformed(name, line, reason)),
        })
        .collect()
}

fn integer(row: &Value, key: &str, name: &str, line: usize) -> Result<i64> {
    let value = row.get(key);
    value
        .and_then(|value| value.as_i64().or_else(|| whole(value)?.try_into().ok()))
        .ok_or_else(|| malformed(name, line, format!("no integer {key:?}")))
}

fn malformed(file: &str, line: usize, reason: String) -> Error {
    Error::Metadata {
        file: file.to_owned(),
        line: Some(line),
        reason,
    }
}
