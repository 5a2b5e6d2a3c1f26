//! The command line of what makes and converts files.

use super::Which;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A run or checkpoint folder
    pub(crate) checkpoint: PathBuf,
    /// For which programs [default: by the name, npz for .npz, else hf]
    #[arg(long)]
    pub(crate) format: Option<ExportFormat>,
    /// How weights are stored
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    pub(crate) dtype: Stored,
    /// Where to write it: a new folder (hf) or a file (npz)
    #[arg(long, value_name = "PATH")]
    pub(crate) out: PathBuf,
    /// Which checkpoint of a run
    #[arg(long, value_name = "last|best", default_value = "best")]
    pub(crate) which: Which,
}

/// What a checkpoint is exported as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// A folder for transformers
    Hf,
    /// A file of numpy arrays
    Npz,
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stored {
    /// As they are
    F32,
    /// Half precision
    F16,
    /// bfloat16
    Bf16,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A folder with config.json, model.safetensors and tokenizer.json
    pub(crate) folder: PathBuf,
    /// The new checkpoint
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Tokenizer {
    #[command(subcommand)]
    pub(crate) action: TokenizerAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenizerAction {
    /// Learn a vocabulary from a text and write it as tokenizer.json
    Train {
        /// The text to learn from
        text: PathBuf,
        /// char, byte or bpe
        #[arg(long, default_value = "bpe")]
        kind: softdict_tokenizer::Kind,
        /// Entries of a bpe vocabulary [default: by the size of the text]
        #[arg(long, value_name = "N")]
        vocab_size: Option<usize>,
        /// Where to write it
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Text to token ids
    Encode {
        /// A checkpoint, run, or tokenizer.json
        tokenizer: PathBuf,
        /// The text [default: standard input]
        #[arg(allow_hyphen_values = true)]
        text: Option<String>,
    },
    /// Token ids, separated by spaces, to text
    Decode {
        /// A checkpoint, run, or tokenizer.json
        tokenizer: PathBuf,
        /// The ids [default: standard input]
        ids: Vec<u32>,
    },
    /// List the vocabulary
    Show {
        /// A checkpoint, run, or tokenizer.json
        tokenizer: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Corpus {
    /// pronouns, dictionaries, tales (both mixed) or referents
    #[arg(default_value = "tales")]
    pub(crate) kind: softdict_corpus::Tale,
    /// How many lines
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) lines: usize,
    /// Another seed, another text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell
    pub(crate) shell: clap_complete::Shell,
}
