//! Episodes of congestion: which losses belong together, and whether they were any.

use super::Time;

/// What counts as lost within a round trip is of one episode (RFC 9002, 7.3.1). If all of it comes after all, and no router marked
/// anything, there was no congestion (Eifel, RFC 4015; RFC 9438, 4.9).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Episode {
    /// What left after the first and not after the second of these times is of it.
    since: Time,
    until: Time,
    /// Datagrams that counted as lost and have not come.
    missing: u32,
    /// A router marked datagrams.
    marked: bool,
}

impl Episode {
    fn begin(&mut self, now: Time) {
        *self = Self { since: self.until, until: now, missing: 0, marked: false };
    }

    /// A datagram that left then counts as lost.
    pub fn lost(&mut self, now: Time, sent_at: Time) {
        if sent_at > self.until || self.until == 0 {
            self.begin(now);
        }
        self.missing += 1;
    }

    /// Routers marked datagrams; the newest that is known to have come left then.
    pub fn marked(&mut self, now: Time, sent_at: Time) {
        if sent_at > self.until || self.until == 0 {
            self.begin(now);
        }
        self.marked = true;
    }

    /// A datagram that left then has come, and counted as lost: whether with it there was no congestion.
    pub fn came(&mut self, sent_at: Time) -> bool {
        if self.missing == 0 || sent_at > self.until || sent_at < self.since {
            return false;
        }
        self.missing -= 1;
        self.missing == 0 && !self.marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_is_undone_when_the_last_of_what_it_took_for_lost_has_come() {
        let mut episode = Episode::default();
        (0..3).for_each(|at| episode.lost(10, at));
        assert!(!episode.came(0) && !episode.came(1));
        assert!(episode.came(2));
        assert!(!episode.came(2), "only once");
    }

    #[test]
    fn a_loss_that_stays_one_is_congestion_whatever_else_was_late() {
        let mut episode = Episode::default();
        (0..3).for_each(|at| episode.lost(10, at));
        assert!(!episode.came(1) && !episode.came(2));
        // what is lost later is of another
        episode.lost(20, 11);
        assert!(!episode.came(0), "of the one before");
        assert!(episode.came(11));
    }

    #[test]
    fn a_mark_is_congestion() {
        let mut episode = Episode::default();
        episode.lost(10, 5);
        episode.marked(11, 7);
        assert!(!episode.came(5));
    }
}
