//! Files that commands write.

use anyhow::{Context, bail};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Whether a file can be put at `path`, before much work is done for it.
///
/// # Errors
/// When it is a folder, or in none.
pub(crate) fn check_place(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("it is a folder");
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        bail!("there is no folder {}", parent.display());
    }
    Ok(())
}

/// Writes a file so that it is there whole or not at all, however large it is; through a link, as it goes.
pub(crate) fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // a pipe, a device or a link, such as /dev/stdout, cannot be replaced by a file: what it leads to is written
    if path.is_symlink() || (path.exists() && !path.is_file()) {
        let mut out = BufWriter::new(File::create(path)?);
        write(&mut out)?;
        return Ok(out.flush()?);
    }
    replace(path, &mut |temporary| {
        let mut out = BufWriter::new(File::create(temporary)?);
        write(&mut out)?;
        Ok(out.flush()?)
    })
}

/// Lets `make` write a file under a temporary name and puts it in its place: whole, on the disk, and with the permissions
/// of the one that it replaces.
pub(crate) fn replace(path: &Path, make: &mut dyn FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = path.file_name().context("it has no file name")?.to_string_lossy();
    let temporary = path.with_file_name(format!(".softdict-new-{}-{name}", std::process::id()));
    let made = make(&temporary).and_then(|()| {
        let file = File::open(&temporary)?;
        if let Ok(old) = std::fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        Ok(std::fs::rename(&temporary, path)?)
    });
    if made.is_err() {
        // the first error is the one to report
        let _ = std::fs::remove_file(&temporary);
    }
    made
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
    #[cfg(unix)]
    fn what_is_replaced_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.html");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        write_file(&path, &mut |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
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
        check_place(&folder.path().join("new.html")).unwrap();
        check_place(Path::new("new.html")).unwrap();
        assert!(check_place(folder.path()).is_err());
        assert!(check_place(&folder.path().join("none/x.html")).is_err());
    }
}
