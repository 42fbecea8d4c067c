//! Path templates such as `data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet`.

use std::cmp::Ordering;

/// The most digits that a number is padded to.
const MAX_WIDTH: usize = 20;

/// A path with numbered fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Number { name: String, width: usize },
}

impl Template {
    /// Reads a template; what is wrong with it comes back as a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') || text.split(['/', '\\']).any(|step| step == "..") {
            return Err(format!(
                "data_path {text:?} leaves the dataset folder; it must lie below it"
            ));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, tail)) = rest.split_once('{') {
            let (field, tail) = tail
                .split_once('}')
                .ok_or_else(|| format!("data_path {text:?} has a '{{' that nothing closes"))?;
            let (name, format) = field.split_once(':').unwrap_or((field, ""));
            let width = format.trim_end_matches('d').parse().unwrap_or(0);
            if width > MAX_WIDTH {
                return Err(format!(
                    "data_path {text:?} pads a number to {width} digits"
                ));
            }
            if !literal.is_empty() {
                parts.push(Part::Text(literal.to_owned()));
            }
            parts.push(Part::Number {
                name: name.to_owned(),
                width,
            });
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// The folder that holds every path of this template.
    pub(super) fn folder(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(literal)) => literal.rsplit_once('/').map_or("", |(folder, _)| folder),
            _ => "",
        }
    }

    /// Whether `path` could have been made from this template.
    pub(super) fn matches(&self, path: &str) -> bool {
        let mut rest = path;
        for part in &self.parts {
            let tail = match part {
                Part::Text(literal) => rest.strip_prefix(literal.as_str()),
                Part::Number { .. } => {
                    let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                    (tail.len() < rest.len()).then_some(tail)
                }
            };
            match tail {
                Some(tail) => rest = tail,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// The path whose fields have the values that `field` knows; `None` where it knows not all.
    pub(super) fn fill(&self, field: impl Fn(&str) -> Option<u64>) -> Option<String> {
        let mut path = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => path.push_str(literal),
                Part::Number { name, width } => {
                    let value = field(name)?.to_string();
                    path.extend(std::iter::repeat_n('0', width.saturating_sub(value.len())));
                    path.push_str(&value);
                }
            }
        }
        Some(path)
    }
}

/// Orders paths by the numbers in them, then as text: `file-2` before `file-10`.
pub(super) fn numeric_order(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(numbers(b)).then_with(|| a.cmp(b))
}

/// The runs of digits in `path`, each comparable as a number of any size.
fn numbers(path: &str) -> impl Iterator<Item = (usize, &str)> {
    path.split(|c: char| !c.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .map(|run| run.trim_start_matches('0'))
        .map(|digits| (digits.len(), digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet";

    #[test]
    fn fills_and_matches_its_own_paths() {
        let template = Template::parse(V2).unwrap();
        let path = template.fill(|name| Some(if name == "episode_chunk" { 1 } else { 1234 }));
        assert_eq!(
            path.as_deref(),
            Some("data/chunk-001/episode_001234.parquet")
        );
        assert!(template.matches(path.as_deref().unwrap()));
        assert!(template.matches("data/chunk-7/episode_0.parquet"));
        assert!(!template.matches("data/chunk-001/episode_x.parquet"));
        assert!(!template.matches("data/chunk-001/episode_001.parquet.bak"));
        assert_eq!(template.folder(), "data");
        assert_eq!(template.fill(|_| None), None);
    }

    #[test]
    fn paths_outside_the_dataset_are_refused() {
        for text in [
            "/etc/{a}",
            "../{a}.parquet",
            "data/../../{a}",
            "..\\{a}",
            "data/{a",
            "{a:99999999999d}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_run_by_number() {
        let mut files = ["d/c-10/f-1", "d/c-2/f-10", "d/c-2/f-9", "d/c-002/f-009b"];
        files.sort_by(|a, b| numeric_order(a, b));
        assert_eq!(
            files,
            ["d/c-002/f-009b", "d/c-2/f-9", "d/c-2/f-10", "d/c-10/f-1"]
        );
    }
}
