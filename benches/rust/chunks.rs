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
use vlaprep_core::parallel::Interrupt;

fn bench(c: &mut Criterion) {
    let rows = actions(1_000_000);
    let first: Vec<i64> = (0..100_000).map(|i| (i * 7919) % 999_000).collect();
    let never = Interrupt::never();
    // 28 MB and 280 MB: the pages of the answer are new each time.
    for (count, threads) in [(10_240, 1), (100_000, 1), (100_000, 2)] {
        let first = &first[..count];
        let gather = || gather_chunks(black_box(&rows), DIMS, first, HORIZON, threads, &never);
        let second = first[1] as usize * DIMS;
        assert_eq!(
            gather().expect("all inside")[HORIZON * DIMS..][..DIMS],
            rows[second..][..DIMS]
        );
        let name = format!("gather_chunks/{count} x {HORIZON} x {DIMS}, {threads} thread(s)");
        c.bench_function(&name, |b| b.iter(gather));
    }
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
