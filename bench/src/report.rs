//! The report: tables on standard output as they come, and all of it as Markdown.

use std::fmt::Write;

/// Everything measured so far.
pub(crate) struct Report {
    machine: Vec<(&'static str, String)>,
    /// When and how this run was started.
    run: String,
    sections: Vec<Section>,
    targets: Table,
    /// Those of the present section.
    section_targets: Table,
}

/// A section as it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Section {
    name: String,
    text: String,
}

/// One table of figures.
pub(crate) struct Table {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    pub(crate) fn new<const N: usize>(title: impl Into<String>, columns: [&'static str; N]) -> Self {
        Self { title: title.into(), columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// A sentence below the table.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn lines(&self) -> impl Iterator<Item = Vec<&str>> {
        let head = self.columns.to_vec();
        std::iter::once(head).chain(self.rows.iter().map(|row| row.iter().map(String::as_str).collect()))
    }

    fn widths(&self) -> Vec<usize> {
        let width =
            |column: usize| self.lines().filter_map(|line| line.get(column).map(|cell| cell.chars().count())).max();
        (0..self.columns.len()).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// The first column to the left, figures to the right.
    fn line(cells: &[&str], widths: &[usize], between: &str) -> String {
        let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join(between)
    }

    /// To standard output.
    pub(crate) fn print(&self) {
        let widths = self.widths();
        println!("\n{}", self.title);
        for line in self.lines() {
            println!("  {}", Self::line(&line, &widths, "  ").trim_end());
        }
        for note in &self.notes {
            println!("  - {note}");
        }
    }

    fn markdown(&self, out: &mut String) {
        let widths = self.widths();
        let _ = writeln!(out, "\n**{}**\n", self.title);
        for (number, line) in self.lines().enumerate() {
            let _ = writeln!(out, "| {} |", Self::line(&line, &widths, " | "));
            if number == 0 {
                let rule = widths.iter().enumerate().map(|(column, _)| if column == 0 { "---" } else { "---:" });
                let _ = writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"));
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
    }
}

impl Report {
    /// Begins with what there is to know of the machine and the run.
    pub(crate) fn begin(machine: Vec<(&'static str, String)>, run: String) -> Self {
        println!("{:<8} {run}", "run");
        for (name, fact) in &machine {
            println!("{name:<8} {fact}");
        }
        Self { machine, run, sections: Vec::new(), targets: Targets::table(), section_targets: Targets::table() }
    }

    pub(crate) fn section(&mut self, name: &'static str) {
        println!("\n== {name} ==");
        self.sections.push(Section { name: name.to_owned(), text: String::new() });
    }

    pub(crate) fn table(&mut self, table: &Table) {
        table.print();
        if let Some(section) = self.sections.last_mut() {
            table.markdown(&mut section.text);
        }
    }

    /// Marks a target. Missing one is a figure too, never a failure.
    pub(crate) fn target(&mut self, name: impl Into<String>, wanted: &str, measured: String, met: bool) {
        let mark = if met { "yes" } else { "NO" };
        let row = [name.into(), wanted.to_owned(), measured, mark.to_owned()];
        self.targets.row(row.clone());
        self.section_targets.row(row);
    }

    /// Closes a section with its targets, and with how it was taken.
    pub(crate) fn end_section(&mut self, load_average: &str) {
        println!("  - load average now: {load_average}");
        let targets = std::mem::replace(&mut self.section_targets, Targets::table());
        if let Some(Section { text, .. }) = self.sections.last_mut() {
            text.insert_str(0, &format!("\n- run: {}\n- load average at the end: {load_average}\n", self.run));
            if !targets.rows.is_empty() {
                targets.markdown(text);
            }
        }
    }

    /// Closes with the targets of all sections that ran.
    pub(crate) fn end(&self) {
        if !self.targets.rows.is_empty() {
            println!("\n== targets ==");
            self.targets.print();
        }
    }

    /// Everything as Markdown, over what a file had before: sections that did not run stay as they are.
    pub(crate) fn markdown_over(&self, former: &str) -> String {
        let mut text = String::from("# Measured\n\n");
        for (name, fact) in &self.machine {
            let _ = writeln!(text, "- {name}: {fact}");
        }
        let mut all = sections_of(former);
        for section in &self.sections {
            match all.iter_mut().find(|known| known.name == section.name) {
                Some(known) => known.text.clone_from(&section.text),
                None => all.push(section.clone()),
            }
        }
        for Section { name, text: tables } in &all {
            let _ = write!(text, "\n## {name}\n{tables}");
        }
        text
    }
}

/// The table of targets.
struct Targets;

impl Targets {
    fn table() -> Table {
        Table::new("Targets", ["target", "wanted", "measured", "met"])
    }
}

/// The sections of a file that this program wrote.
fn sections_of(text: &str) -> Vec<Section> {
    let pieces = text.split("\n## ").skip(1);
    let named = pieces.filter_map(|piece| piece.split_once('\n'));
    let section =
        |(name, text): (&str, &str)| Section { name: name.to_owned(), text: format!("{}\n", text.trim_end()) };
    named.map(section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new("Speed", ["what", "per second"]);
        table.row(["walking".to_owned(), "1".to_owned()]);
        table.note("on foot");
        let mut out = String::new();
        table.markdown(&mut out);
        assert_eq!(out, "\n**Speed**\n\n| what    | per second |\n|---|---:|\n| walking |          1 |\n\n- on foot\n");
    }

    #[test]
    fn sections_that_did_not_run_stay_in_the_file() {
        let former = "# Measured\n\n- cpu: old\n\n## a\n\n**A**\n\n## b\n\n**B**\n";
        let mut report = Report::begin(vec![("cpu", "new".to_owned())], "`this`".to_owned());
        for name in ["b", "c"] {
            report.section(name);
            report.end_section("0 0 0");
        }
        let run = "\n- run: `this`\n- load average at the end: 0 0 0\n";
        let wanted = format!("# Measured\n\n- cpu: new\n\n## a\n\n**A**\n\n## b\n{run}\n## c\n{run}");
        assert_eq!(report.markdown_over(former), wanted);
    }
}
