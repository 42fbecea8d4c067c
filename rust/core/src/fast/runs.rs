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
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "compiled for each set of instructions"
    )]
    pub(super) fn fill(&mut self, text: &[u16], run: u16) {
        self.words.clear();
        self.words.extend(text.chunks(64).map(|part| {
            let bits = part.iter().enumerate();
            bits.fold(0, |word, (at, &symbol)| {
                word | u64::from(symbol != run) << at
            })
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
        for end in [0, 1, 64, 150, 200] {
            for from in 0..=end {
                let want = (from..end).find(|&i| text[i] != 7).unwrap_or(end);
                assert_eq!(marks.next(from, end), want);
                assert_eq!(again.next(from, end), want);
            }
        }
    }
}
