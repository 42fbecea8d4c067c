//! Symbols as the smallest pieces that merges work on.
//!
//! Byte-level models work on the bytes of a text in UTF-8. In their files each byte is a character:
//! the printable ones of Latin-1 stand for themselves, the other bytes, in order, for the characters
//! from 256 on.

/// Says that there is no token.
pub(super) const NONE: u32 = u32::MAX;

/// A character, or a byte of one; both have 16 bits.
pub(super) type Atom = u16;

/// Characters that stand for a byte: those below this number.
const WRITTEN: usize = 256 + 68;

/// The byte of each of these characters; [`Atom::MAX`] where there is none.
static BYTES: [Atom; WRITTEN] = {
    let mut bytes = [Atom::MAX; WRITTEN];
    let (mut byte, mut next) = (0, 256);
    while byte < 256 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let character = if printable { byte } else { next };
        if !printable {
            next += 1;
        }
        bytes[character] = byte as Atom;
        byte += 1;
    }
    bytes
};

/// The byte that a character of a byte-level vocabulary stands for.
pub(super) fn byte_of(character: char) -> Option<u8> {
    let byte = *BYTES.get(character as usize)?;
    u8::try_from(byte).ok()
}

/// The character that stands for a byte in a byte-level vocabulary.
pub(crate) fn character_of(byte: u8) -> char {
    static CHARACTERS: [char; 256] = {
        let mut characters = ['\0'; 256];
        let mut code = 0;
        while code < WRITTEN {
            if BYTES[code] != Atom::MAX {
                characters[BYTES[code] as usize] = match char::from_u32(code as u32) {
                    Some(character) => character,
                    None => unreachable!(),
                };
            }
            code += 1;
        }
        characters
    };
    CHARACTERS[usize::from(byte)]
}

/// The atoms of an entry of the vocabulary; nothing where no text has such an atom.
pub(super) fn atoms_of_entry(entry: &str, byte_level: bool) -> Option<Vec<Atom>> {
    let atom = |character: char| {
        if byte_level {
            byte_of(character).map(Atom::from)
        } else {
            Some(character as Atom).filter(|_| character < '\u{E000}')
        }
    };
    let atoms = entry.chars().map(atom).collect::<Option<Vec<_>>>()?;
    (!atoms.is_empty()).then_some(atoms)
}

/// Which atoms have a token.
#[derive(Debug, Clone)]
pub(super) struct Alphabet {
    byte_level: bool,
    tokens: Vec<u32>,
}

impl Alphabet {
    /// The alphabet of the atoms of tokens, which are numbered from 0.
    pub(super) fn new(byte_level: bool, tokens: &[Vec<Atom>]) -> Self {
        let mut alphabet = Self {
            byte_level,
            tokens: Vec::new(),
        };
        for (number, atoms) in (0..).zip(tokens) {
            if let [atom] = **atoms {
                let place = usize::from(atom);
                if place >= alphabet.tokens.len() {
                    alphabet.tokens.resize(place + 1, NONE);
                }
                alphabet.tokens[place] = number;
            }
        }
        alphabet
    }

    /// The token of an atom, or [`NONE`].
    pub(super) fn token(&self, atom: Atom) -> u32 {
        self.tokens.get(usize::from(atom)).copied().unwrap_or(NONE)
    }

    /// Appends the atoms of a symbol that have tokens; whether that is all of them.
    pub(super) fn spell(&self, symbol: u16, atoms: &mut Vec<Atom>) -> bool {
        let mut bytes = [0; 3];
        let mut whole = true;
        let mut add = |atom| match self.token(atom) {
            NONE => whole = false,
            _ => atoms.push(atom),
        };
        match char::from_u32(symbol.into()) {
            Some(character) if self.byte_level => {
                character
                    .encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| add(byte.into()));
            }
            _ => add(symbol),
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_by_one_character() {
        let bytes: Vec<u8> = (0..400)
            .filter_map(|c| byte_of(char::from_u32(c)?))
            .collect();
        let mut sorted = bytes.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..=255).collect::<Vec<_>>());
        for (character, byte) in [('!', b'!'), ('Ā', 0), ('Ġ', b' '), ('Ń', 0xAD), ('ÿ', 0xFF)]
        {
            assert_eq!(byte_of(character), Some(byte));
            assert_eq!(character_of(byte), character);
        }
        assert_eq!(byte_of(' ').or(byte_of('ń')).or(byte_of('€')), None);
        assert_eq!(atoms_of_entry("aĠ", true), Some(vec![97, 32]));
        assert_eq!(atoms_of_entry("aĠ", false), Some(vec![97, 288]));
        assert_eq!(atoms_of_entry("a ", true), None);
        assert_eq!(atoms_of_entry("\u{e000}", false), None);
    }
}
