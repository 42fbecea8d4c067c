//! The data set itself: opening, reading, drawing chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::check::{Finding, Findings, Kind, ranges};
use super::episodes::{EpisodeTable, TASK};
use super::files::{DataFile, exists, list_parquet};
use super::footer::Schemas;
use super::info::{DATA, INFO, Info, Layout};
use super::segments::{Cutter, Run};
use super::{v2, v3};
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};

/// What decodes pages. The answers are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// Pages go straight into the answer where they prove to be plain numbers; the Arrow reader does
    /// the rest.
    #[default]
    Pages,
    /// The Arrow reader does everything, as a check and for comparison.
    Arrow,
}

/// An open data set: what its metadata, footers and id columns say.
#[derive(Debug)]
pub struct Dataset {
    pub(super) files: Vec<DataFile>,
    info: Info,
    tasks: BTreeMap<i64, String>,
    episodes: EpisodeTable,
    findings: Vec<Finding>,
    pub(super) engine: Engine,
}

impl Dataset {
    /// Opens the data set below `root`, on up to `threads` threads; `selection` keeps only the
    /// episodes with these ids.
    ///
    /// Every data file is looked at; all that are broken are named at once.
    pub fn open(
        root: &Path,
        selection: Option<&[i64]>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Self> {
        Self::open_with(Engine::default(), root, selection, threads, interrupt)
    }

    /// As [`open`](Self::open), with an engine of choice.
    pub fn open_with(
        engine: Engine,
        root: &Path,
        selection: Option<&[i64]>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Self> {
        let nothing = |reason: &str| Error::NotFound {
            path: root.to_owned(),
            reason: reason.to_owned(),
        };
        if !root.is_dir() {
            return Err(nothing(
                "there is no such folder; pass a folder, or a repository as org/name",
            ));
        }
        let mut findings = Findings::default();
        let info = if root.join(INFO).is_file() {
            Info::read(root)?
        } else {
            let names = list_parquet(root, DATA)?;
            let first = names.first().ok_or_else(|| {
                nothing("neither meta/info.json nor data/**/*.parquet is there, so this is no LeRobot dataset")
            })?;
            findings.add(
                Kind::Metadata,
                "meta/info.json is missing; the layout is told from the names of the data files"
                    .to_owned(),
            );
            Info::by_name(first)?
        };
        let names = data_files(root, &info, &mut findings)?;
        if names.is_empty() {
            return Err(nothing("it has no data files (*.parquet)"));
        }
        let (files, runs) = scan_files(engine, root, &names, threads, interrupt)?;
        let mut episodes = EpisodeTable::assemble(runs, &files, &mut findings)?;
        let tasks = tasks(root, &info, &mut findings, interrupt)?;
        if files
            .iter()
            .any(|file| file.rows() > 0 && file.root_column(TASK).is_none())
        {
            findings.add(
                Kind::UnresolvedTask,
                "there is no column \"task_index\"".to_owned(),
            );
        }

        let listed = listed(root, &info, &mut findings, interrupt);
        let selected = selection.map(|ids| ids.iter().copied().collect::<BTreeSet<_>>());
        let selected: Option<Vec<i64>> = selected.map(|ids| ids.into_iter().collect());
        findings.check_listed(&listed, &episodes, &files, selected.as_deref())?;
        if episodes.is_empty() {
            return Err(Error::NoEpisodes {
                path: root.to_owned(),
                files: files.len(),
            });
        }
        findings.check_counters(&info, &episodes, selected.is_some());
        if let Some(ids) = &selected {
            episodes = select(&episodes, ids)?;
        }
        findings.resolve_tasks(&mut episodes, tasks.as_ref());
        let tasks = tasks.unwrap_or_else(|| {
            episodes
                .task_index
                .iter()
                .filter(|&&t| t >= 0)
                .map(|&t| (t, String::new()))
                .collect()
        });
        Ok(Self {
            files,
            info,
            tasks,
            episodes,
            findings: findings.finish(),
            engine,
        })
    }

    /// What `meta/info.json` says.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Task texts by index; empty texts where none can be told.
    #[must_use]
    pub fn tasks(&self) -> &BTreeMap<i64, String> {
        &self.tasks
    }

    /// The episodes, as the rows tell them.
    #[must_use]
    pub fn episodes(&self) -> &EpisodeTable {
        &self.episodes
    }

    /// Where metadata and rows disagree.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Data files relative to the root, in the order of their numbers.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    /// Columns of the data files, in the order of their first appearance.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let files = self.files.iter().filter(|file| file.rows() > 0);
        files
            .flat_map(DataFile::column_names)
            .filter(|name| seen.insert(*name))
            .collect()
    }
}

/// The data files: those that match `data_path`, or all parquet files in its folder where none does.
fn data_files(root: &Path, info: &Info, findings: &mut Findings) -> Result<Vec<String>> {
    let mut all = list_parquet(root, info.data_path.folder())?;
    if all.is_empty() {
        all = list_parquet(root, DATA)?;
    }
    let (matching, stray): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|name| info.data_path.matches(name));
    let (used, verb) = if matching.is_empty() {
        (&stray, "read")
    } else {
        (&matching, "ignored")
    };
    if let Some(first) = stray.first() {
        findings.add(
            Kind::StrayFile,
            format!(
                "{} file(s) do not match data_path of meta/info.json and are {verb}: {first}{}",
                stray.len(),
                if stray.len() > 1 { ", ..." } else { "" }
            ),
        );
    }
    Ok(used.clone())
}

