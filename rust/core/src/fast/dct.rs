//! The orthonormal discrete cosine transform (DCT-II) over the time axis of chunks, and its inverse.
//!
//! With `H` steps the coefficient of frequency `k` is
//!
//! ```text
//! c[k] = s(k) · Σ_t x[t] · cos(π·k·(2t + 1) / 2H),   s(0) = √(1/H),  s(k > 0) = √(2/H)
//! ```
//!
//! in float64. The cosines of even `k` are symmetric about the middle of the chunk, those of odd `k`
//! antisymmetric: with `n = H` and `m = ⌊n/2⌋` the even ones need only the sums
//! `x[t] + x[n - 1 - t]`, the odd ones only the differences `x[t] - x[n - 1 - t]`, `t < m`. The odd
//! ones are an `m × m` product; the even ones are again such a transform, over `⌈n/2⌉` steps. So it
//! goes on while `n` is even, which takes about `H²/3` multiplications instead of `H²`.
//!
//! The dims of one step lie side by side, those of several chunks together, and the inner loops run
//! over them: every number is made by the same operations in the same order whatever stands beside
//! it, whatever the size of the batch and the CPU.
#![allow(
    clippy::inline_always,
    reason = "kernels are compiled for each set of instructions"
)]

use super::cosine::{Weights, check_horizon};
use super::lanes::{Kernel, LANES, Lanes, Simd};
use super::panel::{Consecutive, Listed, Panel};
use crate::Result;

/// As many lanes as keep the rows of a common horizon in the fastest cache.
const WIDTH: usize = 32;

/// One halving: frequencies `first · (2j + 1)` out of the differences of `steps` steps.
#[derive(Debug, Clone)]
struct Stage {
    steps: usize,
    first: usize,
    odd: Panel,
}

/// The products of one direction.
#[derive(Debug, Clone)]
struct Plan {
    horizon: usize,
    stages: Vec<Stage>,
    /// The even frequencies of the last stage: multiples of `last`.
    even: Panel,
    last: usize,
}

impl Plan {
    /// Makes the panels by `panel(frequencies, steps, weight of (frequency, step))`.
    fn new(
        horizon: usize,
        panel: impl Fn(usize, usize, &dyn Fn(usize, usize) -> f64) -> Panel,
    ) -> Result<Self> {
        check_horizon(horizon)?;
        let weights = Weights::new(horizon.max(1));
        let (mut steps, mut first, mut stages) = (horizon, 1, Vec::new());
        loop {
            let half = steps / 2;
            // The differences lie in the upper half of the rows, so they run backward in time.
            let odd = |j: usize, row: usize| weights.at(first * (2 * j + 1), half - 1 - row);
            stages.push(Stage {
                steps,
                first,
                odd: panel(half, half, &odd),
            });
            first *= 2;
            let even = steps.is_multiple_of(2);
            steps -= half;
            if !even || steps == 0 {
                let even = |j: usize, row: usize| weights.at(first * j, row);
                return Ok(Self {
                    horizon,
                    even: panel(steps, steps, &even),
                    last: first,
                    stages,
                });
            }
        }
    }
}

/// The transform for one horizon.
#[derive(Debug, Clone)]
pub struct Dct {
    plan: Plan,
    simd: Simd,
}

/// Its inverse (DCT-III) for one horizon.
#[derive(Debug, Clone)]
pub struct Idct {
    plan: Plan,
    simd: Simd,
}

impl Dct {
    /// The transform over `horizon` steps, [`LONGEST`] at most.
    pub fn new(horizon: usize) -> Result<Self> {
        Self::with(horizon, Simd::detect())
    }

    /// The transform by those instructions.
    pub fn with(horizon: usize, simd: Simd) -> Result<Self> {
        let plan = Plan::new(horizon, |k, t, weight| Panel::new(k, t, weight))?;
        Ok(Self { plan, simd })
    }

    /// The steps of a chunk.
    #[must_use]
    pub fn horizon(&self) -> usize {
        self.plan.horizon
    }

    /// Writes the coefficients of the row-major `(horizon, dims)` chunk `x`, all dims of frequency 0
    /// first.
    ///
    /// # Panics
    ///
    /// If a slice is not `horizon * dims` long.
    pub fn forward(&self, x: &[f64], dims: usize, coefficients: &mut [f64]) {
        let size = self.horizon() * dims;
        assert!(x.len() == size && coefficients.len() == size, "one chunk");
        if size > 0 {
            let mut block = Block::new(self.horizon(), dims);
            self.block(&mut block, x, &mut Keep { dims, coefficients });
        }
    }

