//! What users may decide of rails themselves, and need not.

/// Names of network interfaces: `eth0`, or all that begin alike: `eth*`. After `^` those that are meant are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// From a comma list.
    ///
    /// # Errors
    /// A sentence, when names to use and names to leave out are mixed, or one is empty.
    pub fn parse(list: &str) -> Result<Self, String> {
        let names: Vec<String> = list.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(|name| name.trim_start_matches('^').is_empty()) {
            return Err(format!("{list:?} has an empty name in it"));
        }
        let left_out = names.iter().filter(|name| name.starts_with('^')).count();
        if left_out > 0 && left_out < names.len() {
            return Err(format!(
                "{list:?} names interfaces to use and some to leave out (^): either will do"
            ));
        }
        Ok(Self(names))
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this interface is meant; all are where nothing is said.
    pub fn has(&self, name: &str) -> bool {
        let like = |pattern: &str| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        match self.0.first() {
            None => true,
            Some(first) if first.starts_with('^') => !self.0.iter().any(|pattern| like(&pattern[1..])),
            Some(_) => self.0.iter().any(|pattern| like(pattern)),
        }
    }

    /// Names that are to be used and must therefore be there.
    pub fn wanted(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|name| !name.starts_with('^') && !name.ends_with('*'))
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// How fast interfaces may be used, in bytes per second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps(Vec<(Names, u64)>);

impl Caps {
    /// From a comma list of `name=rate`, the rate in bits per second: `eth0=500M,wlan*=20M`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(list: &str) -> Result<Self, String> {
        let cap = |item: &str| {
            let (name, rate) =
                item.split_once('=').ok_or(format!("{item:?} is not NAME=RATE, as in eth0=500M"))?;
            Ok((
                Names::parse(name)?,
                bits(rate).ok_or(format!("{rate:?} is no rate in bits per second, as 500M or 2G"))? / 8,
            ))
        };
        list.split(',').map(|item| cap(item.trim())).collect::<Result<_, String>>().map(Self)
    }

    /// How fast this interface may be used; none: as fast as it is.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(names, _)| names.has(name)).map(|(_, rate)| *rate)
    }
}

/// Bits per second, with K, M or G for powers of 1000. At least 8000, so that something moves.
pub fn bits(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 1_000),
        'M' => (&text[..text.len() - 1], 1_000_000),
        'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|rate| *rate >= 8_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_include_or_exclude_and_may_end_in_a_star() {
        let has = |list: &str, name: &str| Names::parse(list).unwrap().has(name);
        assert!(has("eth0, eth1", "eth1") && !has("eth0,eth1", "eth2"));
        assert!(has("eth*", "eth7") && !has("eth*", "ib0"));
        assert!(!has("^docker*,^virbr0", "docker0") && has("^docker*,^virbr0", "eth0"));
        assert!(Names::default().has("anything"));
        for bad in ["eth0,^eth1", "", "eth0,,eth1", "^"] {
            assert!(Names::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Names::parse("eth0,ib*").unwrap().wanted().collect::<Vec<_>>(), ["eth0"]);
    }

    #[test]
    fn caps_are_in_bits_per_second() {
        let caps = Caps::parse("eth0=500M, wlan*=8k,ib0=2G").unwrap();
        assert_eq!(
            (caps.of("eth0"), caps.of("wlan1"), caps.of("ib0")),
            (Some(62_500_000), Some(1000), Some(250_000_000))
        );
        assert_eq!(caps.of("eth1"), None);
        for bad in ["eth0", "eth0=", "eth0=fast", "eth0=1", "=1M", "eth0=99999999999G"] {
            assert!(Caps::parse(bad).is_err(), "{bad}");
        }
    }
}
