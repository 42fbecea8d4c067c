//! Every window of a data set: the range of its coefficients, and the symbols that a tokenizer lacks.
//!
//! The transforms of windows one row apart are made from each other ([`slide`]), which is much less
//! work than a transform each, and of known error. Nearly all coefficients lie so far inside what
//! is asked for that nothing else has to be known of them; of the others most lie far enough from a
//! rounding boundary, and where one does not, the transform of its window decides. So every symbol is
//! the one that encoding that window gives.
//!
//! Windows with a value that is not finite are left out and counted.

mod share;
mod slide;
mod symbols;

use std::ops::Range;

use super::check::check_scale;
use super::dct::Dct;
use super::lanes::Simd;
use crate::parallel::{self, Interrupt};
use crate::{Error, Result};
use share::{Found, Share};
pub use symbols::Symbols;

/// Windows that a thread takes at a time; part of the answer's bits, as the recurrence starts anew.
const SHARE: usize = 1 << 14;

/// Where a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// Place of the episode among those of the call.
    pub episode: usize,
    /// First row within the episode.
    pub start: usize,
}

/// Windows of one episode that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first of them.
    pub first: Window,
    /// Start of the first window that is not one of them.
    pub end: usize,
}

/// A coefficient, and the first window that has it.
pub type Extreme = (f64, Window);

/// What a sweep has seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Swept {
    /// Windows of finite values.
    pub windows: usize,
    /// All others.
    pub skipped: usize,
    /// Windows that hold a symbol which is not known; by episode and start.
    pub outside: Vec<Run>,
    /// The symbols that are not known, ascending, each with the first window that holds it. Of those
    /// outside -65,536 to 65,535 only the lowest and the highest.
    pub symbols: Vec<(i64, Window)>,
    /// The least coefficient of each frequency and dim, row-major, where it is below that of `seen`.
    /// No window has one that is less than this by more than twice `bound`.
    pub low: Vec<Option<Extreme>>,
    /// The greatest likewise.
    pub high: Vec<Option<Extreme>>,
    /// The most by which a coefficient of the recurrence may be off.
    pub bound: f64,
}

/// What is asked of all windows.
#[derive(Debug, Clone)]
pub struct Sweep {
    dct: Dct,
    simd: Simd,
    dims: usize,
    scale: f64,
    known: Option<Symbols>,
}

/// The range of the coefficients so far: least and greatest, row-major `(frequency, dim)`.
pub type Seen<'a> = (&'a [f64], &'a [f64]);

impl Sweep {
    /// A sweep of windows of shape `(horizon, dims)` for symbols at a scale that are not `known`;
    /// without `known`, symbols do not matter.
    pub fn new(
        (horizon, dims): (usize, usize),
        scale: f64,
        known: Option<Symbols>,
    ) -> Result<Self> {
        Self::with(Simd::detect(), (horizon, dims), scale, known)
    }

    /// The same by those instructions.
    pub fn with(
        simd: Simd,
        (horizon, dims): (usize, usize),
        scale: f64,
        known: Option<Symbols>,
    ) -> Result<Self> {
        if horizon.checked_mul(dims).is_none_or(|size| size == 0) {
            return Err(Error::argument(format!(
                "there are no windows of {horizon} x {dims}"
            )));
        }
        check_scale(scale)?;
        Ok(Self {
            dct: Dct::with(horizon, simd)?,
            simd,
            dims,
            scale,
            known,
        })
    }

    /// Goes through all windows of episodes, given as ranges of the row-major `rows`.
    ///
    /// Least and greatest coefficients are looked for beyond those of `seen`; without it, not at all.
    /// The answer is the same for any number of threads.
    ///
    /// # Panics
    ///
    /// If a range does not lie within `rows`, or `seen` has another shape.
    pub fn run<T: Copy + Into<f64> + Sync>(
        &self,
        rows: &[T],
        episodes: &[Range<usize>],
        seen: Option<Seen<'_>>,
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Swept> {
        let shares = self.shares(episodes);
        let work = |share: &mut Share<'_>, items: Vec<(usize, Range<usize>)>| {
            for (episode, windows) in items {
                let range = &episodes[episode];
                let rows = &rows[range.start * self.dims..range.end * self.dims];
                share.go(rows, episode, windows, interrupt)?;
            }
            Ok(share.take())
        };
        let desk = || Share::new(self, seen);
        let parts = parallel::consume(shares, threads, interrupt, desk, work)?;
        let mut all = Found::new(self.dct.horizon() * self.dims);
        for part in parts {
            all.merge(part?);
        }
        Ok(self.finish(all, rows, episodes))
    }

    /// Deals the windows of all episodes in portions that depend on their numbers alone.
    fn shares(&self, episodes: &[Range<usize>]) -> Vec<Vec<(usize, Range<usize>)>> {
        let (mut shares, mut room) = (vec![Vec::new()], SHARE);
        for (episode, rows) in episodes.iter().enumerate() {
            let count = (rows.len() + 1).saturating_sub(self.dct.horizon());
            let mut first = 0;
            while first < count {
                if room == 0 {
                    shares.push(Vec::new());
                    room = SHARE;
                }
                let end = count.min(first + room);
                if let Some(share) = shares.last_mut() {
                    share.push((episode, first..end));
                }
                room -= end - first;
                first = end;
            }
        }
        shares
    }

    /// Gives the extremes as the transforms of their windows have them.
    fn finish<T: Copy + Into<f64>>(
        &self,
        found: Found,
        rows: &[T],
        episodes: &[Range<usize>],
    ) -> Swept {
        let size = self.dct.horizon() * self.dims;
        let mut exact = Exact::new(self);
        let mut settle = |extremes: Vec<Option<Extreme>>| {
            let mut order: Vec<_> = (0..size).filter(|&at| extremes[at].is_some()).collect();
            order.sort_by_key(|&at| extremes[at].map(|(_, window)| window));
            let mut settled = extremes;
            let mut last = None;
            for at in order {
                if let Some((value, window)) = &mut settled[at] {
                    if last != Some(*window) {
                        let first = episodes[window.episode].start + window.start;
                        exact.transform(&rows[first * self.dims..][..size]);
                        last = Some(*window);
                    }
                    *value = exact.coefficients[at];
                }
            }
            settled
        };
        Swept {
            windows: found.windows,
            skipped: found.skipped,
            symbols: found.symbols.list(),
            low: settle(found.low),
            high: settle(found.high),
            outside: found.outside,
            bound: found.bound,
        }
    }
}

/// Room for the transform of one window.
struct Exact<'a> {
    sweep: &'a Sweep,
    window: Vec<f64>,
    coefficients: Vec<f64>,
}

impl<'a> Exact<'a> {
    fn new(sweep: &'a Sweep) -> Self {
        let size = sweep.dct.horizon() * sweep.dims;
        Self {
            sweep,
            window: vec![0.0; size],
            coefficients: vec![0.0; size],
        }
    }

    fn transform<T: Copy + Into<f64>>(&mut self, window: &[T]) {
        for (to, &value) in self.window.iter_mut().zip(window) {
            *to = value.into();
        }
        let Sweep { dct, dims, .. } = self.sweep;
        dct.forward(&self.window, *dims, &mut self.coefficients);
    }
}

#[cfg(test)]
mod tests;
