//! Attention in every format: one writer each, all streaming.
//!
//! [`write()`] picks the writer; [`Format`] is what the command line names; [`Format::size_estimate`] says in
//! advance how large the file gets. For programs: [`json`], [`npy`], [`safetensors`], [`csv`]. For eyes:
//! [`png`], [`svg`], [`html`], [`term`]; [`heads`] is a page of all heads over a text. No report refers to anything outside itself.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use crate::error::{InspectError, Result};
use crate::maps::{AttentionMaps, Shape};

mod colour;
pub mod csv;
mod escape;
mod font;
pub mod heads;
pub mod history;
pub mod html;
pub mod json;
pub mod npy;
mod page;
pub mod png;
pub mod safetensors;
pub mod svg;
pub mod term;

pub use term::Style;

/// A way to write attention down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text for a terminal.
    Term,
    /// JSON with every weight.
    Json,
    /// A `NumPy` array.
    Npy,
    /// A safetensors file with weights and token ids.
    Safetensors,
    /// One weight a line.
    Csv,
    /// A picture of all heads.
    Png,
    /// A labelled drawing.
    Svg,
    /// An interactive page.
    Html,
}

impl Format {
    /// Every format, in the order in which they are named.
    pub const ALL: [Self; 8] =
        [Self::Term, Self::Json, Self::Npy, Self::Safetensors, Self::Csv, Self::Png, Self::Svg, Self::Html];

    /// The name that `--format` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "term",
            Self::Json => "json",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
            Self::Csv => "csv",
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Html => "html",
        }
    }

    /// The format that a file name asks for; `.txt` is the terminal's text, `.htm` is HTML.
    ///
    /// # Errors
    /// [`InspectError::Extension`] for any other name.
    pub fn from_extension(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "txt" => Ok(Self::Term),
            "htm" => Ok(Self::Html),
            // `.term` is nobody's extension
            "term" => Err(InspectError::Extension { path: path.to_owned() }),
            other => other.parse().map_err(|_| InspectError::Extension { path: path.to_owned() }),
        }
    }

    /// About how many bytes a report of this shape takes: exact to the header for NPY and safetensors, within
    /// a factor of about three for the others, which depend on the labels and on how spread attention is.
    pub fn size_estimate(self, shape: &Shape) -> u64 {
        // f64 because the conversion back saturates where a product of sizes would overflow
        let [layers, heads, tokens] = [shape.layers, shape.heads, shape.tokens].map(|size| size as f64);
        let (maps, weights) = (layers * heads, layers * heads * tokens * tokens);
        // half of a causal map is zeros; the factors are means over random causal maps
        let bytes = match self {
            Self::Npy => 128.0 + weights * 4.0,
            Self::Safetensors => 512.0 + weights * 4.0 + tokens * 16.0,
            Self::Json => 200.0 + weights * 7.5 + tokens * 16.0,
            Self::Csv => 60.0 + weights * 30.0,
            Self::Term if tokens > 80.0 => 200.0 + maps * tokens * 80.0,
            Self::Term => 200.0 + weights * 3.5 + maps * tokens * 50.0,
            Self::Png => 2_000.0 + weights * 0.9 + maps * 400.0,
            Self::Svg if svg::draws_cells(shape) => 2_000.0 + weights * 65.0 + maps * tokens * 300.0,
            Self::Svg => 2_000.0 + weights * 0.6 + maps * 6_000.0,
            Self::Html => html::size_estimate(shape),
        };
        bytes as u64
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = InspectError;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| InspectError::Format { found: name.escape_debug().to_string() })
    }
}

/// Writes `maps` to `out` in `format`; `style` is for the terminal alone. Buffer `out`.
///
/// # Errors
/// [`InspectError::Write`] where `out` fails; [`InspectError::Picture`] where a PNG would be too large.
pub fn write(format: Format, maps: &AttentionMaps<'_>, style: &Style, out: &mut dyn Write) -> Result<()> {
    match format {
        Format::Term => term::write(maps, style, out),
        Format::Json => json::write(maps, out),
        Format::Npy => npy::write(maps, out),
        Format::Safetensors => safetensors::write(maps, out),
        Format::Csv => csv::write(maps, out),
        Format::Png => png::write(maps, out),
        Format::Svg => svg::write(maps, out),
        Format::Html => html::write(maps, out),
    }
}

#[cfg(test)]
mod tests;
