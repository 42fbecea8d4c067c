//! From ids back to symbols.

use super::alphabet::byte_of;
use super::model::Model;

/// How the ids of one chunk decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// As many symbols as a chunk has.
    Ok = 0,
    /// Fewer.
    Short = 1,
    /// More.
    Long = 2,
    /// An id that is not in the vocabulary.
    UnknownId = 3,
    /// Bytes that are no text, or a symbol that is none.
    OutOfAlphabet = 4,
}

/// Symbols are copied so many at a time, past the end of short tokens.
const STRIDE: usize = 16;

/// What one id stands for.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its symbols are; where its bytes are, if they are no text of their own.
    first: u32,
    count: u32,
    /// Its largest symbol; nothing where its bytes are no text.
    largest: Option<u16>,
}

/// The vocabulary as symbols.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// Ascending.
    ids: Vec<i32>,
    entries: Vec<Entry>,
    /// All symbols of all entries, and [`STRIDE`] more.
    symbols: Vec<u16>,
    /// The bytes of those that begin or end within a character.
    bytes: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(model: &Model) -> Self {
        let (mut symbols, mut bytes) = (Vec::new(), Vec::new());
        let mut entry = |text: &str| {
            let spelt = bytes_of(text, model.byte_level);
            if let Ok(text) = std::str::from_utf8(&spelt) {
                let first = symbols.len();
                symbols.extend(text.chars().map(symbol_of));
                return Entry {
                    first: first as u32,
                    count: (symbols.len() - first) as u32,
                    largest: Some(symbols[first..].iter().copied().max().unwrap_or(0)),
                };
            }
            let first = bytes.len() as u32;
            bytes.extend_from_slice(&spelt);
            Entry {
                first,
                count: spelt.len() as u32,
                largest: None,
            }
        };
        let entries = model
            .vocabulary
            .iter()
            .map(|(text, _)| entry(text))
            .collect();
        symbols.resize(symbols.len() + STRIDE, 0);
        Self {
            ids: model.vocabulary.iter().map(|&(_, id)| id).collect(),
            entries,
            symbols,
            bytes,
        }
    }

    /// Writes the symbols of `ids` to `out`, as many as it holds, and tells how many there are.
    ///
    /// An unknown id outweighs everything else: it is reported wherever it stands. `out` must have
    /// room for [`Decoder::ROOM`] symbols more than are wanted.
    pub(crate) fn decode<I: Copy + Into<i64>>(
        &self,
        ids: &[I],
        largest: u16,
        out: &mut [u16],
    ) -> Result<usize, Status> {
        let room = out.len() - Self::ROOM;
        let (mut count, mut inside, mut partial) = (0_usize, true, Partial::default());
        for &id in ids {
            let entry = self.entry(id.into()).ok_or(Status::UnknownId)?;
            if let Some(highest) = entry.largest {
                inside &= highest <= largest && partial.is_empty();
                if count < room {
                    self.copy(entry, &mut out[count..]);
                }
                count += entry.count as usize;
            } else {
                for &byte in &self.bytes[entry.first as usize..][..entry.count as usize] {
                    match partial.add(byte) {
                        Next::Character(symbol) => {
                            inside &= symbol <= largest;
                            if count < room {
                                out[count] = symbol;
                            }
                            count += 1;
                        }
                        Next::More => {}
                        Next::Broken => inside = false,
                    }
                }
            }
        }
        if inside && partial.is_empty() {
            Ok(count)
        } else {
            Err(Status::OutOfAlphabet)
        }
    }

    /// Room that [`Decoder::decode`] wants behind the last symbol.
    pub(crate) const ROOM: usize = STRIDE;

    /// The entry of an id.
    #[inline]
    fn entry(&self, id: i64) -> Option<Entry> {
        let at = usize::try_from(id).ok()?;
        // Ids that count from 0 on are their own places.
        if self
            .ids
            .get(at)
            .is_some_and(|&found| i64::from(found) == id)
        {
            return Some(self.entries[at]);
        }
        let at = self.ids.binary_search(&i32::try_from(id).ok()?).ok()?;
        Some(self.entries[at])
    }

    /// Copies the symbols of an entry, as far as they fit, and perhaps what comes after them.
    #[inline]
    fn copy(&self, entry: Entry, out: &mut [u16]) {
        let from = &self.symbols[entry.first as usize..];
        let count = (entry.count as usize).min(out.len() - STRIDE);
        let mut at = 0;
        while at < count {
            out[at..at + STRIDE].copy_from_slice(&from[at..at + STRIDE]);
            at += STRIDE;
        }
    }
}

