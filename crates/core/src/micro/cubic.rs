//! Cubic: the window as a cubic function of the time since it was last reduced (RFC 9438).

use super::congestion::{Events, first_window, least_window};
use super::hystart::HyStart;
use super::{MicroProtocol, Sent, Settled, Shared, Time};

/// What is left of the window after a loss (RFC 9438, 4.6).
const BETA: f64 = 0.7;
/// How steep the function is: datagrams per second cubed (RFC 9438, 5.1).
const STEEP: f64 = 0.4;
/// Datagrams per round trip by which Reno's window would grow that falls to the same part (RFC 9438, 4.3).
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// By no more than this does the window grow in a round trip (RFC 9438, 4.2).
const FASTEST: f64 = 1.5;

/// What a congestion event changes, and is restored if there was none.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// The window, in bytes.
    window: f64,
    /// Slow start goes up to this.
    threshold: f64,
    /// Where the function is level, in bytes ...
    level: f64,
    /// ... and when, in seconds after its beginning.
    level_at: f64,
    /// The window at the last event.
    reduced: f64,
    /// Reno's window, in bytes.
    reno: f64,
    /// When the function began; 0: it has not.
    began: Time,
}

/// Concave up to where the last loss was, then convex, and never slower than Reno.
#[derive(Debug, Default)]
pub struct Cubic {
    curve: Curve,
    before: Option<Curve>,
    events: Events,
    start: HyStart,
    /// When something was last acknowledged.
    acked_at: Time,
}

/// The whole part of a cube root.
fn cube_root(of: u64) -> u64 {
    let (mut root, mut rest) = (0_u64, of);
    for shift in (0..=63).rev().step_by(3) {
        root *= 2;
        let next = 3 * root * (root + 1) + 1;
        if rest >> shift >= next {
            rest -= next << shift;
            root += 1;
        }
    }
    root
}

/// Seconds in which the function rises by so many datagrams to where it is level.
fn seconds_to_level(datagrams: f64) -> f64 {
    // in milliseconds, cubed
    cube_root((datagrams.max(0.0) / STEEP * 1e9) as u64) as f64 / 1e3
}

impl Cubic {
    fn reduce(&mut self, shared: &Shared) {
        self.before = Some(self.curve);
        let curve = &mut self.curve;
        // fast convergence: who has less than before gives way to who comes (RFC 9438, 4.7)
        curve.level =
            if curve.window < curve.level { curve.window * (1.0 + BETA) / 2.0 } else { curve.window };
        curve.reduced = curve.window;
        curve.window = (curve.window * BETA).max(least_window(shared) as f64);
        (curve.threshold, curve.began) = (curve.window, 0);
    }

    fn begin(&mut self, shared: &Shared) {
        let curve = &mut self.curve;
        curve.began = shared.now.max(1);
        curve.level = curve.level.max(curve.window);
        curve.level_at = seconds_to_level((curve.level - curve.window) / f64::from(shared.size));
        curve.reno = curve.window;
    }

    /// Congestion avoidance (RFC 9438, 4.2 to 4.5).
    fn avoid(&mut self, shared: &Shared, acked: f64) {
        if self.curve.began == 0 {
            self.begin(shared);
        }
        let (curve, size) = (&mut self.curve, f64::from(shared.size));
        let since = shared.now.saturating_sub(curve.began) as f64 / 1e9;
        let at = |time: f64| {
            let from_level = time - curve.level_at;
            curve.level + STEEP * from_level * from_level * from_level * size
        };
        let alpha = if curve.reno < curve.reduced { RENO } else { 1.0 };
        curve.reno += alpha * size * acked / curve.window;
        if at(since) < curve.reno {
            curve.window = curve.window.max(curve.reno);
            return;
        }
        let rtt = shared.rtt.smoothed as f64 / 1e9;
        let target = at(since + rtt).clamp(curve.window, curve.window * FASTEST);
        curve.window += (target - curve.window) * acked / curve.window;
    }

    fn grow(&mut self, shared: &Shared, settled: &Settled) {
        if self.curve.window >= self.curve.threshold {
            return self.avoid(shared, settled.acked as f64);
        }
        match self.start.grow(shared, settled) {
            Some(more) => self.curve.window += more as f64,
            None => self.curve.threshold = self.curve.window,
        }
    }
}

impl MicroProtocol for Cubic {
    const NAME: &'static str = "Cubic";

    fn open(&mut self, shared: &mut Shared) {
        shared.window = first_window(shared);
        shared.starting = true;
        self.curve = Curve { window: shared.window as f64, threshold: f64::INFINITY, ..Curve::default() };
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        // the function stands still while nothing is sent (RFC 9438, 5.8)
        if self.curve.began > 0 && sent.mark.in_flight == u64::from(sent.size) {
            self.curve.began += shared.now.saturating_sub(self.acked_at);
            self.acked_at = shared.now;
        }
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        if settled.undone
            && let Some(before) = self.before.take()
        {
            self.curve = Curve { window: before.window.max(self.curve.window), ..before };
        }
        if self.events.begins(shared, settled) {
            self.reduce(shared);
        }
        if settled.persistent {
            // a timeout (RFC 9438, 4.8): slow start up to what the event has left
            self.curve.window = least_window(shared) as f64;
            (self.start, self.curve.began) = (HyStart::default(), 0);
            self.events.forget();
        } else if self.events.grows(shared, settled) {
            self.grow(shared, settled);
        } else if self.curve.began > 0 && settled.acked > 0 {
            self.curve.began += shared.now.saturating_sub(self.acked_at);
        }
        if settled.acked > 0 {
            self.acked_at = shared.now;
        }
        shared.window = self.curve.window as u64;
        shared.starting = self.curve.window < self.curve.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_whole_parts() {
        for root in (0..1000).chain([123_456, 2_097_151]) {
            assert_eq!(cube_root(root * root * root), root);
            assert_eq!(cube_root(root * root * root + u64::from(root > 0)), root);
            assert_eq!(cube_root((root + 1) * (root + 1) * (root + 1) - 1), root);
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    #[test]
    fn it_is_back_where_the_loss_was_after_the_time_of_the_rfc() {
        // RFC 9438, figure 2: (level * 0.3 / 0.4) to the third part; 1000 datagrams: 9.08 s
        assert!((seconds_to_level(300.0) - 9.085).abs() < 0.001);
    }
}
