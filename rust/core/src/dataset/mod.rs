//! What lies on disk.
