//! Words as runs of equal tokens, linked from left to right.
//!
//! Neighbouring runs of a word hold different tokens. So a pair of different tokens stands where one
//! run ends and the next begins, and a pair of equal ones within a run. A place of a pair is the run
//! that its left token is in; places that hold the pair no more are told by looking.

use std::collections::BTreeMap;

use super::queue::Queue;
use super::{Pair, too_many};
use crate::fast::bpe::pairs::PairMap;
use crate::memory::room_for;
use crate::{Error, Result};

/// No run.
const NONE: u32 = u32::MAX;

/// Places that are looked at together.
const TOGETHER: usize = 128;

/// Runs of the words as they come. Merging may take some apart, but has numbers for twice as many.
const MOST: usize = 1 << 31;

/// All that merging has to know, in one place: what is far apart in memory takes most of the time.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// [`NONE`] once it is gone.
    token: u32,
    count: u32,
    left: u32,
    right: u32,
    /// How often the word occurs, by its place in [`Runs::weights`].
    weight: u32,
}

/// All words.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_field_names, reason = "runs are what they are")]
pub(super) struct Runs {
    runs: Vec<Run>,
    /// All that words occur, each number once.
    weights: Vec<i64>,
    /// Place of each of them.
    known: BTreeMap<i64, u32>,
    /// All occurrences of all tokens: no count of a pair is larger.
    total: i64,
}

/// What one merge changed, gathered by the neighbour on either side.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Of pairs whose right token is merged.
    before: Side,
    /// Of pairs whose left token is merged.
    after: Side,
}

/// By token: what its pair with the merged ones lost, and that with the new one gained.
#[derive(Debug, Default)]
struct Side {
    cells: Vec<Cell>,
    touched: Vec<u32>,
}

#[derive(Debug, Default, Clone)]
struct Cell {
    touched: bool,
    lost: i64,
    gained: i64,
    places: Vec<u32>,
}

impl Runs {
    /// Makes room for so many runs, and for those that merging will make of them.
    pub(super) fn reserve(&mut self, runs: usize) -> Result<()> {
        let room = runs.saturating_add(runs / 2);
        self.runs = room_for(room).ok_or_else(too_many)?;
        Ok(())
    }

    /// Adds a word that occurs `count` times.
    pub(super) fn add(&mut self, tokens: impl Iterator<Item = u32>, count: u64) -> Result<()> {
        let (first, weight) = (self.runs.len(), self.weight_of(count)?);
        let mut length = 0;
        for token in tokens {
            length += 1;
            let full = self.runs.len() >= MOST;
            match self.runs[first..].last_mut() {
                Some(run) if run.token == token => run.count += 1,
                _ if full => return Err(too_many()),
                _ => {
                    let at = self.runs.len() as u32;
                    self.runs.push(Run {
                        token,
                        count: 1,
                        left: if at as usize == first { NONE } else { at - 1 },
                        right: at + 1,
                        weight,
                    });
                }
            }
        }
        match self.runs[first..] {
            // No pair, nothing to learn.
            [] | [Run { count: 1, .. }] => {
                self.runs.truncate(first);
                return Ok(());
            }
            [.., ref mut last] => last.right = NONE,
        }
        let total = self.weights[weight as usize].checked_mul(length);
        let total = total.and_then(|total| total.checked_add(self.total));
        self.total = total.ok_or_else(too_often)?;
        Ok(())
    }

    /// The place of a number in the list of weights.
    fn weight_of(&mut self, count: u64) -> Result<u32> {
        let count = i64::try_from(count).map_err(|_| too_often())?;
        Ok(*self.known.entry(count).or_insert_with(|| {
            self.weights.push(count);
            self.weights.len() as u32 - 1
        }))
    }