    /// Transforms up to [`Block::most`] chunks side by side and hands the rows to `take`.
    pub(super) fn block<T: Copy + Into<f64>>(
        &self,
        block: &mut Block,
        chunks: &[T],
        take: &mut impl TakeRow,
    ) {
        debug_assert_eq!(block.horizon, self.horizon());
        self.simd.run(Forward {
            plan: &self.plan,
            block,
            chunks,
            take,
        });
    }
}

impl Idct {
    /// The inverse over `horizon` steps, [`LONGEST`] at most.
    pub fn new(horizon: usize) -> Result<Self> {
        Self::with(horizon, Simd::detect())
    }

    /// The inverse by those instructions.
    pub fn with(horizon: usize, simd: Simd) -> Result<Self> {
        let plan = Plan::new(horizon, |k, t, weight| {
            Panel::new(t, k, |row, j| weight(j, row))
        })?;
        Ok(Self { plan, simd })
    }

    /// The steps of a chunk.
    #[must_use]
    pub fn horizon(&self) -> usize {
        self.plan.horizon
    }

    /// Transforms the coefficients that stand in `block` into the chunks that `out` has room for.
    ///
    /// Frequencies that are zero in all lanes are passed by: they would add zeros.
    pub(super) fn block(&self, block: &mut Block, out: &mut [f64]) {
        debug_assert_eq!(block.horizon, self.horizon());
        self.simd.run(Backward {
            plan: &self.plan,
            block,
            out,
        });
    }
}

/// Receives the coefficients of a block.
pub(super) trait TakeRow {
    /// Takes those of frequency `k`, chunk after chunk; must be `#[inline(always)]`.
    fn take<L: Lanes>(&mut self, k: usize, row: &[f64]);
}

/// Room for chunks side by side: rows of lanes, one for each step and one for each frequency.
#[derive(Debug)]
pub(super) struct Block {
    horizon: usize,
    dims: usize,
    most: usize,
    pub(super) steps: Vec<f64>,
    pub(super) frequencies: Vec<f64>,
    terms: Vec<(usize, usize)>,
}

impl Block {
    /// Room for chunks of that shape; neither may be zero.
    pub(super) fn new(horizon: usize, dims: usize) -> Self {
        // As many chunks as fill whole vectors, if they fit.
        let filling = [1, 4, 2, 4][dims % LANES];
        let most = (WIDTH / dims).max(1);
        let most = if most >= filling {
            most - most % filling
        } else {
            most
        };
        let lanes = horizon * (most * dims).next_multiple_of(LANES);
        Self {
            horizon,
            dims,
            most,
            steps: vec![0.0; lanes],
            frequencies: vec![0.0; lanes],
            terms: Vec::with_capacity(horizon),
        }
    }

    /// How many chunks fit.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The lanes of so many chunks.
    pub(super) fn width(&self, chunks: usize) -> usize {
        (chunks * self.dims).next_multiple_of(LANES)
    }

    /// Lays chunks side by side; returns the lanes of a row.
    #[inline(always)]
    fn load<T: Copy + Into<f64>>(&mut self, chunks: &[T]) -> usize {
        let size = self.horizon * self.dims;
        let count = chunks.len() / size;
        debug_assert!(count > 0 && count <= self.most);
        let width = self.width(count);
        let chunk = |place: usize| &chunks[place * size..];
        for step in 0..self.horizon {
            for place in 0..count {
                let row = &mut self.steps[step * width + place * self.dims..];
                copy(
                    &chunk(place)[step * self.dims..],
                    row,
                    self.dims,
                    Into::into,
                );
            }
        }
        width
    }
}

/// Keeps the coefficients of one chunk.
struct Keep<'a> {
    dims: usize,
    coefficients: &'a mut [f64],
}

impl TakeRow for Keep<'_> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, k: usize, row: &[f64]) {
        self.coefficients[k * self.dims..][..self.dims].copy_from_slice(&row[..self.dims]);
    }
}

