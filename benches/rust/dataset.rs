//! Opening a data set, reading it whole, reading the chunks of a fit.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::thread;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, HORIZON, Written, criterion, dataset, episodes};
use vlaprep_core::dataset::Dataset;
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

        let read = || opened.read_vectors("action", &positions, threads, &never);
        assert_eq!(read().expect("a column").values.len(), frames * DIMS);
        let name = format!("read_vectors/{frames} frames, {written:?}");
        c.bench_function(&name, |b| b.iter(read));

        let ids = || opened.read_integers("episode_index", &positions, threads, &never);
        assert_eq!(ids().expect("a column").len(), frames);
        let name = format!("read_integers/{frames} frames, {written:?}");
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
