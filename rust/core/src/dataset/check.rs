//! Findings: where metadata and rows disagree, and what else a user should know.

use std::collections::BTreeMap;

use super::episodes::{EpisodeTable, UNRESOLVED};
use super::files::DataFile;
use super::info::Info;
use crate::{Error, Result};

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Episodes without a task that the data set defines.
    UnresolvedTask,
    /// Episodes whose frames name more than one task.
    MixedTasks,
    /// There is no task file, or it has no text.
    TaskText,
    /// Rows that do not lie in the order of their frames.
    FrameOrder,
    /// Frames that do not count up from 0 by one.
    FrameGap,
    /// Episodes of which some rows have a frame number and some have none.
    PartlyFramed,
    /// There are fewer rows than `meta/info.json` counts, so some may be lost.
    FewerRows,
    /// There are more rows than `meta/info.json` counts.
    Counter,
    /// A length in the episode metadata differs from the rows.
    Length,
    /// The episode metadata points to the wrong file or range.
    Pointer,
    /// Rows of episodes that the metadata does not list.
    Unlisted,
    /// A metadata file that only serves to cross-check cannot be read.
    Metadata,
    /// A parquet file that does not match `data_path`.
    StrayFile,
}

impl Kind {
    /// The name that users see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnresolvedTask => "unresolved-task",
            Self::MixedTasks => "mixed-tasks",
            Self::TaskText => "task-text",
            Self::FrameOrder => "frame-order",
            Self::FrameGap => "frame-gap",
            Self::PartlyFramed => "partly-framed",
            Self::FewerRows => "fewer-rows",
            Self::Counter => "counter",
            Self::Length => "length",
            Self::Pointer => "pointer",
            Self::Unlisted => "unlisted",
            Self::Metadata => "metadata",
            Self::StrayFile => "stray-file",
        }
    }

    /// Whether a result may not be what the user expects, so that it should be said unasked.
    #[must_use]
    pub fn is_warning(self) -> bool {
        match self {
            Self::UnresolvedTask
            | Self::TaskText
            | Self::FrameOrder
            | Self::FrameGap
            | Self::PartlyFramed
            | Self::FewerRows
            | Self::Length
            | Self::StrayFile
            | Self::Metadata => true,
            Self::MixedTasks | Self::Counter | Self::Pointer | Self::Unlisted => false,
        }
    }
}

/// One thing that a user should know about a data set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// The whole sentence.
    pub message: String,
}

/// One episode as the metadata describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) episode: i64,
    pub(super) length: Option<i64>,
    /// The data file that metadata names.
    pub(super) file: Option<String>,
    /// The number of frames in its range of the whole data set.
    pub(super) range: Option<i64>,
}

/// Findings as they gather during the opening.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) list: Vec<Finding>,
    pub(super) mixed_tasks: Vec<i64>,
    pub(super) frame_order: Vec<i64>,
    pub(super) frame_gaps: Vec<i64>,
    pub(super) partly_framed: Vec<i64>,
}

impl Findings {
    pub(super) fn add(&mut self, kind: Kind, message: String) {
        self.list.push(Finding { kind, message });
    }

    /// One finding that names the episodes, where there are any.
    fn add_episodes(&mut self, kind: Kind, episodes: &[i64], what: &str) {
        if !episodes.is_empty() {
            self.add(kind, format!("episodes {}: {what}", ranges(episodes)));
        }
    }

