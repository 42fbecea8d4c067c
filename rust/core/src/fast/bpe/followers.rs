//! What may follow a token within a run, answered beforehand.
//!
//! Most of a text is runs of one symbol, and most wrong turns are taken there: of the many tokens that
//! are nothing but run, one alone is right. With tokens of the same row of the table taken together,
//! two questions have a bit each: may this pure token follow; and is there a way on, if exactly so
//! many run symbols follow and then something else?

use super::alphabet::Atom;
use super::neighbours::Table;
use crate::fast::runs::Marks;

/// As many pure tokens, and run symbols that follow, as a word has bits. Longer runs may go on.
const BITS: usize = u64::BITS as usize;
/// Lengths of runs for which the pure tokens are listed.
const LISTED: usize = 1024;

/// Where runs are of one atom, and few tokens are pure: what may follow what.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers {
    run: Option<Atom>,
    /// The pure tokens and their lengths, ascending.
    pure: Vec<(usize, u32)>,
    /// By length of a run: the pure tokens it can begin with, as far as the rest of it is concerned.
    starts: Vec<u64>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// The pure tokens that may follow.
    pure: u64,
    /// By number of run symbols that follow: whether there may be a way on.
    goes_on: u64,
}

/// A token as this table needs to know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) atoms: &'a [Atom],
    pub(super) row: u32,
    pub(super) column: u32,
}

impl Followers {
    /// The answers for all tokens, where runs are of the atom `run`.
    pub(super) fn new(run: Atom, tokens: &[Known<'_>], table: &Table) -> Self {
        let lead = |token: &Known<'_>| token.atoms.iter().take_while(|&&atom| atom == run).count();
        let is_pure = |token: &Known<'_>| lead(token) == token.atoms.len();
        let mut pure: Vec<(usize, u32)> = (0_u32..)
            .zip(tokens)
            .filter(|(_, token)| is_pure(token))
            .map(|(number, token)| (token.atoms.len(), number))
            .collect();
        pure.sort_unstable();
        if pure.is_empty() || pure.len() > BITS {
            return Self::default();
        }
        let own = |bit: usize| tokens[pure[bit].1 as usize];
        let mut rows = vec![
            Row {
                pure: 0,
                goes_on: 1 | 1 << (BITS - 1)
            };
            table.rows()
        ];
        // Tokens with something else behind the run show one length each.
        let mixed: Vec<(usize, u32)> = tokens
            .iter()
            .filter(|token| !is_pure(token))
            .map(|token| (lead(token), token.column))
            .filter(|&(length, _)| (1..BITS - 1).contains(&length))
            .collect();
        for (number, row) in (0_u32..).zip(&mut rows) {
            for bit in 0..pure.len() {
                row.pure |= u64::from(table.allows(number, own(bit).column)) << bit;
            }
            for &(length, column) in &mixed {
                row.goes_on |= u64::from(table.allows(number, column)) << length;
            }
        }
        // The shorter the run, the sooner it is known whether a pure token leaves a way on.
        let mut starts = vec![0];
        for length in 1..LISTED {
            let mut start = 0_u64;
            for (bit, &(taken, token)) in pure.iter().enumerate() {
                if taken <= length {
                    let rest = (length - taken).min(BITS - 1);
                    let row = rows[tokens[token as usize].row as usize];
                    start |= (row.goes_on >> rest & 1) << bit;
                }
            }
            starts.push(start);
            if length < BITS - 1 {
                for row in &mut rows {
                    row.goes_on |= u64::from(row.pure & start != 0) << length;
                }
            }
        }
        Self {
            run: Some(run),
            pure,
            starts,
            rows,
        }
    }

    /// How many run symbols begin at `text[at]`; 0, too, where this table is not made.
    #[inline]
    pub(super) fn run_at(&self, text: &[Atom], marks: &Marks, at: usize, end: usize) -> usize {
        if at < end && Some(text[at]) == self.run {
            marks.next(at, end) - at
        } else {
            0
        }
    }

    /// Whether there may be a way on behind a token of that row, if `run` run symbols follow.
    #[inline]
    pub(super) fn goes_on(&self, row: u32, run: usize) -> bool {
        run == 0 || self.rows[row as usize].goes_on >> run.min(BITS - 1) & 1 == 1
    }

    /// The pure tokens of at most `most` atoms that may follow a token of that row and begin a run of
    /// that length; the longest first, each with its length.
    #[inline]
    pub(super) fn pure(
        &self,
        row: u32,
        run: usize,
        most: usize,
    ) -> impl Iterator<Item = (usize, u32)> {
        let starts = self.starts.get(run).copied().unwrap_or(u64::MAX);
        let mut left = self.rows[row as usize].pure & starts;
        std::iter::from_fn(move || {
            while left != 0 {
                let bit = left.ilog2();
                left ^= 1 << bit;
                let (length, token) = self.pure[bit as usize];
                if length <= most {
                    return Some((length, token));
                }
            }
            None
        })
    }
}
