//! Import: history as NDJSON of any length, with a report that arrives while the lines are sent.

use crate::client::Client;
use crate::connection::RequestFailure;
use crate::problem;
use crate::response;
use crate::transport::error_of;
use bytes::{Bytes, BytesMut};
use contract::{Error, Kind, Result};
use futures_util::Stream;
use reqwest::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io;

/// The report of an import, line by line, as the broker sends it.
#[derive(Debug)]
pub struct ReportLines {
    response: Response,
    /// What has arrived and was not returned yet.
    rest: BytesMut,
}

/// The report of an import. The import ends when the report is dropped.
#[derive(Debug)]
pub struct ImportReport {
    lines: ReportLines,
    is_done: bool,
}

/// A line of the report.
#[derive(Debug)]
pub enum ImportLine {
    /// A line of the import was refused; all others are stored.
    Refused {
        /// Its number, from 1.
        line: u64,
        /// Why.
        error: Error,
    },
    /// The counts so far.
    Progress(ImportCounts),
}

/// What became of the lines so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportCounts {
    /// Lines read.
    pub lines: u64,
    /// Events stored.
    pub imported: u64,
    /// Events that were stored before.
    pub duplicates: u64,
    /// Lines refused.
    pub failed: u64,
    /// Refused lines that the report does not list, because it was read too slowly.
    pub unreported: u64,
    /// Exported events that were stored under another sequence than they had.
    pub renumbered: u64,
    /// Whether the import is complete.
    pub done: bool,
}

impl Client {
    /// Imports history: NDJSON of any length, one event per line, as it is published or as it was exported. Read the report
    /// to its end; an import that was interrupted is repeated as a whole, and stored events are duplicates then.
    ///
    /// ```no_run
    /// # async fn example(client: event_broker_client::Client, file: bytes::Bytes) -> contract::Result<()> {
    /// use event_broker_client::ImportLine;
    ///
    /// let mut report = client.import(futures_util::stream::iter([Ok(file)])).await?;
    /// while let Some(line) = report.next().await? {
    ///     match line {
    ///         ImportLine::Refused { line, error } => eprintln!("line {line}: {error}"),
    ///         ImportLine::Progress(counts) => println!("{counts:?}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn import<S>(&self, lines: S) -> Result<ImportReport>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let connection = self.transport().connection.without_silence_limit()?;
        let lines = connection.import(reqwest::Body::wrap_stream(lines)).await.map_err(error_of)?;
        Ok(ImportReport { lines, is_done: false })
    }
}

impl ReportLines {
    pub(crate) fn of(response: Response) -> Self {
        Self { response, rest: BytesMut::new() }
    }

    /// The next line, without its line break; `None` at the end. A last line that was cut off is dropped.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        let mut searched = 0;
        loop {
            let unread = self.rest.get(searched..).unwrap_or_default();
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let mut line = self.rest.split_to(searched + end + 1);
                line.truncate(searched + end);
                return Ok(Some(line.freeze()));
            }
            searched = self.rest.len();
            match self.response.chunk().await.map_err(RequestFailure::of)? {
                Some(bytes) => self.rest.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }
}

impl ImportReport {
    /// The next line of the report; `None` after the last one of a complete import.
    pub async fn next(&mut self) -> Result<Option<ImportLine>> {
        let Some(text) = self.lines.next().await.map_err(error_of)? else {
            let early = || Error::new(Kind::Unavailable, "The broker ended the import early: repeat it as a whole.");
            return if self.is_done { Ok(None) } else { Err(early()) };
        };
        let line = line_of(&text)?;
        self.is_done |= matches!(line, ImportLine::Progress(ImportCounts { done: true, .. }));
        Ok(Some(line))
    }
}

/// A line of the report; a problem of the import as a whole is an error.
fn line_of(text: &[u8]) -> Result<ImportLine> {
    #[derive(Deserialize)]
    struct RefusedLine {
        line: Option<u64>,
        error: Option<Box<RawValue>>,
    }
    #[derive(Deserialize)]
    struct RefusalStatus {
        status: u16,
    }
    let RefusedLine { line, error } = response::parse(text)?;
    let Some(document) = error else { return Ok(ImportLine::Progress(response::parse(text)?)) };
    let RefusalStatus { status } = response::parse(document.get().as_bytes())?;
    let error = problem::read(status, document.get().as_bytes(), None);
    match line {
        Some(line) => Ok(ImportLine::Refused { line, error }),
        None => Err(error),
    }
}
