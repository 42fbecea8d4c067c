//! Byte-pair encoding by the ranks of learnt merges.

mod alphabet;
mod backtrack;
mod decode;
mod encode;
mod followers;
mod merge;
mod model;
mod neighbours;
mod pairs;
#[cfg(test)]
mod tests;
mod train;
mod trie;

pub(crate) use alphabet::character_of;
pub(crate) use decode::Decoder;
pub use decode::Status;
pub(crate) use encode::{Encoder, Scratch};
pub(crate) use model::Model;
pub(crate) use train::too_many;
pub use train::{Trained, Trainer, Words};
