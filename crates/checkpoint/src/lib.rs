//! Checkpoints as Hugging Face folders, both ways, written atomically.
//!
//! A checkpoint is a folder that `transformers` opens as it stands, whenever one of its families can express the
//! model, plus a manifest with the SHA-256 of every file. The same loader opens folders that transformers wrote.
//!
//! Reading order: [`save`] and [`load`] (a checkpoint), `hf` (what each family calls a setting and a tensor: one
//! table each, used both ways), `tensors` (safetensors), [`Manifest`], `file` and `folder` (atomic writes) and `run`
//! (the folder of a run with its `last` and `best`).
//!
//! Files come from anywhere: nothing in one is believed before it is checked against the file's real size, nothing
//! is executed, and every refusal names the file and the tensor or key.

mod error;
mod file;
mod folder;
mod hf;
mod load;
mod manifest;
mod run;
mod save;
mod tensors;
mod trainer;

pub use error::{Error, Result};
pub use folder::{OWN_FILES, clean_up, remove_checkpoint};
pub use hf::Family;
pub use load::{Checkpoint, load};
pub use manifest::{FileRecord, Manifest, Progress};
pub use run::{Which, list_steps, mend_pointers, point, prune, resolve, step_folder};
pub use save::{Contents, annotate, save, save_as};
pub use tensors::WeightType;
pub use trainer::{TrainerState, TrainerTensors, load_trainer};