    /// All pairs of neighbours that occur `least` times, with their counts and places.
    pub(super) fn pairs(&self, least: i64) -> Result<Queue> {
        let mut numbers = PairMap::<u32>::default();
        let mut found: Vec<(Pair, i64, u32)> = Vec::new();
        self.visit(|pair, _, count| {
            let number = numbers.get(pair.0, pair.1).unwrap_or_else(|| {
                numbers.insert(pair.0, pair.1, found.len() as u32);
                found.push((pair, 0, 0));
                found.len() as u32 - 1
            });
            let (_, total, places) = &mut found[number as usize];
            *total += count;
            *places += 1;
        });
        let room = |&(_, total, places): &(Pair, i64, u32)| {
            room_for(if total >= least { places as usize } else { 0 }).ok_or_else(too_many)
        };
        let mut places: Vec<Vec<u32>> = found.iter().map(room).collect::<Result<_>>()?;
        self.visit(|pair, at, _| {
            if let Some(number) = numbers.get(pair.0, pair.1)
                && found[number as usize].1 >= least
            {
                places[number as usize].push(at);
            }
        });
        let mut queue = Queue::default();
        for ((pair, total, _), places) in found.into_iter().zip(places) {
            if total >= least {
                queue.push(pair, total, places);
            }
        }
        Ok(queue)
    }

    /// Calls `visit(pair, place, count)` for all pairs of neighbours.
    fn visit(&self, mut visit: impl FnMut(Pair, u32, i64)) {
        for (at, run) in (0..).zip(&self.runs) {
            let weight = self.weights[run.weight as usize];
            if run.count > 1 {
                let count = weight * i64::from(run.count - 1);
                visit((run.token, run.token), at, count);
            }
            if let Some(next) = self.runs.get(run.right as usize) {
                visit((run.token, next.token), at, weight);
            }
        }
    }

    /// Puts the new token `whole` in place of a pair, from left to right in each word.
    pub(super) fn merge(
        &mut self,
        (left, right): Pair,
        whole: u32,
        places: &[u32],
        changes: &mut Changes,
    ) {
        changes.make_room(whole);
        let mut holding = [0; TOGETHER];
        for places in places.chunks(TOGETHER) {
            // Few places hold their pair still, and none is in a near cache. Asked without a branch
            // they are fetched all at once, not one after the other.
            let mut count = 0;
            for &at in places {
                holding[count] = at;
                count += usize::from(self.holds(at, (left, right)));
            }
            for &at in &holding[..count] {
                // Again: the one before may be the same.
                if self.holds(at, (left, right)) {
                    let run = self.runs[at as usize];
                    if left == right {
                        self.halve(at, run, whole, changes);
                    } else {
                        self.join(at, (run, self.runs[run.right as usize]), whole, changes);
                    }
                }
            }
        }
    }

    /// Whether a pair stands at a place.
    #[inline]
    fn holds(&self, at: u32, (left, right): Pair) -> bool {
        let run = self.runs[at as usize];
        let next = self
            .runs
            .get(run.right as usize)
            .map_or(NONE, |run| run.token);
        (run.token == left)
            & if left == right {
                run.count > 1
            } else {
                next == right
            }
    }

    /// `a a a a a` becomes `x x a`, where `a` is the token of the run at `at`.
    fn halve(&mut self, at: u32, run: Run, whole: u32, changes: &mut Changes) {
        let Changes { before, after } = changes;
        let weight = self.weights[run.weight as usize];
        let (half, odd) = (run.count / 2, run.count % 2);
        let made = if odd == 0 {
            self.runs[at as usize] = Run {
                token: whole,
                count: half,
                ..run
            };
            at
        } else {
            // The rest keeps its number, and so its place in the pair with what comes after it.
            self.runs[at as usize].count = 1;
            self.insert(run.left, at, (whole, half))
        };
        if let Some(neighbour) = self.runs.get(run.left as usize) {
            before.replace(neighbour.token, weight, run.left);
        }
        before.cell(run.token).lost += weight * i64::from(half - 1 + odd);
        if half > 1 {
            before.cell(whole).gain(weight * i64::from(half - 1), made);
        }
        if odd == 1 {
            after.cell(run.token).gain(weight, made);
        } else if let Some(neighbour) = self.runs.get(run.right as usize) {
            after.replace(neighbour.token, weight, made);
        }
    }

