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
/// list begins, 1 elsewhere.
pub(super) fn are_lists(
    bytes: &[u8],
    stream: Range<usize>,
    length: usize,
    mut phase: usize,
    count: usize,
) -> bool {
    let Some(mut runs) = Runs::new(bytes, stream.start, stream.end, 1) else {
        return false;
    };
    let begins = begins(length);
    let mut left = count;
    while left > 0 {
        let taken = match runs.next(bytes, left) {
            Some(Run::Repeat { value: 1, left }) if phase > 0 && left <= length - phase => left,
            Some(Run::Repeat { value: 0, left }) if length == 1 || (phase == 0 && left == 1) => {
                left
            }
            Some(Run::Packed { at, left, .. }) => {
                if !packed_are_lists(&bytes[at..], length, begins, phase, left) {
                    return false;
                }
                left
            }
            _ => return false,
        };
        phase = (phase + taken) % length;
        left -= taken;
    }
    true
}

/// The places below 64 at which a list of `length` values begins, when one begins at 0.
fn begins(length: usize) -> u64 {
    (0..64).step_by(length).fold(0, |all, bit| all | 1 << bit)
}

/// Holds `count` one-bit levels against the pattern, 64 at a time. A run of them begins at a byte.
fn packed_are_lists(
    bytes: &[u8],
    length: usize,
    begins: u64,
    mut phase: usize,
    count: usize,
) -> bool {
    let mut left = count;
    let mut words = bytes.chunks(8);
    while left > 0 {
        let Some(chunk) = words.next() else {
            return false;
        };
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let here = left.min(64);
        if chunk.len() * 8 < here {
            return false;
        }
        let until_begin = (length - phase) % length;
        let zeros = if until_begin < 64 {
            begins << until_begin
        } else {
            0
        };
        let wrong = u64::from_le_bytes(word) ^ !zeros;
        if wrong << (64 - here) != 0 {
            return false;
        }
        phase = (phase + here) % length;
        left -= here;
    }
    true
}

/// Unpacks 8 values of `W` bits from the start of a block.
#[inline]
fn unpack<const W: usize>(block: &[u8; PADDING]) -> [u32; 8] {
    let mask = (1_u64 << W) - 1;
    std::array::from_fn(|value| {
        let bit = value * W;
        let at = bit / 8;
        let word = u64::from_le_bytes([
            block[at],
            block[at + 1],
            block[at + 2],
            block[at + 3],
            block[at + 4],
            block[at + 5],
            block[at + 6],
            block[at + 7],
        ]);
        ((word >> (bit % 8)) & mask) as u32
    })
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
    let mut blocks = (at..).step_by(W.max(1));
    let mut next = || {
        let at = if W == 0 { at } else { blocks.next()? };
        bytes.get(at..)?.first_chunk().map(unpack::<W>)
    };
    let fill = |indices: &[u32], out: &mut [T]| {
        let mut fits = true;
        for (value, &index) in out.iter_mut().zip(indices) {
            match table.get(index as usize) {
                Some(&entry) => *value = entry,
                None => fits = false,
            }
        }
        fits
    };
    let head = if first == 0 {
        0
    } else {
        out.len().min(8 - first)
    };
    let (head, rest) = out.split_at_mut(head);
    if !head.is_empty() {
        let Some(indices) = next() else { return false };
        if !fill(&indices[first..], head) {
            return false;
        }
    }
    let mut whole = rest.chunks_exact_mut(8);
    for eight in &mut whole {
        let Some(indices) = next() else { return false };
        if !fill(&indices, eight) {
            return false;
        }
    }
    let tail = whole.into_remainder();
    tail.is_empty() || next().is_some_and(|indices| fill(&indices, tail))
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
