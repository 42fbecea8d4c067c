//! `meta/info.json`: version, rate, features, path template.
//!
//! Third-party files are loose: counters wrong, names missing, a rate written as a float. Only what
//! steers the reading is demanded; the rest is kept where it can be understood.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::files::read_text;
use super::json;
use super::template::Template;
use crate::{Error, Result};

/// Where the file lies below the root.
pub(super) const INFO: &str = "meta/info.json";

/// The folder of the data files where nothing else is said.
pub(super) const DATA: &str = "data";

/// Episodes per chunk folder where nothing else is said.
const DEFAULT_CHUNKS_SIZE: u64 = 1000;

/// How the files of a data set are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// v2.0 and v2.1: one data file per episode, metadata as JSON lines.
    V2,
    /// v3.0: many episodes a file, metadata as parquet.
    V3,
}

impl Layout {
    /// Where data files lie unless `meta/info.json` says otherwise.
    fn data_path(self) -> &'static str {
        match self {
            Self::V2 => "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
            Self::V3 => "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        }
    }
}

/// One entry of `features`.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// The type as written, such as `float32`; empty where there is none.
    pub dtype: String,
    /// The shape of one frame's value; empty where there is none.
    pub shape: Vec<u64>,
    /// The names of the dims where they are a flat list, else none.
    pub names: Option<Vec<String>>,
}

/// What `meta/info.json` says.
#[derive(Debug, Clone)]
pub struct Info {
    /// As written, such as `v2.1`.
    pub codebase_version: String,
    /// The layout that this version has.
    pub layout: Layout,
    /// Frames per second.
    pub fps: Option<f64>,
    /// Episodes per chunk folder (v2).
    pub chunks_size: u64,
    /// Columns by name, in alphabetical order.
    pub features: BTreeMap<String, Feature>,
    /// The counter as written; rows decide.
    pub total_episodes: Option<u64>,
    /// The counter as written; rows decide.
    pub total_frames: Option<u64>,
    pub(super) data_path: Template,
}

impl Info {
    /// Reads the file below `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = read_text(root, INFO)?;
        let value = json::parse(&text).map_err(|(line, why)| metadata(Some(line), why))?;
        match value {
            Value::Object(object) => Self::from_json(&object),
            _ => Err(metadata(None, "it must hold one JSON object".to_owned())),
        }
    }

    /// What can be told from the name of a data file alone.
    pub(super) fn by_name(data_file: &str) -> Result<Self> {
        let stem = data_file.rsplit('/').next().unwrap_or(data_file);
        let layout = if stem.starts_with("episode") {
            Layout::V2
        } else {
            Layout::V3
        };
        Ok(Self {
            codebase_version: String::new(),
            layout,
            fps: None,
            chunks_size: DEFAULT_CHUNKS_SIZE,
            features: BTreeMap::new(),
            total_episodes: None,
            total_frames: None,
            data_path: Template::parse(layout.data_path()).map_err(|why| metadata(None, why))?,
        })
    }

    fn from_json(json: &Map<String, Value>) -> Result<Self> {
        let storage = json
            .get("storage_format")
            .and_then(Value::as_str)
            .unwrap_or("parquet");
        if storage != "parquet" {
            return Err(metadata(
                None,
                format!(
                    "storage_format {storage:?} is not supported; convert the dataset to parquet"
                ),
            ));
        }
        let data_path = json
            .get("data_path")
            .and_then(Value::as_str)
            .filter(|path| !path.is_empty());
        let (codebase_version, layout) = version(json, data_path)?;
        let counter = |key: &str| json.get(key).and_then(whole);
        Ok(Self {
            codebase_version,
            layout,
            fps: json.get("fps").and_then(Value::as_f64),
            chunks_size: counter("chunks_size")
                .filter(|&size| size > 0)
                .unwrap_or(DEFAULT_CHUNKS_SIZE),
            features: features(json.get("features")),
            total_episodes: counter("total_episodes"),
            total_frames: counter("total_frames"),
            data_path: Template::parse(data_path.unwrap_or(layout.data_path()))
                .map_err(|reason| metadata(None, reason))?,
        })
    }
}

