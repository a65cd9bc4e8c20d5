//! The file of an export.
//!
//! - An existing file is not overwritten.
//! - When an export continues, an incomplete last line is removed first, so that every line is whole.

use crate::cli::error::{CliError, CliResult};
use log::file::private_file;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A file, or standard output.
pub(super) struct ExportSink {
    name: String,
    writer: BufWriter<Box<dyn Write>>,
    /// Synced at the end.
    file: Option<File>,
}

impl ExportSink {
    /// Opens the file to append to it, or creates it.
    pub(super) fn open(path: Option<&Path>, goes_on: bool) -> CliResult<Self> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            let writer = BufWriter::new(Box::new(io::stdout()) as Box<dyn Write>);
            return Ok(Self { name: "standard output".to_owned(), writer, file: None });
        };
        let name = path.display().to_string();
        let opened = if goes_on { open_at_end(path) } else { private_file().write(true).create_new(true).open(path) };
        let file = opened.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => {
                CliError::Misused(format!("{name} exists already; name another file, or append to it with --after"))
            }
            _ => CliError::caused_by(&name, cause),
        })?;
        let failed = |cause| CliError::caused_by(&name, cause);
        let writer =
            BufWriter::with_capacity(256 * 1024, Box::new(file.try_clone().map_err(failed)?) as Box<dyn Write>);
        Ok(Self { name, writer, file: Some(file) })
    }

    /// Writes a line.
    pub(super) fn line(&mut self, text: &str) -> CliResult<()> {
        let written = self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.write_all(b"\n"));
        written.map_err(|cause| self.failure(&cause))
    }

    /// Makes everything durable.
    pub(super) fn finish(&mut self) -> CliResult<()> {
        let flushed = self.writer.flush();
        let synced = flushed.and_then(|()| self.file.as_ref().map_or(Ok(()), File::sync_all));
        synced.map_err(|cause| self.failure(&cause))
    }

    fn failure(&self, cause: &io::Error) -> CliError {
        match &self.file {
            None => CliError::printing(cause),
            Some(_) => CliError::caused_by(&self.name, cause),
        }
    }
}

/// The file, positioned after its last whole line.
fn open_at_end(path: &Path) -> io::Result<File> {
    let mut file = private_file().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut end = file.metadata()?.len();
    let mut chunk = vec![0; 64 * 1024];
    // Searches backwards for the last line break, chunk by chunk.
    while end > 0 {
        let start = end.saturating_sub(chunk.len() as u64);
        let bytes = chunk.get_mut(..(end - start) as usize).unwrap_or_default();
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            end = start + at as u64 + 1;
            break;
        }
        end = start;
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_on_takes_away_a_line_that_was_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        for (before, after) in
            [("", "c\n"), ("a", "c\n"), ("a\n", "a\nc\n"), ("a\nb", "a\nc\n"), ("a\nb\n", "a\nb\nc\n")]
        {
            let path = folder.path().join("file");
            std::fs::write(&path, before).unwrap();
            let mut sink = ExportSink::open(Some(&path), true).unwrap();
            sink.line("c").unwrap();
            sink.finish().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_file_that_is_there_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(ExportSink::open(Some(&path), false), Err(CliError::Misused(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
