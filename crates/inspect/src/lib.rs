//! What attention looks at: captured patterns, head scores, reports.
//!
//! Reading order: [`capture`] reads patterns through a tap; [`AttentionMaps`] holds them; [`report`] writes it in every format;
//! [`scores`] puts numbers on single patterns; [`labels`] makes tokens safe and visible.
//!
//! ```
//! use softdict_inspect::report::{self, Format, Style};
//! use softdict_inspect::{AttentionMaps, MapParts};
//!
//! let maps = AttentionMaps::new(MapParts {
//!     tokens: vec!["soft".into(), " dict".into()],
//!     token_ids: vec![3, 5],
//!     prompt_tokens: 1,
//!     layers: vec![0],
//!     heads: vec![0],
//!     causal: true,
//!     values: vec![1.0, 0.0, 0.25, 0.75],
//! })?;
//! let mut bytes = Vec::new();
//! report::write(Format::Csv, &maps, &Style::default(), &mut bytes)?;
//! assert!(String::from_utf8_lossy(&bytes).contains("0,0,1,0,\"·dict\",\"soft\",0.25"));
//! # Ok::<(), softdict_inspect::InspectError>(())
//! ```

mod capture;
mod error;
pub mod labels;
mod maps;
pub mod report;
pub mod scores;

pub use capture::{ScoreOptions, capture, score_heads};
pub use error::{InspectError, Result};
pub use maps::{AttentionMaps, MapParts, Shape};