struct Forward<'a, T, R> {
    plan: &'a Plan,
    block: &'a mut Block,
    chunks: &'a [T],
    take: &'a mut R,
}

impl<T: Copy + Into<f64>, R: TakeRow> Kernel for Forward<'_, T, R> {
    #[inline(always)]
    fn run<L: Lanes, const V: usize>(self) {
        let (plan, width) = (self.plan, self.block.load(self.chunks));
        let (steps, out) = (&mut self.block.steps, &mut self.block.frequencies);
        for Stage {
            steps: n,
            first,
            odd,
        } in &plan.stages
        {
            fold::<L>(steps, *n, width);
            let rows = &steps[(n - n / 2) * width..];
            odd.multiply::<L, V>(&Consecutive { rows, width }, out, |j| first * (2 * j + 1));
        }
        let rows = &steps[..];
        plan.even
            .multiply::<L, V>(&Consecutive { rows, width }, out, |j| plan.last * j);
        for (k, row) in out.chunks_exact(width).enumerate().take(plan.horizon) {
            self.take.take::<L>(k, row);
        }
    }
}

struct Backward<'a> {
    plan: &'a Plan,
    block: &'a mut Block,
    out: &'a mut [f64],
}

impl Kernel for Backward<'_> {
    #[inline(always)]
    fn run<L: Lanes, const V: usize>(self) {
        let (plan, horizon, dims) = (self.plan, self.block.horizon, self.block.dims);
        let count = self.out.len() / (horizon * dims);
        let width = self.block.width(count);
        let Block {
            steps,
            frequencies: rows,
            terms,
            ..
        } = self.block;
        used(terms, rows, width, plan.even.columns(), |j| plan.last * j);
        plan.even
            .multiply::<L, V>(&Listed { rows, width, terms }, steps, |t| t);
        for Stage {
            steps: n,
            first,
            odd,
        } in plan.stages.iter().rev()
        {
            let half = n / 2;
            used(terms, rows, width, half, |j| first * (2 * j + 1));
            odd.multiply::<L, V>(&Listed { rows, width, terms }, steps, |r| n - half + r);
            fold::<L>(steps, *n, width);
        }
        for (row, place) in (0..count).flat_map(|place| (0..horizon).map(move |t| (t, place))) {
            let out = &mut self.out[(place * horizon + row) * dims..];
            copy(&steps[row * width + place * dims..], out, dims, |value| {
                value
            });
        }
    }
}

/// Copies `count` values and, where both sides have room, up to a whole vector: that is quicker. So
/// whoever copies one row after the other goes from low to high.
#[inline(always)]
pub(super) fn copy<S: Copy, T>(from: &[S], to: &mut [T], count: usize, convert: impl Fn(S) -> T) {
    let whole = count.next_multiple_of(LANES);
    if whole <= from.len() && whole <= to.len() {
        let (from, _) = from[..whole].as_chunks::<LANES>();
        let (to, _) = to[..whole].as_chunks_mut::<LANES>();
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.map(&convert);
        }
    } else {
        for (to, &from) in to[..count].iter_mut().zip(&from[..count]) {
            *to = convert(from);
        }
    }
}

/// Lists the columns whose row of `input` is not all zeros.
#[inline(always)]
fn used(
    terms: &mut Vec<(usize, usize)>,
    input: &[f64],
    width: usize,
    columns: usize,
    row: impl Fn(usize) -> usize,
) {
    terms.clear();
    terms.extend((0..columns).map(|j| (j, row(j))).filter(|&(_, row)| {
        let lanes = &input[row * width..][..width];
        let mut any = false; // without a branch, so that lanes are looked at together
        for &value in lanes {
            any |= value != 0.0;
        }
        any
    }));
}

