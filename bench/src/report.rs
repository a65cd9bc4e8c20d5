//! The report: tables on standard output as they come, and all of it as Markdown.

use std::fmt::Write;

/// Everything measured so far.
pub(crate) struct Report {
    markdown: String,
    targets: Table,
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
    /// Begins with what there is to know of the machine.
    pub(crate) fn begin(facts: &[(&'static str, String)]) -> Self {
        let mut markdown = String::from("# Measured\n\n");
        for (name, fact) in facts {
            println!("{name:<8} {fact}");
            let _ = writeln!(markdown, "- {name}: {fact}");
        }
        Self { markdown, targets: Table::new("Targets", ["target", "wanted", "measured", "met"]) }
    }

    pub(crate) fn section(&mut self, name: &str) {
        println!("\n== {name} ==");
        let _ = writeln!(self.markdown, "\n## {name}");
    }

    pub(crate) fn table(&mut self, table: &Table) {
        table.print();
        table.markdown(&mut self.markdown);
    }

    /// Marks a target. Missing one is a figure too, never a failure.
    pub(crate) fn target(&mut self, name: impl Into<String>, wanted: &str, measured: String, met: bool) {
        let mark = if met { "yes" } else { "NO" };
        self.targets.row([name.into(), wanted.to_owned(), measured, mark.to_owned()]);
    }

    /// Closes with the targets of the sections that ran.
    pub(crate) fn end(&mut self) {
        if !self.targets.rows.is_empty() {
            self.section("targets");
            let targets = std::mem::replace(&mut self.targets, Table::new("", []));
            self.table(&targets);
        }
    }

    pub(crate) fn markdown(&self) -> &str {
        &self.markdown
    }
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
}
