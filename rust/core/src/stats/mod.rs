//! Order statistics with NumPy's answers, to the last bit.

mod bucketize;
mod group;
mod percentile;
mod quantile;
mod searchsorted;

pub use bucketize::{LABELS, SPARSE_LABEL, bucketize};
pub use group::group_by_task;
pub use percentile::{
    Boundaries, MIN_DISTINCT_LENGTHS, PERCENTILES, TaskBoundaries, percentiles_by_task,
};
pub use quantile::{Real, quantile};
pub use searchsorted::searchsorted_right;
