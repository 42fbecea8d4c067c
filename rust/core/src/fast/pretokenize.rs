//! GPT-2's way to cut a text into words, which no merge crosses.
//!
//! The published pattern, tried at the end of the word before:
//!
//! ```text
//! 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//! ```
//!
//! That is: a contraction; else a run of letters, of numbers, or of all other characters but white
//! space, with one blank before it; else white space, of which the last character is left to the
//! next word unless it is the only one or the text ends.

use super::runs::Marks;
use super::unicode::{LETTERS, NUMBERS, SPACES};

/// Characters below the surrogates; no others can be symbols.
pub(super) const CHARACTERS: usize = 0xD800;

const OTHER: u8 = 0;
const LETTER: u8 = 1;
const NUMBER: u8 = 2;
const SPACE: u8 = 3;
/// The bits of a class; others are the caller's.
const CLASS: u8 = 3;
/// Set beside a class by the caller; cutting tells whether it met it.
pub(super) const UNEVEN: u8 = 0x80;

static CLASSES: [u8; CHARACTERS] = {
    let mut classes = [OTHER; CHARACTERS];
    mark(&mut classes, LETTERS, LETTER);
    mark(&mut classes, NUMBERS, NUMBER);
    mark(&mut classes, SPACES, SPACE);
    classes
};

const fn mark(classes: &mut [u8; CHARACTERS], ranges: &[(u16, u16)], class: u8) {
    let mut i = 0;
    while i < ranges.len() {
        let mut code = ranges[i].0;
        while code <= ranges[i].1 {
            classes[code as usize] = class;
            code += 1;
        }
        i += 1;
    }
}

/// The classes of all characters.
pub(super) fn classes() -> &'static [u8] {
    &CLASSES
}

/// The class of a character, below [`CHARACTERS`].
pub(super) fn class_of(code: u16) -> u8 {
    CLASSES[usize::from(code)]
}

const BLANK: u16 = b' ' as u16;
const APOSTROPHE: u16 = b'\'' as u16;

/// Length of the contraction at the start of `codes`.
fn contraction(codes: &[u16]) -> Option<usize> {
    let letter = |at: usize| codes.get(at).and_then(|&code| u8::try_from(code).ok());
    match (letter(1)?, letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(2),
        (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(3),
        _ => None,
    }
}

/// A text to cut.
pub(super) struct Words<'a> {
    codes: &'a [u16],
    /// Where another symbol than the run symbol stands.
    marks: &'a Marks,
    classes: &'a [u8],
    run: u8,
    /// All bits of the classes that were met.
    met: u8,
}

impl<'a> Words<'a> {
    /// The text `codes`, in which `marks` are the places of all symbols but `run`; `classes` holds
    /// what [`class_of`] gives for every character, with bits of the caller's.
    pub(super) fn new(codes: &'a [u16], marks: &'a Marks, classes: &'a [u8], run: u16) -> Self {
        Self {
            codes,
            marks,
            classes,
            run: classes[usize::from(run)],
            met: 0,
        }
    }

    /// Where the word ends that begins at `start`, before the end of the text; and whether
    /// [`UNEVEN`] is set for one of its symbols. (It may tell so of a symbol right behind it, too.)
    #[inline]
    pub(super) fn next(&mut self, start: usize) -> (usize, bool) {
        self.met = 0;
        let end = self.end_of(start);
        (end, self.met & UNEVEN != 0)
    }

    /// The same, if all of the text from `start` on is one word.
    pub(super) fn rest(&mut self, start: usize) -> (usize, bool) {
        self.met = self.run;
        let (mut at, end) = (self.marks.next(start, self.codes.len()), self.codes.len());
        while at < end {
            self.class(at);
            at = self.marks.next(at + 1, end);
        }
        (end, self.met & UNEVEN != 0)
    }

    #[inline]
    fn end_of(&mut self, start: usize) -> usize {
        let (first, of_first, next) = (self.codes[start], self.class(start), start + 1);
        if first == APOSTROPHE
            && let Some(length) = contraction(&self.codes[start..])
        {
            (next..start + length).for_each(|at| _ = self.class(at));
            return start + length;
        }
        if of_first != SPACE {
            return self.run_of(of_first, next);
        }
        if first == BLANK && next < self.codes.len() {
            let of_next = self.class(next);
            if of_next != SPACE {
                return self.run_of(of_next, next + 1);
            }
        }
        let end = self.run_of(SPACE, next);
        if end == self.codes.len() || end == next {
            end
        } else {
            end - 1
        }
    }

    /// The first place from `at` on that is not of that class.
    #[inline]
    fn run_of(&mut self, wanted: u8, mut at: usize) -> usize {
        let end = self.codes.len();
        if self.run & CLASS != wanted {
            while at < end && self.class(at) == wanted {
                at += 1;
            }
            return at;
        }
        let (marks, mut others) = (self.marks, 0);
        let stop = marks.walk(at, end, |mark| {
            let same = self.class(mark) == wanted;
            others += usize::from(same);
            same
        });
        if stop - at > others {
            self.met |= self.run; // it stands wherever nothing else does
        }
        stop
    }

    #[inline]
    fn class(&mut self, at: usize) -> u8 {
        let class = self.classes[usize::from(self.codes[at])];
        self.met |= class;
        class & CLASS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, run: char) -> Vec<String> {
        let codes: Vec<u16> = text.encode_utf16().collect();
        let mut marks = Marks::default();
        marks.fill(&codes, run as u16);
        let mut words = Words::new(&codes, &marks, &CLASSES, run as u16);
        let (mut start, mut found) = (0, Vec::new());
        while start < codes.len() {
            let (end, _) = words.next(start);
            found.push(String::from_utf16(&codes[start..end]).unwrap());
            start = end;
        }
        found
    }

    #[test]
    fn words_are_those_of_the_pattern() {
        for (text, want) in [
            ("", vec![]),
            ("hello world", vec!["hello", " world"]),
            ("a1!", vec!["a", "1", "!"]),
            (
                "it's we'll 've 'd'x",
                vec!["it", "'s", " we", "'ll", " '", "ve", " '", "d", "'", "x"],
            ),
            (
                "'r'l're'll'ver",
                vec!["'", "r", "'", "l", "'re", "'ll", "'ve", "r"],
            ),
            ("!'s", vec!["!'", "s"]),
            ("''s", vec!["''", "s"]),
            ("   a", vec!["  ", " a"]),
            ("a   ", vec!["a", "   "]),
            (" \n a", vec![" \n", " a"]),
            ("\n\na", vec!["\n", "\n", "a"]),
            ("\na", vec!["\n", "a"]),
            ("  '", vec![" ", " '"]),
            ("\u{a0}\u{85}x", vec!["\u{a0}", "\u{85}", "x"]),
            ("\u{1c}\u{1f}x", vec!["\u{1c}\u{1f}", "x"]),
            ("é²Ⅷ½", vec!["é", "²Ⅷ½"]),
        ] {
            for run in [' ', 'a', '\n', '\'', 'l', '1', '!', 'z'] {
                assert_eq!(words(text, run), want, "{text:?} with runs of {run:?}");
            }
        }
    }

    #[test]
    fn the_ranges_are_sorted_and_apart() {
        let mut all = [LETTERS, NUMBERS, SPACES].concat();
        assert!(
            [LETTERS, NUMBERS, SPACES]
                .iter()
                .all(|ranges| ranges.is_sorted())
        );
        all.sort_unstable();
        assert!(all.iter().all(|(first, last)| first <= last));
        assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
