//! Percentiles, labels and quantiles.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_core::stats::{bucketize, percentiles_by_task, quantile};

fn episodes(count: i64) -> (Vec<i64>, Vec<i64>) {
    (0..count).map(|i| (30 + (i * 7919) % 971, (i * 104_729) % 200)).unzip()
}

fn bench(c: &mut Criterion) {
    let (lengths, tasks) = episodes(1_000_000);
    c.bench_function("percentiles_by_task/1M episodes", |b| {
        b.iter(|| percentiles_by_task(black_box(&lengths), black_box(&tasks)));
    });
    let ranked = percentiles_by_task(&lengths, &tasks).expect("equal lengths");
    c.bench_function("bucketize/1M episodes", |b| {
        b.iter(|| bucketize(black_box(&lengths), &tasks, &ranked.tasks, &ranked.boundaries));
    });
    let rows: Vec<f32> = (0..51_200 * 14u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32).collect();
    c.bench_function("quantile/51200 x 14", |b| b.iter(|| quantile(black_box(&rows), 14, 0.01)));
}

criterion_group!(benches, bench);
criterion_main!(benches);
