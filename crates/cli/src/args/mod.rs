//! The command line, as clap reads it; what the values mean is decided elsewhere.

mod files;
mod inspect;

use clap::{Args, Parser, Subcommand};
pub(crate) use files::{
    Completions, Corpus, Export, ExportFormat, Import, Stored, Tokenizer, TokenizerAction,
};
pub(crate) use inspect::{Attention, Diff, Explain, Heads, History, Lens, Lookup, Patch, Tales};
use softdict_inspect::ablation::Ablation;
use std::path::PathBuf;

/// Trains tiny transformers on a text file and shows what every attention head learned to look up.
#[derive(Debug, Parser)]
#[command(name = "softdict", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model on a text; without a text, on the embedded tales
    Train(Train),
    /// Continue a prompt
    Sample(Sample),
    /// Loss of a checkpoint on its own splits or on another text
    Eval(Eval),
    /// What every head attends to on a prompt
    Attention(Attention),
    /// Where every head looks, and what the model loses without it
    Heads(Heads),
    /// The lookup table of every head, as its weights have it and as a text uses it
    Lookup(Lookup),
    /// What each layer would predict, and which parts a logit comes from
    Lens(Lens),
    /// Which activations carry the difference between two prompts
    Patch(Patch),
    /// What changed between two checkpoints on a prompt
    Diff(Diff),
    /// Draw a run's loss, learning rate and heads over its steps
    History(History),
    /// Write a checkpoint for other programs
    Export(Export),
    /// Take a folder that transformers wrote over as a checkpoint
    Import(Import),
    /// The ideas behind it, computed
    Explain(Explain),
    /// Train, apply and show tokenizers
    Tokenizer(Tokenizer),
    /// Speed of this build on this machine, as shares of the machine's peaks
    Bench(Bench),
    /// Parameters, operations, memory and time of a model, and what length does to them
    Cost(Cost),
    /// What a model learned of the embedded tales, and which heads know it
    Tales(Tales),
    /// Print the embedded tales
    Corpus(Corpus),
    /// Print a completion script for a shell
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The text to train on
    pub(crate) text: Option<PathBuf>,
    /// A settings file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override a setting, such as model.layers=4; may be repeated; docs/settings.md lists them
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The run's folder [default: checkpoints/NAME, after the text]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the run in the folder
    #[arg(long, conflicts_with_all = ["from", "overwrite"])]
    pub(crate) resume: bool,
    /// Start a new run from a checkpoint's weights and tokenizer
    #[arg(long, value_name = "CKPT")]
    pub(crate) from: Option<PathBuf>,
    /// Replace the run in the folder
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Train although more memory is needed than is free
    #[arg(long)]
    pub(crate) force: bool,
    /// Seed of everything random; the same as --set train.seed=N
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) machine: Machine,
}

#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// A run or checkpoint folder [default: the settings']
    pub(crate) checkpoint: Option<PathBuf>,
    /// A text, whose documents (between blank lines) are counted each on its own
    #[arg(requires = "checkpoint")]
    pub(crate) text: Option<PathBuf>,
    /// A settings file (TOML)
    #[arg(long, value_name = "FILE", conflicts_with = "checkpoint")]
    pub(crate) config: Option<PathBuf>,
    /// Override a setting, such as model.layers=4; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "checkpoint")]
    pub(crate) set: Vec<String>,
    /// Tokens of the vocabulary, without a checkpoint
    #[arg(long, value_name = "V", default_value = "65", conflicts_with = "checkpoint")]
    pub(crate) vocab: std::num::NonZeroUsize,
    /// Sequences of a training step [default: the settings']
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: Option<u32>,
    /// Lengths to compare, with commas between; the first is what others are forecast from
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "12,100,1000,10000",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) lengths: Vec<u32>,
    /// Which checkpoint of a run
    #[arg(long, value_name = "last|best", default_value = "best")]
    pub(crate) which: Which,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the CPU [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Time only this work: A, B, C, D256, D1024, D4096 or D16384; may be repeated
    #[arg(long, value_name = "WORK")]
    pub(crate) work: Vec<String>,
    /// Time only this precision of training
    #[arg(long, value_name = "DTYPE")]
    pub(crate) dtype: Option<Dtype>,
    /// Time sampling from the work's model instead of its training
    #[arg(long, requires = "work")]
    pub(crate) sampling: bool,
    /// Samples that grow together
    #[arg(long, value_name = "N", default_value = "1", requires = "sampling")]
    pub(crate) samples: std::num::NonZeroUsize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the CPU [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

/// Precision of products.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Dtype {
    /// As they are
    F32,
    /// Operands rounded to bf16
    Bf16,
}

impl From<Dtype> for softdict_trainer::Dtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}

/// Where to compute.
#[derive(Debug, Args)]
pub(crate) struct Machine {
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Threads of the CPU [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// The text to continue
    #[arg(long, allow_hyphen_values = true, conflicts_with = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// A file with the text to continue; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// New tokens at most [default: 200]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<usize>,
    /// Below 1 safer, above 1 bolder, 0 always the likeliest [default: the run's]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub(crate) temperature: Option<f32>,
    /// Draw from the K likeliest tokens; 0 is off
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(crate) top_k: Option<i64>,
    /// Draw from the fewest tokens that hold this share of the probability
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) top_p: Option<f32>,
    /// Draw from tokens at least this share as likely as the likeliest
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) min_p: Option<f32>,
    /// Above 1 makes tokens that occurred less likely
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// Stop before this text; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
    /// Seed of the draw [default: a new one, printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many continuations
    #[arg(long, value_name = "N")]
    pub(crate) num_samples: Option<usize>,
    /// Read prompts from the terminal, one a line, until Ctrl-D
    #[arg(long, conflicts_with_all = ["prompt", "prompt_file", "num_samples", "json"])]
    pub(crate) interactive: bool,
    /// Take a head away first, as LAYER.HEAD: its output becomes zero, or its mean over the text; may be repeated
    #[arg(long, value_name = "L.H[=zero|mean]")]
    pub(crate) ablate: Vec<Ablation>,
    /// Compute every token anew from the whole text; the same result, slower
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// One JSON object a sample
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

/// Which checkpoint is opened, and where it is computed.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// Which checkpoint of a run
    #[arg(long, value_name = "last|best", default_value = "best")]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) machine: Machine,
}

/// Which checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    Last,
    Best,
}

/// Which part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Split {
    Val,
    Train,
    All,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// Another text [default: the run's own]
    pub(crate) text: Option<PathBuf>,
    /// Which part of the run's text [default: val]; another text is taken whole
    #[arg(long, conflicts_with = "text")]
    pub(crate) split: Option<Split>,
    /// Take a head away first, as LAYER.HEAD: its output becomes zero, or its mean over the text; may be repeated
    #[arg(long, value_name = "L.H[=zero|mean]")]
    pub(crate) ablate: Vec<Ablation>,
    /// Sequences at once; changes the speed, not the result
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) batch: std::num::NonZeroUsize,
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}
