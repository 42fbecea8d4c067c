//! Order statistics with NumPy's answers, to the last bit, and moments.

mod brackets;
mod bucketize;
mod counter;
mod group;
mod histogram;
mod moments;
mod percentile;
mod quantile;
mod real;
mod sample;
mod searchsorted;
mod select;

pub use brackets::Brackets;
pub use bucketize::{LABELS, SPARSE_LABEL, bucketize};
pub use counter::Counter;
pub use group::group_by_task;
pub use moments::{Moments, Summary, summary};
pub use percentile::{
    Boundaries, MIN_DISTINCT_LENGTHS, PERCENTILES, TaskBoundaries, percentiles_by_task,
};
pub use quantile::{quantile, quantiles};
pub use real::Real;
pub use sample::{Thinned, sample_rows};
pub use searchsorted::searchsorted_right;
