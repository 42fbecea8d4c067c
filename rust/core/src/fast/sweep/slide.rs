//! The coefficients of windows that follow each other, each from the two before it.
//!
//! Of the window that begins at row `n`, over `H` rows, frequency `k` has the coefficient
//!
//! ```text
//! c[n] = u · C[n],   C[n] = Σ_t x[n + t] · cos(θ·(t + ½)) / cos(θ/2),   θ = π·k / H,   u = s(k) · cos(θ/2)
//! ```
//!
//! By `cos(a + θ) + cos(a - θ) = 2·cos θ · cos a` all but the ends of the sums of three windows cancel:
//!
//! ```text
//! C[n + 1] = 2·cos θ · C[n] - C[n - 1] + (-1)^k · (x[n + H] - x[n + H - 1]) - (x[n] - x[n - 1])
//! C[n + 1] = C[n] + x[n + H] - x[n]                                                     for k = 0
//! ```
//!
//! What is added is the same for all even and for all odd frequencies, so a coefficient takes one
//! product and two sums, where the transform takes about `H/3` of each. An error lives on as a wave of
//! up to `1 / sin θ ≤ H/2` times its size; [`bound`] says what that comes to, and the recurrence
//! starts anew from transforms before it grows too large.
#![allow(
    clippy::inline_always,
    reason = "kernels are compiled for each set of instructions"
)]

use crate::fast::cosine::Weights;
use crate::fast::dct::{Block, Dct, TakeRow};
use crate::fast::lanes::{Kernel, LANES, Lanes, Simd};

/// Windows of a block: so many that what is looked at once a block costs little, and so few that what
/// drives the recurrence stays in the fastest cache.
pub(super) const STEPS: usize = 64;

/// Frequencies that go side by side, each waiting for its own last product.
const ABREAST: usize = 3;

/// Dims side by side.
pub(super) type Four = [f64; LANES];

/// Receives the values `C` of one frequency and four dims in the windows of a block, because one of
/// them lies beyond the bounds; may move these bounds.
pub(super) type Beyond<'a> = dyn FnMut(usize, usize, &[Four], &mut [Four; 2]) + 'a;

/// How far a coefficient by the recurrence may be from that of the transform, `steps` windows after
/// the start, where no value is larger than `largest`; both for any `k`.
///
/// No coefficient exceeds `B = √(2H)·largest`. With `ε = 2^-53`, each step adds an error below
/// `(2 + 6 + 1 + 4/H + 1 + 8/H)·ε·B ≤ 24·ε·B`: by the product, by the error of `2·cos θ` (three
/// times that of its size), by two sums and by what drives them. A transform is off by `(H + 8)·ε·B` at
/// most, and that of both starts lives on as well.
pub(super) fn bound(horizon: usize, steps: usize, largest: f64) -> f64 {
    let (h, n) = (horizon as f64, steps as f64);
    let growth = n.min(h / 2.0).max(1.0);
    let unit = f64::EPSILON / 2.0 * (2.0 * h).sqrt() * largest;
    unit * (24.0 * n * growth + (h + 8.0) * (2.0 * growth + 1.0))
}

/// Windows after which the recurrence starts anew: as many as keep [`bound`] below 1e-9 for values in
/// [-1, 1], within reason.
pub(super) fn period(horizon: usize) -> usize {
    let fits = |&n: &usize| bound(horizon, n, 1.0) < 1e-9;
    (1..=16)
        .map(|blocks| blocks * STEPS)
        .rev()
        .find(fits)
        .unwrap_or(STEPS)
}

/// The recurrence for one shape of windows, and where it stands.
pub(super) struct Slide {
    horizon: usize,
    dims: usize,
    simd: Simd,
    /// `2·cos θ` of each frequency.
    turns: Vec<f64>,
    /// `u` of each frequency.
    pub(super) units: Vec<f64>,
    /// `C` of the next window and of the one before it, by vector of dims, then frequency.
    now: Vec<Four>,
    before: Vec<Four>,
    /// Least and greatest value of which nobody need know; laid out alike.
    pub(super) bounds: Vec<[Four; 2]>,
    /// What drives frequency 0, even and odd ones, by vector and step; the latter two are subtracted.
    drives: [Vec<Four>; 3],
    block: Block,
}

