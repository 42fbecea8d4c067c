//! The weights of the orthonormal cosine transform, in the same bits on every machine.
//!
//! The mathematical libraries of systems differ in the last bit of a cosine, by version and by CPU.
//! So it is summed here, from multiplications and additions alone:
//!
//! ```text
//! cos x = 1 - x²/(1·2) · (1 - x²/(3·4) · (1 - …)),   sin x = x · (1 - x²/(2·3) · (1 - …)),   0 ≤ x ≤ π/4
//! ```

use std::f64::consts::PI;

use crate::{Error, Result};

/// Terms of the series: the next one is below 1e-20.
const TERMS: u32 = 9;

/// The most steps of a chunk: the panels of a direction, `H²/3` to `H²/2` doubles, stay below 70 MB.
///
/// Policies predict tens of steps at a time. Who has more has passed a whole dataset as one chunk.
pub const LONGEST: usize = 4096;

/// Refuses horizons beyond [`LONGEST`].
pub(super) fn check_horizon(horizon: usize) -> Result<()> {
    if horizon <= LONGEST {
        return Ok(());
    }
    Err(Error::argument(format!(
        "chunks of {horizon} steps, where {LONGEST} are the most: is a whole dataset passed as one \
         chunk? Cut it into chunks (B, H, D) of what a policy predicts at a time"
    )))
}

/// `s(k) · cos(π·k·(2t + 1) / 2H)` for all frequencies `k` and steps `t` below a horizon `H`, where
/// `s(0) = √(1/H)` and `s(k > 0) = √(2/H)`.
pub(super) struct Weights {
    horizon: usize,
    /// `√(2/H) · cos(π·i / 2H)` for `i` in `0..=H`; all others mirror these.
    quarter: Vec<f64>,
    constant: f64,
}

impl Weights {
    pub(super) fn new(horizon: usize) -> Self {
        let h = horizon as f64;
        let norm = (2.0 / h).sqrt();
        let angle = |i: usize| PI * i as f64 / (2.0 * h);
        let cosine = |i: usize| {
            if 2 * i <= horizon {
                series(angle(i), 1)
            } else {
                let x = angle(horizon - i);
                x * series(x, 2)
            }
        };
        Self {
            horizon,
            quarter: (0..=horizon).map(|i| norm * cosine(i)).collect(),
            constant: (1.0 / h).sqrt(),
        }
    }

    /// The weight of step `t` in frequency `k`.
    pub(super) fn at(&self, k: usize, t: usize) -> f64 {
        if k == 0 {
            return self.constant;
        }
        self.mirrored(k * (2 * t + 1))
    }

    /// `2·cos(π·k / H)`, of which each sample of frequency `k` is made from the two before it.
    pub(super) fn turn(&self, k: usize) -> f64 {
        2.0 * self.mirrored(2 * k) / self.quarter[0]
    }

    /// `√(2/H) · cos(π·phase / 2H)`.
    fn mirrored(&self, phase: usize) -> f64 {
        let h = self.horizon;
        let phase = phase % (4 * h); // the period
        let phase = phase.min(4 * h - phase);
        if phase <= h {
            self.quarter[phase]
        } else {
            -self.quarter[2 * h - phase]
        }
    }
}

/// `1 - x²/(a·(a+1)) · (1 - x²/((a+2)·(a+3)) · (1 - …))`: the cosine for `a = 1`, `sin(x)/x` for 2.
fn series(x: f64, a: u32) -> f64 {
    let square = x * x;
    (0..TERMS).rev().fold(1.0, |sum, i| {
        let n = f64::from(2 * i + a);
        1.0 - square * sum / (n * (n + 1.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_cosine() {
        for h in [1, 2, 3, 50, 511, 512] {
            let weights = Weights::new(h);
            for (k, t) in (0..h).flat_map(|k| (0..h).map(move |t| (k, t))) {
                let phase = (k * (2 * t + 1)) % (4 * h);
                let norm = if k == 0 { 1.0 } else { 2.0 } / h as f64;
                let want = norm.sqrt() * (PI * phase as f64 / (2.0 * h as f64)).cos();
                let got = weights.at(k, t);
                assert!(
                    (got - want).abs() < 4e-16,
                    "H {h}, k {k}, t {t}: {got} {want}"
                );
            }
        }
    }
}
