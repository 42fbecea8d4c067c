//! The FAST codec: a cosine transform over time, rounded to integers.

mod batch;
mod bpe;
mod codec;
mod cosine;
mod dct;
mod lanes;
mod panel;
mod pretokenize;
mod quantize;
mod range;
mod runs;
mod unicode;

pub use bpe::Status;
pub use codec::{Codec, Decoded, Encoded, Padded, Settings};
pub use cosine::LONGEST;
pub use dct::{Dct, Idct};
pub use lanes::Simd;
pub use quantize::dct_quantize;
pub use range::OnRange;
