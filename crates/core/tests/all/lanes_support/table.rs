//! Tables of figures that have bounds.

use std::fmt::Write;

/// A table, and what in it is not as it has to be.
#[derive(Default)]
pub struct Table {
    pub text: String,
    pub broken: String,
}

impl Table {
    /// A table without rows.
    pub fn new(title: &str, columns: &str) -> Self {
        let line = columns.replace(|c| c != '|', "-");
        Self { text: format!("## {title}\n\n{columns}\n{line}\n"), broken: String::new() }
    }

    /// A row of figures, and the bounds that it has to keep: what, how much, at least, at most.
    pub fn row(&mut self, name: &str, figures: &str, bounds: &[(&str, f64, f64, f64)]) {
        writeln!(self.text, "| {name} | {figures} |").unwrap();
        for (what, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                writeln!(self.broken, "{name}: {what} is {value:.3}, not in {least}..={most}").unwrap();
            }
        }
    }
}

/// Fills the parts of a table, beside each other: which bounds do not hold, and the text.
pub fn fill(parts: &[fn() -> Table]) -> (String, String) {
    let tables: Vec<Table> = std::thread::scope(|scope| {
        let running: Vec<_> = parts.iter().map(|part| scope.spawn(part)).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let broken = tables.iter().map(|table| table.broken.as_str()).collect();
    let text: Vec<&str> = tables.iter().map(|table| table.text.as_str()).collect();
    (broken, text.join("\n"))
}
