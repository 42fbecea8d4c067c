//! What one thread does with its share of the windows, and what it has found.

use std::ops::Range;

use super::slide::{self, Four, STEPS, Slide};
use super::symbols::{Firsts, Symbols};
use super::{Exact, Extreme, Run, Seen, Sweep, Window};
use crate::Result;
use crate::fast::lanes::LANES;
use crate::fast::quantize::ROUNDING;
use crate::parallel::Interrupt;

/// Margins are taken by so much wider than they are, for the arithmetic that is done with them.
const SLACK: f64 = 1e-15;

/// Multiplications between two looks at whether the caller wants to stop: some milliseconds.
const PATIENCE: usize = 1 << 23;

/// The nearest whole number, half to even: without the instruction that not every machine has.
fn nearest(x: f64) -> f64 {
    if x.abs() < ROUNDING / 4.0 {
        (x + ROUNDING) - ROUNDING
    } else {
        x.round_ties_even()
    }
}

/// What has been found in some shares, with extremes by frequency and dim.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) windows: usize,
    pub(super) skipped: usize,
    pub(super) outside: Vec<Run>,
    pub(super) symbols: Firsts,
    pub(super) low: Vec<Option<Extreme>>,
    pub(super) high: Vec<Option<Extreme>>,
    pub(super) bound: f64,
}

impl Found {
    pub(super) fn new(size: usize) -> Self {
        Self {
            low: vec![None; size],
            high: vec![None; size],
            ..Self::default()
        }
    }

    /// Adds what has been found in the share that follows.
    pub(super) fn merge(&mut self, next: Self) {
        self.windows += next.windows;
        self.skipped += next.skipped;
        self.bound = self.bound.max(next.bound);
        self.symbols.merge(&next.symbols);
        for run in next.outside {
            push(&mut self.outside, run);
        }
        let replace = |mine: &mut Vec<Option<Extreme>>, new, beyond: fn(f64, f64) -> bool| {
            for (mine, new) in mine.iter_mut().zip::<Vec<Option<Extreme>>>(new) {
                if let Some((value, _)) = new
                    && mine.is_none_or(|(mine, _)| beyond(value, mine))
                {
                    *mine = new;
                }
            }
        };
        replace(&mut self.low, next.low, |new, old| new < old);
        replace(&mut self.high, next.high, |new, old| new > old);
    }
}

/// Adds windows that lie behind all others.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if (last.first.episode, last.end) == (run.first.episode, run.first.start) => {
            last.end = run.end;
        }
        _ => runs.push(run),
    }
}

/// The desk of a thread.
pub(super) struct Share<'a> {
    sweep: &'a Sweep,
    slide: Slide,
    exact: Exact<'a>,
    watch: Watch<'a>,
    period: usize,
    /// Work since the last look at whether the caller wants to stop.
    spent: usize,
}

/// What is looked at where a coefficient lies beyond the bounds.
struct Watch<'a> {
    dims: usize,
    scale: f64,
    units: Vec<f64>,
    known: Option<&'a Symbols>,
    seen: Option<Seen<'a>>,
    /// Of each frequency the values `C` that are known symbols without a gap, for certain.
    bands: Vec<(f64, f64)>,
    /// So near to a boundary a rounding is not certain.
    margin: f64,
    /// Of the windows of the block: whether they hold what is not known, and whether a rounding is
    /// not certain.
    outside: [bool; STEPS],
    unsure: [bool; STEPS],
    /// The first window of the block.
    at: Window,
    found: Found,
}

impl<'a> Share<'a> {
    pub(super) fn new(sweep: &'a Sweep, seen: Option<Seen<'a>>) -> Self {
        let (horizon, dims) = (sweep.dct.horizon(), sweep.dims);
        let slide = Slide::new(horizon, dims, sweep.simd);
        let size = horizon * dims;
        if let Some((low, high)) = seen {
            assert!(low.len() == size && high.len() == size, "one of each");
        }
        Self {
            sweep,
            exact: Exact::new(sweep),
            watch: Watch {
                dims,
                scale: sweep.scale,
                units: slide.units.clone(),
                known: sweep.known.as_ref(),
                seen,
                bands: vec![(0.0, 0.0); horizon],
                margin: 0.0,
                outside: [false; STEPS],
                unsure: [false; STEPS],
                at: Window {
                    episode: 0,
                    start: 0,
                },
                found: Found::new(size),
            },
            slide,
            period: slide::period(horizon),
            spent: 0,
        }
    }

