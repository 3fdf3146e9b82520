//! Figures as people read them.

/// Three significant digits with a decimal prefix.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (scale, unit) = units.iter().rev().find(|(scale, _)| value.abs() >= *scale).unwrap_or(&units[0]);
    let value = value / scale;
    let digits = match value.abs() {
        v if v >= 99.95 || v == v.trunc() && *scale == 1.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// A length of time.
pub fn ns(ns: f64) -> String {
    if ns >= 120e9 {
        return format!("{:.1} min", ns / 60e9);
    }
    scaled(ns, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// Bytes, in powers of ten.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"), (1e15, "PB")])
}

/// Bits a second, of bytes a second.
pub fn rate(bytes: f64) -> String {
    scaled(bytes * 8.0, &[(1.0, "b/s"), (1e3, "kb/s"), (1e6, "Mb/s"), (1e9, "Gb/s"), (1e12, "Tb/s")])
}

/// A share.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        percent if percent < 0.01 => "under 0.01 %".into(),
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A number with its digits in groups of three.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many of something, with its plural.
pub fn many(number: u64, what: &str) -> String {
    let (stem, ending) = match what.strip_suffix('y') {
        Some(stem) if number != 1 && !what.ends_with("ay") => (stem, "ies"),
        _ if number == 1 => (what, ""),
        _ if what.ends_with("ss") => (what, "es"),
        _ => (what, "s"),
    };
    format!("{} {stem}{ending}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let times = [0.0, 7.0, 999.0, 1500.0, 20e6, 1.234e9, 119.9e9, 180e9].map(ns);
        assert_eq!(times, ["0 ns", "7 ns", "999 ns", "1.5 µs", "20 ms", "1.23 s", "120 s", "3.0 min"]);
        assert_eq!([12.0, 12_500.0, 1e9].map(bytes), ["12 B", "12.5 kB", "1 GB"]);
        assert_eq!(rate(1.25e8), "1 Gb/s");
        assert_eq!(
            [0.0, 0.00001, 0.005, 0.05, 0.456].map(percent),
            ["0 %", "under 0.01 %", "0.50 %", "5.0 %", "46 %"]
        );
    }

    #[test]
    fn groups_and_plurals() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [many(1, "process"), many(2, "process"), many(3, "entry"), many(0, "call")],
            ["1 process", "2 processes", "3 entries", "0 calls"]
        );
    }
}
