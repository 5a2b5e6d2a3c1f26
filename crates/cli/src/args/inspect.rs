//! Arguments of the commands that look inside a model.

use super::Source;
use clap::Args;
use softdict_inspect::ablation::Ablation;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Attention {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The text to look at
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prompt: String,
    /// Continue the prompt by N likeliest tokens first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) generate: usize,
    /// Only these layers, as in 0,2 [default: all]
    #[arg(long, value_name = "L", value_delimiter = ',')]
    pub(crate) layer: Vec<usize>,
    /// Only these heads, as in 1,3 [default: all]
    #[arg(long, value_name = "H", value_delimiter = ',')]
    pub(crate) head: Vec<usize>,
    /// Take a head away first, as LAYER.HEAD: its output becomes zero, or its mean over the run's text; may be repeated
    #[arg(long, value_name = "L.H[=zero|mean]")]
    pub(crate) ablate: Vec<Ablation>,
    /// Write here [default: standard output]
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// term, json, npy, safetensors, csv, png, svg or html [default: by the name of --out, else term]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<softdict_inspect::report::Format>,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Heads {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The text to measure on [default: the run's validation split]
    pub(crate) text: Option<PathBuf>,
    /// Tokens of the text on which heads are taken away, to whole windows [default: what takes a minute or two, at most 100,000]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<std::num::NonZeroUsize>,
    /// As a JSON list
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with every head's scores, dictionary and passages here, instead
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Lookup {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The text that uses the table [default: the run's validation split]
    pub(crate) text: Option<PathBuf>,
    /// Only these layers, as in 0,2 [default: all]
    #[arg(long, value_name = "L", value_delimiter = ',')]
    pub(crate) layer: Vec<usize>,
    /// Only these heads, as in 1,3 [default: all]
    #[arg(long, value_name = "H", value_delimiter = ',')]
    pub(crate) head: Vec<usize>,
    /// Show the lines of this token; may be repeated [default: the pairs with the most attention, and frequent tokens]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) token: Vec<String>,
    /// How far before the query the keys stand, for RoPE
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) distance: usize,
    /// Lines of each table, and tokens of each line
    #[arg(long, value_name = "K", default_value = "5")]
    pub(crate) top: std::num::NonZeroUsize,
    /// Which heads read what earlier ones wrote, instead
    #[arg(long, conflicts_with_all = ["text", "layer", "head", "token", "distance"])]
    pub(crate) composition: bool,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Lens {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The text to read
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prompt: String,
    /// Look at what is predicted after this token of the prompt, counted from 0 [default: the last]
    #[arg(long, value_name = "N")]
    pub(crate) position: Option<usize>,
    /// Take the logit of this token apart [default: the likeliest]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// Take apart its lead over this token instead
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) against: Option<String>,
    /// Tokens shown of each layer's prediction
    #[arg(long, value_name = "K", default_value = "5")]
    pub(crate) top: std::num::NonZeroUsize,
    /// Take a head away first, as LAYER.HEAD: its output becomes zero, or its mean over the run's text; may be repeated
    #[arg(long, value_name = "L.H[=zero|mean]")]
    pub(crate) ablate: Vec<Ablation>,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Patch {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The prompt whose activations are put in
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) clean: String,
    /// The prompt that is read, of as many tokens
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) corrupt: String,
    /// The answer to the clean prompt [default: the likeliest]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// The answer to the corrupt prompt [default: the likeliest]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) against: Option<String>,
    /// Places shown of each kind
    #[arg(long, value_name = "K", default_value = "10")]
    pub(crate) top: std::num::NonZeroUsize,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Tales {
    /// A run or checkpoint folder that was trained on the tales
    pub(crate) checkpoint: PathBuf,
    /// Lines of each kind
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) lines: u32,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// A run or checkpoint folder
    pub(crate) before: PathBuf,
    /// Another one of the same shape and tokenizer
    pub(crate) after: PathBuf,
    /// The text to read
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) prompt: String,
    /// Tokens and heads shown
    #[arg(long, value_name = "K", default_value = "8")]
    pub(crate) top: std::num::NonZeroUsize,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// A run's folder
    pub(crate) run: PathBuf,
    /// Write here, a picture (.png), a drawing (.svg) or a page (.html)
    #[arg(long, value_name = "PATH")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// What to explain; without it, the list of topics
    pub(crate) topic: Option<String>,
}
