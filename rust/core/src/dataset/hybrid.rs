//! The run-length / bit-packed hybrid, in which parquet keeps levels and dictionary indices.
//!
//! A stream is a sequence of runs. Each is led by a varint `h`: an even one stands for `h / 2`
//! repeats of the one value that follows, an odd one for `(h / 2) · 8` values of `w` bits each, packed
//! from the lowest bit up. Levels need not be expanded to be checked: where every row is there and
//! every list has the same length they form a pattern, and whole runs are held against it.

use std::ops::Range;

/// Bytes that must be readable behind a stream, so that packed values are loaded whole.
pub(super) const PADDING: usize = 40;

/// The widest values that are read; a dictionary with more entries has other readers.
const MAX_WIDTH: u32 = 24;

/// A place in a hybrid stream, and what is left of the run there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Runs {
    /// Place of the next run.
    at: usize,
    /// End of the stream.
    end: usize,
    /// Bits of a value.
    width: u32,
    run: Run,
}

/// What is left of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// The same value, `left` times.
    Repeat { value: u32, left: usize },
    /// Packed values: `left` of them, the next one `first` values behind the byte at `at`.
    Packed {
        at: usize,
        first: usize,
        left: usize,
    },
}

impl Default for Run {
    fn default() -> Self {
        Self::Repeat { value: 0, left: 0 }
    }
}

impl Runs {
    /// The stream of `width`-bit values in `bytes[at..end]`; `None` where no such stream can be.
    pub(super) fn new(bytes: &[u8], at: usize, end: usize, width: u32) -> Option<Self> {
        (width <= MAX_WIDTH && at <= end && end <= bytes.len()).then_some(Self {
            at,
            end,
            width,
            run: Run::default(),
        })
    }

    /// Up to `most` values of one run; `None` at the end of the stream, or where it is damaged.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], most: usize) -> Option<Run> {
        loop {
            match &mut self.run {
                Run::Repeat { left: 0, .. } | Run::Packed { left: 0, .. } => {}
                Run::Repeat { value, left } => {
                    let taken = most.min(*left);
                    *left -= taken;
                    return Some(Run::Repeat {
                        value: *value,
                        left: taken,
                    });
                }
                Run::Packed { at, first, left } => {
                    let taken = most.min(*left);
                    let run = Run::Packed {
                        at: *at,
                        first: *first,
                        left: taken,
                    };
                    *left -= taken;
                    *first += taken;
                    *at += *first / 8 * self.width as usize;
                    *first %= 8;
                    return Some(run);
                }
            }
            self.run = self.open(bytes)?;
        }
    }

    /// Reads the head of the next run.
    #[inline]
    fn open(&mut self, bytes: &[u8]) -> Option<Run> {
        let head = self.head(bytes)?;
        let count = usize::try_from(head >> 1).ok()?;
        if head & 1 == 1 {
            let at = self.at;
            let length = count.checked_mul(self.width as usize)?;
            // The last run may end before its last group does, where no value is left.
            self.at = at.checked_add(length)?.min(self.end);
            let bits = (self.at - at) * 8;
            let left = match self.width {
                0 => count.checked_mul(8)?,
                width => count.checked_mul(8)?.min(bits / width as usize),
            };
            return (left > 0).then_some(Run::Packed { at, first: 0, left });
        }
        let mut value = 0;
        for byte in 0..self.width.div_ceil(8) {
            value |= u32::from(self.byte(bytes)?) << (8 * byte);
        }
        (count > 0 && value >> self.width == 0).then_some(Run::Repeat { value, left: count })
    }

    #[inline]
    fn byte(&mut self, bytes: &[u8]) -> Option<u8> {
        let byte = *bytes.get(self.at).filter(|_| self.at < self.end)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn head(&mut self, bytes: &[u8]) -> Option<u64> {
        let first = self.byte(bytes)?;
        if first < 0x80 {
            return Some(first.into());
        }
        self.at -= 1;
        let mut head = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte(bytes)?;
            head |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(head);
            }
        }
        None
    }
}

