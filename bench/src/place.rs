//! Where the files of a run go: a folder of its own on the disk to be measured, removed at the end.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "run-";

/// The folder of this run.
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// Makes the folder inside `data`, and removes those of runs that were broken off.
    pub(crate) fn claim(data: &Path) -> Outcome<Self> {
        fs::create_dir_all(data)?;
        let data = data.canonicalize()?;
        sweep(&data)?;
        let folder = data.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path in it that nothing lies at.
    pub(crate) fn fresh(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.folder.join(name);
        remove(&path)?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            eprintln!("bench: {} was left behind: {error}", self.folder.display());
        }
    }
}

/// Removes a file or folder, if there is one.
pub(crate) fn remove(path: &Path) -> Outcome {
    if path.is_dir() {
        fs::remove_dir_all(path)?;
    } else if path.exists() {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn sweep(data: &Path) -> Outcome {
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
