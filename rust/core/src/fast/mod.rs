//! The FAST codec: a cosine transform over time, rounded to integers.

mod batch;
mod bpe;
mod check;
mod codec;
mod corpus;
mod cosine;
mod dct;
mod fit;
mod lanes;
mod panel;
mod pretokenize;
mod quantize;
mod range;
mod runs;
mod sweep;
mod unicode;

pub use bpe::{Status, Trained, Trainer, Words};
pub use codec::{Codec, Decoded, Encoded, Padded, Settings};
pub use cosine::LONGEST;
pub use dct::{Dct, Idct};
pub use fit::{Alphabet, Chunks, Counting, Fit, Fitted, Measuring, Pass};
pub use lanes::Simd;
pub use quantize::dct_quantize;
pub use range::OnRange;
pub use sweep::{Extreme, Run, Seen, Sweep, Swept, Symbols, Window};
