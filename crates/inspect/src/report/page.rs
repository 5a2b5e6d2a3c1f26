//! How a page that works offline is put together: template, style and scripts become one file, with the data between.
//!
//! Nothing a page does can leave it or be changed by a token: the content security policy allows the page's own style and
//! script by their hashes and nothing else, and tokens are data (JSON without markup) that is shown as text only.

use super::escape::Base64;
use crate::error::Result;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// The parts of a page.
pub(super) struct Page {
    /// HTML with `{{name}}` where something is filled in.
    pub(super) template: &'static str,
    pub(super) style: &'static [&'static str],
    pub(super) script: &'static [&'static str],
}

impl Page {
    /// Writes the page; `fill` writes what every name but those of style and script stands for.
    ///
    /// # Errors
    /// Those of `fill` and `out`.
    pub(super) fn write(
        &self,
        out: &mut dyn Write,
        mut fill: impl FnMut(&str, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let (style, script) = (joined(self.style), joined(self.script));
        let mut pieces = self.template.split("{{");
        out.write_all(pieces.next().unwrap_or_default().replace('\r', "").as_bytes())?;
        for piece in pieces {
            let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
            match name {
                "style" => out.write_all(style.as_bytes())?,
                "script" => out.write_all(script.as_bytes())?,
                "style_hash" => write_hash(&style, out)?,
                "script_hash" => write_hash(&script, out)?,
                // a test holds the template to names that are known
                _ => fill(name, out)?,
            }
            out.write_all(rest.replace('\r', "").as_bytes())?;
        }
        Ok(())
    }
}

/// The parts as one text with plain line feeds: browsers hash what they parsed, and they parse CR LF as LF.
fn joined(parts: &[&str]) -> String {
    parts.concat().replace('\r', "")
}

/// Writes `sha256-…` as the content security policy wants it.
fn write_hash(text: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"sha256-")?;
    let mut encoder = Base64::new(out);
    encoder.write_all(&Sha256::digest(text))?;
    encoder.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Fails unless the template has these names, the page nothing left of them, the policy the page's own hashes, and the
    /// style what holds on paper last.
    pub(in super::super) fn check(template: &str, names: &[&str], page: &str) {
        let used: Vec<&str> =
            template.split("{{").skip(1).map(|piece| piece.split_once("}}").unwrap().0).collect();
        let own = ["style", "script", "style_hash", "script_hash"];
        assert!(names.iter().chain(&own).all(|name| used.contains(name)), "{used:?}");
        assert!(used.iter().all(|name| names.contains(name) || own.contains(name)), "{used:?}");
        assert!(!page.contains("{{"));
        assert!(page.contains("default-src 'none'"));
        for (open, close, directive) in
            [("<style>", "</style>", "style-src"), ("<script>", "</script>", "script-src")]
        {
            let content = page.split_once(open).unwrap().1.split_once(close).unwrap().0;
            let mut hash = Vec::new();
            write_hash(content, &mut hash).unwrap();
            let policy = format!("{directive} '{}'", String::from_utf8(hash).unwrap());
            assert!(page.contains(&policy), "{policy}");
        }
        let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        let (_, printed) = style.split_once("@media print {").unwrap();
        for block in printed.split("@media print {") {
            let end = block.find("\n}").unwrap();
            assert_eq!(block[end + 2..].trim(), "", "a rule after those of paper wins over them");
        }
    }

    /// The data of a page.
    pub(in super::super) fn data(page: &str) -> serde_json::Value {
        let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }
}
