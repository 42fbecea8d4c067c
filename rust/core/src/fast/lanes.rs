//! Four numbers side by side, by plain Rust or by AVX2.
//!
//! Wheels are built for baseline x86-64. A kernel is written once, over [`Lanes`], and compiled for
//! each kind of them; [`Simd`] picks one at run time. Multiplication and addition stay separate and in
//! the same order in all, so all give the same bits.
#![allow(
    clippy::inline_always,
    reason = "kernels are compiled for each kind of lanes"
)]

/// How many numbers stand side by side.
pub(super) const LANES: usize = 4;

/// Four numbers of 64 bits, each treated alike.
pub(super) trait Lanes: Copy {
    fn all(value: f64) -> Self;
    fn of(values: &[f64; LANES]) -> Self;
    fn put(self, to: &mut [f64; LANES]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Moves what is below or above to the bound; what is no number becomes the lower one.
    fn clamped(self, low: Self, high: Self) -> Self;
    /// The lower of two; the other one where they are alike.
    fn lower(self, other: Self) -> Self;
    /// The higher of two; the other one where they are alike.
    fn higher(self, other: Self) -> Self;
    /// The bits in which they differ.
    fn unlike(self, other: Self) -> Self;
    /// The bits that are set in either.
    fn or(self, other: Self) -> Self;
    /// Whether no bit is set.
    fn is_clear(self) -> bool;
    /// The low 16 bits of each, less `zero`.
    fn low_16(self, zero: u16) -> [u16; LANES];
    /// The low 32 bits of each.
    fn low_32(self) -> [i32; LANES];
}

/// Lanes that every machine has.
#[derive(Clone, Copy)]
pub(super) struct Portable([f64; LANES]);

impl Portable {
    #[inline(always)]
    fn with(self, other: Self, each: impl Fn(f64, f64) -> f64) -> Self {
        Self(std::array::from_fn(|lane| {
            each(self.0[lane], other.0[lane])
        }))
    }

