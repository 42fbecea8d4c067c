//! Gathering chunks out of rows in memory.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, HORIZON, actions, criterion};
use vlaprep_core::chunks::gather_chunks;

fn bench(c: &mut Criterion) {
    let rows = actions(150_000);
    let first: Vec<i64> = (0..10_240).map(|i| (i * 7919) % 149_000).collect();
    let gather = || gather_chunks(black_box(&rows), DIMS, &first, HORIZON);
    let second = first[1] as usize * DIMS;
    assert_eq!(
        gather().expect("all inside")[HORIZON * DIMS..][..DIMS],
        rows[second..][..DIMS]
    );
    c.bench_function("gather_chunks/10240 x 50 x 14", |b| b.iter(gather));
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
