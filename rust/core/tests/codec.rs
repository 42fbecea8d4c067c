//! The codec from outside: what comes back, what is refused, and what is no matter.
#![allow(missing_docs, reason = "a test crate has no readers of documentation")]
#![allow(clippy::unwrap_used, reason = "what fails here is the test")]

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use vlaprep_core::Error;
use vlaprep_core::fast::{Codec, Decoded, Encoded, OnRange, Settings, Status, dct_quantize};
use vlaprep_core::parallel::Interrupt;

const SHAPE: (usize, usize) = (6, 3);
const SIZE: usize = SHAPE.0 * SHAPE.1;
const LOW: i64 = -65;
const HIGH: i64 = 140;

/// A byte-level vocabulary of the characters 0 to 205, all bytes, and merges of letters.
fn tokenizer() -> String {
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut entries: Vec<String> = (0..=205)
        .filter_map(char::from_u32)
        .map(String::from)
        .collect();
    let rest = (256..324)
        .chain((0..256).filter(printable))
        .filter_map(char::from_u32);
    for character in rest.map(String::from) {
        if !entries.contains(&character) {
            entries.push(character);
        }
    }
    let mut merges = Vec::new();
    for (left, right) in [
        ("A", "A"),
        ("AA", "AA"),
        ("AA", "A"),
        ("B", "AA"),
        ("AAAA", "BAA"),
        ("Â", "Ģ"),
    ] {
        entries.push(format!("{left}{right}"));
        merges.push([left, right]);
    }
    let vocab: serde_json::Map<_, _> = entries.into_iter().zip((0..).map(Into::into)).collect();
    let level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false});
    serde_json::json!({
        "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
    .to_string()
}

fn codec(horizon: Option<usize>) -> Codec {
    let settings = Settings {
        scale: 10.0,
        min_token: LOW,
        max_token: Some(HIGH),
        time_horizon: horizon,
    };
    Codec::new(Some(&tokenizer()), settings).unwrap()
}

fn encode(codec: &Codec, chunks: &[f64], on_range: OnRange) -> Result<Encoded, Error> {
    codec.encode(chunks, SHAPE, on_range, 1, &Interrupt::never())
}

fn decode_ids<I: Copy + Into<i64>>(
    codec: &Codec,
    ids: &[I],
    offsets: &[i64],
    on_range: OnRange,
    pad: bool,
) -> Result<Decoded, Error> {
    codec.decode(ids, offsets, SHAPE, on_range, pad, &Interrupt::never())
}

fn decode(codec: &Codec, encoded: &Encoded, pad: bool) -> Decoded {
    let (ids, offsets) = (&encoded.ids, &encoded.offsets);
    decode_ids(codec, ids, offsets, OnRange::Clamp, pad).unwrap()
}

fn symbols(chunks: &[f64]) -> Vec<i32> {
    dct_quantize(chunks, SHAPE.0, SHAPE.1, 10.0).unwrap()
}

proptest! {
    #[test]
    fn symbols_come_back(values in vec(-1.0_f64..1.0, SIZE..9 * SIZE), horizon in any::<bool>()) {
        let codec = codec(horizon.then_some(SHAPE.0));
        let chunks = &values[..values.len() / SIZE * SIZE];
        let encoded = encode(&codec, chunks, OnRange::Error).unwrap();
        prop_assert!(encoded.warnings.is_empty());
        let Decoded { actions, status } = decode(&codec, &encoded, false);
        prop_assert!(status.iter().all(|&status| status == Status::Ok as u8));
        prop_assert_eq!(symbols(&actions), symbols(chunks));
        // The transform keeps distances, and rounding moves a coefficient by half a step at most.
        let distance: f64 = actions.iter().zip(chunks).map(|(a, b)| (a - b).powi(2)).sum();
        prop_assert!(distance <= 0.0026 * chunks.len() as f64);
    }

    #[test]
    fn no_ids_are_too_strange(
        ids in vec(prop_oneof![4 => 0..300_i64, 1 => any::<i64>()], 0..40),
        pad in any::<bool>(),
    ) {
        let codec = codec(None);
        let offsets = [0, ids.len() as i64 / 2, ids.len() as i64];
        let Decoded { actions, status } = decode_ids(&codec, &ids, &offsets, OnRange::Published, pad).unwrap();
        prop_assert_eq!((actions.len(), status.len()), (2 * SIZE, 2));
        prop_assert!(actions.iter().all(|value| value.is_finite()));
        let unknown = |ids: &[i64]| ids.iter().any(|id| !(0..(324 + 6)).contains(id));
        for (status, ids) in status.iter().zip([&ids[..ids.len() / 2], &ids[ids.len() / 2..]]) {
            prop_assert_eq!(*status == Status::UnknownId as u8, unknown(ids));
        }
    }
}

#[test]
fn threads_and_neighbours_are_of_no_matter() {
    let codec = codec(Some(SHAPE.0));
    let chunks: Vec<f64> = (0..1000 * SIZE)
        .map(|i| 9.0 * ((i * i) as f64).sin())
        .collect();
    let never = Interrupt::never();
    let encode = |threads| {
        codec
            .encode(&chunks, SHAPE, OnRange::Clamp, threads, &never)
            .unwrap()
    };
    let alone = encode(1);
    assert_eq!(alone.offsets.len(), 1001);
    assert!(alone.warnings[0].contains("of 1000 chunks are outside the fitted range [-65, 140]"));
    for threads in [2, 3, 16] {
        assert_eq!(encode(threads), alone);
    }
    let single: Vec<f32> = chunks[77 * SIZE..78 * SIZE]
        .iter()
        .map(|&x| x as f32)
        .collect();
    let wide: Vec<f64> = single.iter().map(|&x| x.into()).collect();
    let ids = codec
        .encode(&single, SHAPE, OnRange::Clamp, 1, &never)
        .unwrap()
        .ids;
    assert_eq!(
        ids,
        codec
            .encode(&wide, SHAPE, OnRange::Clamp, 1, &never)
            .unwrap()
            .ids
    );
    assert_eq!(
        ids,
        alone.ids[alone.offsets[77] as usize..alone.offsets[78] as usize]
    );
}

#[test]
fn a_bad_chunk_says_why_and_becomes_zeros() {
    let codec = codec(None);
    let of = |text: &str| text.bytes().map(i64::from).collect::<Vec<_>>();
    let good = of(&"A".repeat(SIZE));
    let chunks = [
        (good.clone(), Status::Ok),
        (of(&"B".repeat(SIZE - 1)), Status::Short),
        (of(&"B".repeat(SIZE + 1)), Status::Long),
        ([&good[..5], &[-1]].concat(), Status::UnknownId),
        ([&good[..5], &[194]].concat(), Status::OutOfAlphabet),
        (vec![], Status::Short),
    ];
    let ids = chunks
        .iter()
        .flat_map(|(ids, _)| ids.clone())
        .collect::<Vec<_>>();
    let ends = chunks.iter().scan(0, |end, (ids, _)| {
        *end += ids.len() as i64;
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    for pad in [false, true] {
        let Decoded { actions, status } =
            decode_ids(&codec, &ids, &offsets, OnRange::Clamp, pad).unwrap();
        assert!(
            status
                .iter()
                .zip(&chunks)
                .all(|(status, (_, want))| *status == *want as u8)
        );
        for (chunk, (_, want)) in actions.chunks(SIZE).zip(&chunks) {
            let partly = pad && matches!(want, Status::Short | Status::Long);
            let zeros = chunk.iter().all(|&value| value == 0.0);
            assert_eq!(
                zeros,
                !partly || *want == Status::Short && chunk == &actions[5 * SIZE..]
            );
        }
        // B is one coefficient step above 0, in all 18 places but the last.
        let symbols = symbols(&actions[SIZE..2 * SIZE]);
        assert_eq!(symbols, [vec![i32::from(pad); SIZE - 1], vec![0]].concat());
    }
    for offsets in [&[0, 1][..], &[1, 18], &[0, 9, 5, 18], &[]] {
        assert!(decode_ids(&codec, &good, offsets, OnRange::Clamp, false).is_err());
    }
    let huge = (usize::MAX / 8, 2);
    assert!(
        codec
            .decode(
                &good,
                &[0, 18],
                huge,
                OnRange::Clamp,
                false,
                &Interrupt::never()
            )
            .is_err()
    );
}

#[test]
fn what_lies_outside_is_moved_refused_or_kept() {
    let codec = codec(None);
    let mut chunks = vec![0.0; 3 * SIZE];
    chunks[SIZE..SIZE + SIZE].fill(100.0); // 2449 in frequency 0 of three dims
    chunks[2 * SIZE + 1..]
        .iter_mut()
        .step_by(3)
        .for_each(|x| *x = -100.0);
    let encoded = encode(&codec, &chunks, OnRange::Clamp).unwrap();
    let fault = "4 coefficients in 2 of 3 chunks are outside the fitted range [-65, 140], first 2449 at \
                 chunk 1, frequency 0, dim 0: normalise as in the fit, or fit on wider data";
    assert_eq!(encoded.warnings, [format!("{fault}; clamped at both ends")]);
    let back = symbols(&decode(&codec, &encoded, false).actions);
    assert_eq!(back[SIZE..SIZE + 4], [140, 140, 140, 0]);
    assert_eq!(back[2 * SIZE..2 * SIZE + 4], [0, -65, 0, 0]);
    let error = encode(&codec, &chunks, OnRange::Error).unwrap_err();
    assert!(
        matches!(&error, Error::Vocabulary(text) if *text == format!("{fault}, or use on_range='clamp'"))
    );
    let kept = encode(&codec, &chunks, OnRange::Published).unwrap();
    assert_eq!(
        kept.warnings,
        [format!("{fault}; clamped below, and kept above")]
    );
    let (ids, offsets) = (&kept.ids, &kept.offsets);
    let decoded = decode_ids(&codec, ids, offsets, OnRange::Published, false).unwrap();
    assert_eq!(
        symbols(&decoded.actions)[SIZE..SIZE + 4],
        [2449, 2449, 2449, 0]
    );
    let decoded = decode_ids(&codec, ids, offsets, OnRange::Clamp, false).unwrap();
    assert_eq!(decoded.status, [0, Status::OutOfAlphabet as u8, 0]);
    chunks[SIZE] = 1e5;
    assert!(encode(&codec, &chunks, OnRange::Published).is_err());
    assert!(encode(&codec, &chunks, OnRange::Clamp).is_ok());
}

#[test]
fn what_is_no_number_is_named() {
    let codec = codec(None);
    for (bad, text) in [
        (f64::NAN, "nan"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        let mut chunks = vec![0.0; 500 * SIZE];
        chunks[321 * SIZE + 4 * 3 + 2] = bad;
        chunks[400 * SIZE] = f64::NAN;
        for threads in [1, 2] {
            let error = codec.encode(&chunks, SHAPE, OnRange::Clamp, threads, &Interrupt::never());
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains(&format!("actions hold {text} at chunk 321, step 4, dim 2")),
                "{error}"
            );
        }
    }
    let error = encode(&codec, &[1.7e308; SIZE], OnRange::Clamp)
        .unwrap_err()
        .to_string();
    assert!(error.contains("overflow"), "{error}");
}

#[test]
fn symbols_without_bytes_are_left_out_and_told_of() {
    let sparse = tokenizer().replace("\"\u{100}\":", "\"\u{400}\":"); // the character of byte 0
    let settings = Settings {
        scale: 10.0,
        min_token: LOW,
        max_token: None,
        time_horizon: None,
    };
    let codec = Codec::new(Some(&sparse), settings).unwrap();
    let mut chunks = vec![0.0; 2 * SIZE];
    chunks[SIZE..]
        .iter_mut()
        .step_by(3)
        .for_each(|x| *x = -6.5 / 6.0_f64.sqrt());
    let encoded = encode(&codec, &chunks, OnRange::Clamp).unwrap();
    assert!(
        encoded.warnings[0]
            .starts_with("1 of 2 chunks hold coefficients that no chunk of the fit held, as -65")
    );
    assert_eq!(
        decode(&codec, &encoded, false).status,
        [0, Status::Short as u8]
    );
}

#[test]
fn settings_that_fit_no_vocabulary_are_refused() {
    let settings = Settings {
        scale: 10.0,
        min_token: -65,
        max_token: None,
        time_horizon: None,
    };
    let new = |change: fn(&mut Settings)| {
        let mut settings = settings;
        change(&mut settings);
        Codec::new(Some(&tokenizer()), settings).map(|codec| codec.max_token())
    };
    assert_eq!(new(|_| ()).unwrap(), HIGH); // as far as characters count up
    assert!(matches!(
        new(|s| s.scale = f64::NAN),
        Err(Error::Argument(_))
    ));
    assert!(matches!(
        new(|s| s.max_token = Some(HIGH + 1)),
        Err(Error::Argument(_))
    ));
    assert!(matches!(
        new(|s| s.max_token = Some(-66)),
        Err(Error::Argument(_))
    ));
    assert!(matches!(
        new(|s| s.min_token = i64::MIN),
        Err(Error::Argument(_))
    ));
    for scale in [f64::from_bits(1), 1e-320, 1e-308, 1e-301] {
        let error = Codec::new(Some(&tokenizer()), Settings { scale, ..settings }).unwrap_err();
        assert!(error.to_string().contains("overflow"), "{scale:e}: {error}");
    }
    let coarse = Settings {
        scale: 1e-299,
        ..settings
    };
    let codec = Codec::new(Some(&tokenizer()), coarse).unwrap();
    let ids = [i64::from(b'B'); SIZE];
    let decoded = decode_ids(&codec, &ids, &[0, 18], OnRange::Clamp, false).unwrap();
    assert!(decoded.actions.iter().all(|value| value.is_finite()));
    let other = tokenizer().replace("\"\\u0000\":", "\"\\uE000\":");
    assert!(matches!(
        Codec::new(Some(&other), settings),
        Err(Error::Vocabulary(_))
    ));
    assert!(matches!(
        Codec::new(Some("{}"), settings),
        Err(Error::Unsupported(_))
    ));
}

#[test]
fn without_a_tokenizer_ids_are_symbols() {
    let settings = Settings {
        scale: 10.0,
        min_token: LOW,
        max_token: Some(HIGH),
        time_horizon: None,
    };
    let plain = Codec::new(None, settings).unwrap();
    let chunks: Vec<f64> = (0..40 * SIZE)
        .map(|i| 9.0 * ((i * i) as f64).sin())
        .collect();
    let encoded = encode(&plain, &chunks, OnRange::Clamp).unwrap();
    let clamped = symbols(&chunks)
        .into_iter()
        .map(|q| i64::from(q).clamp(LOW, HIGH) - LOW);
    assert_eq!(encoded.ids, clamped.map(|q| q as i32).collect::<Vec<_>>());
    let merged = codec(None);
    let other = encode(&merged, &chunks, OnRange::Clamp).unwrap();
    assert_eq!(encoded.warnings, other.warnings);
    assert_eq!(
        decode(&plain, &encoded, false),
        decode(&merged, &other, false)
    );
    for (id, want) in [
        (-1, Status::UnknownId),
        (206, Status::OutOfAlphabet),
        (205, Status::Ok),
    ] {
        let ids = [&[0; SIZE - 1][..], &[id]].concat();
        let decoded = decode_ids(&plain, &ids, &[0, 18], OnRange::Clamp, false).unwrap();
        assert_eq!(decoded.status, [want as u8]);
    }
}

#[test]
fn a_batch_of_no_chunks_or_of_no_numbers() {
    let codec = codec(None);
    let encoded = encode(&codec, &[], OnRange::Clamp).unwrap();
    assert_eq!((encoded.ids.len(), encoded.offsets), (0, vec![0]));
    let decoded = decode_ids::<i32>(&codec, &[], &[0], OnRange::Clamp, false).unwrap();
    assert_eq!((decoded.actions.len(), decoded.status.len()), (0, 0));
    let never = Interrupt::never();
    assert!(
        codec
            .encode(&[0.0; 5], SHAPE, OnRange::Clamp, 1, &never)
            .is_err()
    );
    for shape in [(0, 3), (3, 0), (usize::MAX, 2)] {
        assert!(
            codec
                .encode::<f64>(&[], shape, OnRange::Clamp, 1, &never)
                .is_err()
        );
        assert!(
            codec
                .decode::<i64>(&[], &[0], shape, OnRange::Clamp, false, &Interrupt::never())
                .is_err()
        );
    }
}

#[test]
fn one_thread_can_be_interrupted() {
    let codec = codec(Some(SHAPE.0));
    let chunks = vec![0.1; (1 << 18) * SIZE];
    let whole = encode(&codec, &chunks, OnRange::Clamp).unwrap();
    let asked = AtomicUsize::new(0);
    let poll = || asked.fetch_add(1, Ordering::Relaxed) == 1;
    let ended = codec.encode(&chunks, SHAPE, OnRange::Clamp, 1, &Interrupt::new(&poll));
    assert!(matches!(ended, Err(Error::Interrupted)));
    asked.store(0, Ordering::Relaxed);
    let Encoded { ids, offsets, .. } = whole;
    let ended = codec.decode(
        &ids,
        &offsets,
        SHAPE,
        OnRange::Clamp,
        false,
        &Interrupt::new(&poll),
    );
    assert!(matches!(ended, Err(Error::Interrupted)));
    asked.store(0, Ordering::Relaxed);
    let few = &chunks[..1000 * SIZE];
    assert!(
        codec
            .encode(few, SHAPE, OnRange::Clamp, 1, &Interrupt::new(&poll))
            .is_ok()
    );
    assert_eq!(asked.load(Ordering::Relaxed), 0); // a question can take longer than a small batch
}
