//! Ranks that wait for long tell the others, and who is waited for looks at its program.
use std::time::{Duration, Instant};

use super::{Agent, End};
use crate::exchange::Exchange;
use crate::message::{Message, What};
use crate::net::Net;
use crate::symbols::Symbols;
use crate::watchdog::{Verdict, Watch};

/// Whether somebody waits for somebody who will never come.
pub(super) struct Watchdog {
    /// How long a wait is suspicious; zero: none is.
    pub(super) after: Duration,
    /// When this rank's program has last been seen to ask for anything, or to submit an exchange, and what was known of that.
    pub(super) asked: Instant,
    pub(super) signs: [u32; 3],
    /// When this rank has last told others that it waits for them.
    pub(super) warned: Instant,
    pub(super) watch: Option<Watch>,
}

impl Agent {
    /// Tells others that this rank has waited for them for long.
    pub(super) fn warn(&mut self, now: Instant) -> Result<(), End> {
        let limit = self.watchdog.after;
        let (submitted, read) = self.mapping.exchanged();
        let signs = [submitted, self.mapping.requests(), self.bell];
        if signs != self.watchdog.signs {
            (self.watchdog.signs, self.watchdog.asked, self.watchdog.watch) = (signs, now, None);
        }
        let waits = match self.shares() {
            true => submitted != read && now - self.watchdog.asked > limit,
            false => (0..2).any(|b| {
                self.exchanges[b].waits_for_others()
                    && self.submitted[b].is_some_and(|since| now - since > limit)
            }),
        };
        if limit.is_zero() || !waits || now - self.watchdog.warned < limit {
            return Ok(());
        }
        self.watchdog.warned = now;
        self.pass_on(self.mpi.rank())
    }

    /// That rank `from` has waited for long: rank 0 tells the others, who hear of nobody else.
    pub(super) fn pass_on(&mut self, from: usize) -> Result<(), End> {
        let to = if self.is_first() { 1..self.mpi.size() } else { 0..1 };
        let message = Message::new(What::Waiting, self.mpi.rank());
        for rank in to.filter(|rank| *rank != from) {
            self.control.send(&mut self.mpi, rank, &message)?;
        }
        Ok(())
    }

    /// Somebody waits for this rank: what does its program do?
    pub(super) fn suspect(&mut self) {
        let now = Instant::now();
        let exchanges = match self.shares() {
            true => {
                let (submitted, read) = self.mapping.exchanged();
                submitted != read
            }
            false => self.exchanges.iter().any(Exchange::is_busy),
        };
        let waits_itself = exchanges || self.mapping.is_asking();
        if let Some(program) = &self.program
            && !waits_itself
            && self.watchdog.watch.is_none()
            && now - self.watchdog.asked > self.watchdog.after
        {
            self.watchdog.watch = Some(Watch::new(program.id(), now));
        }
    }

    pub(super) fn watch(&mut self, now: Instant) -> Result<(), End> {
        let (Some(watch), Some(program)) = (&mut self.watchdog.watch, &self.program) else { return Ok(()) };
        match watch.poll(now) {
            Verdict::Looking => return Ok(()),
            Verdict::Innocent => self.watchdog.watch = None,
            Verdict::Waits(address) => {
                let place = Symbols::of(program.id()).name(address).unwrap_or(format!("{address:#x}"));
                let seconds = (now - self.watchdog.asked).as_secs();
                self.watchdog.watch = None;
                self.fail(
                    format!(
                        "busy waiting on shared memory is not supported: for {seconds} s, while other ranks wait for this one, \
                         it has read the same memory again and again at {place}, which no other rank can change before this one \
                         comes to a barrier, a critical section or a lock"
                    ),
                    1,
                )?;
            }
        }
        Ok(())
    }
}
