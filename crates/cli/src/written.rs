//! Files that commands write.

use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes a file so that it is there whole or not at all, however large it is.
pub(crate) fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // a pipe or device cannot be replaced by a file
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(File::options().write(true).open(path)?);
        write(&mut out)?;
        return Ok(out.flush()?);
    }
    let name = path.file_name().context("it has no file name")?.to_string_lossy();
    let temporary = path.with_file_name(format!(".softdict-new-{}-{name}", std::process::id()));
    let written = File::create(&temporary).map_err(anyhow::Error::from).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.into_inner()?.sync_all()?;
        Ok(std::fs::rename(&temporary, path)?)
    });
    if written.is_err() {
        // the first error is the one to report
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

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
}
