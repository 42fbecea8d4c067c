//! The FAST codec: a cosine transform over time, rounded to integers.

mod dct;
mod quantize;

pub use dct::Dct;
pub use quantize::dct_quantize;
