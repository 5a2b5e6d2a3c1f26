//! The `precompiled_charsmap` of sentencepiece's files, read as far as its sizes go.
//!
//! It is base64 of a length, a tree of so many bytes that finds what is replaced, and the replacements, each with
//! a NUL at its end.

/// Bytes of the longest text that anything is replaced by.
pub(crate) fn longest_replacement(charsmap: &str) -> Result<usize, String> {
    let invalid = |what: &str| format!("its precompiled_charsmap {what}");
    let bytes = base64(charsmap).ok_or_else(|| invalid("is not base64"))?;
    let (length, rest) = bytes.split_first_chunk().ok_or_else(|| invalid("has no length"))?;
    // the crate reads whole numbers of four bytes
    let length = (u32::from_le_bytes(*length) / 4 * 4) as usize;
    let texts = rest.get(length..).ok_or_else(|| invalid("ends inside its tree"))?;
    if length == 0 {
        return Err(invalid("has no tree"));
    }
    Ok(texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0))
}

/// The bytes of base64 in the usual alphabet.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_gives_the_bytes() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")]
        {
            assert_eq!(base64(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(base64("+/8=").unwrap(), [0xFB, 0xFF]);
        assert_eq!(base64("Zm9*"), None);
    }

    #[test]
    fn the_longest_replacement_is_found_and_a_cut_tree_refused() {
        // a tree of four bytes, then "a", "bcd", "ef"
        assert_eq!(longest_replacement("BAAAAAAAAABhAGJjZABlZgA="), Ok(3));
        for (charsmap, reason) in [
            ("//////////8=", "ends inside its tree"),
            ("AAAAAA==", "has no tree"),
            ("AAAA", "has no length"),
            ("a-b", "is not base64"),
        ] {
            assert!(longest_replacement(charsmap).unwrap_err().ends_with(reason), "{charsmap}");
        }
    }
}
