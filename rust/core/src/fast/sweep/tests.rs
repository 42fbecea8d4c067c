use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fast::dct_quantize;

/// All that a sweep says, by a transform of each window.
#[derive(Debug, Default, PartialEq)]
struct Brute {
    windows: usize,
    skipped: usize,
    outside: Vec<Window>,
    symbols: Vec<(i64, Window)>,
    low: Vec<f64>,
    high: Vec<f64>,
}

fn brute(
    rows: &[f32],
    (horizon, dims): (usize, usize),
    episodes: &[Range<usize>],
    scale: f64,
    known: &Symbols,
) -> Brute {
    let size = horizon * dims;
    let mut all = Brute {
        low: vec![f64::INFINITY; size],
        high: vec![f64::NEG_INFINITY; size],
        ..Brute::default()
    };
    let dct = Dct::new(horizon).unwrap();
    let mut found = std::collections::BTreeMap::new();
    for (episode, range) in episodes.iter().enumerate() {
        for start in 0..(range.len() + 1).saturating_sub(horizon) {
            let window = &rows[(range.start + start) * dims..][..size];
            if !window.iter().all(|value| value.is_finite()) {
                all.skipped += 1;
                continue;
            }
            all.windows += 1;
            let at = Window { episode, start };
            let mut unknown = false;
            for symbol in dct_quantize(window, horizon, dims, scale).unwrap() {
                if !known.contains(symbol.into()) {
                    unknown = true;
                    found.entry(i64::from(symbol)).or_insert(at);
                }
            }
            if unknown {
                all.outside.push(at);
            }
            let wide: Vec<f64> = window.iter().map(|&value| value.into()).collect();
            let mut coefficients = vec![0.0; size];
            dct.forward(&wide, dims, &mut coefficients);
            for (at, &value) in coefficients.iter().enumerate() {
                all.low[at] = all.low[at].min(value);
                all.high[at] = all.high[at].max(value);
            }
        }
    }
    // Of those far away, only the ends are told.
    let near = |symbol: i64| (-65_536..65_536).contains(&symbol);
    let ends = [found.keys().next(), found.keys().last()].map(Option::<&i64>::copied);
    all.symbols = found
        .into_iter()
        .filter(|&(symbol, _)| near(symbol) || ends.contains(&Some(symbol)))
        .collect();
    all
}

fn listed(runs: &[Run]) -> Vec<Window> {
    let starts = |run: &Run| {
        let Window { episode, start } = run.first;
        (start..run.end).map(move |start| Window { episode, start })
    };
    runs.iter().flat_map(starts).collect()
}

