//! Runs against the reference's steps.

use proptest::collection::vec;
use proptest::prelude::*;

use super::steps::Steps;
use super::{Trained, Trainer, Words};
use crate::parallel::Interrupt;

fn alphabet(size: u32) -> Vec<char> {
    (0..size).filter_map(|i| char::from_u32(97 + i)).collect()
}

fn train(trainer: Trainer, size: u32, words: &[(Vec<u32>, u64)]) -> Trained {
    let mut all = Words::new(alphabet(size));
    for (word, count) in words {
        all.add(word.iter().copied(), *count).unwrap();
    }
    trainer.train(all, &Interrupt::never()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn runs_learn_what_the_steps_learn(
        size in 1_u32..6,
        mut words in vec((vec(prop_oneof![4 => Just(0_u32), 1 => 0_u32..6], 0..40), 1_u64..4), 0..30),
        vocab_size in 1_usize..120,
        min_frequency in 0_u64..4,
        max_token_length in prop_oneof![1_usize..12, Just(10_000)],
    ) {
        let trainer = Trainer { vocab_size, min_frequency, max_token_length };
        for id in words.iter_mut().flat_map(|(word, _)| word) {
            *id %= size;
        }
        let want = Steps::train(trainer, &alphabet(size), &words);
        prop_assert_eq!(train(trainer, size, &words), want);
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
    let got = train(trainer, 3, &all);
    assert_eq!(got.merges, [(1, 2), (0, 1)]);
    assert_eq!(got.tokens, ["a", "b", "c", "bc", "ab"]);
}
