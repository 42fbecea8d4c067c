//! Which instructions a kernel may use, decided once at run time.
//!
//! Wheels are built for baseline x86-64. A kernel is written once, in plain Rust over small arrays
//! of lanes, and compiled twice: as it is, and with AVX2 switched on. Multiplications and additions
//! stay separate and in the same order in both, so both give the same bits.

/// The instructions of this machine, or fewer of them for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd {
    /// True only where [`Simd::detect`] found it: this is what the `unsafe` below rests on.
    avx2: bool,
}

/// A kernel; `run` must be `#[inline(always)]`, so that it is compiled for each set of instructions.
pub(super) trait Kernel {
    /// What it computes.
    type Answer;

    /// Computes, with blocks of `VECTORS` times four lanes where that is up to the kernel.
    fn run<const VECTORS: usize>(self) -> Self::Answer;
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
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Answer {
        #[cfg(target_arch = "x86_64")]
        if self.avx2 {
            // SAFETY: `avx2` is set by `detect` alone, after the machine said that it has AVX2; that
            // is all that calling a function with this target feature asks for. What it buys: the
            // transform takes half the time.
            #[allow(unsafe_code, reason = "see above")]
            return unsafe { run_avx2(kernel) };
        }
        kernel.run::<1>()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Answer {
    kernel.run::<2>()
}
