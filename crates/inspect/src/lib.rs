//! What attention looks at: captured patterns, head scores, reports.
//!
//! Reading order: [`each_layer`] reads patterns through a tap; [`AttentionMaps`] checks them; [`report`] writes them in every format;
//! [`scores`] puts numbers on single patterns; [`ablation`] takes heads away, and [`effect`] measures what that costs;
//! [`survey`] does all of it for every head; [`lens`] takes a logit apart, and [`patch`] finds what carries it; [`labels`] makes tokens safe and visible.
//!
//! ```
//! use softdict_inspect::report::{self, Format, Style};
//! use softdict_inspect::{AttentionMaps, MapParts};
//!
//! let parts = MapParts {
//!     tokens: vec!["soft".into(), " dict".into()],
//!     token_ids: vec![3, 5],
//!     prompt_tokens: 1,
//!     layers: vec![0],
//!     heads: vec![0],
//!     causal: true,
//!     ablated: vec![],
//! };
//! let maps = AttentionMaps::new(parts, vec![1.0, 0.0, 0.25, 0.75])?;
//! let mut bytes = Vec::new();
//! report::write(Format::Csv, &maps, &Style::default(), &mut bytes)?;
//! assert!(String::from_utf8_lossy(&bytes).contains("0,0,1,0,\"·dict\",\"soft\",0.25"));
//! # Ok::<(), softdict_inspect::InspectError>(())
//! ```

pub mod ablation;
mod capture;
pub mod difference;
pub mod effect;
mod error;
pub mod labels;
pub mod lens;
pub mod lookup;
mod maps;
pub mod passages;
pub mod patch;
pub mod report;
mod rows;
pub mod scores;
pub mod survey;

pub use capture::{FORMING, capture, each_layer};
pub use error::{InspectError, Result};
pub use maps::{AttentionMaps, Layer, MapParts, Shape};