    #[inline(always)]
    fn with_bits(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        self.with(other, |a, b| f64::from_bits(each(a.to_bits(), b.to_bits())))
    }
}

impl Lanes for Portable {
    #[inline(always)]
    fn all(value: f64) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn of(values: &[f64; LANES]) -> Self {
        Self(*values)
    }
    #[inline(always)]
    fn put(self, to: &mut [f64; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }
    #[inline(always)]
    fn clamped(self, low: Self, high: Self) -> Self {
        let above = self.with(low, |a, low| if a > low { a } else { low });
        above.with(high, |a, high| if a < high { a } else { high })
    }
    #[inline(always)]
    fn lower(self, other: Self) -> Self {
        self.with(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn higher(self, other: Self) -> Self {
        self.with(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn unlike(self, other: Self) -> Self {
        self.with_bits(other, |a, b| a ^ b)
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self.with_bits(other, |a, b| a | b)
    }
    #[inline(always)]
    fn is_clear(self) -> bool {
        self.0.iter().all(|lane| lane.to_bits() == 0)
    }
    #[inline(always)]
    fn low_16(self, zero: u16) -> [u16; LANES] {
        self.0
            .map(|lane| (lane.to_bits() as u16).wrapping_sub(zero))
    }
    #[inline(always)]
    fn low_32(self) -> [i32; LANES] {
        self.0.map(|lane| lane.to_bits() as i32)
    }
}

/// Lanes by AVX2.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #![allow(
        unsafe_code,
        reason = "the compiler makes other things of plain loops: the transform took half as long again"
    )]

    use std::arch::x86_64::{
        __m256d, __m256i, _mm_storeu_si128, _mm256_add_pd, _mm256_castpd_si256,
        _mm256_castsi256_si128, _mm256_extract_epi32, _mm256_loadu_pd, _mm256_max_pd,
        _mm256_min_pd, _mm256_mul_pd, _mm256_or_pd, _mm256_permutevar8x32_epi32, _mm256_set1_epi16,
        _mm256_set1_pd, _mm256_setr_epi8, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_storeu_pd,
        _mm256_sub_epi16, _mm256_sub_pd, _mm256_testz_si256, _mm256_xor_pd,
    };

    use super::{LANES, Lanes};

    /// Made and used nowhere but below [`super::run_avx2`].
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256d);

    /// Calls what asks for AVX2.
    macro_rules! avx2 {
        ($call:expr) => {
            // SAFETY: the machine has AVX2, as this type is used below `run_avx2` alone. Pointers come
            // from references to as many values as are read or written, and need no alignment.
            unsafe { $call }
        };
    }

    impl Avx2 {
        #[inline(always)]
        fn bits(self) -> __m256i {
            avx2!(_mm256_castpd_si256(self.0))
        }
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn all(value: f64) -> Self {
            Self(avx2!(_mm256_set1_pd(value)))
        }
        #[inline(always)]
        fn of(values: &[f64; LANES]) -> Self {
            Self(avx2!(_mm256_loadu_pd(values.as_ptr())))
        }
        #[inline(always)]
        fn put(self, to: &mut [f64; LANES]) {
            avx2!(_mm256_storeu_pd(to.as_mut_ptr(), self.0));
        }
        #[inline(always)]
        fn plus(self, other: Self) -> Self {
            Self(avx2!(_mm256_add_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn minus(self, other: Self) -> Self {
            Self(avx2!(_mm256_sub_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn times(self, other: Self) -> Self {
            Self(avx2!(_mm256_mul_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn clamped(self, low: Self, high: Self) -> Self {
            // Where one is no number both give the second.
            Self(avx2!(_mm256_min_pd(_mm256_max_pd(self.0, low.0), high.0)))
        }
        #[inline(always)]
        fn lower(self, other: Self) -> Self {
            Self(avx2!(_mm256_min_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn higher(self, other: Self) -> Self {
            Self(avx2!(_mm256_max_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn unlike(self, other: Self) -> Self {
            Self(avx2!(_mm256_xor_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn or(self, other: Self) -> Self {
            Self(avx2!(_mm256_or_pd(self.0, other.0)))
        }
        #[inline(always)]
        fn is_clear(self) -> bool {
            avx2!(_mm256_testz_si256(self.bits(), self.bits())) == 1
        }
        #[inline(always)]
        fn low_16(self, zero: u16) -> [u16; LANES] {
            let (low, high) = avx2!({
                let low = _mm256_setr_epi8(
                    0, 1, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
                    0, 1, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                );
                let less = _mm256_sub_epi16(self.bits(), _mm256_set1_epi16(zero as i16));
                let pairs = _mm256_shuffle_epi8(less, low);
                (
                    _mm256_extract_epi32::<0>(pairs) as u32,
                    _mm256_extract_epi32::<4>(pairs) as u32,
                )
            });
            [
                low as u16,
                (low >> 16) as u16,
                high as u16,
                (high >> 16) as u16,
            ]
        }
        #[inline(always)]
        fn low_32(self) -> [i32; LANES] {
            let mut low = [0; LANES];
            avx2!({
                let even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
                let packed = _mm256_permutevar8x32_epi32(self.bits(), even);
                _mm_storeu_si128(low.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
            });
            low
        }
    }
}

/// The instructions of this machine, or fewer of them for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd {
    /// True only where [`Simd::detect`] found it: this is what the `unsafe` below rests on.
    avx2: bool,
}

/// A kernel; `run` must be `#[inline(always)]`, so that it is compiled for each kind of lanes.
pub(super) trait Kernel {
    /// Computes, with up to `VECTORS` times four lanes at a time where that is up to the kernel.
    fn run<L: Lanes, const VECTORS: usize>(self);
}

impl Simd {
    /// All that this machine offers.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx2 = std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = false;
        Self { avx2 }
    }

    /// Only what every machine of this architecture has.
    #[must_use]
    pub fn portable() -> Self {
        Self { avx2: false }
    }

    /// Runs `kernel`.
    pub(super) fn run<K: Kernel>(self, kernel: K) {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: `avx2` is set by `detect` alone, after the machine said that it has AVX2; a
            // function with this target feature asks for nothing else.
            #[allow(unsafe_code, reason = "the transform takes half the time")]
            return unsafe { run_avx2(kernel) };
        }
        kernel.run::<Portable, 1>();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<K: Kernel>(kernel: K) {
    kernel.run::<avx2::Avx2, 2>();
}