    /// `a a b b` becomes `a x b`, where `a` and `b` are the tokens of the two runs.
    fn join(&mut self, at: u32, (run, next): (Run, Run), whole: u32, changes: &mut Changes) {
        let Changes { before, after } = changes;
        let weight = self.weights[run.weight as usize];
        let follows = run.right;
        let previous = self.runs.get(run.left as usize).map(|run| run.token);
        if run.count > 1 {
            before.replace(run.token, weight, at);
        } else if previous == Some(whole) {
            after.cell(run.token).gained -= weight;
        } else if let Some(previous) = previous {
            before.replace(previous, weight, run.left);
        }
        // What is left of `b` keeps its number, and so its place in the pair with what comes after it.
        let made = if run.count == 1 && previous == Some(whole) {
            self.runs[run.left as usize].count += 1;
            self.remove(at);
            self.shorten(follows);
            let made = run.left;
            let first = self.runs[made as usize].count == 2;
            let cell = before.cell(whole);
            cell.gained += weight;
            if first {
                cell.places.push(made);
            }
            made
        } else if run.count == 1 {
            let here = &mut self.runs[at as usize];
            here.token = whole;
            self.shorten(follows);
            at
        } else {
            self.runs[at as usize].count -= 1;
            if next.count == 1 {
                self.runs[follows as usize].token = whole;
                follows
            } else {
                self.runs[follows as usize].count -= 1;
                self.insert(at, follows, (whole, 1))
            }
        };
        if next.count > 1 {
            after.replace(next.token, weight, made);
        } else if let Some(neighbour) = self.runs.get(next.right as usize) {
            after.replace(neighbour.token, weight, made);
        }
    }

    /// Takes one token off a run, from its left.
    fn shorten(&mut self, at: u32) {
        let run = &mut self.runs[at as usize];
        run.count -= 1;
        if run.count == 0 {
            self.remove(at);
        }
    }

    /// Puts a new run between two neighbours, the left of which there may not be.
    fn insert(&mut self, left: u32, right: u32, (token, count): (u32, u32)) -> u32 {
        let at = self.runs.len() as u32;
        self.runs.push(Run {
            token,
            count,
            left,
            right,
            weight: self.runs[right as usize].weight,
        });
        self.runs[right as usize].left = at;
        if let Some(neighbour) = self.runs.get_mut(left as usize) {
            neighbour.right = at;
        }
        at
    }

    fn remove(&mut self, at: u32) {
        let Run { left, right, .. } = self.runs[at as usize];
        self.runs[at as usize].token = NONE;
        if let Some(neighbour) = self.runs.get_mut(left as usize) {
            neighbour.right = right;
        }
        if let Some(neighbour) = self.runs.get_mut(right as usize) {
            neighbour.left = left;
        }
    }
}

impl Changes {
    /// Makes room for all tokens up to the new one.
    fn make_room(&mut self, whole: u32) {
        for side in [&mut self.before, &mut self.after] {
            side.cells.resize(whole as usize + 1, Cell::default());
        }
    }

    /// Hands over what was gathered of merging a pair; new pairs only where they occur `least` times,
    /// and the other token `fits`.
    pub(super) fn report(
        &mut self,
        (left, right): Pair,
        whole: u32,
        least: i64,
        fits: impl Fn(u32) -> bool,
        queue: &mut Queue,
    ) {
        let sides = [(&mut self.before, true), (&mut self.after, false)];
        for (side, is_before) in sides {
            for &token in &side.touched {
                let cell = &mut side.cells[token as usize];
                let (old, new) = if is_before {
                    ((token, left), (token, whole))
                } else {
                    ((right, token), (whole, token))
                };
                if cell.lost != 0 {
                    queue.lower(old, cell.lost);
                }
                if cell.gained >= least && fits(token) {
                    queue.push(new, cell.gained, cell.places.clone());
                }
                cell.clear();
            }
            side.touched.clear();
        }
    }
}

impl Side {
    #[inline]
    fn cell(&mut self, token: u32) -> &mut Cell {
        let cell = &mut self.cells[token as usize];
        if !cell.touched {
            cell.touched = true;
            self.touched.push(token);
        }
        cell
    }

    /// The pair with `token` becomes one with the new token, at `place`.
    #[inline]
    fn replace(&mut self, token: u32, weight: i64, place: u32) {
        let cell = self.cell(token);
        cell.lost += weight;
        cell.gain(weight, place);
    }
}

impl Cell {
    /// Forgets all, but keeps its room.
    fn clear(&mut self) {
        (self.touched, self.lost, self.gained) = (false, 0, 0);
        self.places.clear();
    }

    #[inline]
    fn gain(&mut self, weight: i64, place: u32) {
        self.gained += weight;
        self.places.push(place);
    }
}

fn too_often() -> Error {
    Error::argument("counts of words add up to over 2^63")
}
