//! Thrift's compact protocol, as far as footers and page headers need it.
//!
//! A struct is a list of fields, each led by one byte that holds its kind and how far its number
//! lies from the one before. Integers are varints, signed ones folded so that small ones are short.
//! Nothing is copied: what is not wanted is stepped over.

/// The bytes are no thrift, or end too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Kinds of field, by their numbers in the protocol.
pub(super) mod kind {
    pub(in super::super) const TRUE: u8 = 1;
    pub(in super::super) const FALSE: u8 = 2;
    pub(in super::super) const BYTE: u8 = 3;
    pub(in super::super) const I16: u8 = 4;
    pub(in super::super) const I32: u8 = 5;
    pub(in super::super) const I64: u8 = 6;
    pub(in super::super) const DOUBLE: u8 = 7;
    pub(in super::super) const BINARY: u8 = 8;
    pub(in super::super) const LIST: u8 = 9;
    pub(in super::super) const SET: u8 = 10;
    pub(in super::super) const MAP: u8 = 11;
    pub(in super::super) const STRUCT: u8 = 12;
}

/// How deep structures may lie in one another; parquet's own go five deep.
const MAX_DEPTH: usize = 16;

/// A place in thrift bytes.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// One field of a struct: its number and its kind.
pub(super) type Field = (i16, u8);

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The same bytes from another place on.
    pub(super) fn clone_at(&self, at: usize) -> Self {
        Self::new(self.bytes, at)
    }

    /// Bytes from the start.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A signed integer.
    #[inline]
    pub(super) fn integer(&mut self) -> Result<i64, Malformed> {
        let folded = self.varint()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    /// A string, or other bytes with their number before them.
    pub(super) fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| Malformed)?)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    /// The head of a list: how many elements of which kind. No element takes less than a byte, so a
    /// list longer than what is left is refused at once.
    pub(super) fn list(&mut self) -> Result<(usize, u8), Malformed> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        let left = self.bytes.len() - self.at;
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok((length, head & 0x0f)),
            _ => Err(Malformed),
        }
    }

    /// The next field of a struct whose last field had the number `last`; `None` at its end.
    #[inline]
    pub(super) fn field(&mut self, last: &mut i16) -> Result<Option<Field>, Malformed> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => i16::try_from(self.integer()?).map_err(|_| Malformed)?,
            delta => last.checked_add(i16::from(delta)).ok_or(Malformed)?,
        };
        Ok(Some((*last, head & 0x0f)))
    }

    /// Steps over a value of a field.
    #[inline]
    pub(super) fn skip(&mut self, of_kind: u8) -> Result<(), Malformed> {
        self.skip_nested(of_kind, 0)
    }

    fn skip_nested(&mut self, of_kind: u8, depth: usize) -> Result<(), Malformed> {
        match of_kind {
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.byte().map(drop),
            kind::I16 | kind::I32 | kind::I64 => self.skip_varint(),
            kind::DOUBLE => self.take(8).map(drop),
            kind::BINARY => self.binary().map(drop),
            _ if depth > MAX_DEPTH => Err(Malformed),
            kind::LIST | kind::SET => {
                let (length, element) = self.list()?;
                match element {
                    kind::I16 | kind::I32 | kind::I64 => {
                        (0..length).try_for_each(|_| self.skip_varint())
                    }
                    _ => (0..length).try_for_each(|_| self.skip_element(element, depth + 1)),
                }
            }
            kind::MAP => {
                let length = self.varint()?;
                if length == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..length).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth + 1)?;
                    self.skip_element(kinds & 0x0f, depth + 1)
                })
            }
            kind::STRUCT => self.skip_struct(depth),
            _ => Err(Malformed),
        }
    }

    /// Steps over the fields of a struct, whose numbers are of no interest.
    fn skip_struct(&mut self, depth: usize) -> Result<(), Malformed> {
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            if head < 0x10 {
                self.skip_varint()?;
            }
            self.skip_nested(head & 0x0f, depth + 1)?;
        }
    }

    #[inline]
    fn skip_varint(&mut self) -> Result<(), Malformed> {
        for _ in 0..10 {
            if self.byte()? < 0x80 {
                return Ok(());
            }
        }
        Err(Malformed)
    }

    /// An element of a list, where a bool has a byte of its own.
    fn skip_element(&mut self, of_kind: u8, depth: usize) -> Result<(), Malformed> {
        match of_kind {
            kind::TRUE | kind::FALSE => self.byte().map(drop),
            other => self.skip_nested(other, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_folded_varints() {
        let mut cursor = Cursor::new(&[0x01, 0x02, 0xac, 0x02], 0);
        assert_eq!(cursor.integer(), Ok(-1));
        assert_eq!(cursor.integer(), Ok(1));
        assert_eq!(cursor.varint(), Ok(300));
        assert_eq!(cursor.varint(), Err(Malformed));
        let endless = [0xff; 11];
        assert_eq!(Cursor::new(&endless, 0).varint(), Err(Malformed));
    }

    #[test]
    fn a_struct_is_stepped_over_whole() {
        // {1: i32 5, 2: [{}, {}], 20: "ab"} and a byte behind it
        let bytes = [0x15, 10, 0x19, 0x2c, 0, 0, 0x08, 40, 2, b'a', b'b', 0, 99];
        let mut cursor = Cursor::new(&bytes, 0);
        cursor.skip(kind::STRUCT).unwrap();
        assert_eq!(cursor.byte(), Ok(99));
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_refused() {
        let mut long = Cursor::new(&[0xfc, 0xff, 0xff, 0xff, 0x7f], 0);
        assert_eq!(long.list(), Err(Malformed));
        let deep = [0x1c; 1000];
        assert_eq!(Cursor::new(&deep, 0).skip(kind::STRUCT), Err(Malformed));
        let mut map = Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x11], 0);
        assert_eq!(map.skip(kind::MAP), Err(Malformed));
    }
}
