//! Percentiles, labels, quantiles and moments.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, actions, criterion, episodes};
use vlaprep_core::parallel::Interrupt;
use vlaprep_core::stats::{bucketize, percentiles_by_task, quantiles, summary};

fn bench(c: &mut Criterion) {
    let never = Interrupt::never();
    let (lengths, tasks) = episodes(1_000_000);
    let rank = |threads| percentiles_by_task(black_box(&lengths), &tasks, threads, &never);
    let ranked = rank(1).expect("equal lengths");
    assert_eq!(ranked.tasks.len(), 200);
    let label = |threads| {
        let (known, boundaries) = (&ranked.tasks, &ranked.boundaries);
        bucketize(
            black_box(&lengths),
            &tasks,
            known,
            boundaries,
            threads,
            &never,
        )
    };
    assert_eq!(label(1).expect("equal lengths").iter().max(), Some(&100));
    for threads in [1, 2] {
        let name = format!("percentiles_by_task/1M episodes, {threads} thread(s)");
        c.bench_function(&name, |b| b.iter(|| rank(threads)));
        let name = format!("bucketize/1M episodes, {threads} thread(s)");
        c.bench_function(&name, |b| b.iter(|| label(threads)));
    }

    let rows = actions(1_500_000);
    for (count, threads) in [(51_200, 1), (1_500_000, 1), (1_500_000, 2)] {
        let rows = &rows[..count * DIMS];
        let ends = || quantiles(black_box(rows), DIMS, &[0.01, 0.99], threads, &never);
        assert!(ends().expect("a matrix")[0].iter().all(|&q| q < -0.9));
        let name = format!("quantiles/2 of {count} x {DIMS}, {threads} thread(s)");
        c.bench_function(&name, |b| b.iter(ends));

        let moments = || summary(black_box(rows), DIMS, threads, &never);
        assert_eq!(moments().expect("a matrix").count, count);
        let name = format!("summary/{count} x {DIMS}, {threads} thread(s)");
        c.bench_function(&name, |b| b.iter(moments));
    }
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
