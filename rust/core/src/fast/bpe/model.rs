//! What a `tokenizer.json` says, as far as this codec can do the same.
//!
//! Versions 0.19 and later of the `tokenizers` package write the same things in two ways (merges as
//! `"a b"` or as `["a", "b"]`). Whatever else a file asks for is [`Error::Unsupported`]: its ids
//! would not be those of the package.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// A byte-pair encoding and the way its text is prepared.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// Whether texts are cut into GPT-2's words first.
    pub(crate) split: bool,
    /// Whether merges work on the bytes of a text, each written as a character, or on its characters.
    pub(crate) byte_level: bool,
    /// The entries of the vocabulary and their ids, by ascending id.
    pub(crate) vocabulary: Vec<(String, i32)>,
    /// Left part, right part and whole of each merge, by rank, as positions in `vocabulary`.
    pub(crate) merges: Vec<[u32; 3]>,
}

fn unsupported<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(Error::Unsupported(what.to_string()))
}

impl Model {
    /// Reads the text of a `tokenizer.json`.
    pub(crate) fn parse(json: &str) -> Result<Self> {
        let file = match serde_json::from_str(json) {
            Ok(Value::Object(file)) => file,
            Ok(_) => return unsupported("tokenizer.json holds no object"),
            Err(error) => return unsupported(format!("tokenizer.json is no JSON: {error}")),
        };
        let byte_level = pre_tokenizer(&file)?;
        for (field, allowed) in [("normalizer", ""), ("post_processor", "ByteLevel")] {
            if !["", allowed].contains(&kind(&file, field)) {
                return unsupported(format!("{field} {}", shown(&file, field)));
            }
        }
        let decoders: &[_] = match byte_level {
            Some(_) => &["ByteLevel"],
            None => &["", "Fuse"],
        };
        if !decoders.contains(&kind(&file, "decoder")) {
            return unsupported(format!("decoder {}", shown(&file, "decoder")));
        }
        let added = file.get("added_tokens").and_then(Value::as_array);
        if added.is_some_and(|tokens| !tokens.is_empty()) {
            return unsupported(format!("added_tokens {}", shown(&file, "added_tokens")));
        }
        let Some(Value::Object(model)) = file.get("model") else {
            return unsupported("no model");
        };
        check_settings(model)?;
        let vocabulary = vocabulary(model)?;
        Ok(Self {
            split: byte_level == Some(true),
            byte_level: byte_level.is_some(),
            merges: merges(model, &vocabulary)?,
            vocabulary,
        })
    }
}

impl Model {
    /// How many characters lead the vocabulary, 0, 1, … with their own number as id: at least as many
    /// as the fit had symbols.
    pub(crate) fn alphabet_size(&self) -> u32 {
        let entries: BTreeMap<&str, i32> = self
            .vocabulary
            .iter()
            .map(|(entry, id)| (entry.as_str(), *id))
            .collect();
        let leads = |code: &u32| {
            let character = char::from_u32(*code).map(String::from);
            character.is_some_and(|c| entries.get(c.as_str()) == Some(&(*code as i32)))
        };
        let most = self.vocabulary.len() as u32;
        (0..=most).find(|code| !leads(code)).unwrap_or(most)
    }
}

/// The type of a part; empty where there is no part.
fn kind<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    match object.get(field) {
        None | Some(Value::Null) => "",
        Some(part) => part.get("type").and_then(Value::as_str).unwrap_or("?"),
    }
}

/// A value as the file writes it, cut to a length that a message can hold.
fn shown(object: &Map<String, Value>, field: &str) -> String {
    let text = object.get(field).unwrap_or(&Value::Null).to_string();
    text.chars().take(200).collect()
}

/// Nothing where texts go to the model as they are; whether the byte-level one splits.
fn pre_tokenizer(file: &Map<String, Value>) -> Result<Option<bool>> {
    let flag = |name| file.get("pre_tokenizer")?.get(name).map(Value::as_bool);
    match kind(file, "pre_tokenizer") {
        "" => Ok(None),
        "ByteLevel" => match (flag("add_prefix_space"), flag("use_regex")) {
            (Some(Some(false)), None) => Ok(Some(true)),
            (Some(Some(false)), Some(Some(split))) => Ok(Some(split)),
            _ => unsupported(format!("pre_tokenizer {}", shown(file, "pre_tokenizer"))),
        },
        _ => unsupported(format!("pre_tokenizer {}", shown(file, "pre_tokenizer"))),
    }
}

/// Nothing in the model but its vocabulary and merges may decide about ids.
fn check_settings(model: &Map<String, Value>) -> Result<()> {
    if model.get("type").and_then(Value::as_str) != Some("BPE") {
        return unsupported(format!("a model of type {}", shown(model, "type")));
    }
    for field in [
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "ignore_merges",
    ] {
        let neutral = match model.get(field) {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty() && field != "unk_token",
            Some(Value::Number(number)) => number.as_f64() == Some(0.0),
            Some(_) => false,
        };
        if !neutral {
            return unsupported(format!("{field} {} of the model", shown(model, field)));
        }
    }
    Ok(())
}

