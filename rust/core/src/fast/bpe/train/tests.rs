//! Runs against the reference's steps, and both against what training means.

use proptest::collection::vec;
use proptest::prelude::*;

use super::plain::Plain;
use super::{Pair, Trained, Trainer, Vocabulary, Words};
use crate::parallel::Interrupt;

fn words(alphabet: u32, words: &[(Vec<u32>, u64)]) -> Words {
    let mut all = Words::new(
        (0..alphabet)
            .filter_map(|i| char::from_u32(97 + i))
            .collect(),
    );
    for (word, count) in words {
        all.add(word.iter().map(|&id| id % alphabet), *count)
            .unwrap();
    }
    all
}

fn train(trainer: Trainer, words: Words) -> Trained {
    trainer.train(words, &Interrupt::never()).unwrap()
}

fn train_plainly(trainer: Trainer, words: &Words) -> Trained {
    let plain = Plain::new(&words.runs, words.runs.pairs());
    let vocabulary = Vocabulary::new(&words.alphabet);
    plain
        .train(&trainer, vocabulary, Vec::new(), &Interrupt::never())
        .unwrap()
}

/// The first merge, by counting.
fn most_frequent(words: &[(Vec<u32>, u64)], alphabet: u32) -> Option<(u64, Pair)> {
    let mut pairs = std::collections::BTreeMap::<Pair, u64>::new();
    for (word, count) in words {
        for pair in word.windows(2) {
            *pairs
                .entry((pair[0] % alphabet, pair[1] % alphabet))
                .or_default() += count;
        }
    }
    pairs
        .into_iter()
        .map(|(pair, count)| (count, pair))
        .reduce(|a, b| if b.0 > a.0 { b } else { a })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn runs_learn_what_the_plain_steps_learn(
        alphabet in 1_u32..6,
        all in vec((vec(prop_oneof![4 => Just(0_u32), 1 => 0_u32..6], 0..40), 1_u64..4), 0..30),
        vocab_size in 1_usize..120,
        min_frequency in 0_u64..4,
        max_token_length in prop_oneof![1_usize..12, Just(10_000)],
    ) {
        let trainer = Trainer { vocab_size, min_frequency, max_token_length };
        let words = words(alphabet, &all);
        let plain = train_plainly(trainer, &words);
        let first = most_frequent(&all, alphabet);
        let got = train(trainer, words);
        prop_assert_eq!(&got, &plain);
        prop_assert!(got.tokens.len() <= vocab_size.max(alphabet as usize));
        if vocab_size > alphabet as usize {
            let first = first.filter(|&(count, _)| count >= min_frequency.max(1));
            prop_assert_eq!(got.merges.first().copied(), first.map(|(_, pair)| pair));
        }
    }
}

#[test]
fn counts_beyond_32_bits_are_right() {
    let all = [
        (vec![0, 1], 3 << 32),
        (vec![1, 2], (3 << 32) + 1),
        (vec![2, 0], 5),
    ];
    let trainer = Trainer {
        vocab_size: 10,
        min_frequency: 6,
        max_token_length: 100,
    };
    let got = train(trainer, words(3, &all));
    assert_eq!(got.merges, [(1, 2), (0, 1)]);
    assert_eq!(got.tokens, ["a", "b", "c", "bc", "ab"]);
}
