//! Percentiles, labels and quantiles.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, actions, criterion, episodes};
use vlaprep_core::stats::{bucketize, percentiles_by_task, quantile};

fn bench(c: &mut Criterion) {
    let (lengths, tasks) = episodes(1_000_000);
    let ranked = percentiles_by_task(&lengths, &tasks).expect("equal lengths");
    assert_eq!(ranked.tasks.len(), 200);
    c.bench_function("percentiles_by_task/1M episodes", |b| {
        b.iter(|| percentiles_by_task(black_box(&lengths), &tasks));
    });

    let label = || {
        bucketize(
            black_box(&lengths),
            &tasks,
            &ranked.tasks,
            &ranked.boundaries,
        )
    };
    assert_eq!(label().expect("equal lengths").iter().max(), Some(&100));
    c.bench_function("bucketize/1M episodes", |b| b.iter(label));

    let rows = actions(51_200);
    let low = || quantile(black_box(&rows), DIMS, 0.01);
    assert!(low().expect("a matrix").iter().all(|&q| q < -0.9));
    c.bench_function("quantile/51200 x 14", |b| b.iter(low));
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
