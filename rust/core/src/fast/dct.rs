//! The orthonormal discrete cosine transform (DCT-II) over the time axis of a chunk.
//!
//! With `H` steps the coefficient of frequency `k` is
//!
//! ```text
//! c[k] = s(k) · Σ_t x[t] · cos(π·k·(2t + 1) / 2H),   s(0) = √(1/H),  s(k > 0) = √(2/H)
//! ```
//!
//! as a float64 product with the matrix of cosines. The dims of a step lie side by side, so the
//! inner loop runs over them: every coefficient is summed in the order of time, one product and
//! one sum at a time, and comes out in the same bits on every CPU.

use std::f64::consts::PI;

/// The transform for one horizon.
#[derive(Debug, Clone)]
pub struct Dct {
    horizon: usize,
    /// Row-major `(frequency, step)`.
    matrix: Vec<f64>,
}

impl Dct {
    /// The transform over `horizon` steps.
    #[must_use]
    pub fn new(horizon: usize) -> Self {
        let h = horizon as f64;
        let matrix = (0..horizon)
            .flat_map(|k| {
                let norm = if k == 0 {
                    (1.0 / h).sqrt()
                } else {
                    (2.0 / h).sqrt()
                };
                // The cosine has period 4H in k·(2t + 1): reduce before the multiplication by π.
                (0..horizon).map(move |t| {
                    let phase = (k * (2 * t + 1)) % (4 * horizon);
                    norm * (PI * phase as f64 / (2.0 * h)).cos()
                })
            })
            .collect();
        Self { horizon, matrix }
    }

    /// Writes the coefficients of the row-major `(horizon, dims)` chunk `x`, all dims of frequency 0
    /// first.
    pub fn forward(&self, x: &[f64], dims: usize, coefficients: &mut [f64]) {
        debug_assert_eq!(x.len(), self.horizon * dims);
        debug_assert_eq!(coefficients.len(), x.len());
        coefficients.fill(0.0);
        if dims == 0 {
            return;
        }
        let rows = self.matrix.chunks_exact(self.horizon);
        for (row, out) in rows.zip(coefficients.chunks_exact_mut(dims)) {
            for (&weight, step) in row.iter().zip(x.chunks_exact(dims)) {
                for (sum, &value) in out.iter_mut().zip(step) {
                    *sum += weight * value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_has_one_coefficient() {
        let mut c = [0.0; 8];
        Dct::new(4).forward(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 2, &mut c);
        assert!((c[0] - 2.0).abs() < 1e-15 && (c[1] - 4.0).abs() < 1e-15);
        assert!(c[2..].iter().all(|v| v.abs() < 1e-15));
    }

    #[test]
    fn the_matrix_is_orthonormal() {
        for h in [1, 2, 7, 50, 512] {
            let m = Dct::new(h).matrix;
            for (i, j) in [(0, 0), (h - 1, h - 1), (0, h - 1), (h / 2, h / 3)] {
                let dot: f64 = (0..h).map(|t| m[i * h + t] * m[j * h + t]).sum();
                let want = f64::from(u8::from(i == j));
                assert!((dot - want).abs() < 1e-12, "H {h}: rows {i}, {j}: {dot}");
            }
        }
    }
}