/// Whether the first `count` levels of the stream `bytes[stream]` all are `level`.
pub(super) fn all_are(
    bytes: &[u8],
    stream: Range<usize>,
    width: u32,
    level: u32,
    count: usize,
) -> bool {
    let Some(mut runs) = Runs::new(bytes, stream.start, stream.end, width) else {
        return false;
    };
    let mut left = count;
    while left > 0 {
        let taken = match runs.next(bytes, left) {
            Some(Run::Repeat { value, left }) if value == level => left,
            Some(Run::Packed { at, left, .. }) if packed_are(&bytes[at..], width, level, left) => {
                left
            }
            _ => return false,
        };
        left -= taken;
    }
    true
}

/// Whether `count` packed values all are `level`. A run of them begins at a byte.
fn packed_are(bytes: &[u8], width: u32, level: u32, count: usize) -> bool {
    let width = width as usize;
    if level == (1 << width) - 1 {
        let bits = count * width;
        let (whole, rest) = (&bytes[..bits / 8], bits % 8);
        return whole.iter().all(|&byte| byte == 0xff)
            && (rest == 0 || bytes[bits / 8] | 0xff << rest == 0xff);
    }
    let bit = |index: usize| u32::from(bytes[index / 8] >> (index % 8) & 1);
    let value = |index: usize| (0..width).fold(0, |all, b| all | bit(index * width + b) << b);
    (0..count).all(|index| value(index) == level)
}

/// Whether the first `count` repetition levels of the stream `bytes[stream]` are those of lists of
/// `length` values each, when the first of them is the value at `phase` within its list: 0 where a
/// list begins, 1 elsewhere. `bytes` goes on for [`PADDING`] behind the stream.
///
/// Writers change between repeats and packed groups every few values here, so this is the loop that
/// sees the most runs; it keeps nothing but the distance to the next beginning.
pub(super) fn are_lists(
    bytes: &[u8],
    stream: Range<usize>,
    length: usize,
    phase: usize,
    count: usize,
) -> bool {
    let Some(mut runs) = Runs::new(bytes, stream.start, stream.end, 1) else {
        return false;
    };
    let begins = (0..64).step_by(length).fold(0, |all, bit| all | 1 << bit);
    let mut lists = Lists {
        length,
        begins,
        ahead: (length - phase) % length,
    };
    let mut left = count;
    while left > 0 {
        let Some(run) = runs.open(bytes) else {
            return false;
        };
        let (Run::Repeat { left: here, .. } | Run::Packed { left: here, .. }) = run;
        let here = here.min(left);
        let fits = match run {
            Run::Repeat { value: 1, .. } => lists.ahead >= here,
            Run::Repeat { .. } => length == 1 || (lists.ahead == 0 && here == 1),
            Run::Packed { at, .. } => lists.fit(bytes, at, here),
        };
        if !fits {
            return false;
        }
        lists.pass(here);
        left -= here;
    }
    true
}

/// Where lists begin among the levels ahead.
struct Lists {
    length: usize,
    /// The places below 64 at which a list begins, when one begins at 0.
    begins: u64,
    /// Levels before the next beginning.
    ahead: usize,
}

impl Lists {
    fn pass(&mut self, count: usize) {
        if self.ahead < count {
            self.ahead += (count - self.ahead).div_ceil(self.length) * self.length;
        }
        self.ahead -= count;
    }

    /// Holds `count` one-bit levels, packed from the byte at `at` on, against the pattern; 64 at a
    /// time.
    fn fit(&self, bytes: &[u8], at: usize, count: usize) -> bool {
        let mut here = Self { ..*self };
        let mut left = count;
        for at in (at..).step_by(8) {
            let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
                return false;
            };
            let begins = if here.ahead < 64 {
                here.begins << here.ahead
            } else {
                0
            };
            let wrong = u64::from_le_bytes(*word) ^ !begins;
            if left <= 64 {
                return wrong << (64 - left) == 0;
            }
            if wrong != 0 {
                return false;
            }
            here.pass(64);
            left -= 64;
        }
        false
    }
}

