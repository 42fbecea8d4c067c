//! Damaged files by the thousand: no panic, no hang, no more memory than the file can account for,
//! and whenever both engines answer, one answer.
//!
//! Each round takes a data set in one of several layouts and damages its data file: bits flipped,
//! bytes overwritten, cut out, doubled or swapped, lengths in the footer changed. Rounds follow from
//! their number alone; `VLAPREP_FUZZ_FIRST` replays from one on. The short run is part of the tests,
//! `VLAPREP_FUZZ_SECONDS` makes it longer.
#![allow(missing_docs, reason = "a test crate has no readers of documentation")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here is the test"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a long run says how far it came"
)]
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int32Array, Int64Array, ListArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use vlaprep_core::dataset::{Column, Dataset, Engine};
use vlaprep_core::parallel::Interrupt;

/// Counts what is allocated, and the most that ever was.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as for the call itself.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as for the call itself.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for the call itself.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that one round may hold: a page as large as pages may be for each of the readers, a bit
/// of the file for each row of the answer, and what the parquet crate takes for its own.
const MAX_PEAK: usize = 512 << 20;

/// The longest that one round may take on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(20);

const FILE: &str = "data/chunk-000/file-000.parquet";
const ROWS: i64 = 400;
const DIMS: i32 = 5;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

fn writers() -> Vec<(bool, WriterProperties)> {
    let base = || WriterProperties::builder().set_write_batch_size(16);
    vec![
        // As LeRobot records: a row group an episode, dictionaries, snappy.
        (
            true,
            base()
                .set_compression(Compression::SNAPPY)
                .set_max_row_group_row_count(Some(50))
                .build(),
        ),
        (
            false,
            base()
                .set_compression(Compression::SNAPPY)
                .set_data_page_row_count_limit(40)
                .set_dictionary_page_size_limit(512)
                .build(),
        ),
        (
            false,
            base()
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_dictionary_enabled(false)
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_data_page_row_count_limit(64)
                .set_encoding(Encoding::PLAIN)
                .build(),
        ),
        (
            true,
            base()
                .set_dictionary_enabled(true)
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_statistics_enabled(EnabledStatistics::Page)
                .set_data_page_row_count_limit(30)
                .build(),
        ),
        (
            false,
            base()
                .set_dictionary_enabled(false)
                .set_statistics_enabled(EnabledStatistics::None)
                .build(),
        ),
    ]
}

/// Eight episodes of 50 frames; the data file as bytes.
fn write(root: &Path, fixed: bool, properties: WriterProperties) -> Vec<u8> {
    let value = |row: i64, dim: i32| (row % 37) as f32 * 0.25 + dim as f32;
    let rows = (0..ROWS).map(|row| {
        Some(
            (0..DIMS)
                .map(move |dim| Some(value(row, dim)))
                .collect::<Vec<_>>(),
        )
    });
    let action: ArrayRef = if fixed {
        Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, DIMS))
    } else {
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
    };
    let ids =
        |of: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..ROWS).map(of))) as ArrayRef;
    let tasks = Int32Array::from_iter_values((0..ROWS).map(|row| (row / 100) as i32));
    let batch = RecordBatch::try_from_iter([
        ("action", action),
        ("frame_index", ids(|row| row % 50)),
        ("episode_index", ids(|row| row / 50)),
        ("task_index", Arc::new(tasks) as ArrayRef),
    ])
    .unwrap();
    let mut writer = ArrowWriter::try_new(
        File::create(root.join(FILE)).unwrap(),
        batch.schema(),
        Some(properties),
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    fs::read(root.join(FILE)).unwrap()
}