    /// Everything found, sorted.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        let mixed = std::mem::take(&mut self.mixed_tasks);
        let order = std::mem::take(&mut self.frame_order);
        let gaps = std::mem::take(&mut self.frame_gaps);
        let partly = std::mem::take(&mut self.partly_framed);
        self.add_episodes(
            Kind::MixedTasks,
            &mixed,
            "their frames name several tasks; the first frame's counts",
        );
        self.add_episodes(
            Kind::FrameOrder,
            &order,
            "their rows do not lie in the order of frame_index; they are read in that order",
        );
        self.add_episodes(
            Kind::FrameGap,
            &gaps,
            "their frame_index does not count up from 0 by one",
        );
        self.add_episodes(
            Kind::PartlyFramed,
            &partly,
            "only some of their rows have a frame_index; they are read in file order",
        );
        self.list.sort();
        self.list
    }

    /// Says which episodes have no task, and marks those whose task the data set does not define.
    pub(super) fn resolve_tasks(
        &mut self,
        table: &mut EpisodeTable,
        tasks: Option<&BTreeMap<i64, String>>,
    ) {
        let mut undefined: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut null = Vec::new();
        for (task, &episode) in table.task_index.iter_mut().zip(&table.episode_index) {
            if *task == UNRESOLVED {
                null.push(episode);
            } else if *task < 0 || tasks.is_some_and(|tasks| !tasks.contains_key(task)) {
                undefined.entry(*task).or_default().push(episode);
                *task = UNRESOLVED;
            }
        }
        self.add_episodes(
            Kind::UnresolvedTask,
            &null,
            "their task_index is null, absent or -1, so they have no task",
        );
        for (task, episodes) in undefined {
            let what = format!(
                "their task_index={task} is not defined by the task file, so they have no task"
            );
            self.add_episodes(Kind::UnresolvedTask, &episodes, &what);
        }
    }

    /// Holds the counters of `meta/info.json` against the rows. With a selection files may be absent
    /// on purpose, so only more rows than counted are a finding.
    pub(super) fn check_counters(&mut self, info: &Info, table: &EpisodeTable, selected: bool) {
        let frames: i64 = table.length.iter().sum();
        for (name, written, counted) in [
            ("total_episodes", info.total_episodes, table.len() as u64),
            ("total_frames", info.total_frames, frames.cast_unsigned()),
        ] {
            let message =
                |written| format!("meta/info.json says {name} {written}, the rows say {counted}");
            match written {
                Some(written) if written < counted => self.add(Kind::Counter, message(written)),
                Some(written) if written > counted && !selected => {
                    self.add(
                        Kind::FewerRows,
                        message(written) + ": is a data file missing?",
                    );
                }
                _ => {}
            }
        }
    }

    /// Holds the episode metadata against the rows.
    ///
    /// An episode that is listed and has no row is an error: an answer without it would be one from
    /// half the data. With a selection only the selected episodes count.
    pub(super) fn check_listed(
        &mut self,
        listed: &[Listed],
        table: &EpisodeTable,
        files: &[DataFile],
        selected: Option<&[i64]>,
    ) -> Result<()> {
        let asked = |episode| selected.is_none_or(|ids| ids.binary_search(&episode).is_ok());
        let (mut absent, mut absent_files) = (Vec::new(), Vec::new());
        let (mut lengths, mut pointers) = (Vec::new(), Vec::new());
        for entry in listed {
            let Some(position) = table.position(entry.episode) else {
                if entry.length != Some(0) && asked(entry.episode) {
                    absent.push(entry.episode);
                    let there = |name: &String| files.iter().any(|file| &file.name == name);
                    absent_files.extend(entry.file.clone().filter(|name| !there(name)));
                }
                continue;
            };
            let length = table.length[position];
            if entry.length.is_some_and(|listed| listed != length) {
                lengths.push(entry.episode);
            }
            let here = |name: &String| {
                table
                    .spans(position)
                    .iter()
                    .any(|s| &files[s.file].name == name)
            };
            let strayed = entry.file.as_ref().is_some_and(|name| !here(name));
            if strayed || entry.range.is_some_and(|range| range != length) {
                pointers.push(entry.episode);
            }
        }
        if !absent.is_empty() {
            absent_files.dedup();
            absent_files.truncate(10);
            let files = if absent_files.is_empty() {
                String::new()
            } else {
                format!(" (absent: {})", absent_files.join(", "))
            };
            return Err(Error::MissingEpisodes {
                episodes: ranges(&absent),
                files,
            });
        }
        self.add_episodes(
            Kind::Length,
            &lengths,
            "metadata lists another length; the rows decide",
        );
        self.add_episodes(
            Kind::Pointer,
            &pointers,
            "metadata points to another file or range; the rows decide",
        );
        if !listed.is_empty() {
            let known: Vec<i64> = listed.iter().map(|entry| entry.episode).collect();
            let mut unlisted = table.episode_index.clone();
            unlisted.retain(|episode| known.binary_search(episode).is_err());
            self.add_episodes(
                Kind::Unlisted,
                &unlisted,
                "they have rows but metadata does not list them",
            );
        }
        Ok(())
    }
}

/// How many ranges a message names.
const LISTED_RANGES: usize = 12;

/// The ids as ranges, such as `0-4, 7`.
pub(super) fn ranges(ids: &[i64]) -> String {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<&[i64]> = sorted
        .chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .collect();
    let mut words: Vec<String> = runs
        .iter()
        .take(LISTED_RANGES)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    let rest: usize = runs.iter().skip(LISTED_RANGES).map(|run| run.len()).sum();
    if rest > 0 {
        words.push(format!("and {rest} more"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_ranges() {
        assert_eq!(ranges(&[7, 0, 1, 2, 9, 10]), "0-2, 7, 9-10");
        assert_eq!(ranges(&[]), "");
        let sparse: Vec<i64> = (0..30).map(|i| 2 * i).collect();
        assert!(ranges(&sparse).ends_with("and 18 more"));
    }
}
