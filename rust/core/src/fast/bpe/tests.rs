//! Encoding against its definition, on vocabularies that no training would give.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Encoder, Model, Scratch};
use crate::fast::runs::Marks;

/// Characters of one, two and three bytes, of every class, and two that share bytes.
const CHARACTERS: [u16; 12] = [
    0x30, 0x61, 0x20, 0x21, 0x00, 0x7f, 0xe9, 0xe8, 0x17b, 0x2003, 0xd7ff, 0x27,
];

/// A character as an entry of a vocabulary spells it.
fn written(code: u16, byte_level: bool) -> Vec<String> {
    let character = char::from_u32(code.into()).unwrap();
    if !byte_level {
        return vec![character.to_string()];
    }
    let characters = || (0..400).filter_map(char::from_u32);
    let of_byte = |byte| {
        characters()
            .find(|&c| super::alphabet::byte_of(c) == Some(byte))
            .unwrap()
    };
    let bytes = character
        .encode_utf8(&mut [0; 3])
        .bytes()
        .collect::<Vec<_>>();
    bytes
        .into_iter()
        .map(|byte| of_byte(byte).to_string())
        .collect()
}

/// A vocabulary of the atoms of `alphabet` (but for one of them now and then) and of merges of
/// entries picked at random, each whole made `once` or several times, in an order that `shuffle` may
/// put wrong.
fn model(
    alphabet: &[u16],
    byte_level: bool,
    picks: &[(u8, u8)],
    lost: u8,
    once: bool,
    shuffle: &[(u8, u8)],
) -> Model {
    let mut entries: Vec<String> = Vec::new();
    for atom in alphabet.iter().flat_map(|&code| written(code, byte_level)) {
        if !entries.contains(&atom) {
            entries.push(atom);
        }
    }
    if entries.len() > 1 && lost < 40 {
        entries.remove(usize::from(lost) % entries.len());
    }
    let mut merges = Vec::new();
    for &(left, right) in picks {
        // Later entries are picked more often, as merges build on each other.
        let pick = |x: u8| (usize::from(x) * usize::from(x) * entries.len()) >> 16;
        let (left, right) = (pick(left), entries.len() - 1 - pick(right));
        let whole = format!("{}{}", entries[left], entries[right]);
        let place = entries.iter().position(|entry| *entry == whole);
        if whole.chars().count() > 40 || once && place.is_some() {
            continue;
        }
        if place.is_none() {
            entries.push(whole);
        }
        let place = place.unwrap_or(entries.len() - 1);
        merges.push([left as u32, right as u32, place as u32]);
    }
    for &(a, b) in shuffle {
        if !merges.is_empty() {
            let (a, b) = (usize::from(a) % merges.len(), usize::from(b) % merges.len());
            merges.swap(a, b);
        }
    }
    Model {
        split: false,
        byte_level,
        vocabulary: entries
            .into_iter()
            .zip((0..).map(|id| id * 3 + 5))
            .collect(),
        merges,
    }
}

/// Merges the lowest pair, the leftmost among equals, until there is none.
fn by_definition(model: &Model, text: &[u16]) -> Vec<i32> {
    let place = |atom: &String| model.vocabulary.iter().position(|(entry, _)| entry == atom);
    let atoms = text
        .iter()
        .flat_map(|&code| written(code, model.byte_level));
    let mut tokens: Vec<u32> = atoms.filter_map(|a| place(&a)).map(|p| p as u32).collect();
    loop {
        let rank = |pair: &[u32]| model.merges.iter().rposition(|m| m[..2] == *pair);
        let ranks = tokens.windows(2).map(rank).zip(0..);
        match ranks.filter_map(|(rank, at)| Some((rank?, at))).min() {
            Some((rank, at)) => {
                tokens[at] = model.merges[rank][2];
                tokens.remove(at + 1);
            }
            None => break,
        }
    }
    tokens
        .iter()
        .map(|&token| model.vocabulary[token as usize].1)
        .collect()
}

fn encode(encoder: &Encoder, text: &[u16], run: u16, scratch: &mut Scratch) -> Vec<i32> {
    let mut ids = Vec::new();
    let mut marks = Marks::default();
    marks.fill(text, run);
    scratch.marks = marks;
    encoder.encode(text, scratch, &mut ids);
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn encoding_is_merging_by_rank(
        first in 0..CHARACTERS.len(),
        size in 1..5_usize,
        byte_level in any::<bool>(),
        picks in vec(any::<(u8, u8)>(), 0..40),
        lost in any::<u8>(),
        once in any::<bool>(),
        shuffle in prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<(u8, u8)>(), 1..4)],
        texts in vec(vec((any::<u8>(), prop_oneof![3 => Just(1_usize), 1 => 1..70_usize]), 0..30), 1..4),
        run in 0..4_usize,
    ) {
        let alphabet: Vec<u16> = (first..first + size).map(|i| CHARACTERS[i % CHARACTERS.len()]).collect();
        let model = model(&alphabet, byte_level, &picks, lost, once, &shuffle);
        let run = alphabet[run % size];
        let encoder = Encoder::new(&model, run);
        let mut scratch = Scratch::default();
        for text in texts {
            let text: Vec<u16> = text
                .iter()
                .flat_map(|&(symbol, count)| {
                    let symbol = alphabet[usize::from(symbol) % size];
                    std::iter::repeat_n(symbol, if symbol == run { count } else { 1 })
                })
                .collect();
            prop_assert_eq!(encode(&encoder, &text, run, &mut scratch), by_definition(&model, &text));
        }
    }
}

#[test]
fn merges_as_training_writes_them_take_the_fast_way() {
    let picks: Vec<(u8, u8)> = (0..60_u32)
        .map(|i| ((i * 37) as u8, (i * 101) as u8))
        .collect();
    for size in 1..CHARACTERS.len() {
        let model = model(&CHARACTERS[..size], true, &picks, 255, true, &[]);
        assert!(model.merges.len() > 5);
        assert!(Encoder::new(&model, CHARACTERS[0]).backtracks());
    }
}

#[test]
fn more_pure_tokens_than_a_word_has_bits() {
    // a, aa, aaa, …: each longer by one than the one before, and some with b behind.
    let mut entries = vec!["a".to_owned(), "b".to_owned()];
    let mut merges = Vec::new();
    for length in 2..90 {
        let longest = entries
            .iter()
            .rposition(|entry| entry.bytes().all(|c| c == b'a'))
            .unwrap();
        entries.push("a".repeat(length));
        merges.push([longest as u32, 0, entries.len() as u32 - 1]);
        if length % 7 == 0 {
            entries.push(format!("{}b", "a".repeat(length)));
            merges.push([entries.len() as u32 - 2, 1, entries.len() as u32 - 1]);
        }
    }
    for kept in [4, 60, 75, merges.len()] {
        let count = merges[kept - 1][2] as usize + 1;
        let model = Model {
            split: false,
            byte_level: true,
            vocabulary: entries[..count].iter().cloned().zip(0..).collect(),
            merges: merges[..kept].to_vec(),
        };
        let (a, b) = (u16::from(b'a'), u16::from(b'b'));
        let encoder = Encoder::new(&model, a);
        assert!(encoder.backtracks());
        for length in [1, 2, 5, 13, 64, 65, 89, 90, 200, 1500] {
            for text in [
                vec![a; length],
                [vec![b], vec![a; length], vec![b, b]].concat(),
            ] {
                let ids = encode(&encoder, &text, a, &mut Scratch::default());
                assert_eq!(
                    ids,
                    by_definition(&model, &text),
                    "{length} of {kept} merges"
                );
            }
        }
    }
}
