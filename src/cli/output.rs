//! The output: lines and tables, or JSON for programs.
//!
//! - Nothing here panics when the reader of standard output is gone; the next line then ends the subcommand without an error.
//! - Colours are written to a terminal only, and not if `NO_COLOR` is set.
//! - Data from outside is printed with its control characters escaped: an event must not control a terminal.

use super::error::{CliError, CliResult};
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::Value;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// A colour on a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextColour {
    Dim,
    Green,
    Cyan,
    Yellow,
}

/// Standard output.
pub(super) struct CliOutput {
    out: io::Stdout,
    colours: bool,
}

impl CliOutput {
    /// Standard output, with colours if it is a terminal and `NO_COLOR` is not set.
    pub(super) fn new() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let out = io::stdout();
        Self { colours: wanted && out.is_terminal(), out }
    }

    /// Prints a line and flushes it.
    pub(super) fn line(&mut self, text: &str) -> CliResult<()> {
        let mut out = self.out.lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
        written.map_err(|cause| CliError::printing(&cause))
    }

    /// Prints a table.
    pub(super) fn table(&mut self, headings: &[&str], rows: Vec<Vec<String>>) -> CliResult<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(headings.iter().copied());
        for row in rows {
            table.add_row(row.iter().map(|cell| escape_controls(cell)));
        }
        self.line(&table.trim_fmt())
    }

    /// Prints the members of an object, one per line.
    pub(super) fn members(&mut self, thing: &Value) -> CliResult<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for (name, value) in thing.as_object().into_iter().flatten() {
            table.add_row([escape_controls(name), escape_controls(&cell_text(value))]);
        }
        self.line(&table.trim_fmt())
    }

    /// Prints JSON on one line.
    pub(super) fn json(&mut self, thing: &Value) -> CliResult<()> {
        self.line(&thing.to_string())
    }

    /// The text in a colour, if colours are used.
    pub(super) fn coloured(&self, text: &str, colour: TextColour) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match colour {
            TextColour::Dim => "2",
            TextColour::Green => "32",
            TextColour::Cyan => "36",
            TextColour::Yellow => "33",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Ends once the reader of standard output has closed it.
///
/// A command that only waits for events does not write, so no failed write would tell it. `poll` without any requested event
/// reports only an error or a hang-up; the thread that waits in it ends with the process.
pub(super) async fn reader_is_gone() {
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    let watch = move || {
        let stdout = io::stdout();
        loop {
            let mut descriptors = [PollFd::new(&stdout, PollFlags::empty())];
            match rustix::event::poll(&mut descriptors, None) {
                Err(Errno::INTR) => {}
                // Without the watch, the next printed line notices the closed output.
                Err(_) => return,
                Ok(_) => {
                    let _ = closed.send(());
                    return;
                }
            }
        }
    };
    let started = std::thread::Builder::new().name("stdout-watch".to_owned()).spawn(watch);
    if started.is_err() || is_closed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Prints a note on standard error. A closed standard error is ignored.
pub(super) fn print_note(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "event-broker: {what}");
}

/// A value in a cell.
pub(super) fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The member of an object as text; empty if it is absent.
pub(super) fn member(thing: &Value, name: &str) -> String {
    thing.get(name).map(cell_text).unwrap_or_default()
}

/// A text with its control characters escaped.
pub(super) fn escape_controls(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same, but line breaks are kept.
pub(super) fn escape_controls_per_line(text: &str) -> String {
    escaped(text, |character| character == '\n')
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    // Marks that reorder text are as misleading as those that control a terminal.
    let steers = |character: char| {
        character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.chars().any(steers) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match steers(character) && !is_kept(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    out
}

/// JSON text on one line: between tokens a line break has the same meaning as a blank.
pub(super) fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// A progress bar on standard error if that is a terminal; a spinner if the total is unknown.
pub(super) fn progress_bar(total: Option<u64>, template: &str) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_spelt_out() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("two\nlines", "two\\nlines"),
            ("c1 \u{9b}1m", "c1 \\u{9b}1m"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("grüße ~ 漢字", "grüße ~ 漢字"),
        ] {
            assert_eq!(escape_controls(text), expected);
        }
        assert_eq!(escape_controls_per_line("two\nlines\r"), "two\nlines\\r");
    }
}
