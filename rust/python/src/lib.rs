//! `vlaprep._native`: the names Python sees, one file per room of the core.

use pyo3::prelude::*;

mod arrays;
mod chunks;
mod dataset;
mod fast;
mod fit;
mod gate;
mod lists;
mod stats;
mod sweep;
mod threads;

/// The compiled part of vlaprep.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::chunks::gather_chunks;
    #[pymodule_export]
    use crate::dataset::{Reader, episode_stream};
    #[pymodule_export]
    use crate::fast::{Codec, dct_quantize};
    #[pymodule_export]
    use crate::fit::{fit_bpe, train_bpe};
    #[pymodule_export]
    use crate::lists::integers_of_lists;
    #[pymodule_export]
    use crate::stats::{block_moments, block_quantiles, bucketize, percentiles_by_task, quantile};
    #[pymodule_export]
    use crate::sweep::sweep_windows;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Times of an unoptimised build say nothing: benches look here.
        let build = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        module.add("__build__", build)
    }
}
