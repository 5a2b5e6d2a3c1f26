//! The small encodings that reports share: JSON strings and numbers, XML text, base64.

use std::io::{self, Write};

use crate::labels::is_visible;

/// Writes a JSON string in which nothing is active: what a label would escape, and `<`, `>` and `&`, are
/// `\uXXXX`, so that neither a terminal nor a page that holds the JSON can obey it. It parses back to `text`.
pub(super) fn json_string(text: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    for character in text.chars() {
        match character {
            '"' => out.write_all(b"\\\"")?,
            '\\' => out.write_all(b"\\\\")?,
            '\n' => out.write_all(b"\\n")?,
            '\r' => out.write_all(b"\\r")?,
            '\t' => out.write_all(b"\\t")?,
            '<' | '>' | '&' => write_units(character, out)?,
            ' ' => out.write_all(b" ")?,
            _ if is_visible(character) => {
                let mut buffer = [0; 4];
                out.write_all(character.encode_utf8(&mut buffer).as_bytes())?;
            }
            _ => write_units(character, out)?,
        }
    }
    out.write_all(b"\"")
}

fn write_units(character: char, out: &mut dyn Write) -> io::Result<()> {
    let mut buffer = [0; 2];
    for unit in character.encode_utf16(&mut buffer) {
        write!(out, "\\u{unit:04x}")?;
    }
    Ok(())
}

/// Writes `[item,item,…]`.
pub(super) fn json_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut dyn Write,
    mut write_item: impl FnMut(T, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        write_item(item, out)?;
    }
    out.write_all(b"]")
}

/// Writes a finite number in its shortest form that reads back as the same f32; whole numbers without point.
pub(super) fn number(value: f32, out: &mut dyn Write) -> io::Result<()> {
    if value == 0.0 {
        out.write_all(b"0")
    } else if value.to_bits() == 1.0_f32.to_bits() {
        out.write_all(b"1")
    } else {
        Ok(serde_json::to_writer(out, &value)?)
    }
}

/// `text` as XML or HTML text or attribute value.
pub(super) fn markup(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            // XML has no control characters, and a name must not turn a page's text around
            _ if !is_visible(character) && character != ' ' => escaped.extend(character.escape_unicode()),
            _ => escaped.push(character),
        }
    }
    escaped
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Passes bytes on as base64 with padding; [`Base64::finish`] writes the last group.
pub(super) struct Base64<'out> {
    out: &'out mut dyn Write,
    group: [u8; 3],
    held: usize,
}

impl<'out> Base64<'out> {
    pub(super) fn new(out: &'out mut dyn Write) -> Self {
        Self { out, group: [0; 3], held: 0 }
    }

    fn flush_group(&mut self) -> io::Result<()> {
        let [first, second, third] = self.group;
        let bits = u32::from(first) << 16 | u32::from(second) << 8 | u32::from(third);
        let mut characters = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]);
        // n bytes fill n + 1 characters
        characters[self.held + 1..].fill(b'=');
        self.group = [0; 3];
        self.held = 0;
        self.out.write_all(&characters)
    }

    /// Writes what is still held back.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.held > 0 { self.flush_group() } else { Ok(()) }
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.group[self.held] = byte;
            self.held += 1;
            if self.held == 3 {
                self.flush_group()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> String {
        let mut out = Vec::new();
        json_string(text, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn base64(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        let mut encoder = Base64::new(&mut out);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_strings_hold_nothing_active() {
        assert_eq!(json("a\"\\\n é"), r#""a\"\\\n é""#);
        assert_eq!(json("</script>"), r#""\u003c/script\u003e""#);
        assert_eq!(json("\u{1b}\u{9b}\u{2028}\u{e0041}"), r#""\u001b\u009b\u2028\udb40\udc41""#);
    }

    #[test]
    fn base64_is_that_of_rfc_4648_section_10() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), expected);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn numbers_are_short_and_exact() {
        for (value, expected) in [(0.0, "0"), (-0.0, "0"), (1.0, "1"), (0.25, "0.25"), (1e-30, "1e-30")] {
            let mut out = Vec::new();
            number(value, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn json_strings_read_back(text in any::<String>()) {
            prop_assert_eq!(serde_json::from_str::<String>(&json(&text)).unwrap(), text);
        }
    }
}
