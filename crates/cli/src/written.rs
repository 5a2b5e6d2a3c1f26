//! Files that commands write.

use anyhow::{Context, bail};
use softdict_checkpoint::OWN_FILES;
use softdict_files::NewFile;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Files of a run beside its checkpoints and ids, and the ids.
const OF_RUN: [&str; 2] = ["settings.toml", "metrics.jsonl"];
const OF_DATA: [&str; 3] = ["data.json", "train.bin", "val.bin"];

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
    let named = |names: &[&str]| real.file_name().is_some_and(|name| names.iter().any(|own| name == *own));
    let beside = |names: &[&str]| names.iter().all(|name| real.with_file_name(name).is_file());
    if named(&OWN_FILES) && (beside(&["softdict.json"]) || beside(&["config.json", "model.safetensors"])) {
        bail!("it is part of a checkpoint; give another name");
    }
    if (named(&OF_RUN) && beside(&OF_RUN)) || (named(&OF_DATA) && beside(&OF_DATA)) {
        bail!("it is part of a run; give another name");
    }
    Ok(())
}

/// Writes a file so that it is there whole or not at all, however large it is; through a link, as it goes. Returns how
/// many bytes it has.
pub(crate) fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    check_place(path, &[])?;
    // a pipe, a device or a link, such as /dev/stdout, cannot be replaced by a file: what it leads to is written
    if path.is_symlink() || (path.exists() && !path.is_file()) {
        let mut out = Counted { out: BufWriter::new(File::create(path)?), bytes: 0 };
        write(&mut out)?;
        out.flush()?;
        return Ok(out.bytes);
    }
    path.file_name().context("it has no file name")?;
    let mut out = Counted { out: NewFile::create(path)?, bytes: 0 };
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
