//! Laws that hold for every input, each kernel against its definition.
#![allow(missing_docs, reason = "a test crate has no readers of documentation")]

use proptest::collection::vec;
use proptest::prelude::*;
use vlaprep_core::chunks::gather_chunks;
use vlaprep_core::fast::{Dct, dct_quantize};
use vlaprep_core::parallel::Interrupt;
use vlaprep_core::stats::{
    Brackets, LABELS, Moments, SPARSE_LABEL, bucketize, percentiles_by_task, quantile, quantiles,
    searchsorted_right,
};

/// The interpolation as NumPy writes it, over a whole sort.
fn by_sorting(mut values: Vec<f32>, q: f64) -> f32 {
    values.sort_by(f32::total_cmp);
    let index = (values.len() - 1) as f64 * q;
    let left = (index as usize).min(values.len() - 1);
    let right = (left + 1).min(values.len() - 1);
    let (a, b, g) = (values[left], values[right], index - left as f64);
    if g >= 0.5 {
        b - (b - a) * (1.0 - g) as f32
    } else {
        a + (b - a) * g as f32
    }
}

fn episodes() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    vec((1..60_i64, -2..4_i64), 0..200).prop_map(|pairs| pairs.into_iter().unzip())
}

proptest! {
    #[test]
    fn a_quantile_needs_no_sort(
        columns in vec((-1e3_f32..1e3, -5..5_i8), 1..200),
        q in prop_oneof![Just(0.0), Just(0.01), Just(0.5), Just(0.99), Just(1.0), 0.0..1.0],
    ) {
        // The second column is full of ties.
        let rows: Vec<f32> = columns.iter().flat_map(|&(x, tie)| [x, f32::from(tie)]).collect();
        let (first, second) = columns.iter().map(|&(x, tie)| (x, f32::from(tie))).unzip();
        let want = [by_sorting(first, q), by_sorting(second, q)];
        prop_assert_eq!(quantile(&rows, 2, q, 2, &Interrupt::never()).unwrap(), want);
    }

    #[test]
    fn any_sample_leads_to_every_quantile(
        rows in vec((any::<f64>().prop_filter("a number", |x| !x.is_nan()), -3..3_i8), 1..200),
        sample in vec((-1e3_f32..1e3, -3.0_f32..3.0), 0..40),
        qs in vec(0.0..=1.0, 0..4),
        parts in 1..4_usize,
    ) {
        let rows: Vec<f32> = rows.iter().flat_map(|&(x, tie)| [x as f32, f32::from(tie)]).collect();
        let sample: Vec<f32> = sample.iter().flat_map(|&(x, y)| [x, y]).collect();
        let count = rows.len() / 2;
        let mut brackets = Brackets::from_sample(&sample, 2, count, &qs).unwrap();
        for pass in 0.. {
            prop_assert!(pass < 7);
            let mut counter = brackets.counter();
            for part in rows.chunks(count.div_ceil(parts) * 2) {
                let mut other = brackets.counter();
                other.add(&brackets, part);
                counter.merge(other);
            }
            if brackets.settle(counter).unwrap() {
                break;
            }
        }
        let bits = |answers: Vec<Vec<f32>>| -> Vec<u32> {
            answers.concat().iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect()
        };
        let want = quantiles(&rows, 2, &qs, 1, &Interrupt::never()).unwrap();
        prop_assert_eq!(bits(brackets.quantiles()), bits(want));
    }

    #[test]
    fn moments_keep_their_definition(
        values in vec(-1e3_f64..1e3, 1..3000),
        offset in prop_oneof![Just(0.0), Just(1e6)],
        cut in 1..1000_usize,
    ) {
        let values: Vec<f64> = values.iter().map(|x| x + offset).collect();
        let n = values.len() as f64;
        let mean = offset + values.iter().map(|x| x - offset).sum::<f64>() / n;
        let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        let mut moments = Moments::new(1);
        let mut rest = Moments::new(1);
        moments.add(&values[..cut.min(values.len())]);
        rest.add(&values[cut.min(values.len())..]);
        moments.merge(rest);
        let got = moments.summary().unwrap();
        prop_assert!((got.mean[0] - mean).abs() < 1e-9);
        prop_assert!((got.std[0] - std).abs() <= 1e-9 * (1.0 + std));
        let (min, max) = (got.min[0], got.max[0]);
        prop_assert!(values.contains(&min) && values.contains(&max));
        prop_assert!(values.iter().all(|x| (min..=max).contains(x)));
    }

    #[test]
    fn tables_and_searches_label_alike(
        boundaries in vec(-50.0_f64..50.0, 10),
        scale in prop_oneof![Just(0.5), Just(1.0), Just(7.3), Just(1e12)],
        lengths in vec(-60..60_i64, 1..50),
        far in any::<bool>(),
    ) {
        let mut row: [f64; 10] = boundaries.try_into().unwrap();
        row.sort_by(f64::total_cmp);
        let row = row.map(|b| b.round() * scale);
        let tasks = if far { [i64::MIN, 5] } else { [4, 5] };
        let labels =
            bucketize(&lengths, &vec![5; lengths.len()], &tasks, &[row; 2], 1, &Interrupt::never());
        let want: Vec<i64> = lengths
            .iter()
            .map(|&length| LABELS[searchsorted_right(&row, length as f64)])
            .collect();
        prop_assert_eq!(labels.unwrap(), want);
    }

    #[test]
    fn a_position_is_the_count_of_what_is_not_greater(
        mut sorted in vec(-10.0_f64..10.0, 0..12),
        value in -11.0_f64..11.0,
    ) {
        sorted.sort_by(f64::total_cmp);
        let count = sorted.iter().filter(|&&x| x <= value).count();
        prop_assert_eq!(searchsorted_right(&sorted, value), count);
    }

    #[test]
    fn the_order_of_the_episodes_is_of_no_matter((lengths, tasks) in episodes()) {
        let ranked = percentiles_by_task(&lengths, &tasks, 2, &Interrupt::never()).unwrap();
        let (backward, back_tasks): (Vec<_>, Vec<_>) =
            lengths.iter().copied().zip(tasks.iter().copied()).rev().unzip();
        let again = percentiles_by_task(&backward, &back_tasks, 2, &Interrupt::never()).unwrap();
        prop_assert_eq!(&ranked.tasks, &again.tasks);
        for (a, b) in ranked.boundaries.iter().zip(&again.boundaries) {
            prop_assert_eq!(a.map(f64::to_bits), b.map(f64::to_bits));
            prop_assert!(a.is_sorted() || a[0].is_nan());
        }
    }

    #[test]
    fn labels_grow_with_length_within_a_task((lengths, tasks) in episodes()) {
        let ranked = percentiles_by_task(&lengths, &tasks, 2, &Interrupt::never()).unwrap();
        let labels = bucketize(&lengths, &tasks, &ranked.tasks, &ranked.boundaries, 2, &Interrupt::never()).unwrap();
        let mut all: Vec<_> = tasks.iter().zip(&lengths).zip(&labels).collect();
        all.sort_unstable();
        for pair in all.windows(2).filter(|pair| pair[0].0.0 == pair[1].0.0) {
            prop_assert!(pair[0].1 <= pair[1].1, "{pair:?}");
        }
        let sparse = |task| ranked.boundaries[ranked.tasks.binary_search(task).unwrap()][0].is_nan();
        for (task, label) in tasks.iter().zip(&labels) {
            prop_assert!(LABELS.contains(label));
            prop_assert!(!sparse(task) || *label == SPARSE_LABEL);
        }
    }

    #[test]
    fn the_transform_keeps_the_energy(x in vec(-3.0_f64..3.0, 1..80)) {
        let mut coefficients = vec![0.0; x.len()];
        Dct::new(x.len()).unwrap().forward(&x, 1, &mut coefficients);
        let energy = |v: &[f64]| v.iter().map(|a| a * a).sum::<f64>();
        prop_assert!((energy(&x) - energy(&coefficients)).abs() < 1e-9 * (1.0 + energy(&x)));
    }

    #[test]
    fn dims_and_chunks_do_not_mix(
        chunks in vec(vec(-2.0_f32..2.0, 12), 1..5),
        dim in 0..3_usize,
    ) {
        let together = dct_quantize(&chunks.concat(), 4, 3, 10.0).unwrap();
        for (chunk, symbols) in chunks.iter().zip(together.chunks(12)) {
            let alone: Vec<f32> = chunk.iter().skip(dim).step_by(3).copied().collect();
            let column: Vec<i32> = symbols.iter().skip(dim).step_by(3).copied().collect();
            prop_assert_eq!(dct_quantize(&alone, 4, 1, 10.0).unwrap(), column);
        }
    }

    #[test]
    fn gathering_is_slicing(
        rows in vec(any::<i16>(), 0..60),
        first in vec(-3..30_i64, 0..8),
        chunk in 1..5_usize,
    ) {
        let rows: Vec<f32> = rows[..rows.len() / 2 * 2].iter().map(|&v| f32::from(v)).collect();
        let count = (rows.len() / 2) as i64;
        let inside = first.iter().all(|&f| f >= 0 && f + chunk as i64 <= count);
        let got = gather_chunks(&rows, 2, &first, chunk, 2, &Interrupt::never());
        prop_assert_eq!(got.is_ok(), inside);
        if inside {
            let want: Vec<f32> = first
                .iter()
                .flat_map(|&f| rows[f as usize * 2..][..chunk * 2].to_vec())
                .collect();
            prop_assert_eq!(got.unwrap(), want);
        }
    }
}