    /// What has been found since the last time.
    pub(super) fn take(&mut self) -> Found {
        std::mem::replace(&mut self.watch.found, Found::new(self.exact.window.len()))
    }

    /// Goes through some windows of an episode, given by its rows.
    pub(super) fn go<T: Copy + Into<f64>>(
        &mut self,
        rows: &[T],
        episode: usize,
        windows: Range<usize>,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        let (dims, horizon) = (self.sweep.dims, self.sweep.dct.horizon());
        let rows = &rows[..(windows.end + horizon - 1) * dims];
        let finite = |row: usize| {
            let row = rows[row * dims..][..dims].iter();
            row.fold(true, |all, &value| all & value.into().is_finite())
        };
        let (mut first, last, mut swept) = (windows.start, rows.len() / dims, 0);
        while first < last {
            let end = (first..last).find(|&row| !finite(row)).unwrap_or(last);
            if let Some(count) = (end - first + 1).checked_sub(horizon) {
                self.run(
                    &rows[first * dims..end * dims],
                    Window {
                        episode,
                        start: first,
                    },
                    interrupt,
                )?;
                swept += count;
            }
            first = end + 1;
        }
        self.watch.found.windows += swept;
        self.watch.found.skipped += windows.len() - swept;
        Ok(())
    }

    /// Goes through the windows of finite rows, the first of which is `origin`.
    fn run<T: Copy + Into<f64>>(
        &mut self,
        rows: &[T],
        origin: Window,
        interrupt: &Interrupt<'_>,
    ) -> Result<()> {
        let (dims, horizon) = (self.sweep.dims, self.sweep.dct.horizon());
        let count = rows.len() / dims + 1 - horizon;
        for first in (0..count).step_by(self.period) {
            let end = count.min(first + self.period);
            let some = &rows[first.saturating_sub(1) * dims..(end + horizon - 1) * dims];
            let largest = some
                .iter()
                .fold(0.0, |largest: f64, &value| largest.max(value.into().abs()));
            let margin = slide::bound(horizon, end - first, largest);
            // Where roundings are not certain anyhow, and where numbers may overflow.
            let certain = margin * self.sweep.scale < 0.25 && largest < 1e100;
            if certain {
                self.watch.set_margin(margin);
                self.slide.seed(&self.sweep.dct, rows, first);
                for (place, bounds) in self.slide.bounds.iter_mut().enumerate() {
                    self.watch
                        .set_bounds(place % horizon, place / horizon, bounds);
                }
            }
            for block in (first..end).step_by(STEPS) {
                let steps = STEPS.min(end - block);
                self.spend(steps * horizon * dims, interrupt)?;
                self.watch.begin(Window {
                    start: origin.start + block,
                    ..origin
                });
                if certain {
                    let watch = &mut self.watch;
                    let mut beyond = |k: usize, vector: usize, trace: &[Four], bounds: &mut _| {
                        watch.look(k, vector, trace);
                        watch.set_bounds(k, vector, bounds);
                    };
                    self.slide.advance(rows, block, steps, &mut beyond);
                } else {
                    self.watch.unsure[..steps].fill(true);
                }
                let unsure = self.watch.unsure;
                for step in (0..steps).filter(|&step| unsure[step]) {
                    self.spend(horizon * horizon * dims, interrupt)?;
                    self.exact
                        .transform(&rows[(block + step) * dims..][..horizon * dims]);
                    self.watch.judge(step, &self.exact.coefficients, !certain);
                }
                self.watch.end(steps);
            }
        }
        Ok(())
    }

    /// Looks, now and then, at whether the caller wants to stop; `work` is in multiplications.
    fn spend(&mut self, work: usize, interrupt: &Interrupt<'_>) -> Result<()> {
        self.spent += work;
        if self.spent > PATIENCE {
            self.spent = 0;
            interrupt.check()?;
        }
        Ok(())
    }
}

