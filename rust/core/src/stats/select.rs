//! Several order statistics by partition.

use super::real::Real;

/// Puts the value of each of the ascending `ranks` where it would stand if `values` were sorted.
///
/// The middle rank first: what is left and right of it holds the other ranks and is smaller.
pub(super) fn select<T: Real>(values: &mut [T], ranks: &[usize]) {
    select_from(values, 0, ranks);
}

fn select_from<T: Real>(values: &mut [T], first_rank: usize, ranks: &[usize]) {
    let Some(&rank) = ranks.get(ranks.len() / 2) else {
        return;
    };
    let (below, _, above) = values.select_nth_unstable_by(rank - first_rank, T::total_cmp);
    // Equal ranks all stand in one place.
    let (lower, upper) = (
        ranks.partition_point(|&other| other < rank),
        ranks.partition_point(|&other| other <= rank),
    );
    select_from(below, first_rank, &ranks[..lower]);
    select_from(above, rank + 1, &ranks[upper..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_holds_what_a_sort_puts_there() {
        let values: Vec<f64> = (0..500).map(|i| f64::from(i * 7919 % 83)).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let ranks = [0, 0, 1, 5, 250, 250, 251, 498, 499];
        let mut selected = values;
        select(&mut selected, &ranks);
        assert!(
            ranks
                .iter()
                .all(|&r| selected[r].total_cmp(&sorted[r]).is_eq())
        );
        select::<f64>(&mut [], &[]);
    }
}
