//! JSON as Python writes it.

use std::borrow::Cow;

use serde_json::Value;

/// Parses JSON in which numbers may be `NaN`, `Infinity` or `-Infinity`, which Python writes though
/// the format has no such thing; they read as null. What is wrong comes back with its column.
pub(super) fn parse(text: &str) -> Result<Value, (usize, String)> {
    serde_json::from_str(&without_nan(text)).map_err(|error| {
        let words = error.to_string();
        let reason = words.split(" at line ").next().unwrap_or(&words);
        (
            error.line(),
            format!("not valid JSON: {reason} (column {})", error.column()),
        )
    })
}

/// Replaces the three tokens outside of strings by null.
fn without_nan(text: &str) -> Cow<'_, str> {
    const TOKENS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !TOKENS.iter().any(|token| text.contains(token)) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let (mut in_string, mut escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        let token = TOKENS
            .iter()
            .find(|token| !in_string && rest.starts_with(**token));
        let length = if let Some(token) = token {
            clean.push_str("null");
            token.len()
        } else {
            in_string ^= next == '"' && !escaped;
            escaped = in_string && next == '\\' && !escaped;
            clean.push(next);
            next.len_utf8()
        };
        rest = &rest[length..];
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_null_and_texts_stay() {
        let text = r#"{"fps": NaN, "a": [-Infinity, Infinity], "NaN \" NaN": "NaN\\", "b": NaN}"#;
        let value = parse(text).unwrap();
        assert!(value["fps"].is_null() && value["a"][0].is_null() && value["a"][1].is_null());
        assert_eq!(value["NaN \" NaN"], "NaN\\");
        assert!(value["b"].is_null());
    }

    #[test]
    fn a_fault_has_one_place() {
        let (line, reason) = parse("{\n  \"a\": ?}").unwrap_err();
        assert_eq!(line, 2);
        assert!(
            reason.ends_with("(column 8)") && !reason.contains("line"),
            "{reason}"
        );
    }
}
