//! Statistics of whole columns, in bounded memory.

use std::collections::BTreeMap;
use std::ops::Range;

use super::column::Number;
use super::open::Dataset;
use super::read::{Value, ranges_by_file};
use super::stream::Stream;
use crate::Result;
use crate::parallel::Interrupt;
use crate::stats::{Brackets, Counter, Moments, Real, Summary, sample_rows};

/// The most rows of a sample: enough that brackets keep a hundredth or so of the rows, few enough that
/// sampling takes a fraction of the pass.
const MAX_SAMPLE: usize = 1 << 15;

/// Statistics of one column; a single number a row counts as one dim.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnStats {
    /// Rows.
    pub count: usize,
    /// Least value of each dim; NaN where a dim holds NaN, and so below.
    pub min: Vec<f64>,
    /// Greatest value of each dim.
    pub max: Vec<f64>,
    /// Mean of each dim.
    pub mean: Vec<f64>,
    /// Standard deviation of each dim, of the population.
    pub std: Vec<f64>,
    /// For each wanted quantile, its value in each dim.
    pub quantiles: Vec<Vec<f64>>,
}

impl Dataset {
    /// Least and greatest value, mean, standard deviation and the quantiles `qs` of every dim of
    /// numeric columns, over all frames of the episodes at `positions`.
    ///
    /// The column is read once; a small part of its rows before that, to know around which values the
    /// quantiles lie, and all of it again where that misled. Floats are taken as float32, integers as
    /// float64. What is kept meanwhile is a few hundredths of the column at most.
    pub fn stats(
        &self,
        columns: &[&str],
        positions: &[usize],
        qs: &[f64],
        threads: usize,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<ColumnStats>> {
        let length = |position: usize| self.episodes().length[position] as usize;
        let windows: Vec<_> = positions.iter().map(|&p| (p, 0..length(p))).collect();
        let pass = Pass {
            dataset: self,
            wanted: ranges_by_file(&self.pieces(&windows, &BTreeMap::new())),
            threads,
            interrupt,
        };
        let of_column = |&name: &&str| match self.value(name)? {
            Value::Integer => pass.stats::<i64>(Stream { name, width: 1 }, qs),
            Value::Scalar | Value::Vector => {
                let width = self.width(name, &pass.wanted, interrupt)?;
                pass.stats::<f32>(Stream { name, width }, qs)
            }
        };
        columns.iter().map(of_column).collect()
    }
}

/// Numbers whose statistics are taken as floats of a kind.
trait Counted: Number {
    type Float: Real;

    /// The same values as floats; `buffer` holds them where they are others.
    fn floats<'a>(values: &'a [Self], buffer: &'a mut Vec<Self::Float>) -> &'a [Self::Float];
}

impl Counted for f32 {
    type Float = Self;

    fn floats<'a>(values: &'a [Self], _: &'a mut Vec<Self>) -> &'a [Self] {
        values
    }
}

impl Counted for i64 {
    type Float = f64;

    fn floats<'a>(values: &'a [Self], buffer: &'a mut Vec<f64>) -> &'a [f64] {
        buffer.clear();
        buffer.extend(values.iter().map(|&value| value as f64));
        buffer
    }
}

/// Passes over the wanted rows of every file.
struct Pass<'a> {
    dataset: &'a Dataset,
    wanted: BTreeMap<usize, Vec<Range<usize>>>,
    threads: usize,
    interrupt: &'a Interrupt<'a>,
}

/// What sees the rows of one stretch.
struct Visitor<R> {
    moments: Option<Moments<R>>,
    counter: Counter<R>,
    buffer: Vec<R>,
}

/// What one pass has seen.
type Seen<R> = (Option<Moments<R>>, Counter<R>);

impl Pass<'_> {
    fn stats<T: Counted>(&self, stream: Stream<'_>, qs: &[f64]) -> Result<ColumnStats> {
        let rows = self
            .wanted
            .values()
            .flatten()
            .map(ExactSizeIterator::len)
            .sum();
        let sample = self.sample::<T>(stream, rows)?;
        let mut brackets = Brackets::from_sample(&sample, stream.width, rows, qs)?;
        drop(sample);
        let (mut moments, counter) = self.run::<T>(stream, &brackets, true)?;
        let mut settled = brackets.settle(counter)?;
        while !settled {
            let (_, counter) = self.run::<T>(stream, &brackets, false)?;
            settled = brackets.settle(counter)?;
        }
        let moments = moments.take().unwrap_or_else(|| Moments::new(stream.width));
        Ok(ColumnStats::new(moments.summary()?, &brackets.quantiles()))
    }

    /// Some rows, evenly spread.
    fn sample<T: Counted>(&self, stream: Stream<'_>, rows: usize) -> Result<Vec<T::Float>> {
        let picks = sample_rows(rows);
        let step = picks.len().div_ceil(MAX_SAMPLE).max(1);
        let mut picks = picks.step_by(step).peekable();
        let mut wanted: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        let mut before = 0;
        for (&file, ranges) in &self.wanted {
            for range in ranges {
                let end = before + range.len();
                while let Some(pick) = picks.next_if(|&pick| pick < end) {
                    let row = range.start + pick - before;
                    wanted.entry(file).or_default().push(row..row + 1);
                }
                before = end;
            }
        }
        let visit = |(sample, buffer): &mut (Vec<_>, Vec<_>), rows: &[T]| {
            sample.extend_from_slice(T::floats(rows, buffer));
        };
        let (threads, interrupt) = (self.threads, self.interrupt);
        let seen = stream.show(
            self.dataset,
            &wanted,
            threads,
            interrupt,
            Default::default,
            visit,
        )?;
        Ok(seen.into_iter().flat_map(|(sample, _)| sample).collect())
    }

    /// One pass over all rows.
    fn run<T: Counted>(
        &self,
        stream: Stream<'_>,
        brackets: &Brackets<T::Float>,
        with_moments: bool,
    ) -> Result<Seen<T::Float>> {
        let visitor = || Visitor {
            moments: with_moments.then(|| Moments::new(stream.width)),
            counter: brackets.counter(),
            buffer: Vec::new(),
        };
        let visit = |visitor: &mut Visitor<T::Float>, rows: &[T]| {
            let rows = T::floats(rows, &mut visitor.buffer);
            visitor.counter.add(brackets, rows);
            if let Some(moments) = &mut visitor.moments {
                moments.add(rows);
            }
        };
        let (threads, interrupt) = (self.threads, self.interrupt);
        let seen = stream.show(
            self.dataset,
            &self.wanted,
            threads,
            interrupt,
            visitor,
            visit,
        )?;
        let mut all = visitor();
        for part in seen {
            all.counter.merge(part.counter);
            if let Some((moments, part)) = all.moments.as_mut().zip(part.moments) {
                moments.merge(part);
            }
        }
        Ok((all.moments, all.counter))
    }
}

impl ColumnStats {
    fn new<R: Real>(summary: Summary<R>, quantiles: &[Vec<R>]) -> Self {
        let wide = |values: &[R]| values.iter().map(|&value| value.into()).collect();
        Self {
            count: summary.count,
            min: wide(&summary.min),
            max: wide(&summary.max),
            mean: summary.mean,
            std: summary.std,
            quantiles: quantiles.iter().map(|values| wide(values)).collect(),
        }
    }
}
