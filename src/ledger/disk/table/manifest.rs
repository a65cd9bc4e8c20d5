//! The manifest: which runs make up the valid checkpoint, and the caller's payload.
//!
//! ```json
//! { "version": 1, "crc32c": 305419896,
//!   "body": { "number": 7, "heads": [{ "number": 7, "bytes": 4182, "crc32c": 1 }], "keys": [], "payload": {} } }
//! ```
//!
//! - `crc32c` covers the text of the body, byte for byte as it is in the file.
//! - Runs are listed newest first; `number` names the file (`heads-7.run`), `crc32c` is the one its footer ends with.
//! - A new manifest is written beside the old one and renamed over it: a reader finds one or the other, complete.

use super::folder::{LockedFolder, MANIFEST, at, damaged};
use log::file::private_file;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const VERSION: u32 = 1;

/// One checkpoint. The payload may be large: it is borrowed to be written, owned when read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointManifest<Payload> {
    /// The checkpoint's number; the next has a greater one.
    pub(super) number: u64,
    /// The runs of the aggregate heads.
    pub(super) heads: Vec<RunRef>,
    /// The runs of the idempotency window.
    pub(super) keys: Vec<RunRef>,
    /// What the caller stores with the rows, as text that is not parsed here.
    pub(super) payload: Payload,
}

/// One run, and how to recognise its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunRef {
    /// The checkpoint that wrote it.
    pub(super) number: u64,
    /// The length of the file.
    pub(super) bytes: u64,
    /// The checksum of header and footer.
    pub(super) crc32c: u32,
}

/// The contents of the file: the body with its checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile<'a> {
    version: u32,
    crc32c: u32,
    #[serde(borrow)]
    body: &'a RawValue,
}

impl CheckpointManifest<Box<RawValue>> {
    /// Reads the valid manifest, if there is one.
    pub(super) fn read(folder: &LockedFolder) -> io::Result<Option<Self>> {
        Self::read_file(&folder.manifest())
    }

    /// Reads a manifest, if there is one.
    pub(super) fn read_file(path: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(at(path)(why)),
        };
        let unreadable = |why: serde_json::Error| damaged(path, &why.to_string());
        let sealed: ManifestFile<'_> = serde_json::from_slice(&bytes).map_err(unreadable)?;
        if sealed.version != VERSION {
            return Err(damaged(path, &format!("its version is {}, not {VERSION}", sealed.version)));
        }
        if sealed.crc32c != crc32c::crc32c(sealed.body.get().as_bytes()) {
            return Err(damaged(path, "its checksum does not match"));
        }
        serde_json::from_str(sealed.body.get()).map(Some).map_err(unreadable)
    }

    /// Deletes the valid manifest.
    pub(super) fn remove(folder: &LockedFolder) -> io::Result<()> {
        match fs::remove_file(folder.manifest()) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(at(&folder.manifest())(why)),
            _ => Ok(()),
        }
    }
}

/// The payload of the valid checkpoint in `folder`. The folder need not be locked for that.
pub(super) fn peek(folder: &Path) -> io::Result<Option<Box<RawValue>>> {
    Ok(CheckpointManifest::read_file(&folder.join(MANIFEST))?.map(|manifest| manifest.payload))
}

impl CheckpointManifest<&RawValue> {
    /// Writes the manifest beside the valid one, durably.
    pub(super) fn write(&self, folder: &LockedFolder) -> io::Result<()> {
        let body = serde_json::value::to_raw_value(self)?;
        let crc32c = crc32c::crc32c(body.get().as_bytes());
        let path = folder.next_manifest();
        let created = private_file().write(true).create(true).truncate(true).open(&path);
        let mut file = BufWriter::new(created.map_err(at(&path))?);
        serde_json::to_writer(&mut file, &ManifestFile { version: VERSION, crc32c, body: &body })?;
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(at(&path))
    }

    /// Makes the manifest written last the valid one. Durable after the folder's sync.
    pub(super) fn rename(folder: &LockedFolder) -> io::Result<()> {
        fs::rename(folder.next_manifest(), folder.manifest()).map_err(at(&folder.manifest()))
    }
}
