//! Text of which most symbols are one and the same.
//!
//! Four of five symbols of a chunk are coefficient 0. So a text carries a bit for every place, set
//! where something else stands: what lies between two set bits is a run, and is walked in one step.

/// A bit for every place of a text.
#[derive(Debug, Default, Clone)]
pub(super) struct Marks {
    words: Vec<u64>,
}

impl Marks {
    /// Sets the bits of the places of `text` that do not hold `run`.
    pub(super) fn fill(&mut self, text: &[u16], run: u16) {
        self.words.clear();
        self.words.extend(text.chunks(64).map(|part| {
            let (fours, rest) = part.as_chunks::<4>();
            let mut word = 0;
            for (at, &four) in (0..).step_by(4).zip(fours) {
                word |= others(four, run) << at;
            }
            for (at, &symbol) in (4 * fours.len()..).zip(rest) {
                word |= u64::from(symbol != run) << at;
            }
            word
        }));
    }

    /// Clears all bits and makes room for `length` places.
    pub(super) fn clear(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(64), 0);
    }

    /// Sets one bit.
    pub(super) fn set(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
    }

    /// Whether a bit is set.
    pub(super) fn get(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Calls `visit` for the set bits from `from` on, in order, until it says no; gives the place of
    /// that bit, or else `end`, the length.
    #[inline]
    pub(super) fn walk(
        &self,
        from: usize,
        end: usize,
        mut visit: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut first = from % 64;
        for (index, &word) in self.words.iter().enumerate().skip(from / 64) {
            let mut word = word >> first << first;
            while word != 0 {
                let at = index * 64 + word.trailing_zeros() as usize;
                if !visit(at) {
                    return at;
                }
                word &= word - 1;
            }
            first = 0;
        }
        end
    }

    /// The first set bit from `from` on, at most `end`; `from <= end`, which is at most the length.
    #[inline]
    pub(super) fn next(&self, from: usize, end: usize) -> usize {
        let (mut index, mut at) = (from / 64, from);
        while at < end {
            let word = self.words[index] >> (at % 64);
            if word != 0 {
                return end.min(at + word.trailing_zeros() as usize);
            }
            index += 1;
            at = index * 64;
        }
        end
    }
}

/// A bit for each of four symbols that is not `run`, all at once within one word.
#[inline]
fn others(four: [u16; 4], run: u16) -> u64 {
    const LOW: u64 = 0x7FFF_7FFF_7FFF_7FFF;
    let [a, b, c, d] = four.map(u64::from);
    let differ = (a | b << 16 | c << 32 | d << 48) ^ (u64::from(run) * 0x0001_0001_0001_0001);
    // The top bit of each lane tells whether any bit of it is set.
    let set = (((differ & LOW) + LOW) | differ) & !LOW;
    // Bits 15, 31, 47 and 63 go to 60, 61, 62 and 63.
    set.wrapping_mul(1 << 45 | 1 << 30 | 1 << 15 | 1) >> 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_mark_is_found_across_words() {
        let mut text = vec![7_u16; 200];
        let places = [0, 1, 63, 64, 130, 199];
        for &at in &places {
            text[at] = 9;
        }
        let mut marks = Marks::default();
        marks.fill(&text, 7);
        let mut again = Marks::default();
        again.clear(text.len());
        for at in places {
            again.set(at);
        }
        let mut visited = Vec::new();
        let stop = marks.walk(1, 200, |at| {
            visited.push(at);
            at < 130
        });
        assert_eq!((stop, &visited[..]), (130, &places[1..5]));
        assert_eq!(marks.walk(131, 200, |_| true), 200);
        for end in [0, 1, 64, 150, 200] {
            for from in 0..=end {
                let want = (from..end).find(|&i| text[i] != 7).unwrap_or(end);
                assert_eq!(marks.next(from, end), want);
                assert_eq!(again.next(from, end), want);
            }
        }
    }
}
