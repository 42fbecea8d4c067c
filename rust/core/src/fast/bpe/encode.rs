//! From symbols to ids.
//!
//! A word is encoded from left to right: take the longest token that fits the text and may follow the
//! token before; if none may, that one was wrong: take it back and try a shorter one in its place. A
//! text has one encoding only, and so has each of its beginnings: a place from which there was no way
//! on is never tried again, and the work grows with the length of the text. Which token may follow
//! which is in [`Neighbours`]; why that decides everything is said there.

use super::alphabet::{Alphabet, Atom, NONE, atoms_of_entry};
use super::merge::Merger;
use super::model::Model;
use super::neighbours::{Making, Neighbours, Table};
use super::pairs::{Merge, Pairs};
use super::trie::Trie;
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
    word: Spelt,
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
    tokens: Vec<u32>,
    /// Places of a word from which there is no way on.
    dead: Marks,
    merger: Merger,
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
        let Scratch { marks, word, work } = scratch;
        let mut words = Words::new(symbols, marks, &self.symbols, self.run);
        let (mut start, mut lowest) = (0, None);
        while start < symbols.len() {
            let (end, uneven) = if self.split {
                words.next(start)
            } else {
                words.rest(start)
            };
            if uneven {
                let lost = self.spell(symbols, marks, (start, end), word);
                self.encode_word(&word.atoms, &word.marks, (0, word.atoms.len()), work, ids);
                lowest = [lowest, lost].into_iter().flatten().min();
            } else {
                self.encode_word(symbols, marks, (start, end), work, ids);
            }
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
        word: &mut Spelt,
    ) -> Option<u16> {
        let Spelt {
            atoms,
            marks: atom_marks,
        } = word;
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

    /// Appends the ids of the word `text[start..end]`.
    #[inline]
    fn encode_word(
        &self,
        text: &[Atom],
        marks: &Marks,
        place: (usize, usize),
        work: &mut Work,
        ids: &mut Vec<i32>,
    ) {
        let way = self.backtrack.as_ref();
        if !way.is_some_and(|way| way.encode(text, marks, place, work, ids)) {
            let atoms = text[place.0..place.1].iter();
            let tokens = atoms.map(|&atom| self.alphabet.token(atom));
            work.tokens.clear();
            work.merger.merge(&self.pairs, tokens, &mut work.tokens);
            ids.extend(work.tokens.iter().map(|&token| self.ids[token as usize]));
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

/// The tables of a vocabulary whose merges come in order; tokens are numbered by the rows of `table`.
#[derive(Debug, Clone)]
struct Backtrack {
    tokens: Vec<Token>,
    trie: Trie,
    table: Table,
}

#[derive(Debug, Clone, Copy)]
struct Token {
    atoms: u32,
    /// The longest of the shorter ones that this one begins with, or [`NONE`].
    shorter: u32,
    column: u32,
    id: i32,
}

impl Backtrack {
    fn new(tokens: &[Vec<Atom>], ids: &[i32], unit: &[Atom], found: Neighbours) -> Option<Self> {
        let Neighbours {
            rows,
            columns,
            table,
        } = found;
        let known = || rows.iter().zip(0..).filter(|&(&row, _)| row != NONE);
        let (trie, shorter) = Trie::new(
            known().map(|(&row, number): (_, usize)| (tokens[number].as_slice(), row)),
            unit,
        )?;
        let mut numbers: Vec<(u32, usize)> = known().map(|(&row, number)| (row, number)).collect();
        numbers.sort_unstable();
        let token = |(&shorter, &(_, number)): (&u32, &(u32, usize))| Token {
            atoms: tokens[number].len() as u32,
            shorter,
            column: columns[number],
            id: ids[number],
        };
        Some(Self {
            tokens: shorter.iter().zip(&numbers).map(token).collect(),
            trie,
            table,
        })
    }

    /// Appends the ids of the word `text[start..end]`; false, and nothing appended, where there is no
    /// way, which a word of the alphabet always has.
    fn encode(
        &self,
        text: &[Atom],
        marks: &Marks,
        (start, end): (usize, usize),
        work: &mut Work,
        ids: &mut Vec<i32>,
    ) -> bool {
        let Work { tokens, dead, .. } = work;
        tokens.clear();
        let (mut at, mut any_dead) = (start, false);
        while at < end {
            let mut next = self.trie.longest(text, marks, at, end);
            let accepted = loop {
                if next == NONE {
                    let Some(wrong) = tokens.pop() else {
                        return false;
                    };
                    if !any_dead {
                        dead.clear(end - start);
                        any_dead = true;
                    }
                    dead.set(at - start);
                    let wrong = self.tokens[wrong as usize];
                    at -= wrong.atoms as usize;
                    next = wrong.shorter;
                    continue;
                }
                let token = self.tokens[next as usize];
                let stop = at + token.atoms as usize;
                let fits = tokens
                    .last()
                    .is_none_or(|&last| self.table.allows(last, token.column));
                if fits && !(any_dead && stop < end && dead.get(stop - start)) {
                    break stop;
                }
                next = token.shorter;
            };
            tokens.push(next);
            at = accepted;
        }
        ids.extend(tokens.iter().map(|&token| self.tokens[token as usize].id));
        true
    }
}
