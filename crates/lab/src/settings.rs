//! What a rail does to the packets of each direction, as people write it: `rate=1000 delay=10ms b.loss=1%`.

use std::fmt;
use std::time::Duration;

/// What one direction does to its packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// Bytes per second that leave; 0: as fast as they come.
    pub rate: f64,
    /// Bytes that may wait for their turn before newcomers are dropped; 0: [`Settings::queue_limit`] chooses.
    pub queue: usize,
    /// Bytes that may leave at once after idle; none: [`Settings::burst`] chooses.
    pub burst: Option<f64>,
    /// How long a packet is under way.
    pub delay: Duration,
    /// How far the delay wanders to either side, without changing the order of packets.
    pub jitter: Duration,
    /// The probability that a packet is lost, of each packet alone.
    pub loss: f64,
    /// The probability that a packet skips the delay and so overtakes all that are under way.
    pub reorder: f64,
}

impl Settings {
    /// Bytes that may leave at once after idle: as set, else 2 ms of the rate, at least one 64 KiB packet with its headers. The
    /// shaped veth pairs of `scripts/lab` have the same. A line of wire or glass has none: 0.
    pub fn burst(&self) -> f64 {
        self.burst.unwrap_or_else(|| (self.rate * 0.002).max(98_304.0))
    }

    /// Bytes that may wait: as set, else 8 ms of the rate, at least 256 KiB.
    pub fn queue_limit(&self) -> usize {
        if self.queue > 0 { self.queue } else { ((self.rate * 0.008) as usize).max(262_144) }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "rate" => self.rate = number(value)? * 1e6 / 8.0,
            "queue" => self.queue = number(value)? as usize,
            "burst" => self.burst = Some(number(value)?),
            "delay" => self.delay = duration(value)?,
            "jitter" => self.jitter = duration(value)?,
            "loss" => self.loss = probability(value)?,
            "reorder" => self.reorder = probability(value)?,
            _ => return Err(format!("no setting {key:?}: rate, queue, burst, delay, jitter, loss, reorder")),
        }
        Ok(())
    }
}

/// Changes the directions from a and from b as `text` says: words `KEY=VALUE` for both, `a.KEY=VALUE` for what a sends,
/// `b.KEY=VALUE` for what b sends.
///
/// # Errors
/// The word that cannot be understood, and why. Nothing is changed then.
pub fn apply(text: &str, directions: &[Settings; 2]) -> Result<[Settings; 2], String> {
    let mut changed = *directions;
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not KEY=VALUE"))?;
        let (meant, key) = match key.split_once('.') {
            Some(("a", key)) => (&mut changed[..1], key),
            Some(("b", key)) => (&mut changed[1..], key),
            _ => (&mut changed[..], key),
        };
        for direction in meant {
            direction.set(key, value).map_err(|why| format!("{word}: {why}"))?;
        }
    }
    for direction in &changed {
        if direction.jitter > direction.delay {
            return Err("the jitter is longer than the delay".into());
        }
    }
    Ok(changed)
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { rate, delay, jitter, loss, reorder, .. } = self;
        write!(f, "rate={} queue={} ", rate * 8.0 / 1e6, self.queue_limit())?;
        if let Some(burst) = self.burst {
            write!(f, "burst={burst} ")?;
        }
        write!(f, "delay={delay:?} jitter={jitter:?} loss={}% reorder={}%", loss * 100.0, reorder * 100.0)
    }
}

fn number(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1e12).contains(&number) => Ok(number),
        _ => Err("not a number, or too large".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let seconds = match &text[unit..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if text == "0" => 0.0,
        _ => return Err("needs a unit: us, ms or s".into()),
    };
    match number(&text[..unit])? * seconds {
        // what is under way is kept in memory
        long if long > 10.0 => Err("more than 10 s".into()),
        fine => Ok(Duration::from_secs_f64(fine)),
    }
}

fn probability(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if share > 1.0 { Err("more than 100 %".into()) } else { Ok(share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_both_directions_or_one() {
        let [a, b] = apply("rate=1000 delay=10ms a.delay=0 b.loss=1% jitter=0", &Default::default()).unwrap();
        assert_eq!((a.rate, b.rate), (125e6, 125e6));
        assert_eq!((a.delay, b.delay), (Duration::ZERO, Duration::from_millis(10)));
        assert_eq!((a.loss, b.loss), (0.0, 0.01));
    }

    #[test]
    fn what_is_written_is_what_is_shown() {
        let text = "rate=250 queue=4000 burst=1500 delay=1.5ms jitter=20µs loss=0.5% reorder=3%";
        let ascii = text.replace('µ', "u");
        assert_eq!(apply(&ascii, &Default::default()).unwrap()[1].to_string(), text);
    }

    #[test]
    fn one_wrong_word_changes_nothing_and_is_named() {
        for (wrong, why) in [
            ("rate", "KEY=VALUE"),
            ("speed=3", "no setting"),
            ("c.rate=3", "no setting"),
            ("delay=10", "unit"),
            ("delay=1h", "unit"),
            ("delay=11s", "10 s"),
            ("loss=101%", "100 %"),
            ("loss=-1", "number"),
            ("rate=inf", "number"),
            ("rate=NaN", "number"),
            ("delay=1ms b.jitter=2ms", "jitter"),
        ] {
            let error = apply(&format!("queue=1 {wrong}"), &Default::default()).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn queue_and_burst_follow_the_rate_unless_set() {
        let settings = |text| apply(text, &Default::default()).unwrap()[0];
        assert_eq!(settings("rate=1000").queue_limit(), 1_000_000);
        assert_eq!(settings("rate=1000").burst(), 250_000.0);
        assert_eq!((settings("rate=1").queue_limit(), settings("rate=1").burst()), (262_144, 98_304.0));
        assert_eq!(settings("rate=1000 queue=5000").queue_limit(), 5000);
        assert_eq!(settings("rate=1000 burst=0").burst(), 0.0);
    }
}
