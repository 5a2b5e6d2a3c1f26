//! The folder of a run: its checkpoints by step, and `last` and `best` that point to two of them.

use crate::error::{Error, Result};
use crate::file::read_limited;
use crate::folder::remove_checkpoint;
use crate::manifest::Manifest;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Which checkpoint of a run is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that training would go on from.
    Last,
    /// The one with the lowest validation loss.
    Best,
}

impl Which {
    /// The name under which a run keeps it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }
}

/// The file that makes a folder a checkpoint.
pub(crate) const CONFIG: &str = "config.json";

/// A pointer kept as a file holds one name.
const MOST_POINTER: u64 = 4096;

/// The name of the checkpoint after `step` updates: `step-000123`.
pub fn step_folder(step: u64) -> String {
    format!("step-{step:06}")
}

/// Whether `name` is a single name, which cannot lead out of its folder.
pub(crate) fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
    plain && !name.contains(['/', '\\'])
}

fn plain<'a>(folder: &Path, name: &'a str) -> Result<&'a str> {
    if is_plain(name) {
        return Ok(name);
    }
    Err(Error::Name { folder: folder.to_path_buf(), name: name.to_owned() })
}

/// Refuses a file where a folder is needed, and a missing path.
pub(crate) fn require_folder(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(Error::io(path, "open the folder"))?;
    if metadata.is_dir() {
        return Ok(());
    }
    if metadata.is_file() {
        crate::tensors::refuse_pickle(path)?;
    }
    Err(Error::NotAFolder { path: path.to_path_buf() })
}

/// The checkpoint folder that `path` means: itself, or that of a run which `which` says.
///
/// The last of a run that has none yet is its newest checkpoint, as a kill between saving it and pointing to it
/// leaves it.
///
/// # Errors
/// When there is no such checkpoint; says what was looked for.
pub fn resolve(path: &Path, which: Which) -> Result<PathBuf> {
    require_folder(path)?;
    if path.join(CONFIG).exists() {
        return Ok(path.to_path_buf());
    }
    if let Some(found) = pointed(path, which.name())? {
        return Ok(found);
    }
    let newest = list_steps(path)?.pop();
    match (newest, which) {
        (Some((_, folder)), Which::Last) => Ok(folder),
        (None, Which::Best) if pointed(path, Which::Last.name())?.is_none() => {
            Err(Error::NotACheckpoint { path: path.to_path_buf() })
        }
        (None, Which::Last) => Err(Error::NotACheckpoint { path: path.to_path_buf() }),
        (_, Which::Best) => Err(Error::NoPointer { run: path.to_path_buf(), name: which.name().to_owned() }),
    }
}

/// The name in `run` of what a link in it leads to, however it is written, if that is in `run` itself.
fn inside(run: &Path, target: &Path) -> Option<String> {
    let target = run.join(target);
    let same = target.parent()?.canonicalize().ok()? == run.canonicalize().ok()?;
    same.then(|| target.file_name().map(|name| name.to_string_lossy().into_owned())).flatten()
}

/// Where a pointer of a run leads, which is a checkpoint in the run: a link, a file that holds the name, or the checkpoint itself.
fn pointed(run: &Path, name: &str) -> Result<Option<PathBuf>> {
    let link = run.join(name);
    let Ok(metadata) = fs::symlink_metadata(&link) else { return Ok(None) };
    let target = if metadata.is_symlink() {
        let target = fs::read_link(&link).map_err(Error::io(&link, "follow the link"))?;
        inside(run, &target).unwrap_or_else(|| target.to_string_lossy().into_owned())
    } else if metadata.is_file() {
        String::from_utf8_lossy(&read_limited(&link, MOST_POINTER)?).trim().to_owned()
    } else {
        name.to_owned()
    };
    let folder = run.join(plain(run, &target)?);
    if folder.join(CONFIG).exists() {
        return Ok(Some(folder));
    }
    Err(Error::Dangling { link, target })
}

/// Makes `name` (`last` or `best`) of a run point to its checkpoint `target`, in one step.
///
/// The link is relative, so that a run can be moved.
///
/// # Errors
/// When a name is no plain name, or the link cannot be made.
pub fn point(run: &Path, name: &str, target: &str) -> Result<()> {
    let link = run.join(plain(run, name)?);
    softdict_files::link(&link, plain(run, target)?).map_err(Error::io(&link, "point to the checkpoint"))
}

/// Makes links again of pointers that copying or packing a run made folders of.
///
/// A folder that holds a checkpoint is taken as that of its step, where there is none; one that holds nothing goes. To be
/// called while nobody else writes to the run.
///
/// # Errors
/// When a pointer's folder is damaged, or something cannot be moved.
pub fn mend_pointers(run: &Path) -> Result<()> {
    for name in [Which::Last, Which::Best].map(Which::name) {
        let pointer = run.join(name);
        if !fs::symlink_metadata(&pointer).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        let Some(manifest) = Manifest::read(&pointer)? else {
            // what is in it is somebody's own
            fs::remove_dir(&pointer).map_err(|_| Error::Taken { path: pointer.clone() })?;
            continue;
        };
        let step = step_folder(manifest.progress.step);
        let home = run.join(&step);
        let is_home_whole = !home.is_symlink()
            && Manifest::read(&home)
                .is_ok_and(|own| own.is_some_and(|own| own.verify(&home, |_| true).is_ok()));
        if is_home_whole {
            remove_checkpoint(&pointer)?;
        } else {
            // the copy is all that there is, if it is whole
            manifest.verify(&pointer, |_| true)?;
            if fs::symlink_metadata(&home).is_ok() {
                remove_checkpoint(&home)?;
            }
            fs::rename(&pointer, &home).map_err(Error::io(&home, "take the checkpoint's name"))?;
        }
        point(run, name, &step)?;
    }
    Ok(())
}

/// Steps and folders of all checkpoints of a run, oldest first.
///
/// # Errors
/// When the run folder cannot be read.
pub fn list_steps(run: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut steps = Vec::new();
    for entry in fs::read_dir(run).map_err(Error::io(run, "read the folder"))? {
        let entry = entry.map_err(Error::io(run, "read the folder"))?;
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
        if let Some(step) = step
            && name.to_str() == Some(&step_folder(step))
            && entry.path().join(CONFIG).is_file()
        {
            steps.push((step, entry.path()));
        }
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Removes the checkpoints of a run except its newest `keep`, its last and its best; returns what was removed.
///
/// # Errors
/// When a checkpoint cannot be removed, or a pointer leads nowhere: then nothing is known to be superfluous.
pub fn prune(run: &Path, keep: usize) -> Result<Vec<PathBuf>> {
    let mut steps = list_steps(run)?;
    steps.truncate(steps.len().saturating_sub(keep));
    let mut kept = BTreeSet::new();
    for which in [Which::Last, Which::Best] {
        kept.extend(pointed(run, which.name())?);
    }
    let mut removed = Vec::new();
    for (_, folder) in steps {
        if !kept.contains(&folder) {
            remove_checkpoint(&folder)?;
            removed.push(folder);
        }
    }
    Ok(removed)
}