impl Watch<'_> {
    /// Says how far coefficients may be off.
    fn set_margin(&mut self, margin: f64) {
        self.found.bound = self.found.bound.max(margin);
        self.margin = margin;
        let band = self.known.map(|known| {
            known
                .band()
                .map_or((f64::INFINITY, f64::NEG_INFINITY), |band| {
                    let end = |symbol: f64, inward: f64| {
                        let end = (symbol - 0.5 * inward) / self.scale;
                        end + inward * (margin + SLACK * end.abs())
                    };
                    (
                        end(*band.start() as f64, 1.0),
                        end(*band.end() as f64, -1.0),
                    )
                })
        });
        let (low, high) = band.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        for (band, unit) in self.bands.iter_mut().zip(&self.units) {
            *band = (low / unit, high / unit);
        }
    }

    /// Sets the values of a frequency beyond which there is something to look at.
    fn set_bounds(&self, k: usize, vector: usize, bounds: &mut [Four; 2]) {
        let first = vector * LANES;
        let [floor, ceiling] = bounds;
        // The bounds of lanes that hold no dim stay as wide as they are made.
        let lanes = floor.iter_mut().zip(ceiling).zip(first..self.dims);
        for ((floor, ceiling), dim) in lanes {
            let (mut low, mut high) = self.bands[k];
            if let Some((least, greatest)) = self.extremes(k * self.dims + dim) {
                low = low.max(least / self.units[k]);
                high = high.min(greatest / self.units[k]);
            }
            (*floor, *ceiling) = (low, high);
        }
    }

    /// The range of a coefficient so far, where that is asked for.
    fn extremes(&self, at: usize) -> Option<(f64, f64)> {
        let (low, high) = self.seen?;
        let of = |extreme: Option<Extreme>, seen: f64| extreme.map_or(seen, |(value, _)| value);
        Some((
            of(self.found.low[at], low[at]),
            of(self.found.high[at], high[at]),
        ))
    }

    fn begin(&mut self, at: Window) {
        self.at = at;
        self.outside = [false; STEPS];
        self.unsure = [false; STEPS];
    }

    fn window(&self, step: usize) -> Window {
        Window {
            start: self.at.start + step,
            ..self.at
        }
    }

    /// Looks at the values of one frequency and four dims in the windows of the block.
    fn look(&mut self, k: usize, vector: usize, trace: &[Four]) {
        let (unit, (low, high)) = (self.units[k], self.bands[k]);
        for lane in 0..LANES.min(self.dims - vector * LANES) {
            for (step, four) in trace.iter().enumerate() {
                if !(low..=high).contains(&four[lane]) {
                    self.round(step, four[lane] * unit);
                }
            }
            if self.seen.is_some() {
                let at = k * self.dims + vector * LANES + lane;
                for (step, four) in trace.iter().enumerate() {
                    self.extend(at, step, four[lane] * unit);
                }
            }
        }
    }

    /// Widens the range of a coefficient, where that is asked for.
    fn extend(&mut self, at: usize, step: usize, coefficient: f64) {
        if let Some((low, high)) = self.extremes(at) {
            let extreme = Some((coefficient, self.window(step)));
            if coefficient < low {
                self.found.low[at] = extreme;
            }
            if coefficient > high {
                self.found.high[at] = extreme;
            }
        }
    }

    /// Notes the symbol of a coefficient by the recurrence, or that it is not certain.
    fn round(&mut self, step: usize, coefficient: f64) {
        let scaled = coefficient * self.scale;
        let rounded = nearest(scaled);
        let margin = self.margin * self.scale + SLACK * scaled.abs();
        if (scaled - rounded).abs() < 0.5 - margin {
            self.note(step, rounded);
        } else {
            self.unsure[step] = true;
        }
    }

    fn note(&mut self, step: usize, rounded: f64) {
        let symbol = rounded as i64;
        if self.known.is_some_and(|known| !known.contains(symbol)) {
            self.outside[step] = true;
            self.found.symbols.add(symbol, self.window(step));
        }
    }

    /// Notes all symbols of a window, of which the transform is known.
    fn judge(&mut self, step: usize, coefficients: &[f64], extend: bool) {
        for (at, &coefficient) in coefficients.iter().enumerate() {
            let rounded = (coefficient * self.scale).round_ties_even();
            if rounded.is_finite() {
                self.note(step, rounded);
            } else {
                self.outside[step] |= self.known.is_some();
            }
            if extend && coefficient.is_finite() {
                self.extend(at, step, coefficient);
            }
        }
    }

    /// Ends a block.
    fn end(&mut self, steps: usize) {
        for step in (0..steps).filter(|&step| self.outside[step]) {
            let first = self.window(step);
            let end = first.start + 1;
            push(&mut self.found.outside, Run { first, end });
        }
    }
}