fn check(
    rows: &[f32],
    shape: (usize, usize),
    episodes: &[Range<usize>],
    scale: f64,
    known: &Symbols,
) {
    let want = brute(rows, shape, episodes, scale, known);
    let size = shape.0 * shape.1;
    let (low, high) = (vec![f64::INFINITY; size], vec![f64::NEG_INFINITY; size]);
    let mut answers = Vec::new();
    for (simd, threads) in [
        (Simd::detect(), 1),
        (Simd::detect(), 3),
        (Simd::portable(), 2),
    ] {
        let sweep = Sweep::with(simd, shape, scale, Some(known.clone())).unwrap();
        let seen = Some((&low[..], &high[..]));
        let got = sweep
            .run(rows, episodes, seen, threads, &Interrupt::never())
            .unwrap();
        assert_eq!((got.windows, got.skipped), (want.windows, want.skipped));
        assert_eq!(listed(&got.outside), want.outside);
        assert_eq!(got.symbols, want.symbols);
        for (got, want) in [(&got.low, &want.low), (&got.high, &want.high)] {
            for (extreme, &want) in got.iter().zip(want) {
                let value = extreme.map_or(f64::NAN, |(value, _)| value);
                let near = (value - want).abs() <= 2e-9 * want.abs().max(1.0);
                assert!(near || !want.is_finite(), "{value} {want}");
            }
        }
        answers.push(got);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    let without = Sweep::new(shape, scale, None).unwrap();
    let got = without
        .run(rows, episodes, None, 1, &Interrupt::never())
        .unwrap();
    assert_eq!((got.windows, got.skipped), (want.windows, want.skipped));
    assert!(got.outside.is_empty() && got.symbols.is_empty());
    assert!(got.low.iter().chain(&got.high).all(Option::is_none));
}

/// Slow waves, constants, steps between the ends, noise; here and there no number.
fn rows(count: usize, dims: usize, seed: u64, gaps: usize) -> Vec<f32> {
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut ends = 1.0;
    (0..count * dims)
        .map(|at| {
            let (row, dim) = (at / dims, at % dims);
            let value = match (dim + seed as usize) % 5 {
                0 => (row as f32 * 0.03).sin(),
                1 => -1.0,
                2 => {
                    if random() < 0.05 {
                        ends = -ends;
                    }
                    ends
                }
                3 => 2.0 * random() - 1.0,
                _ => 0.1,
            };
            match gaps {
                0 => value,
                n if random() < 1.0 / (n * dims * 20) as f32 => {
                    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][(random() * 3.0) as usize % 3]
                }
                _ => value,
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_says_what_a_transform_of_each_window_says(
        horizon in 1..=64_usize,
        dims in 1..=20_usize,
        lengths in vec(0..200_usize, 0..5),
        seed in any::<u64>(),
        gaps in 0..4_usize,
        scale in prop_oneof![Just(10.0), Just(12.5), Just(1.0), 0.1..100.0],
        first in -90..3_i64,
        known in vec(prop::bool::weighted(0.97), 0..180),
    ) {
        let total: usize = lengths.iter().sum();
        let rows = rows(total, dims, seed, gaps);
        let mut end = 0;
        let episodes: Vec<_> = lengths.iter().map(|length| { end += length; end - length..end }).collect();
        check(&rows, (horizon, dims), &episodes, scale, &Symbols::new(first, known));
    }
}

#[test]
fn long_episodes_start_anew_on_the_way() {
    let count = 3000;
    let known = Symbols::new(-60, vec![true; 121]);
    for (horizon, dims) in [(50, 14), (16, 7), (1, 3), (2, 1), (3, 2)] {
        let rows = rows(count, dims, 9, 2);
        check(
            &rows,
            (horizon, dims),
            &[0..1700, 1700..1710, 1710..count],
            10.0,
            &known,
        );
    }
}

#[test]
fn halves_are_decided_by_the_transform() {
    // 16 steps of ±1 give ±4 · 0.125 = ±0.5, which goes to 0; 4 steps of 0.75 give 1.5, to 2.
    let known = Symbols::new(0, vec![true]);
    let rows: Vec<f32> = (0..300)
        .map(|row| if row / 40 % 2 == 0 { 1.0 } else { -1.0 })
        .collect();
    check(&rows, (16, 1), &[0..300], 0.125, &known);
    check(&[0.75; 100], (4, 1), &[0..100], 1.0, &known);
}

#[test]
fn values_without_measure_are_told_exactly() {
    let known = Symbols::new(-5, vec![true; 11]);
    let mut rows = rows(400, 2, 3, 0);
    for (at, value) in [(100, 3e6), (101, -2e7), (333, 1.7e5), (550, 1e-30)] {
        rows[at] = value;
    }
    check(&rows, (10, 2), &[0..400], 10.0, &known);
    let huge = [1e308; 60];
    let sweep = Sweep::new((10, 2), 10.0, Some(known)).unwrap();
    let got = sweep
        .run(&huge, &[0..30], None, 1, &Interrupt::never())
        .unwrap();
    assert_eq!((got.windows, listed(&got.outside).len()), (21, 21));
}

#[test]
fn what_has_been_seen_is_not_told_again() {
    let rows = rows(500, 3, 5, 0);
    let sweep = Sweep::new((8, 3), 10.0, None).unwrap();
    let run = |rows: &[f32], low: &[f64], high: &[f64]| {
        let episodes = [0..rows.len() / 3];
        sweep
            .run(rows, &episodes, Some((low, high)), 1, &Interrupt::never())
            .unwrap()
    };
    let first = run(&rows, &[f64::INFINITY; 24], &[f64::NEG_INFINITY; 24]);
    let values = |extremes: &[Option<Extreme>]| -> Vec<f64> {
        extremes.iter().map(|extreme| extreme.unwrap().0).collect()
    };
    let (low, high): (Vec<f64>, Vec<f64>) = (
        values(&first.low)
            .iter()
            .map(|value| value - 1e-9)
            .collect(),
        values(&first.high)
            .iter()
            .map(|value| value + 1e-9)
            .collect(),
    );
    let again = run(&rows, &low, &high);
    assert!(again.low.iter().chain(&again.high).all(Option::is_none));
    let wider = run(&vec![2.0; 60], &low, &high);
    assert!(wider.high[0].is_some() && wider.low[0].is_none());
}

#[test]
fn the_recurrence_keeps_its_bound() {
    for horizon in [1, 2, 3, 5, 16, 50, 64, 200, 500, 1000] {
        let (period, dims) = (slide::period(horizon), 3);
        assert!(horizon > 500 || slide::bound(horizon, period, 1.0) < 1e-9);
        let rows = rows(horizon + 1024, dims, 3, 0);
        let sweep = Sweep::new((horizon, dims), 1.0, None).unwrap();
        let mut slide = slide::Slide::new(horizon, dims, Simd::detect());
        slide.seed(&sweep.dct, &rows, 0);
        let mut exact = Exact::new(&sweep);
        for first in (0..1024).step_by(slide::STEPS) {
            // Every value lies beyond these.
            slide.bounds.fill([[f64::INFINITY; 4]; 2]);
            let mut traces = vec![Vec::new(); horizon];
            let mut beyond = |k: usize, vector: usize, trace: &[slide::Four], _: &mut _| {
                assert_eq!(vector, 0);
                traces[k] = trace.to_vec();
            };
            slide.advance(&rows, first, slide::STEPS, &mut beyond);
            for step in (0..slide::STEPS).step_by(if horizon > 100 { 63 } else { 9 }) {
                exact.transform(&rows[(first + step) * dims..][..horizon * dims]);
                let bound = slide::bound(horizon, first + step, 1.0);
                for (at, want) in exact.coefficients.iter().enumerate() {
                    let (k, dim) = (at / dims, at % dims);
                    let got = traces[k][step][dim] * slide.units[k];
                    assert!((got - want).abs() <= bound, "H {horizon}, k {k}, {step}");
                }
            }
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (shape, scale) in [
        ((0, 3), 10.0),
        ((3, 0), 10.0),
        ((3, 3), 0.0),
        ((3, 3), f64::NAN),
    ] {
        assert!(Sweep::new(shape, scale, None).is_err());
    }
    let sweep = Sweep::new((4, 1), 10.0, None).unwrap();
    let none = sweep
        .run::<f32>(&[], &[], None, 2, &Interrupt::never())
        .unwrap();
    assert_eq!((none.windows, none.skipped), (0, 0));
}