fn vocabulary(model: &Map<String, Value>) -> Result<Vec<(String, i32)>> {
    let Some(Value::Object(entries)) = model.get("vocab") else {
        return unsupported("the model has no vocab");
    };
    let mut vocabulary = Vec::with_capacity(entries.len());
    for (token, id) in entries {
        match id.as_u64().and_then(|id| i32::try_from(id).ok()) {
            Some(id) => vocabulary.push((token.clone(), id)),
            None => return unsupported(format!("token {token:?} has id {id}")),
        }
    }
    vocabulary.sort_by_key(|&(_, id)| id);
    if let Some(pair) = vocabulary.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return unsupported(format!("{:?} and {:?} have one id", pair[0].0, pair[1].0));
    }
    Ok(vocabulary)
}

fn merges(model: &Map<String, Value>, vocabulary: &[(String, i32)]) -> Result<Vec<[u32; 3]>> {
    let Some(Value::Array(listed)) = model.get("merges") else {
        return unsupported("the model has no merges");
    };
    let tokens = vocabulary.iter().map(|(token, _)| token.as_str());
    let places: BTreeMap<&str, u32> = tokens.zip(0..).collect();
    let mut merges = Vec::with_capacity(listed.len());
    for merge in listed {
        let (left, right) = match merge {
            Value::String(text) if text.starts_with("#version") => continue,
            Value::String(text) => match text.split_once(' ') {
                Some(parts) => parts,
                None => return unsupported(format!("merge {merge}")),
            },
            Value::Array(parts) => match parts.as_slice() {
                [Value::String(left), Value::String(right)] => (left.as_str(), right.as_str()),
                _ => return unsupported(format!("merge {merge}")),
            },
            _ => return unsupported(format!("merge {merge}")),
        };
        let whole = format!("{left}{right}");
        match (
            places.get(left),
            places.get(right),
            places.get(whole.as_str()),
        ) {
            (Some(&left), Some(&right), Some(&whole)) => merges.push([left, right, whole]),
            _ => return unsupported(format!("merge {merge} of what the vocab lacks")),
        }
    }
    Ok(merges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true}, "post_processor": {"type": "ByteLevel"}, "decoder":
        {"type": "ByteLevel"}, "model": {"type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": "", "fuse_unk": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["a b", ["ab", "a"]]}}"#;

    #[test]
    fn both_ways_to_write_merges_are_read() {
        let model = Model::parse(GOOD).unwrap();
        assert!(model.split && model.byte_level);
        assert_eq!(model.merges, [[0, 1, 2], [2, 0, 3]]);
        assert_eq!(model.vocabulary[3], ("aba".to_owned(), 3));
        let whole = Model::parse(&GOOD.replace("\"use_regex\": true", "\"use_regex\": false"));
        assert!(!whole.unwrap().split);
        let plain = GOOD
            .replace("\"pre_tokenizer\"", "\"x\"")
            .replace("\"decoder\"", "\"y\"");
        let plain = Model::parse(&plain).unwrap();
        assert!(!plain.split && !plain.byte_level);
    }

    #[test]
    fn what_would_change_ids_is_not_supported() {
        for (from, to) in [
            ("\"BPE\"", "\"WordPiece\""),
            ("\"dropout\": null", "\"dropout\": 0.1"),
            ("\"unk_token\": null", "\"unk_token\": \"a\""),
            ("\"unk_token\": null", "\"unk_token\": \"\""),
            (
                "\"end_of_word_suffix\": \"\"",
                "\"end_of_word_suffix\": \"_\"",
            ),
            ("\"fuse_unk\": false", "\"ignore_merges\": true"),
            ("\"fuse_unk\": false", "\"byte_fallback\": true"),
            (
                "\"normalizer\": null",
                "\"normalizer\": {\"type\": \"NFC\"}",
            ),
            ("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
            ("\"add_prefix_space\": false", "\"prefix\": false"),
            ("\"use_regex\": true", "\"use_regex\": 1"),
            ("\"ByteLevel\", \"add", "\"Digits\", \"add"),
            (
                "\"post_processor\": {\"type\": \"ByteLevel\"}",
                "\"post_processor\": {\"a\": 1}",
            ),
            ("\"decoder\"", "\"x\""),
            ("\"added_tokens\": []", "\"added_tokens\": [{\"id\": 9}]"),
            ("\"ab\": 2", "\"ab\": 1"),
            ("\"ab\": 2", "\"ab\": -2"),
            ("\"ab\": 2", "\"ab\": 4294967295"),
            ("\"ab\": 2", "\"abb\": 2"),
            ("\"a b\"", "\"ab\""),
            ("\"a b\"", "\"a b c\""),
            ("\"a b\"", "[\"a\"]"),
            ("\"a b\"", "3"),
            ("\"merges\"", "\"m\""),
            ("\"vocab\"", "\"v\""),
            ("\"model\"", "\"m\""),
            ("{\"version\"", "[{\"version\""),
        ] {
            let changed = GOOD.replace(from, to);
            assert_ne!(changed, GOOD);
            let error = Model::parse(&changed).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)), "{to}: {error}");
        }
        assert!(Model::parse("3").is_err());
    }
}
