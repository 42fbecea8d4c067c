//! The FAST codec: a cosine transform over time, rounded to integers.

mod cosine;
mod dct;
mod panel;
mod quantize;
mod simd;

pub use dct::{Dct, Idct};
pub use quantize::dct_quantize;
pub use simd::Simd;
