//! What a call wants, cut at the borders of row groups and dealt out to threads.

use std::ops::Range;

use super::cells::Sheet;
use super::files::DataFile;

/// Rows of one file and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) file: usize,
    /// First row within the file.
    pub(super) first_row: usize,
    pub(super) rows: usize,
    /// First row of the answer.
    pub(super) out: usize,
}

/// Rows whose frames are to be seen to count up from `frame`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) file: usize,
    pub(super) first_row: usize,
    pub(super) rows: usize,
    pub(super) frame: i64,
    /// The episode, by its position in the table.
    pub(super) episode: usize,
}

/// What a call wants of one row group; rows count from its first.
pub(super) struct GroupJob<'a> {
    pub(super) group: usize,
    pub(super) cuts: Vec<(Range<usize>, Vec<Option<Sheet<'a>>>)>,
    pub(super) claims: Vec<(Range<usize>, Claim)>,
}

/// Row groups of one file, enough to be worth the opening.
pub(super) struct Unit<'a> {
    pub(super) file: usize,
    pub(super) groups: Vec<GroupJob<'a>>,
}

/// Rows after which a unit is large enough.
pub(super) const UNIT_ROWS: usize = 1 << 15;

/// Cuts pieces and claims at the borders of row groups and deals them out.
pub(super) fn units<'a>(
    files: &[DataFile],
    mut sheets: Vec<Sheet<'a>>,
    pieces: &[Piece],
    claims: &[Claim],
) -> Vec<Unit<'a>> {
    let mut cuts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let rows = piece.first_row..piece.first_row + piece.rows;
        for (group, rows) in by_group(&files[piece.file], rows) {
            let outs = sheets
                .iter_mut()
                .map(|sheet| Some(sheet.split_off(rows.len())));
            cuts.push((piece.file, group, rows.clone(), outs.collect::<Vec<_>>()));
        }
    }
    cuts.sort_by_key(|(file, group, rows, _)| (*file, *group, rows.start));
    let mut proofs = Vec::with_capacity(claims.len());
    for claim in claims {
        let file = &files[claim.file];
        let rows = claim.first_row..claim.first_row + claim.rows;
        proofs.extend(by_group(file, rows).map(|(group, rows)| {
            let first_row = file.footer.group_starts[group] + rows.start;
            let part = Claim {
                first_row,
                rows: rows.len(),
                frame: claim.frame + (first_row - claim.first_row) as i64,
                ..*claim
            };
            (claim.file, group, rows, part)
        }));
    }
    proofs.sort_by_key(|(file, group, rows, _)| (*file, *group, rows.start));

    let mut dealer = Dealer::default();
    let (mut cuts, mut proofs) = (cuts.into_iter().peekable(), proofs.into_iter().peekable());
    loop {
        let next_cut = cuts.peek().map(|(file, group, ..)| (*file, *group));
        let next_proof = proofs.peek().map(|(file, group, ..)| (*file, *group));
        let Some((file, group)) = next_cut.into_iter().chain(next_proof).min() else {
            return dealer.units;
        };
        let here = |f: usize, g: usize| (f, g) == (file, group);
        let mut job = GroupJob {
            group,
            cuts: Vec::new(),
            claims: Vec::new(),
        };
        while let Some((_, _, rows, outs)) = cuts.next_if(|(f, g, ..)| here(*f, *g)) {
            job.cuts.push((rows, outs));
        }
        while let Some((_, _, rows, claim)) = proofs.next_if(|(f, g, ..)| here(*f, *g)) {
            job.claims.push((rows, claim));
        }
        dealer.deal(file, job);
    }
}

/// The row groups that hold `rows` of a file, and which of their own rows these are.
pub(super) fn by_group(
    file: &DataFile,
    rows: Range<usize>,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let starts = &file.footer.group_starts;
    let first = starts.partition_point(|&start| start <= rows.start) - 1;
    (first..starts.len() - 1)
        .map(|group| (group, starts[group], starts[group + 1]))
        .take_while(move |&(_, start, _)| start < rows.end)
        .filter(|(_, start, end)| start < end)
        .map({
            let rows = rows.clone();
            move |(group, start, end)| {
                (
                    group,
                    rows.start.max(start) - start..rows.end.min(end) - start,
                )
            }
        })
}

/// Puts consecutive row groups of a file into one unit, up to a number of rows.
#[derive(Default)]
struct Dealer<'a> {
    units: Vec<Unit<'a>>,
    rows: usize,
}

impl<'a> Dealer<'a> {
    fn deal(&mut self, file: usize, job: GroupJob<'a>) {
        let rows: usize = job.cuts.iter().map(|(rows, _)| rows.len()).sum();
        match self.units.last_mut() {
            Some(unit) if unit.file == file && self.rows < UNIT_ROWS => {
                unit.groups.push(job);
                self.rows += rows;
            }
            _ => {
                let groups = vec![job];
                self.units.push(Unit { file, groups });
                self.rows = rows;
            }
        }
    }
}
