//! The transform and its rounding.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, HORIZON, actions, criterion};
use vlaprep_core::fast::{Dct, dct_quantize};

fn bench(c: &mut Criterion) {
    let chunks = actions(1024 * HORIZON);
    let quantize = || dct_quantize(black_box(&chunks), HORIZON, DIMS, 10.0);
    assert_eq!(quantize().expect("finite").len(), chunks.len());
    c.bench_function("dct_quantize/1024 x 50 x 14", |b| b.iter(quantize));

    let dct = Dct::new(HORIZON);
    let chunk: Vec<f64> = chunks[..HORIZON * DIMS].iter().map(|&x| x.into()).collect();
    let mut coefficients = vec![0.0; chunk.len()];
    c.bench_function("Dct::forward/50 x 14", |b| {
        b.iter(|| dct.forward(black_box(&chunk), DIMS, &mut coefficients));
    });
    // The transform is orthonormal: it keeps the sum of squares.
    let energy = |sum: f64, x: f64| sum + x * x;
    let before = chunk.iter().copied().fold(0.0, energy);
    let after = coefficients.iter().copied().fold(0.0, energy);
    assert!((before - after).abs() < 1e-9 * before);
}

criterion_group! { name = benches; config = criterion(); targets = bench }
criterion_main!(benches);
