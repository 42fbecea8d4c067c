//! Proof that rows lie in the order of their frames.
//!
//! Statistics say that the frames of a row group are `a … b` without a gap, and hence that they are
//! all there; that they also lie in this order is likely, not certain. Before rows of such a span
//! are handed out, its `frame_index` is read. Where the order is another one, the span is replaced
//! by spans that have it.

use super::columns::integers;
use super::episodes::{EpisodeTable, FRAME, Span};
use super::files::DataFile;
use super::scan::{read_integers, scan, unusable};
use super::units::Claim;
use crate::parallel::Interrupt;
use crate::{Error, Result};

/// The episodes whose claims, all of one file, do not hold.
pub(super) fn disordered(
    file: &DataFile,
    mut claims: Vec<Claim>,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<usize>> {
    claims.sort_unstable_by_key(|claim| claim.first_row);
    let ranges: Vec<_> = claims
        .iter()
        .map(|claim| claim.first_row..claim.first_row + claim.rows)
        .collect();
    let root = file.require(FRAME, "")?;
    let mut found = Vec::new();
    scan(file, &[root], &ranges, interrupt, |first_row, batch| {
        let claim = claims[claims.partition_point(|claim| claim.first_row <= first_row) - 1];
        let expected = claim.frame + (first_row - claim.first_row) as i64;
        let frames =
            integers(batch.column(0)).map_err(|reason| unusable(file, FRAME, first_row, reason))?;
        let counts_up = frames.iter().enumerate().all(|(row, frame)| {
            frame.and_then(|frame| frame.checked_sub(row as i64)) == Some(expected)
        });
        if !counts_up {
            found.push(claim.episode);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The rows of one episode by their frames.
pub(super) fn sorted(
    table: &EpisodeTable,
    files: &[DataFile],
    position: usize,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Span>> {
    let mut rows = Vec::with_capacity(table.length[position] as usize);
    for span in table.spans(position) {
        let file = &files[span.file];
        let range = span.first_row..span.first_row + span.rows;
        let frames = read_integers(file, FRAME, std::slice::from_ref(&range), interrupt)?;
        for (row, frame) in range.zip(frames) {
            let frame = frame.ok_or_else(|| Error::Row {
                file: file.name.clone(),
                column: FRAME.to_owned(),
                row,
                reason: "it is null though statistics say that none is".to_owned(),
            })?;
            rows.push((frame, span.file, row));
        }
    }
    rows.sort_unstable();
    if let Some(pair) = rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::DuplicateFrame {
            episode: table.episode_index[position],
            frame: pair[0].0,
            first: files[pair[0].1].name.clone(),
            second: files[pair[1].1].name.clone(),
        });
    }
    let mut spans: Vec<Span> = Vec::new();
    for (_, file, first_row) in rows {
        let row = Span::new(file, first_row, 1);
        match spans.last_mut() {
            Some(last) if last.continues_in(&row) => last.rows += 1,
            _ => spans.push(row),
        }
    }
    Ok(spans)
}
