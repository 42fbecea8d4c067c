//! Encoding a word from left to right.
//!
//! Take the longest token that fits the text and may follow the token before; if none may, that one
//! was wrong: take it back and try a shorter one in its place. A text has one encoding only, and so
//! has each of its beginnings: a place from which there was no way on is never tried again, and the
//! work grows with the length of the text. Which token may follow which is in [`Neighbours`]; why that
//! decides everything is said there.

use super::alphabet::{Atom, NONE};
use super::followers::{Followers, Known};
use super::neighbours::{Neighbours, Table};
use super::trie::Trie;
use crate::fast::runs::Marks;

/// The tables of a vocabulary whose merges come in order.
#[derive(Debug, Clone)]
pub(super) struct Backtrack {
    tokens: Vec<Token>,
    trie: Trie,
    table: Table,
    followers: Followers,
}

#[derive(Debug, Clone, Copy)]
struct Token {
    atoms: u32,
    /// The longest of the shorter ones that this one begins with, or [`NONE`].
    shorter: u32,
    row: u32,
    column: u32,
    id: i32,
}

/// Room for the work, kept between words.
#[derive(Debug, Default)]
pub(super) struct Path {
    tokens: Vec<u32>,
    /// Places of the word from which there is no way on, where there are any.
    dead: Marks,
    any_dead: bool,
}

/// A word within a text.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a [Atom],
    /// Places of the text that are not part of a run.
    pub(super) marks: &'a Marks,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Backtrack {
    /// The tables for tokens given by their atoms and ids, of which `found` has those that occur;
    /// `unit` are the atoms of the run symbol.
    pub(super) fn new(
        atoms: &[Vec<Atom>],
        ids: &[i32],
        unit: &[Atom],
        found: Neighbours,
    ) -> Option<Self> {
        let Neighbours {
            rows,
            columns,
            table,
        } = found;
        let occurring: Vec<usize> = (0..atoms.len()).filter(|&i| rows[i] != NONE).collect();
        let known: Vec<Known<'_>> = occurring
            .iter()
            .map(|&i| Known {
                atoms: &atoms[i],
                row: rows[i],
                column: columns[i],
            })
            .collect();
        let (trie, shorter) = Trie::new(known.iter().map(|known| known.atoms).zip(0..), unit)?;
        let token = |((&i, shorter), known): ((&usize, u32), &Known<'_>)| Token {
            atoms: known.atoms.len() as u32,
            shorter,
            row: known.row,
            column: known.column,
            id: ids[i],
        };
        Some(Self {
            tokens: occurring
                .iter()
                .zip(shorter)
                .zip(&known)
                .map(token)
                .collect(),
            followers: match *unit {
                [run] => Followers::new(run, &known, &table),
                _ => Followers::default(),
            },
            trie,
            table,
        })
    }

    /// Appends the ids of a word; false, and nothing appended, where there is no way, which a word of
    /// the alphabet always has.
    pub(super) fn encode(&self, word: Word<'_>, path: &mut Path, ids: &mut Vec<i32>) -> bool {
        let Word {
            text,
            marks,
            start,
            end,
        } = word;
        path.tokens.clear();
        path.any_dead = false;
        let (mut at, mut row) = (start, self.table.start());
        let mut run = self.followers.run_at(text, marks, at, end);
        let mut next = self.trie.longest(text, marks, at, end, run);
        while at < end {
            if let Some((token, stop)) = self.choose(next, row, (at, run), word, path) {
                path.tokens.push(token);
                at = stop;
                row = self.tokens[token as usize].row;
                run = self.followers.run_at(text, marks, at, end);
                next = self.trie.longest(text, marks, at, end, run);
                continue;
            }
            let Some(wrong) = path.tokens.pop() else {
                return false;
            };
            path.bury(at - start, end - start);
            let wrong = self.tokens[wrong as usize];
            at -= wrong.atoms as usize;
            let before = path.tokens.last();
            row = before.map_or(self.table.start(), |&token| self.tokens[token as usize].row);
            run = self.followers.run_at(text, marks, at, end);
            next = wrong.shorter;
        }
        ids.extend(
            path.tokens
                .iter()
                .map(|&token| self.tokens[token as usize].id),
        );
        true
    }

    /// The first of the token `next` and the shorter ones that may stand at `at`, behind a token of
    /// that row, and where it ends; `run` run symbols begin there.
    #[inline]
    fn choose(
        &self,
        mut next: u32,
        row: u32,
        (at, run): (usize, usize),
        word: Word<'_>,
        path: &Path,
    ) -> Option<(u32, usize)> {
        let Word {
            text,
            marks,
            start,
            end,
        } = word;
        while next != NONE {
            let token = self.tokens[next as usize];
            let atoms = token.atoms as usize;
            if atoms <= run {
                let mut pure = self.followers.pure(row, run, atoms);
                let alive = |&(length, _): &(usize, u32)| !path.is_dead(at + length - start);
                return pure.find(alive).map(|(length, token)| (token, at + length));
            }
            let stop = at + atoms;
            if self.table.allows(row, token.column)
                && self
                    .followers
                    .goes_on(token.row, self.followers.run_at(text, marks, stop, end))
                && !path.is_dead(stop - start)
            {
                return Some((next, stop));
            }
            next = token.shorter;
        }
        None
    }
}

impl Path {
    /// Notes that there is no way on from a place of a word of that length.
    fn bury(&mut self, place: usize, length: usize) {
        if !self.any_dead {
            self.dead.clear(length + 1);
            self.any_dead = true;
        }
        self.dead.set(place);
    }

    #[inline]
    fn is_dead(&self, place: usize) -> bool {
        self.any_dead && self.dead.get(place)
    }
}