/// Of the first `n` rows: each of the lower half becomes its sum with the one opposite, that one
/// their difference. Twice the same thing with other words: it folds and unfolds.
#[inline(always)]
fn fold<L: Lanes>(rows: &mut [f64], n: usize, width: usize) {
    let half = n / 2 * width;
    let (lower, upper) = rows[..n * width].split_at_mut(n.div_ceil(2) * width);
    let opposite = upper.chunks_exact_mut(width).rev();
    for (low, high) in lower[..half].chunks_exact_mut(width).zip(opposite) {
        let ((low, _), (high, _)) = (low.as_chunks_mut(), high.as_chunks_mut());
        for (low, high) in low.iter_mut().zip(high) {
            let (a, b) = (L::of(low), L::of(high));
            a.plus(b).put(low);
            a.minus(b).put(high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cosine::LONGEST;
    use super::*;

    fn wave(count: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * i) as f64).sin()).collect()
    }

    struct All<'a>(&'a mut Vec<f64>);

    impl TakeRow for All<'_> {
        fn take<L: Lanes>(&mut self, _: usize, row: &[f64]) {
            self.0.extend_from_slice(row);
        }
    }

    #[test]
    fn a_constant_has_one_coefficient() {
        let mut c = [0.0; 8];
        Dct::new(4)
            .unwrap()
            .forward(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 2, &mut c);
        assert!((c[0] - 2.0).abs() < 1e-15 && (c[1] - 4.0).abs() < 1e-15);
        assert!(c[2..].iter().all(|v| v.abs() < 1e-15));
    }

    #[test]
    fn it_is_the_sum_of_the_definition() {
        for (h, dims) in [
            (1, 1),
            (2, 3),
            (3, 2),
            (7, 5),
            (16, 2),
            (50, 14),
            (100, 9),
            (12, 1),
        ] {
            let (x, weights) = (wave(h * dims), Weights::new(h));
            let mut got = vec![0.0; x.len()];
            Dct::new(h).unwrap().forward(&x, dims, &mut got);
            for (k, d) in (0..h).flat_map(|k| (0..dims).map(move |d| (k, d))) {
                let want: f64 = (0..h).map(|t| weights.at(k, t) * x[t * dims + d]).sum();
                let got = got[k * dims + d];
                assert!((got - want).abs() < 1e-13, "H {h}, k {k}: {got} {want}");
            }
        }
    }

    #[test]
    fn the_inverse_undoes_it_on_every_set_of_instructions() {
        for h in [1, 2, 3, 4, 5, 10, 16, 31, 50, 100] {
            for dims in [1, 2, 3, 4, 7, 14, 33] {
                let x = wave(h * dims);
                let runs = [Simd::portable(), Simd::detect()].map(|simd| {
                    let mut block = Block::new(h, dims);
                    let mut rows = Vec::new();
                    let dct = Dct::with(h, simd).unwrap();
                    dct.block(&mut block, &x, &mut All(&mut rows));
                    let mut back = vec![0.0; x.len()];
                    let idct = Idct::with(h, simd).unwrap();
                    idct.block(&mut block, &mut back);
                    for (at, (got, want)) in back.iter().zip(&x).enumerate() {
                        assert!((got - want).abs() < 1e-13, "H {h}, D {dims}, at {at}");
                    }
                    rows.extend_from_slice(&back);
                    rows.into_iter().map(f64::to_bits).collect::<Vec<_>>()
                });
                assert_eq!(runs[0], runs[1], "H {h}, D {dims}");
            }
        }
    }

    #[test]
    fn a_chunk_is_transformed_alike_alone_and_among_others() {
        for dims in [1, 2, 3, 5, 14] {
            let dct = Dct::new(10).unwrap();
            let mut block = Block::new(10, dims);
            let x = wave(10 * dims * block.most());
            let (mut rows, width) = (Vec::new(), block.width(block.most()));
            dct.block(&mut block, &x, &mut All(&mut rows));
            for (i, chunk) in x.chunks(10 * dims).enumerate() {
                let mut alone = vec![0.0; chunk.len()];
                dct.forward(chunk, dims, &mut alone);
                for (row, want) in rows.chunks(width).zip(alone.chunks(dims)) {
                    assert_eq!(&row[i * dims..][..dims], want);
                }
            }
        }
    }

    #[test]
    fn a_whole_dataset_is_no_chunk() {
        for h in [LONGEST + 1, 100_000, 1 << 61, usize::MAX] {
            for error in [Dct::new(h).unwrap_err(), Idct::new(h).unwrap_err()] {
                assert!(error.to_string().contains(&format!("{h} steps")), "{error}");
            }
        }
        let mut c = vec![0.0; LONGEST];
        Dct::new(LONGEST)
            .unwrap()
            .forward(&vec![1.0; LONGEST], 1, &mut c);
        assert!((c[0] - 64.0).abs() < 1e-9 && c[1..].iter().all(|v| v.abs() < 1e-9));
    }
}
