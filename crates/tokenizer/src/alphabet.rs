//! The 256 printable characters that stand for the 256 bytes in a byte-level `tokenizer.json`.
//!
//! # Source
//! GPT-2's `bytes_to_unicode` (Radford et al. 2019): a byte that Latin-1 prints stands for itself, the
//! other 68 take U+0100 onward in order. Every byte-level tokenizer.json spells its tokens this way.

/// The character that stands for each byte, by byte.
pub(crate) const CHARACTERS: [char; 256] = characters();

/// The bytes in order of their character: the ids 0 to 255 of a byte-level BPE vocabulary, as GPT-2 has.
pub(crate) const BYTES_IN_ORDER: [u8; 256] = bytes_in_order();

const fn stands_for_itself(byte: usize) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn characters() -> [char; 256] {
    let mut characters = ['\0'; 256];
    let mut shifted = 0x100;
    let mut byte = 0;
    while byte < 256 {
        let code = if stands_for_itself(byte) {
            byte as u32
        } else {
            shifted += 1;
            shifted - 1
        };
        if let Some(character) = char::from_u32(code) {
            characters[byte] = character;
        }
        byte += 1;
    }
    characters
}

const fn bytes_in_order() -> [u8; 256] {
    let mut bytes = [0; 256];
    let mut next = 0;
    let mut pass = 0;
    while pass < 2 {
        let mut byte = 0;
        while byte < 256 {
            if stands_for_itself(byte) == (pass == 0) {
                bytes[next] = byte as u8;
                next += 1;
            }
            byte += 1;
        }
        pass += 1;
    }
    bytes
}

/// Bytes as their characters.
pub(crate) fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARACTERS[usize::from(byte)]).collect()
}

/// Inverts [`spell`]; `None` when a character stands for no byte.
pub(crate) fn read(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x100..0x144 => Some(BYTES_IN_ORDER[188 + (code - 0x100) as usize]),
        _ => u8::try_from(code).ok().filter(|&byte| stands_for_itself(usize::from(byte))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_crate() {
        let mut theirs: Vec<char> = ByteLevel::alphabet().into_iter().collect();
        theirs.sort_unstable();
        let ours: Vec<char> = BYTES_IN_ORDER.iter().map(|&byte| CHARACTERS[usize::from(byte)]).collect();
        assert_eq!(ours, theirs);
        assert_eq!(spell(" a\n".as_bytes()), "ĠaĊ");
    }

    #[test]
    fn every_byte_is_read_back_and_nothing_else() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&spell(&all)).unwrap(), all);
        assert_eq!(read("a b"), None);
        assert_eq!(read("\u{144}"), None);
        assert_eq!(read("漢"), None);
    }
}
