//! Sets of symbols, and where symbols were met first.

use std::ops::RangeInclusive;

use super::Window;

/// Symbols that are listed one by one where they are met; of others only the lowest and the highest.
const LISTED: i64 = 1 << 16;

/// The symbols that a tokenizer can encode, or that are known for another reason.
#[derive(Debug, Clone)]
pub struct Symbols {
    first: i64,
    known: Vec<bool>,
    band: Option<RangeInclusive<i64>>,
}

impl Symbols {
    /// Those `first + i` for which `known[i]`.
    #[must_use]
    pub fn new(first: i64, known: Vec<bool>) -> Self {
        let mut symbols = Self {
            first,
            known,
            band: None,
        };
        if symbols.contains(0) {
            let end = |step: i64| {
                let next = |at: &i64| Some(at + step).filter(|&at| symbols.contains(at));
                std::iter::successors(Some(0), next).last().unwrap_or(0)
            };
            symbols.band = Some(end(-1)..=end(1));
        }
        symbols
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(&self, symbol: i64) -> bool {
        let place = symbol
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok());
        place.is_some_and(|place| self.known.get(place) == Some(&true))
    }

    /// Those around 0 without a gap.
    pub(super) fn band(&self) -> Option<&RangeInclusive<i64>> {
        self.band.as_ref()
    }
}

/// The first window in which each symbol was met.
#[derive(Debug, Default)]
pub(super) struct Firsts {
    /// By symbol in the order 0, -1, 1, -2, …
    near: Vec<Option<Window>>,
    lowest: Option<(i64, Window)>,
    highest: Option<(i64, Window)>,
}

impl Firsts {
    pub(super) fn add(&mut self, symbol: i64, at: Window) {
        if (-LISTED..LISTED).contains(&symbol) {
            let place = ((symbol << 1) ^ (symbol >> 63)) as usize;
            if place >= self.near.len() {
                self.near.resize(place + 1, None);
            }
            earlier(&mut self.near[place], at);
        } else {
            let add = |end: &mut Option<(i64, Window)>, beyond: fn(i64, i64) -> bool| match end {
                Some((found, first)) if *found == symbol => *first = at.min(*first),
                Some((found, _)) if !beyond(symbol, *found) => {}
                _ => *end = Some((symbol, at)),
            };
            add(&mut self.lowest, |one, other| one < other);
            add(&mut self.highest, |one, other| one > other);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (symbol, at) in other.list() {
            self.add(symbol, at);
        }
    }

    /// All, by symbol.
    pub(super) fn list(&self) -> Vec<(i64, Window)> {
        let near = self.near.iter().enumerate().filter_map(|(place, at)| {
            let place = place as i64;
            Some(((place >> 1) ^ -(place & 1), (*at)?))
        });
        let mut all: Vec<_> = near.chain(self.lowest).chain(self.highest).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn earlier(first: &mut Option<Window>, at: Window) {
    *first = Some(first.map_or(at, |first| first.min(at)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: usize) -> Window {
        Window { episode: 0, start }
    }

    #[test]
    fn the_band_has_no_gap() {
        let symbols = |known: &[u8]| Symbols::new(-2, known.iter().map(|&k| k == 1).collect());
        assert_eq!(symbols(&[1, 1, 1, 0, 1]).band(), Some(&(-2..=0)));
        assert_eq!(symbols(&[0, 1, 1, 1, 1]).band(), Some(&(-1..=2)));
        assert_eq!(symbols(&[1, 1, 0, 1]).band(), None);
        let gapped = symbols(&[1, 0, 1, 0, 1]);
        let held = (-4..5).filter(|&symbol| gapped.contains(symbol));
        assert_eq!(held.collect::<Vec<_>>(), [-2, 0, 2]);
        assert!(!Symbols::new(i64::MAX, vec![true]).contains(i64::MIN));
    }

    #[test]
    fn the_first_of_each_is_kept() {
        let mut firsts = Firsts::default();
        for (symbol, start) in [
            (3, 5),
            (-7, 4),
            (3, 2),
            (0, 9),
            (3, 7),
            (1 << 40, 3),
            (-1 << 40, 1),
        ] {
            firsts.add(symbol, at(start));
        }
        firsts.add(1 << 41, at(8));
        let mut other = Firsts::default();
        other.add(-7, at(1));
        firsts.merge(&other);
        let want = [
            (-1 << 40, at(1)),
            (-7, at(1)),
            (0, at(9)),
            (3, at(2)),
            (1 << 41, at(8)),
        ];
        assert_eq!(firsts.list(), want);
    }
}
