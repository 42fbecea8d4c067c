//! Opening a data set, reading it whole, reading the chunks of a fit.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::thread;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, HORIZON, Written, criterion, dataset, episodes};
use vlaprep_core::dataset::{Column, Dataset};
use vlaprep_core::parallel::Interrupt;

fn bench(c: &mut Criterion) {
    let (lengths, tasks) = episodes(256);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let never = Interrupt::never();
    let positions: Vec<usize> = (0..lengths.len()).collect();
    let frames = lengths.iter().sum::<i64>() as usize;
    let drawn: Vec<i64> = (0..1024).map(|i| i * 7919 % 256).collect();
    let start: Vec<i64> = drawn
        .iter()
        .map(|&e| e % (lengths[e as usize] - 49))
        .collect();

    for written in [Written::Recorded, Written::Converted] {
        let folder = dataset(&lengths, &tasks, written).expect("a writable temporary folder");
        let open = || Dataset::open(folder.path(), None, threads, &never).expect("a data set");
        let opened = open();
        assert_eq!(opened.episodes().length, lengths);
        c.bench_function(&format!("open/256 episodes, {written:?}"), |b| b.iter(open));

        let read = || opened.read(&["action"], &positions, threads, &never);
        assert!(
            matches!(&read().expect("a column")[..], [Column::Floats(m)] if m.values.len() == frames * DIMS)
        );
        let name = format!("read/action, {frames} frames, {written:?}");
        c.bench_function(&name, |b| b.iter(read));

        let ids = || opened.read(&["episode_index"], &positions, threads, &never);
        assert!(
            matches!(&ids().expect("a column")[..], [Column::Integers(v)] if v.len() == frames)
        );
        let name = format!("read/episode_index, {frames} frames, {written:?}");
        c.bench_function(&name, |b| b.iter(ids));

        let chunks = || opened.read_chunks("action", &drawn, &start, HORIZON, threads, &never);
        assert_eq!(
            chunks().expect("a column").values.len(),
            1024 * HORIZON * DIMS
        );
        let name = format!("read_chunks/1024 chunks, {written:?}");
        c.bench_function(&name, |b| b.iter(chunks));
    }
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