fn metadata(line: Option<usize>, reason: String) -> Error {
    Error::Metadata {
        file: INFO.to_owned(),
        line,
        reason,
    }
}

/// The version and its layout; where the file names none, the template tells the layouts apart.
fn version(json: &Map<String, Value>, data_path: Option<&str>) -> Result<(String, Layout)> {
    let version = match (json.get("codebase_version"), data_path) {
        (Some(Value::String(version)), _) => version,
        (None, Some(path)) if path.contains("{file_index") => {
            return Ok((String::new(), Layout::V3));
        }
        (None, Some(path)) if path.contains("{episode_index") => {
            return Ok((String::new(), Layout::V2));
        }
        (found, _) => {
            let found = found.map_or("absent".to_owned(), Value::to_string);
            return Err(metadata(
                None,
                format!(
                    "codebase_version is {found}; it must be a text such as \"v2.1\" or \"v3.0\""
                ),
            ));
        }
    };
    match version.trim_start_matches('v').split('.').next() {
        Some("2") => Ok((version.to_owned(), Layout::V2)),
        Some("3") => Ok((version.to_owned(), Layout::V3)),
        _ => Err(metadata(
            None,
            format!(
                "codebase_version {version:?} is not supported; convert the dataset to v2.1 or v3.0"
            ),
        )),
    }
}

/// A counter, whether written as an integer or as a float.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
    })
}

fn features(json: Option<&Value>) -> BTreeMap<String, Feature> {
    let Some(Value::Object(features)) = json else {
        return BTreeMap::new();
    };
    features
        .iter()
        .map(|(name, feature)| (name.clone(), Feature::from_json(feature)))
        .collect()
}

impl Feature {
    fn from_json(json: &Value) -> Self {
        let shape = json.get("shape").and_then(Value::as_array);
        Self {
            dtype: json
                .get("dtype")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            shape: shape
                .map(|dims| dims.iter().filter_map(whole).collect())
                .unwrap_or_default(),
            names: json.get("names").and_then(names),
        }
    }
}

/// Dim names: a flat list, or an object with one list, such as `{"motors": [...]}`.
fn names(json: &Value) -> Option<Vec<String>> {
    match json {
        Value::Array(names) => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        Value::Object(groups) if groups.len() == 1 => groups.values().next().and_then(names),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Info> {
        let value: Value = serde_json::from_str(json).unwrap();
        Info::from_json(value.as_object().unwrap())
    }

    #[test]
    fn loose_files_are_understood() {
        let info = parse(
            r#"{"codebase_version": "v2.0", "fps": 29.97, "total_episodes": 3.0, "chunks_size": 0,
                "features": {"action": {"dtype": "float32", "shape": [2], "names": {"motors": ["a", "b"]}},
                             "odd": null}}"#,
        )
        .unwrap();
        assert_eq!(
            (info.layout, info.fps, info.total_episodes),
            (Layout::V2, Some(29.97), Some(3))
        );
        assert_eq!(info.chunks_size, 1000);
        assert_eq!(
            info.features["action"].names.as_deref(),
            Some(&["a".into(), "b".into()][..])
        );
        assert!(info.features["odd"].shape.is_empty());
        assert_eq!(
            parse(r#"{"data_path": "d/f-{file_index}"}"#)
                .unwrap()
                .layout,
            Layout::V3
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_way_out() {
        for (json, word) in [
            (r#"{"codebase_version": "v1.6"}"#, "convert"),
            (
                r#"{"codebase_version": "v3.0", "storage_format": "lance"}"#,
                "lance",
            ),
            (
                r#"{"codebase_version": "v3.0", "data_path": "../{file_index}"}"#,
                "leaves",
            ),
        ] {
            let message = parse(json).unwrap_err().to_string();
            assert!(
                message.contains(word) && message.contains(INFO),
                "{message}"
            );
        }
    }
}
