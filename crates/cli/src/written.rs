//! Files that commands write.

use anyhow::{Context, bail};
use softdict_checkpoint::OWN_FILES;
use softdict_files::NewFile;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What a run writes beside its checkpoints, what points to them, and the ids in its `data`.
pub(crate) const RUN_FILES: [&str; 2] = ["settings.toml", "metrics.jsonl"];
pub(crate) const POINTERS: [&str; 2] = ["last", "best"];
pub(crate) const DATA_FILES: [&str; 3] = ["train.bin", "val.bin", "data.json"];

/// Whether a file can be put at `path`, before much work is done for it.
///
/// # Errors
/// When it is a folder, or in none; when it is one of `inputs`, or a file that a run or checkpoint cannot be without.
pub(crate) fn check_place(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("it is a folder");
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("there is no folder {}", folder.display());
    }
    let Ok(real) = path.canonicalize() else { return Ok(()) };
    if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == real)) {
        bail!("it is what was to be read; give another name");
    }
    // by the name that was given as well: files of a checkpoint may be links to others
    for path in [path, &real] {
        if let Some(owner) = owner(path) {
            bail!("it is part of a {owner}; give another name");
        }
    }
    Ok(())
}

/// What needs the file of this name, where it is.
fn owner(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let beside = |other: &str| other != name && path.with_file_name(other).exists();
    let weights = OWN_FILES.contains(&name) || (name.starts_with("model") && name.contains(".safetensors"));
    let is_checkpoint =
        || beside("softdict.json") || beside("model.safetensors") || beside("model.safetensors.index.json");
    if weights && is_checkpoint() {
        return Some("checkpoint");
    }
    let run_files = || RUN_FILES.into_iter().chain(POINTERS);
    let of_run = run_files().any(|own| own == name) && run_files().chain(["data/data.json"]).any(beside);
    let of_data = DATA_FILES.contains(&name) && DATA_FILES.iter().all(|own| *own == name || beside(own));
    (of_run || of_data).then_some("run")
}

/// Whether a link leads to a file that is open already, as /dev/stdout does: that one cannot be replaced.
fn leads_to_open(path: &Path) -> bool {
    let mut path = path.to_path_buf();
    for _ in 0..8 {
        if path.starts_with("/proc") {
            return true;
        }
        let Ok(target) = path.read_link() else { return false };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    true
}

/// Writes a file so that it is there whole or not at all, however large it is; where a link leads to a file, that one.
/// Returns how many bytes it has.
pub(crate) fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    check_place(path, &[])?;
    // a pipe, a device or what is open already is written as it goes
    if path.exists() && (!path.is_file() || leads_to_open(path)) {
        let mut out = Counted { out: BufWriter::new(File::create(path)?), bytes: 0 };
        write(&mut out)?;
        out.flush()?;
        return Ok(out.bytes);
    }
    let place = if path.is_symlink() { path.canonicalize()? } else { path.to_path_buf() };
    place.file_name().context("it has no file name")?;
    let mut out = Counted { out: NewFile::create(&place)?, bytes: 0 };
    write(&mut out)?;
    out.out.commit()?;
    Ok(out.bytes)
}

/// Counts what goes through it.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.csv");
        write_file(&path, &mut |out| Ok(out.write_all(b"first")?)).unwrap();
        let failed = write_file(&path, &mut |out| {
            out.write_all(b"half")?;
            bail!("no more")
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_file(folder.path(), &mut |_| Ok(())).is_err());
    }

    #[test]
    fn what_is_read_and_what_a_run_needs_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["text.txt", "config.json", "settings.toml", "data.json"] {
            std::fs::write(at(name), "x").unwrap();
        }
        let refused =
            |name: &str, inputs: &[&Path]| check_place(&at(name), inputs).map_err(|error| error.to_string());
        // alone they are files like any other
        for name in ["config.json", "settings.toml", "data.json"] {
            refused(name, &[&at("text.txt")]).unwrap();
        }
        for name in ["softdict.json", "metrics.jsonl", "train.bin", "val.bin"] {
            std::fs::write(at(name), "x").unwrap();
        }
        assert!(refused("text.txt", &[&at("./text.txt")]).unwrap_err().contains("was to be read"));
        assert!(refused("config.json", &[]).unwrap_err().contains("part of a checkpoint"));
        for name in ["settings.toml", "metrics.jsonl", "train.bin"] {
            assert!(refused(name, &[]).unwrap_err().contains("part of a run"), "{name}");
        }
        // a name that is not there yet, and a report beside them
        refused("trainer.safetensors", &[]).unwrap();
        refused("report.html", &[]).unwrap();
        assert!(write_file(&at("config.json"), &mut |_| Ok(())).is_err());
        assert_eq!(std::fs::read(at("config.json")).unwrap(), b"x");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_and_what_it_leads_to_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.svg"), folder.path().join("link.svg"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink("real.svg", &link).unwrap();
        write_file(&link, &mut |out| Ok(out.write_all(b"new")?)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        // as /dev/stdout does, to a file that is open already
        let open = File::create(folder.path().join("open")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        let through = folder.path().join("through");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), &through).unwrap();
        if through.exists() {
            write_file(&through, &mut |out| Ok(out.write_all(b"here")?)).unwrap();
            assert!(through.is_symlink());
            assert_eq!(std::fs::read(folder.path().join("open")).unwrap(), b"here");
        }
    }

    #[test]
    fn a_place_where_no_file_can_be_is_known_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        check_place(&folder.path().join("new.html"), &[]).unwrap();
        check_place(Path::new("new.html"), &[]).unwrap();
        assert!(check_place(folder.path(), &[]).is_err());
        assert!(check_place(&folder.path().join("none/x.html"), &[]).is_err());
    }
}