impl Slide {
    pub(super) fn new(horizon: usize, dims: usize, simd: Simd) -> Self {
        let (weights, vectors) = (Weights::new(horizon), dims.div_ceil(LANES));
        let zeros = |count: usize| vec![[0.0; LANES]; count * vectors];
        Self {
            horizon,
            dims,
            simd,
            turns: (0..horizon).map(|k| weights.turn(k)).collect(),
            units: (0..horizon).map(|k| weights.at(k, 0)).collect(),
            now: zeros(horizon),
            before: zeros(horizon),
            bounds: vec![[[f64::NEG_INFINITY; LANES], [f64::INFINITY; LANES]]; horizon * vectors],
            drives: [zeros(STEPS), zeros(STEPS), zeros(STEPS)],
            block: Block::new(horizon, dims),
        }
    }

    /// Starts at window `n` of consecutive rows.
    pub(super) fn seed<T: Copy + Into<f64>>(&mut self, dct: &Dct, rows: &[T], n: usize) {
        let (dims, size) = (self.dims, self.horizon * self.dims);
        // Before the first row stands another one like it: the recurrence holds for any.
        let previous: Vec<T> = match n.checked_sub(1) {
            Some(n) => rows[n * dims..][..size].to_vec(),
            None => [&rows[..dims], &rows[..size - dims]].concat(),
        };
        let mut seed = |chunk: &[T], to: &mut [Four]| {
            let (dims, horizon, units) = (self.dims, self.horizon, &self.units);
            let mut take = Seed {
                dims,
                horizon,
                units,
                to,
            };
            dct.block(&mut self.block, chunk, &mut take);
        };
        seed(&previous, &mut self.before);
        seed(&rows[n * dims..][..size], &mut self.now);
    }

    /// Goes through `steps` windows, up to [`STEPS`], of which the first, `n`, is the one that it
    /// stands at.
    pub(super) fn advance<T: Copy + Into<f64>>(
        &mut self,
        rows: &[T],
        n: usize,
        steps: usize,
        beyond: &mut Beyond<'_>,
    ) {
        self.drive(rows, n, steps);
        self.simd.run(Glide {
            slide: self,
            steps,
            beyond,
        });
    }

    fn drive<T: Copy + Into<f64>>(&mut self, rows: &[T], n: usize, steps: usize) {
        let (dims, horizon) = (self.dims, self.horizon);
        let last = rows.len() / dims - 1;
        let row = |at: usize| &rows[at * dims..][..dims];
        for step in 0..steps {
            let first = n + step;
            let (out, before) = (row(first), row(first.saturating_sub(1)));
            let (newest, entering) = (row(first + horizon - 1), row(last.min(first + horizon)));
            for vector in 0..dims.div_ceil(LANES) {
                let [out, before, newest, entering] =
                    [out, before, newest, entering].map(|row| four(&row[vector * LANES..]));
                let place = vector * STEPS + step;
                let [first, even, odd] = &mut self.drives;
                for lane in 0..LANES {
                    let enters = entering[lane] - newest[lane];
                    let leaves = out[lane] - before[lane];
                    first[place][lane] = entering[lane] - out[lane];
                    even[place][lane] = leaves - enters;
                    odd[place][lane] = leaves + enters;
                }
            }
        }
    }
}

/// The next four values, as far as there are so many.
fn four<T: Copy + Into<f64>>(values: &[T]) -> Four {
    match values.first_chunk::<LANES>() {
        Some(four) => four.map(Into::into),
        None => std::array::from_fn(|lane| values.get(lane).map_or(0.0, |&value| value.into())),
    }
}

/// Takes the coefficients of one window as `C`.
struct Seed<'a> {
    dims: usize,
    horizon: usize,
    units: &'a [f64],
    to: &'a mut [Four],
}

impl TakeRow for Seed<'_> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, k: usize, row: &[f64]) {
        for (vector, four) in row[..self.dims].chunks(LANES).enumerate() {
            for (to, value) in self.to[vector * self.horizon + k].iter_mut().zip(four) {
                *to = value / self.units[k];
            }
        }
    }
}

struct Glide<'a, 'b> {
    slide: &'a mut Slide,
    steps: usize,
    beyond: &'a mut Beyond<'b>,
}