/// Damages `bytes` in one to four places, more often near the end, where the footer is.
fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(4) {
        let length = bytes.len();
        let near_end = chance.below(3) > 0;
        let span = if near_end { length.min(1500) } else { length };
        let at = length - 1 - chance.below(span);
        let run = 1 + chance.below(12);
        match chance.below(8) {
            0..3 => bytes[at] ^= 1 << chance.below(8),
            3 => bytes[at] = [0, 0x7f, 0x80, 0xff][chance.below(4)],
            4 => {
                let end = (at + run).min(length);
                bytes[at..end]
                    .iter_mut()
                    .for_each(|byte| *byte = chance.next() as u8);
            }
            5 => {
                bytes.drain(at..(at + run).min(length));
            }
            6 => {
                let copied: Vec<u8> = bytes[at..(at + run).min(length)].to_vec();
                bytes.splice(at..at, copied);
            }
            _ if length > 64 => {
                let other = chance.below(length - 32);
                let at = at.min(length - 32);
                let (from, to) = (bytes[other..other + 16].to_vec(), at);
                bytes[to..to + 16].copy_from_slice(&from);
            }
            _ => {}
        }
        if bytes.len() < 16 {
            return;
        }
        // A footer whose length no longer fits is refused at once: more often, let it fit.
        if chance.below(4) > 0 {
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(b"PAR1");
        }
    }
}

/// Ids, actions as bits, frames, chunks as bits.
type Answer = (Vec<i64>, Vec<u32>, Vec<i64>, Vec<u32>);

/// Everything that one engine says; `None` where it refuses.
fn answer(root: &Path, engine: Engine) -> Option<Answer> {
    let never = Interrupt::never();
    let dataset = Dataset::open_with(engine, root, None, 2, &never).ok()?;
    let table = dataset.episodes().clone();
    let all: Vec<usize> = (0..table.len()).collect();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let read = dataset
        .read(&["action", "frame_index"], &all, 2, &never)
        .ok()?;
    let [Column::Floats(action), Column::Integers(frames)] = &read[..] else {
        return None;
    };
    let start: Vec<i64> = table.length.iter().map(|length| length / 2).collect();
    let chunks = dataset.read_chunks("action", &table.episode_index, &start, 1, 2, &never);
    Some((
        [table.episode_index, table.length, table.task_index].concat(),
        bits(&action.values),
        frames.clone(),
        bits(&chunks.ok()?.values),
    ))
}

fn round(root: &Path, whole: &[u8], number: u64) {
    let mut chance = Chance(number);
    let mut bytes = whole.to_vec();
    damage(&mut bytes, &mut chance);
    fs::write(root.join(FILE), &bytes).unwrap();
    let begin = Instant::now();
    PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
    let before = HELD.load(Ordering::Relaxed);
    let [pages, arrow] = [Engine::Pages, Engine::Arrow].map(|engine| {
        let said = catch_unwind(AssertUnwindSafe(|| answer(root, engine)));
        said.unwrap_or_else(|_| panic!("round {number}: {engine:?} panicked"))
    });
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert!(peak < MAX_PEAK, "round {number} held {peak} bytes");
    assert!(
        begin.elapsed() < MAX_TIME,
        "round {number} took {:?}",
        begin.elapsed()
    );
    if let (Some(pages), Some(arrow)) = (pages, arrow) {
        assert!(pages == arrow, "round {number}: the engines differ");
    }
}

#[test]
fn damaged_files_are_refused_or_read_alike() {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let seconds = number("VLAPREP_FUZZ_SECONDS");
    let first = number("VLAPREP_FUZZ_FIRST").unwrap_or(0);
    let folders: Vec<_> = writers()
        .into_iter()
        .map(|(fixed, properties)| {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("meta")).unwrap();
            fs::create_dir_all(root.path().join("data/chunk-000")).unwrap();
            let info = r#"{"codebase_version": "v3.0", "features": {"action": {"shape": [5]}}}"#;
            fs::write(root.path().join("meta/info.json"), info).unwrap();
            let whole = write(root.path(), fixed, properties);
            assert!(answer(root.path(), Engine::Pages).is_some());
            assert_eq!(
                answer(root.path(), Engine::Pages),
                answer(root.path(), Engine::Arrow)
            );
            (root, whole)
        })
        .collect();
    // What the parquet crate panics on is caught by the reader and no business of the console.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        if info
            .location()
            .is_some_and(|at| at.file().contains("fuzz.rs"))
        {
            eprintln!("{info}");
        }
    }));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut numbers = (first..).take_while(|&number| match end {
        Some(end) => Instant::now() < end,
        None => number < first + 1500,
    });
    let done = numbers.by_ref().fold(0, |done, number| {
        let (root, whole) = &folders[number as usize % folders.len()];
        round(root.path(), whole, number);
        done + 1
    });
    std::panic::set_hook(hook);
    println!("{done} rounds from {first} on");
}
