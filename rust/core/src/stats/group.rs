//! Values grouped by an integer key.

/// Calls `visit(task, lengths)` for every task in ascending order, its lengths ascending.
pub fn group_by_task(lengths: &[i64], tasks: &[i64], mut visit: impl FnMut(i64, &[i64])) {
    debug_assert_eq!(lengths.len(), tasks.len());
    let mut pairs: Vec<(i64, i64)> = tasks.iter().copied().zip(lengths.iter().copied()).collect();
    pairs.sort_unstable();
    let mut run = Vec::new();
    for group in pairs.chunk_by(|a, b| a.0 == b.0) {
        run.clear();
        run.extend(group.iter().map(|&(_, length)| length));
        visit(group[0].0, &run);
    }
}