/// Opens every file and cuts it into runs.
fn scan_files(
    engine: Engine,
    root: &Path,
    names: &[String],
    threads: usize,
    interrupt: &Interrupt<'_>,
) -> Result<(Vec<DataFile>, Vec<Run>)> {
    let jobs: Vec<(usize, &String)> = names.iter().enumerate().collect();
    let schemas = Schemas::default();
    let cut = |cutter: &mut Cutter, (index, name): (usize, &String)| {
        let file = DataFile::open(root, name, &schemas)?;
        let runs = cutter.runs(&file, index, interrupt)?;
        Ok((file, runs))
    };
    let outcomes = parallel::consume(jobs, threads, interrupt, || Cutter::new(engine), cut)?;
    let (mut files, mut all_runs, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok((file, mut runs)) => {
                files.push(file);
                all_runs.append(&mut runs);
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => broken.push(error),
        }
    }
    match broken.pop() {
        None => Ok((files, all_runs)),
        Some(only) if broken.is_empty() => Err(only),
        Some(last) => {
            broken.push(last);
            Err(Error::Several(broken))
        }
    }
}

/// The task file of either layout; the one of the data set's own layout first. `None` where there is
/// neither.
fn tasks(
    root: &Path,
    info: &Info,
    findings: &mut Findings,
    interrupt: &Interrupt<'_>,
) -> Result<Option<BTreeMap<i64, String>>> {
    let (lines, parquet) = (exists(root, v2::TASKS), exists(root, v3::TASKS));
    let (name, tasks) = match (lines, parquet, info.layout) {
        (true, false, _) | (true, true, Layout::V2) => (v2::TASKS, v2::tasks(root)?),
        (false, true, _) | (true, true, Layout::V3) => (v3::TASKS, v3::tasks(root, interrupt)?),
        (false, false, _) => {
            let message = "there is no task file, so every task_index counts and has no text";
            findings.add(Kind::TaskText, message.to_owned());
            return Ok(None);
        }
    };
    if !tasks.is_empty() && tasks.values().all(Option::is_none) {
        findings.add(
            Kind::TaskText,
            format!("{name} has no text that can be told to be the task's"),
        );
    }
    Ok(Some(
        tasks
            .into_iter()
            .map(|(index, text)| (index, text.unwrap_or_default()))
            .collect(),
    ))
}

/// The episode metadata; it only cross-checks, so what cannot be read is a finding.
fn listed(
    root: &Path,
    info: &Info,
    findings: &mut Findings,
    interrupt: &Interrupt<'_>,
) -> Vec<super::check::Listed> {
    let listed = match info.layout {
        Layout::V2 if !exists(root, v2::EPISODES) => return Vec::new(),
        Layout::V2 => v2::episodes(root, info),
        Layout::V3 => v3::episodes(root, info, interrupt),
    };
    listed.unwrap_or_else(|error| {
        findings.add(
            Kind::Metadata,
            format!("the episode metadata cannot be used: {error}"),
        );
        Vec::new()
    })
}

fn select(episodes: &EpisodeTable, ids: &[i64]) -> Result<EpisodeTable> {
    let missing: Vec<i64> = ids
        .iter()
        .copied()
        .filter(|&id| episodes.position(id).is_none())
        .collect();
    if missing.is_empty() && !ids.is_empty() {
        return Ok(episodes.select(ids));
    }
    Err(Error::Selection {
        missing: if missing.is_empty() {
            "an empty selection".to_owned()
        } else {
            ranges(&missing)
        },
        count: episodes.len(),
        known: ranges(&episodes.episode_index),
    })
}