/// The bytes that an entry of the vocabulary stands for.
///
/// In a byte-level vocabulary one with a character that is no byte stands for its own UTF-8.
fn bytes_of(entry: &str, byte_level: bool) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = entry.chars().map(byte_of).collect();
    bytes.filter(|_| byte_level).unwrap_or_else(|| entry.into())
}

/// The symbol of a character; those beyond 16 bits are none, and stand for one that is none.
fn symbol_of(character: char) -> u16 {
    u16::try_from(u32::from(character)).unwrap_or(u16::MAX)
}

/// The beginning of a character.
#[derive(Debug, Default)]
struct Partial {
    bytes: [u8; 4],
    length: usize,
}

enum Next {
    Character(u16),
    More,
    Broken,
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn add(&mut self, byte: u8) -> Next {
        self.bytes[self.length] = byte;
        self.length += 1;
        let whole = match self.bytes[0] {
            0..=0x7F => 1,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => 0,
        };
        if self.length < whole {
            return Next::More;
        }
        let text = std::str::from_utf8(&self.bytes[..self.length]);
        let character = text.ok().and_then(|text| text.chars().next());
        self.length = 0;
        character.map_or(Next::Broken, |character| {
            Next::Character(symbol_of(character))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(entries: &[(&str, i32)]) -> Decoder {
        Decoder::new(&Model {
            split: false,
            byte_level: true,
            vocabulary: entries
                .iter()
                .map(|&(text, id)| (text.to_owned(), id))
                .collect(),
            merges: Vec::new(),
        })
    }

    fn decode(decoder: &Decoder, ids: &[i64], wanted: usize) -> (Result<usize, Status>, Vec<u16>) {
        let mut out = vec![0; wanted + Decoder::ROOM];
        let found = decoder.decode(ids, 0x17b, &mut out);
        out.truncate(found.unwrap_or(0).min(wanted));
        (found, out)
    }

    #[test]
    fn symbols_come_back_even_when_tokens_split_them() {
        // Å» is U+017B in two bytes, Å with ¼ is U+017C, aÅ and »b are halves with something beside.
        let decoder = decoder(&[
            ("a", 0),
            ("Å", 1),
            ("»", 2),
            ("aÅ", 3),
            ("»b", 7),
            ("¼", 9),
            ("\u{0}", 11),
        ]);
        for (ids, want) in [
            (&[0, 0][..], Ok(vec![97, 97])),
            (&[1, 2], Ok(vec![0x17b])),
            (&[3, 7], Ok(vec![97, 0x17b, 98])),
            (&[0, 11, 3, 2], Ok(vec![97, 0, 97, 0x17b])),
            (&[], Ok(vec![])),
            (&[1], Err(Status::OutOfAlphabet)),
            (&[2], Err(Status::OutOfAlphabet)),
            (&[1, 0], Err(Status::OutOfAlphabet)),
            (&[1, 1, 2], Err(Status::OutOfAlphabet)),
            (&[1, 9], Err(Status::OutOfAlphabet)),
            (&[2, 4], Err(Status::UnknownId)),
            (&[-1], Err(Status::UnknownId)),
            (&[8], Err(Status::UnknownId)),
            (&[i64::MAX], Err(Status::UnknownId)),
        ] {
            let (count, symbols) = decode(&decoder, ids, 100);
            assert_eq!(count.map(|_| symbols), want, "{ids:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_counted_and_not_kept() {
        let long = "a".repeat(100);
        let decoder = decoder(&[(&long, 0), ("Å", 1), ("»", 2)]);
        for wanted in [0, 1, 15, 16, 17, 99, 100, 101, 250] {
            let (count, symbols) = decode(&decoder, &[0, 0, 1, 2, 0], wanted);
            assert_eq!(count, Ok(301));
            let all = [vec![97; 200], vec![0x17b], vec![97; 100]].concat();
            assert_eq!(symbols, all[..wanted.min(301)]);
        }
        assert_eq!(
            decode(&decoder, &[0, 0, 1], 5).0,
            Err(Status::OutOfAlphabet)
        );
    }
}
