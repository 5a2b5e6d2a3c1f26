//! Attention as CSV, one weight a line: `layer,head,query,key,query_token,key_token,weight`.
//!
//! Every pair is there, the causal zeros too, so that the table pivots into a full matrix. Tokens are the
//! visible labels of [`crate::labels`], always quoted (RFC 4180, but with plain line feeds).
//!
//! A label that starts with `=`, `+`, `-` or `@` (or their full-width forms) gets an apostrophe before it:
//! spreadsheets would run it as a formula. The JSON has the tokens unchanged.

use std::io::Write;

use super::escape::number;
use crate::error::Result;
use crate::labels::label;
use crate::maps::AttentionMaps;

const FORMULA_STARTS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Writes `maps` as CSV with a header line.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, out: &mut dyn Write) -> Result<()> {
    let cells: Vec<String> = maps.tokens().iter().map(|token| cell(token)).collect();
    writeln!(out, "layer,head,query,key,query_token,key_token,weight")?;
    maps.each_layer(&mut |layer| {
        for (head, pattern) in layer.patterns() {
            for (query, row) in pattern.chunks_exact(maps.len()).enumerate() {
                for (key, &weight) in row.iter().enumerate() {
                    write!(out, "{},{head},{query},{key},{},{},", layer.number, cells[query], cells[key])?;
                    number(weight, out)?;
                    out.write_all(b"\n")?;
                }
            }
        }
        Ok(())
    })
}

fn cell(token: &str) -> String {
    let shown = label(token).replace('"', "\"\"");
    let guard = if shown.starts_with(FORMULA_STARTS) { "'" } else { "" };
    format!("\"{guard}{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::uniform;

    #[test]
    fn every_pair_has_its_line() {
        let mut out = Vec::new();
        write(&uniform(&["a,\"", " b\n"], 1, 1), &mut out).unwrap();
        let expected = "layer,head,query,key,query_token,key_token,weight\n\
             0,0,0,0,\"a,\"\"\",\"a,\"\"\",1\n\
             0,0,0,1,\"a,\"\"\",\"·b⏎\",0\n\
             0,0,1,0,\"·b⏎\",\"a,\"\"\",0.5\n\
             0,0,1,1,\"·b⏎\",\"·b⏎\",0.5\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn formulas_are_defused() {
        assert_eq!(cell("=1+2"), "\"'=1+2\"");
        assert_eq!(cell("@SUM(A1)"), "\"'@SUM(A1)\"");
        assert_eq!(cell("－1"), "\"'－1\"");
        assert_eq!(cell("\t=1"), "\"⇥=1\"");
        assert_eq!(cell("a=1"), "\"a=1\"");
        assert_eq!(cell(""), "\"∅\"");
    }
}
