//! From symbols to ids.
//!
//! A text is cut into words; a word of symbols that are one atom each is encoded as it is, any other
//! is spelt out first. Words are encoded by [`Backtrack`] where the vocabulary allows it, else by
//! merging as it is defined.

use super::alphabet::{Alphabet, Atom, NONE, atoms_of_entry};
use super::backtrack::{Backtrack, Path, Word};
use super::merge::Merger;
use super::model::Model;
use super::neighbours::{Making, Neighbours};
use super::pairs::{Merge, Pairs};
use crate::fast::pretokenize::{CHARACTERS, UNEVEN, Words, class_of};
use crate::fast::runs::Marks;

/// A byte-pair encoding ready to encode symbols.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    split: bool,
    /// The symbol that fills most of a text, and its atoms.
    run: u16,
    unit: Vec<Atom>,
    /// Whether there should be more of them.
    unit_lacks: bool,
    /// Class of every symbol, and whether it is [`UNEVEN`].
    symbols: Vec<u8>,
    alphabet: Alphabet,
    pairs: Pairs,
    /// Of each token, by its number in `alphabet` and `pairs`.
    ids: Vec<i32>,
    /// Nothing for merges that are out of order, and for vocabularies of great size.
    backtrack: Option<Backtrack>,
}

/// Room for the work, kept between chunks.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Places of a chunk that do not hold the run symbol.
    pub(crate) marks: Marks,
    spelt: Spelt,
    work: Work,
}

/// The atoms of a word, where they are not its symbols.
#[derive(Debug, Default)]
struct Spelt {
    atoms: Vec<Atom>,
    marks: Marks,
}

#[derive(Debug, Default)]
struct Work {
    path: Path,
    merger: Merger,
    tokens: Vec<u32>,
}

impl Encoder {
    /// The encoder of a model for texts of which `run` is the most frequent symbol.
    pub(crate) fn new(model: &Model, run: u16) -> Self {
        let mut numbers = vec![NONE; model.vocabulary.len()];
        let (mut tokens, mut ids) = (Vec::new(), Vec::new());
        for (number, (entry, id)) in numbers.iter_mut().zip(&model.vocabulary) {
            if let Some(atoms) = atoms_of_entry(entry, model.byte_level) {
                *number = tokens.len() as u32;
                tokens.push(atoms);
                ids.push(*id);
            }
        }
        let merges: Vec<(u32, u32, Merge)> = (0..)
            .zip(&model.merges)
            .map(|(rank, parts)| (rank, parts.map(|place| numbers[place as usize])))
            .filter(|(_, parts)| !parts.contains(&NONE))
            .map(|(rank, [left, right, whole])| (left, right, Merge { rank, whole }))
            .collect();
        let alphabet = Alphabet::new(model.byte_level, &tokens);
        let pairs = Pairs::new(merges.iter().copied());
        let mut unit = Vec::new();
        let unit_lacks = !alphabet.spell(run, &mut unit);
        let mut atoms = Vec::new();
        let mut symbol = |code: u16| {
            atoms.clear();
            let even = alphabet.spell(code, &mut atoms) && atoms == [code];
            class_of(code) | if even { 0 } else { UNEVEN }
        };
        let makings = makings(&tokens, &alphabet, &pairs);
        let backtrack = Neighbours::new(&makings, &merges)
            .and_then(|neighbours| Backtrack::new(&tokens, &ids, &unit, neighbours));
        Self {
            split: model.split,
            symbols: (0..CHARACTERS).map(|code| symbol(code as u16)).collect(),
            run,
            unit,
            unit_lacks,
            alphabet,
            pairs,
            ids,
            backtrack,
        }
    }

    /// Whether words are encoded from left to right.
    #[cfg(test)]
    pub(super) fn backtracks(&self) -> bool {
        self.backtrack.is_some()
    }

    /// Whether the vocabulary has all atoms of a symbol.
    pub(crate) fn spells(&self, symbol: u16) -> bool {
        self.alphabet.spell(symbol, &mut Vec::new())
    }

    /// Appends the ids of a chunk; `scratch.marks` are the places that do not hold the run symbol.
    ///
    /// The vocabulary may lack atoms of symbols, which encoding then leaves out: gives the lowest of
    /// these symbols.
    pub(crate) fn encode(
        &self,
        symbols: &[u16],
        scratch: &mut Scratch,
        ids: &mut Vec<i32>,
    ) -> Option<u16> {
        let Scratch { marks, spelt, work } = scratch;
        let mut words = Words::new(symbols, marks, &self.symbols, self.run);
        let (mut start, mut lowest) = (0, None);
        while start < symbols.len() {
            let (end, uneven) = if self.split {
                words.next(start)
            } else {
                words.rest(start)
            };
            let word = if uneven {
                let lost = self.spell(symbols, marks, (start, end), spelt);
                lowest = [lowest, lost].into_iter().flatten().min();
                Word {
                    text: &spelt.atoms,
                    marks: &spelt.marks,
                    start: 0,
                    end: spelt.atoms.len(),
                }
            } else {
                Word {
                    text: symbols,
                    marks,
                    start,
                    end,
                }
            };
            self.encode_word(word, work, ids);
            start = end;
        }
        lowest
    }

    /// Writes the atoms of a word, and where the run symbol is not among them; gives the lowest symbol
    /// that lacks an atom.
    fn spell(
        &self,
        symbols: &[u16],
        marks: &Marks,
        (start, end): (usize, usize),
        spelt: &mut Spelt,
    ) -> Option<u16> {
        let Spelt {
            atoms,
            marks: atom_marks,
        } = spelt;
        atoms.clear();
        atom_marks.clear(3 * (end - start));
        let (mut at, mut lowest) = (start, None);
        while at < end {
            let symbol = symbols[at];
            let first = atoms.len();
            let whole = if symbol == self.run {
                let mark = marks.next(at, end);
                (at..mark).for_each(|_| atoms.extend_from_slice(&self.unit));
                at = mark;
                !self.unit_lacks
            } else {
                let whole = self.alphabet.spell(symbol, atoms);
                (first..atoms.len()).for_each(|place| atom_marks.set(place));
                at += 1;
                whole
            };
            if !whole {
                lowest = [lowest, Some(symbol)].into_iter().flatten().min();
            }
        }
        lowest
    }

    /// Appends the ids of a word.
    #[inline]
    fn encode_word(&self, word: Word<'_>, room: &mut Work, ids: &mut Vec<i32>) {
        let way = self.backtrack.as_ref();
        if !way.is_some_and(|way| way.encode(word, &mut room.path, ids)) {
            let atoms = word.text[word.start..word.end].iter();
            let tokens = atoms.map(|&atom| self.alphabet.token(atom));
            room.tokens.clear();
            room.merger.merge(&self.pairs, tokens, &mut room.tokens);
            ids.extend(room.tokens.iter().map(|&token| self.ids[token as usize]));
        }
    }
}

/// How each token comes about: by merging its own text.
fn makings(tokens: &[Vec<Atom>], alphabet: &Alphabet, pairs: &Pairs) -> Vec<Making> {
    let (mut merger, mut left) = (Merger::default(), Vec::new());
    let making = |(number, atoms): (u32, &Vec<Atom>)| {
        let mut word = atoms.iter().map(|&atom| alphabet.token(atom));
        if word.clone().any(|token| token == NONE) {
            return Making::Never;
        }
        left.clear();
        match merger.merge(pairs, &mut word, &mut left) {
            Some(last) if left == [number] => Making::Merged(last),
            None if left == [number] => Making::Atom,
            _ => Making::Never,
        }
    };
    (0..).zip(tokens).map(making).collect()
}