impl Kernel for Glide<'_, '_> {
    #[inline(always)]
    fn run<L: Lanes, const V: usize>(mut self) {
        let horizon = self.slide.horizon;
        for vector in 0..self.slide.now.len() / horizon {
            self.go::<L, 1, true>(vector, 0, 0);
            for (first, drive) in [(2, 1), (1, 2)] {
                let mut k = first;
                while k < horizon {
                    match ((horizon - k).div_ceil(2)).min(ABREAST) {
                        1 => self.go::<L, 1, false>(vector, k, drive),
                        2 => self.go::<L, 2, false>(vector, k, drive),
                        _ => self.go::<L, ABREAST, false>(vector, k, drive),
                    }
                    k += 2 * ABREAST;
                }
            }
        }
    }
}

impl Glide<'_, '_> {
    /// Goes through the block with every second one of `R` frequencies from `k` on.
    #[inline(always)]
    fn go<L: Lanes, const R: usize, const FIRST: bool>(
        &mut self,
        vector: usize,
        k: usize,
        drive: usize,
    ) {
        let slide = &mut *self.slide;
        let drive = &slide.drives[drive][vector * STEPS..][..self.steps];
        let place = |r: usize| vector * slide.horizon + k + 2 * r;
        let mut waves: [Wave<L>; R] = std::array::from_fn(|r| Wave {
            turn: L::all(slide.turns[k + 2 * r]),
            now: L::of(&slide.now[place(r)]),
            before: L::of(&slide.before[place(r)]),
        });
        let (mut low, mut high) = (waves.map(|wave| wave.now), waves.map(|wave| wave.now));
        let (pairs, last) = drive.as_chunks::<2>();
        for [one, other] in pairs {
            let (one, other) = (L::of(one), L::of(other));
            for (wave, (low, high)) in waves.iter_mut().zip(low.iter_mut().zip(&mut high)) {
                *low = wave.now.lower(*low);
                *high = wave.now.higher(*high);
                wave.before = wave.next::<FIRST>(one);
                // Now the two have changed places, so that no register has to be copied.
                *low = wave.before.lower(*low);
                *high = wave.before.higher(*high);
                wave.now = wave.swapped().next::<FIRST>(other);
            }
        }
        for four in last {
            for (wave, (low, high)) in waves.iter_mut().zip(low.iter_mut().zip(&mut high)) {
                *low = wave.now.lower(*low);
                *high = wave.now.higher(*high);
                wave.before = wave.next::<FIRST>(L::of(four));
                *wave = wave.swapped();
            }
        }
        for (r, wave) in waves.iter().enumerate() {
            let at = place(r);
            let [floor, ceiling] = slide.bounds[at].each_ref().map(L::of);
            let under = low[r].lower(floor).unlike(floor);
            let over = high[r].higher(ceiling).unlike(ceiling);
            if !under.or(over).is_clear() {
                let mut again = Wave {
                    turn: wave.turn,
                    now: L::of(&slide.now[at]),
                    before: L::of(&slide.before[at]),
                };
                let mut trace = [[0.0; LANES]; STEPS];
                for (to, four) in trace.iter_mut().zip(drive) {
                    again.now.put(to);
                    again.before = again.next::<FIRST>(L::of(four));
                    again = again.swapped();
                }
                let (trace, bounds) = (&trace[..self.steps], &mut slide.bounds[at]);
                (self.beyond)(k + 2 * r, vector, trace, bounds);
            }
            wave.now.put(&mut slide.now[at]);
            wave.before.put(&mut slide.before[at]);
        }
    }
}

/// One frequency of four dims.
#[derive(Clone, Copy)]
struct Wave<L> {
    turn: L,
    now: L,
    before: L,
}

impl<L: Lanes> Wave<L> {
    /// The value in the next window.
    #[inline(always)]
    fn next<const FIRST: bool>(&self, drive: L) -> L {
        if FIRST {
            self.now.plus(drive)
        } else {
            self.turn.times(self.now).minus(self.before.plus(drive))
        }
    }

    #[inline(always)]
    fn swapped(self) -> Self {
        Self {
            turn: self.turn,
            now: self.before,
            before: self.now,
        }
    }
}
