//! What was measured, as a table and as CSV.

use std::fmt::Write;

use super::Figure;

/// The figures of one message size.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Bytes of a message.
    pub size: usize,
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// How often it was measured, and how many messages each time.
    pub repetitions: usize,
    pub messages: u64,
}

impl Point {
    /// From what each repetition gave.
    pub fn of(size: usize, mut values: Vec<f64>, messages: u64) -> Self {
        values.sort_by(f64::total_cmp);
        let repetitions = values.len();
        let median = (values[(repetitions - 1) / 2] + values[repetitions / 2]) / 2.0;
        Self { size, median, least: values[0], most: values[repetitions - 1], repetitions, messages }
    }
}

/// The heading of a table, and a line for each point.
pub fn heading(figure: Figure) -> String {
    let unit = figure.unit();
    let column = |name: &str| format!("{name} {unit}");
    format!("{:>10} {:>18} {:>18} {:>18}", "bytes", column("median"), column("least"), column("most"))
}

pub fn line(point: &Point) -> String {
    let mut line = format!("{:>10}", point.size);
    for value in [point.median, point.least, point.most] {
        let _ = write!(line, " {:>18}", rounded(value));
    }
    line
}

/// Four digits that count, no more than can be believed.
fn rounded(value: f64) -> String {
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", usize::try_from(digits).unwrap_or(0).min(6))
}

/// All points, with units in the names of the columns.
pub fn csv(figure: Figure, rail: &str, points: &[Point]) -> String {
    let unit = figure.unit_in_names();
    let mut text = format!(
        "figure,rail,size_bytes,median_{unit},min_{unit},max_{unit},repetitions,messages_per_repetition\n"
    );
    for Point { size, median, least, most, repetitions, messages } in points {
        let name = figure.name();
        let _ =
            writeln!(text, "{name},{rail},{size},{median:.4},{least:.4},{most:.4},{repetitions},{messages}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let odd = Point::of(8, vec![3.0, 1.0, 2.0], 10);
        assert_eq!((odd.median, odd.least, odd.most, odd.repetitions), (2.0, 1.0, 3.0, 3));
        assert_eq!(Point::of(8, vec![4.0, 1.0, 2.0, 3.0], 10).median, 2.5);
    }

    #[test]
    fn csv_has_units_and_a_row_per_size() {
        let points = [Point::of(8, vec![1.5], 10), Point::of(1 << 20, vec![2.0], 2)];
        let text = csv(Figure::Bandwidth, "tcp", &points);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("median_MB_per_s") && lines[0].contains("size_bytes"), "{}", lines[0]);
        assert_eq!(lines[1], "bandwidth,tcp,8,1.5000,1.5000,1.5000,1,10");
        assert!(lines.iter().all(|line| line.split(',').count() == 8));
    }

    #[test]
    fn numbers_are_rounded_to_what_can_be_believed() {
        let cases =
            [(0.28571, "0.2857"), (12.3456, "12.35"), (1234.56, "1235"), (5e6, "5000000"), (0.0, "0.000000")];
        for (value, text) in cases {
            assert_eq!(rounded(value), text);
        }
    }
}
