//! The transform, rounding, fits, the codec as a whole, and the sweep over every window.
#![allow(missing_docs, reason = "the macros of criterion document nothing")]
#![allow(
    clippy::expect_used,
    reason = "inputs are right, or the bench is wrong"
)]

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use vlaprep_benches::{DIMS, HORIZON, actions, criterion};
use vlaprep_core::fast::{
    Alphabet, Chunks, Codec, Dct, Fit, OnRange, Settings, Simd, Status, Sweep, Symbols, Trainer,
    Words, dct_quantize,
};
use vlaprep_core::parallel::Interrupt;

/// Dims of the tokenizer in `tests/golden/fast/arm7`.
const ARM_DIMS: usize = 7;

fn transform(c: &mut Criterion) {
    let chunks = actions(1024 * HORIZON);
    let quantize = || dct_quantize(black_box(&chunks), HORIZON, DIMS, 10.0);
    assert_eq!(quantize().expect("finite").len(), chunks.len());
    c.bench_function("dct_quantize/1024 x 50 x 14", |b| b.iter(quantize));

    let chunk: Vec<f64> = chunks[..HORIZON * DIMS].iter().map(|&x| x.into()).collect();
    let mut coefficients = vec![0.0; chunk.len()];
    for (name, simd) in [("portable", Simd::portable()), ("detected", Simd::detect())] {
        let dct = Dct::with(HORIZON, simd).expect("a common horizon");
        c.bench_function(&format!("Dct::forward/50 x 14, {name}"), |b| {
            b.iter(|| dct.forward(black_box(&chunk), DIMS, &mut coefficients));
        });
    }
    // The transform is orthonormal: it keeps the sum of squares.
    let energy = |sum: f64, x: f64| sum + x * x;
    let before = chunk.iter().copied().fold(0.0, energy);
    let after = coefficients.iter().copied().fold(0.0, energy);
    assert!((before - after).abs() < 1e-9 * before);
}

fn fit(c: &mut Criterion) {
    let (values, never) = (actions(1024 * HORIZON), Interrupt::never());
    let trainer = Trainer {
        vocab_size: 1024,
        min_frequency: 2,
        max_token_length: 10_000,
    };
    for (name, alphabet) in [("bytes", Alphabet::Bytes), ("symbols", Alphabet::Symbols)] {
        let fit = Fit {
            scale: 10.0,
            trainer,
            alphabet,
            compatible: false,
        };
        let blocks = [Chunks {
            values: &values,
            horizon: HORIZON,
            dims: DIMS,
        }];
        let run = || {
            fit.run(black_box(&blocks), 1, &never)
                .expect("a range that fits")
        };
        assert!(run().trained.merges.len() > 100);
        c.bench_function(&format!("Fit::run/1024 x 50 x 14, {name}"), |b| b.iter(run));
    }
    // Training alone, on words that are mostly runs of one symbol.
    let symbols = dct_quantize(&values, HORIZON, DIMS, 10.0).expect("finite");
    let words = || {
        let mut words = Words::new((0..=143).filter_map(char::from_u32).collect());
        for chunk in symbols.chunks(HORIZON * DIMS) {
            let ids = chunk
                .iter()
                .map(|&symbol| symbol.clamp(-71, 72).abs_diff(-71));
            words.add(ids, 1).expect("few words");
        }
        words
    };
    let train = || trainer.train(words(), &never).expect("few words");
    assert!(train().merges.len() > 100);
    c.bench_function("Trainer::train/1024 words of 700", |b| b.iter(train));
}

fn codec(c: &mut Criterion) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/fast/arm7/processor");
    let tokenizer = fs::read_to_string(folder.join("tokenizer.json")).expect("it is checked in");
    let settings = Settings {
        scale: 10.0,
        min_token: -71,
        max_token: Some(71),
        time_horizon: Some(HORIZON),
    };
    let new = || Codec::new(Some(black_box(&tokenizer)), settings).expect("a FAST tokenizer");
    c.bench_function("Codec::new/1024 entries", |b| b.iter(new));

    let (codec, never) = (new(), Interrupt::never());
    // Every chunk is another, as nothing is remembered; and all are as the fit's, in most symbols.
    let chunks: Vec<f32> = actions(1024 * HORIZON)
        .chunks(DIMS)
        .flat_map(|step| step[..ARM_DIMS].iter().map(|x| 0.9 * x))
        .collect();
    let shape = (HORIZON, ARM_DIMS);
    for count in [1, 256, 1024] {
        let chunks = &chunks[..count * HORIZON * ARM_DIMS];
        let encode = || codec.encode(black_box(chunks), shape, OnRange::Clamp, 1, &never);
        let encoded = encode().expect("finite");
        let decode = || {
            let (ids, offsets) = (black_box(&encoded.ids), &encoded.offsets);
            codec.decode(ids, offsets, shape, OnRange::Clamp, false, &never)
        };
        let status = decode().expect("offsets as encoded").status;
        let bad = status.into_iter().filter(|&s| s != Status::Ok as u8);
        assert!(bad.count() * 10 <= count);
        c.bench_function(&format!("Codec::encode/{count} x 50 x 7"), |b| {
            b.iter(encode);
        });
        c.bench_function(&format!("Codec::decode/{count} x 50 x 7"), |b| {
            b.iter(decode);
        });
    }
}

fn sweep(c: &mut Criterion) {
    let (rows, never) = (actions(10_049), Interrupt::never());
    let known = || Some(Symbols::new(-71, vec![true; 143]));
    for (name, simd) in [("portable", Simd::portable()), ("detected", Simd::detect())] {
        let sweep = Sweep::with(simd, (HORIZON, DIMS), 10.0, known()).expect("a shape");
        let run = || sweep.run(black_box(&rows), &[0..10_049], None, 1, &never);
        assert_eq!(run().expect("finite").windows, 10_000);
        c.bench_function(&format!("Sweep::run/10,000 x 50 x 14, {name}"), |b| {
            b.iter(run);
        });
    }
}

criterion_group! { name = benches; config = criterion(); targets = transform, fit, codec, sweep }
criterion_main!(benches);