/// The entries of `table` that the 8 packed `W`-bit indices at the start of a block name; `None`
/// where one names none.
///
/// Two indices are cut out of each load. They go straight from there to the table: an array of
/// indices in between would cost as much as all the rest.
#[inline]
fn eight<const W: usize, T: Copy>(block: &[u8; PADDING], table: &[T]) -> Option<[T; 8]> {
    let word = |pair: usize| {
        let at = 2 * pair * W / 8;
        block[at..]
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let words = [word(0), word(1), word(2), word(3)];
    let entry = |value: usize| {
        let pair = value / 2;
        let shift = 2 * pair * W % 8 + value % 2 * W;
        let index = words[pair] >> shift & ((1 << W) - 1);
        table.get(index as usize).copied()
    };
    Some([
        entry(0)?,
        entry(1)?,
        entry(2)?,
        entry(3)?,
        entry(4)?,
        entry(5)?,
        entry(6)?,
        entry(7)?,
    ])
}

/// Fills `out` with the entries of `table` that the packed `W`-bit indices name, from the one at
/// `first` on; `false` where an index names none.
fn look_up<const W: usize, T: Copy>(
    bytes: &[u8],
    at: usize,
    first: usize,
    table: &[T],
    out: &mut [T],
) -> bool {
    let group = |group: usize| {
        let block = bytes.get(at + group * W..)?.first_chunk()?;
        eight::<W, T>(block, table)
    };
    // The last group may be cut short, and of a group that is, no more than its part may be looked at.
    let part = |number: usize, skip: usize, out: &mut [T]| {
        let block = bytes.get(at + number * W..).and_then(<[u8]>::first_chunk);
        let Some(block) = block else { return false };
        out.iter_mut().zip(skip..).all(|(value, index)| {
            let entry = table.get(one::<W>(block, index));
            entry.map(|&entry| *value = entry).is_some()
        })
    };
    let begun = usize::from(first > 0);
    let (head, rest) = out.split_at_mut(begun * out.len().min(8 - first));
    if !part(0, first, head) {
        return false;
    }
    let mut number = begun;
    let mut whole = rest.chunks_exact_mut(8);
    for values in &mut whole {
        let Some(entries) = group(number) else {
            return false;
        };
        values.copy_from_slice(&entries);
        number += 1;
    }
    part(number, 0, whole.into_remainder())
}

/// The packed `W`-bit index at place `value` of a block.
fn one<const W: usize>(block: &[u8; PADDING], value: usize) -> usize {
    let bit = value * W;
    let bytes = block[bit / 8..].first_chunk();
    let word = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (word >> (bit % 8) & ((1 << W) - 1)) as usize
}

impl Runs {
    /// Fills `out` with the entries of `table` that the next indices name; `false` where the stream
    /// ends before, or an index names no entry. `bytes` goes on for [`PADDING`] behind the stream.
    pub(super) fn look_up<T: Copy>(&mut self, bytes: &[u8], table: &[T], out: &mut [T]) -> bool {
        let mut rest = out;
        while !rest.is_empty() {
            let Some(run) = self.next(bytes, rest.len()) else {
                return false;
            };
            let (Run::Repeat { left, .. } | Run::Packed { left, .. }) = run;
            let (here, behind) = rest.split_at_mut(left);
            rest = behind;
            let found = match run {
                Run::Repeat { value, .. } => {
                    let entry = table.get(value as usize);
                    entry.map(|&entry| here.fill(entry)).is_some()
                }
                Run::Packed { at, first, .. } => {
                    look_up_any(self.width, bytes, at, first, table, here)
                }
            };
            if !found {
                return false;
            }
        }
        true
    }

    /// Passes over `count` values; `false` where the stream ends before.
    pub(super) fn skip(&mut self, bytes: &[u8], count: usize) -> bool {
        let mut left = count;
        while left > 0 {
            match self.next(bytes, left) {
                Some(Run::Repeat { left: taken, .. } | Run::Packed { left: taken, .. }) => {
                    left -= taken;
                }
                None => return false,
            }
        }
        true
    }
}

fn look_up_any<T: Copy>(
    width: u32,
    bytes: &[u8],
    at: usize,
    first: usize,
    table: &[T],
    out: &mut [T],
) -> bool {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => look_up::<$width, T>(bytes, at, first, table, out),)*
                _ => false,
            }
        };
    }
    by_width!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
}
