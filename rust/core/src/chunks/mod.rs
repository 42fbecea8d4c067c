//! Action chunks: windows of consecutive rows.

mod gather;

pub use gather::gather_chunks;
