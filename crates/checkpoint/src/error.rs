//! What can be wrong with a checkpoint, always with the file and the offending tensor, key or value.

use std::io;
use std::path::{Path, PathBuf};

/// A checkpoint could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder is no run and no checkpoint.
    #[error(
        "{} is neither a run folder (no `last`, no step-NNNNNN) nor a checkpoint folder (no config.json)",
        path.display()
    )]
    NotACheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// A file was given where a folder is needed.
    #[error("{} is a file; give the folder that holds config.json and model.safetensors", path.display())]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// A run has no checkpoint under this name yet.
    #[error("{} has no `{name}`: no such checkpoint has been saved in this run yet", run.display())]
    NoPointer {
        /// The run folder.
        run: PathBuf,
        /// `last` or `best`.
        name: String,
    },
    /// `last` or `best` does not lead to a checkpoint.
    #[error(
        "{} points to {target}, which is no checkpoint folder (no config.json); remove it or restore the folder",
        link.display()
    )]
    Dangling {
        /// The pointer.
        link: PathBuf,
        /// Where it points.
        target: String,
    },
    /// A name for a pointer, a target or a file that is not one plain name.
    #[error("{name:?} in {} is not a plain name", folder.display())]
    Name {
        /// The folder that it belongs to.
        folder: PathBuf,
        /// The name.
        name: String,
    },
    /// A folder that a checkpoint would replace holds something else.
    #[error(
        "{} is there already and is no checkpoint of softdict (no softdict.json); nothing was changed, choose \
         another folder",
        path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A path under which no folder can be put.
    #[error("{:?} has no name to put a folder under; give one, such as ./checkpoint", path.display().to_string())]
    Unnamed {
        /// The path.
        path: PathBuf,
    },
    /// A file that the checkpoint needs is gone.
    #[error("{} is missing: {need}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What needs it, and what to do.
        need: &'static str,
    },
    /// Something that is no regular file lies where a file should.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// A file is larger than anything of its kind.
    #[error("{} has {bytes} bytes; softdict reads at most {most} of such a file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// A file is not the one that was saved.
    #[error(
        "{} differs from the file that was saved: its {what} is {found}, softdict.json says {recorded}; restore it, \
         or delete softdict.json if the change is meant",
        path.display()
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// What was compared.
        what: &'static str,
        /// What it is.
        found: String,
        /// What the manifest says.
        recorded: String,
    },
    /// A later version of this program wrote the manifest.
    #[error("{} has format {found}, this softdict reads up to {known}; use a newer one", path.display())]
    Newer {
        /// The manifest.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known format.
        known: u32,
    },
    /// A file is not the JSON that it should be.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A key has a value that softdict has no use for.
    #[error("{}: {key} is {value}, but {expected}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// The model that a file describes cannot be.
    #[error("{} describes a model that cannot be, in the words of softdict's settings: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: softdict_model::ModelError,
    },
    /// A pickle, which is a program.
    #[error(
        "{} is a pickle: opening one runs code from the file, so softdict never does; convert the model where you \
         trust it, in Python: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)",
        path.display()
    )]
    Pickle {
        /// The file.
        path: PathBuf,
    },
    /// The length that a safetensors file states for its header is wrong.
    #[error("{} states a header of {header} bytes and has {bytes} bytes; {expected}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The stated length.
        header: u64,
        /// The file's size.
        bytes: u64,
        /// What would be right.
        expected: String,
    },
    /// A file is not what safetensors allows.
    #[error("{} is no valid safetensors file (cut short or damaged?): {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the model needs is not there.
    #[error("{}: the tensor {tensor} is missing, which config.json asks for", path.display())]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor that the model has no place for.
    #[error("{}: the tensor {tensor} has no place in the model of config.json", path.display())]
    ExtraTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor occurs twice, under one name or under two.
    #[error("{}: the tensor {tensor} is there twice", path.display())]
    DoubleTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error("{}: the tensor {tensor} has shape {found:?}, config.json says {expected:?}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape of the configuration.
        expected: Vec<usize>,
    },
    /// A tensor has a type that is not read.
    #[error("{}: the tensor {tensor} has type {dtype}; softdict reads F32, F16 and BF16", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor holds infinity or no number at all.
    #[error("{}: the tensor {tensor} holds a value that is not finite", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A weight does not fit the type that it is to be stored in.
    #[error("{}: {value} in the tensor {tensor} is beyond the range of {dtype}; store it as bfloat16 or float32", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The weight.
        value: f32,
        /// The type.
        dtype: &'static str,
    },
    /// A tied head is stored and is not the embedding.
    #[error(
        "{}: tie_word_embeddings makes {tensor} the embedding {embedding}, but their values differ",
        path.display()
    )]
    Untied {
        /// The file.
        path: PathBuf,
        /// The head.
        tensor: String,
        /// The embedding.
        embedding: String,
    },
    /// Parameters and configuration handed to [`crate::save`] belong to different models.
    #[error("{}: the parameters to be saved are those of another configuration", path.display())]
    OtherConfiguration {
        /// The checkpoint to be written.
        path: PathBuf,
    },
}

impl Error {
    /// What turns an operating system's error into one that names `path` and what was tried.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, action, source }
    }

    /// What turns a JSON error into one that names `path`.
    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Json { path, source }
    }
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
