//! One file a command.

pub(crate) mod attention;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod corpus;
pub(crate) mod cost;
pub(crate) mod diff;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod heads;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod lens;
pub(crate) mod lookup;
pub(crate) mod patch;
pub(crate) mod sample;
pub(crate) mod tales;
pub(crate) mod tokenizer;
pub(crate) mod train;
