//! One quantile of every column of a matrix, by the rule of NumPy 2.4 and newer.
//!
//! The virtual index `v = (n − 1)·q` and its fraction `g` are float64 whatever the data; the
//! interpolation between the neighbouring order statistics `a` and `b` runs in the type of the
//! data, two-sided as for percentiles:
//!
//! ```text
//! a + (b − a)·g          where g < 0.5
//! b − (b − a)·(1 − g)    where g ≥ 0.5, with 1 − g taken in float64
//! ```
//!
//! Older NumPy versions differ in some last bits for float32; this kernel answers alike on all.

use crate::{Error, Result};

/// A floating-point type whose quantiles can be taken.
pub trait Real: Copy + PartialOrd + Send + Sync {
    /// Sorts NaN last, NumPy's order.
    fn total_cmp(&self, other: &Self) -> std::cmp::Ordering;
    /// Whether this is NaN.
    fn is_nan(self) -> bool;
    /// NumPy's two-sided interpolation at the fraction `g`.
    fn lerp(a: Self, b: Self, g: f64) -> Self;
    /// Not a number.
    const NAN: Self;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const NAN: Self = <$type>::NAN;

            fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
                <$type>::total_cmp(self, other)
            }

            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }

            fn lerp(a: Self, b: Self, g: f64) -> Self {
                let difference = b - a;
                if g >= 0.5 {
                    b - difference * (1.0 - g) as $type
                } else {
                    a + difference * g as $type
                }
            }
        }
    };
}

real!(f32);
real!(f64);

/// The `q`-quantile of each of the `dims` columns of the row-major matrix `values`.
///
/// A column that holds a NaN answers NaN.
pub fn quantile<T: Real>(values: &[T], dims: usize, q: f64) -> Result<Vec<T>> {
    if !(0.0..=1.0).contains(&q) {
        return Err(Error::argument(format!("q must lie in [0, 1], got {q}")));
    }
    let rows = values.len().checked_div(dims).unwrap_or(0);
    if rows == 0 || rows * dims != values.len() {
        return Err(Error::argument(format!(
            "quantile needs a matrix with at least one row and one column, got {} values in {dims} columns",
            values.len()
        )));
    }
    let mut column = Vec::with_capacity(rows);
    Ok((0..dims)
        .map(|dim| {
            column.clear();
            column.extend(values.iter().skip(dim).step_by(dims).copied());
            column_quantile(&mut column, q)
        })
        .collect())
}

fn column_quantile<T: Real>(column: &mut [T], q: f64) -> T {
    if column.iter().any(|value| value.is_nan()) {
        return T::NAN;
    }
    let last = column.len() - 1;
    let virtual_index = last as f64 * q;
    if virtual_index >= last as f64 {
        // NumPy takes the last value for both neighbours; infinity minus itself is its NaN.
        let (_, &mut top, _) = column.select_nth_unstable_by(last, T::total_cmp);
        return T::lerp(top, top, 1.0);
    }
    let left = virtual_index as usize;
    let (_, &mut a, above) = column.select_nth_unstable_by(left, T::total_cmp);
    // `left < last`, so there is a right neighbour: the least of what lies above.
    let b = above.iter().copied().fold(above[0], |least, value| {
        if value.total_cmp(&least).is_lt() {
            value
        } else {
            least
        }
    });
    T::lerp(a, b, virtual_index - left as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_from_the_nearer_side() {
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 4.0], 1, 0.5).unwrap(), [1.5]);
        assert_eq!(
            quantile(&[3.0, 0.0, 1.0, 10.0], 2, 0.75).unwrap(),
            [2.5, 7.5]
        );
    }

    #[test]
    fn the_ends_are_the_extremes() {
        let values = [5.0f32, -1.0, 3.0];
        assert_eq!(quantile(&values, 1, 0.0).unwrap(), [-1.0]);
        assert_eq!(quantile(&values, 1, 1.0).unwrap(), [5.0]);
        assert_eq!(quantile(&values[..1], 1, 0.3).unwrap(), [5.0]);
    }

    #[test]
    fn nan_marks_its_own_column_only() {
        let got = quantile(&[f32::NAN, 1.0, 0.0, 3.0], 2, 0.5).unwrap();
        assert!(got[0].is_nan());
        assert_eq!(got[1].to_bits(), 2.0f32.to_bits());
    }

    #[test]
    fn empty_matrices_and_wild_q_are_refused() {
        assert!(quantile::<f32>(&[], 3, 0.5).is_err());
        assert!(quantile(&[1.0], 0, 0.5).is_err());
        assert!(quantile(&[1.0], 1, 1.5).is_err());
        assert!(quantile(&[1.0], 1, f64::NAN).is_err());
    }
}
