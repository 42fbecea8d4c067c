//! The two float types of actions.

use std::cmp::Ordering;
use std::ops::AddAssign;

/// A floating-point type whose statistics can be taken.
pub trait Real: Copy + Default + PartialOrd + Into<f64> + Send + Sync + 'static {
    /// Not a number.
    const NAN: Self;
    /// Above all numbers.
    const INFINITY: Self;
    /// Below all numbers.
    const NEG_INFINITY: Self;
    /// A count as wide as this type: loops that compare and count stay in registers of one width.
    type Count: Copy + Default + AddAssign + From<bool> + Into<u64>;

    /// Sorts -0 before 0 and, NumPy's order, NaN last.
    fn total_cmp(&self, other: &Self) -> Ordering;
    /// Whether this is NaN.
    fn is_nan(self) -> bool;
    /// NumPy's two-sided interpolation at the fraction `g`.
    fn lerp(a: Self, b: Self, g: f64) -> Self;
    /// An integer that grows with the value, in the order of `total_cmp`.
    fn key(self) -> u64;
    /// The value of a key.
    fn from_key(key: u64) -> Self;

    /// Whether this is -0.
    fn is_negative_zero(self) -> bool {
        self == Self::default() && self.key() < Self::default().key()
    }
}

macro_rules! real {
    ($type:ty, $bits:ty) => {
        impl Real for $type {
            const NAN: Self = <$type>::NAN;
            const INFINITY: Self = <$type>::INFINITY;
            const NEG_INFINITY: Self = <$type>::NEG_INFINITY;
            type Count = $bits;

            fn total_cmp(&self, other: &Self) -> Ordering {
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

            // The bits of positive numbers grow with them, those of negative ones fall.
            fn key(self) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                u64::from(if bits & SIGN == 0 { bits | SIGN } else { !bits })
            }

            fn from_key(key: u64) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let key = key as $bits;
                Self::from_bits(if key & SIGN == 0 { !key } else { key ^ SIGN })
            }
        }
    };
}

real!(f32, u32);
real!(f64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order_and_lead_back() {
        let ascending = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.0,
            -5e-324,
            -0.0,
            0.0,
            5e-324,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        assert!(ascending.map(f64::key).is_sorted_by(|a, b| a < b));
        assert!(ascending.map(|x| (x as f32).key()).is_sorted());
        for value in ascending {
            assert_eq!(f64::from_key(value.key()).to_bits(), value.to_bits());
            let single = value as f32;
            assert_eq!(f32::from_key(single.key()).to_bits(), single.to_bits());
            assert_eq!(value.is_negative_zero(), value.to_bits() == 1 << 63);
        }
    }
}
