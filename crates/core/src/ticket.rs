//! A fair lock of readers and writers in one word of 64 bits, which is taken and given back by additions alone: so it may be in the memory of
//! another process, of which nothing is asked but to add, and to say what was there before. Ticket locks of readers and writers are
//! Mellor-Crummey and Scott's (PPoPP 1991); that all of it is one word saves a round trip.
//!
//! | bits | count |
//! |---|---|
//! | 0 to 20 | tickets that were taken |
//! | 21 | takes the carry of those until it is taken away |
//! | 22 to 42 | tickets after which readers may go on: each adds 1 when it has the lock as a reader, or gives it back as a writer |
//! | 43 to 63 | tickets that were given back, after which writers may go on |
//!
//! All three begin anew at 2^21, so at most so many may wait at once. Who adds to the second knows that it is its own ticket's number, and
//! so whether it overflows; the third overflows out of the word; the first into the bit above it, and whose ticket that was takes it away. Whoever
//! adds several times does so in order, as MPI has it for accumulates of one origin. What several add may come in any order: until all of it
//! is there, counts are too low, so that somebody waits for a little longer.
//!
//! Who has to wait says so in a slot beside the word, looks again, and then now and then. Who gives the lock back and had to wait for it finds
//! the next one there, and tells it by a word in its own memory: so a lock that is wanted goes from one to the next without
//! anybody's looking, while one that is not costs one question and one addition. Where nobody is told (whoever has had it did not wait, or readers were before
//! a writer), looking finds it.

use alloc::vec;
use alloc::vec::Vec;

const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;
const ENTERED_AT: u32 = BITS + 1;
const LEFT_AT: u32 = ENTERED_AT + BITS;

/// What taking a ticket adds.
pub static TAKE: u64 = 1;
static NO_CARRY: u64 = (1u64 << BITS).wrapping_neg();
static ENTER: u64 = 1 << ENTERED_AT;
static ENTER_LAST: u64 = (MASK << ENTERED_AT).wrapping_neg();
static LEAVE: u64 = 1 << LEFT_AT;
static LEAVE_WRITER: u64 = ENTER + LEAVE;
static LEAVE_LAST_WRITER: u64 = ENTER_LAST.wrapping_add(LEAVE);

/// Who has the lock beside others, or alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// With other readers.
    Reader,
    /// Alone.
    Writer,
}

/// A place in the queue, from when it is taken until it is given back.
///
/// What is to be added to the word comes as references that stay: who adds by a network may need the memory for longer than the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    number: u64,
    kind: Kind,
    waited: bool,
}

impl Ticket {
    /// By the word before [`TAKE`] was added to it.
    pub fn new(before: u64, kind: Kind) -> Self {
        Self { number: before & MASK, kind, waited: false }
    }

    /// What is to be added to the word at once, if anything.
    pub fn taken(&self) -> Option<&'static u64> {
        (self.number == MASK).then_some(&NO_CARRY)
    }

    /// How many are still to go on before it is this one's turn. At 0, who has the ticket has the lock.
    pub fn ahead(&self, word: u64) -> u64 {
        let at = match self.kind {
            Kind::Reader => ENTERED_AT,
            Kind::Writer => LEFT_AT,
        };
        self.number.wrapping_sub(word >> at) & MASK
    }

    /// What is to be added when this one has the lock, if anything: readers behind it go on.
    pub fn entered(&self) -> Option<&'static u64> {
        match self.kind {
            Kind::Reader if self.number == MASK => Some(&ENTER_LAST),
            Kind::Reader => Some(&ENTER),
            Kind::Writer => None,
        }
    }

    /// What is to be added to give the lock back.
    pub fn left(&self) -> &'static u64 {
        match self.kind {
            Kind::Reader => &LEAVE,
            Kind::Writer if self.number == MASK => &LEAVE_LAST_WRITER,
            Kind::Writer => &LEAVE_WRITER,
        }
    }
}

/// Where the word and its slots are, and how a rank reaches them.
pub trait Home {
    /// Why it does not.
    type Error;

    /// Adds to the word, and says what was there before. Behind all that this rank has asked of it before.
    ///
    /// # Errors
    /// The home cannot be reached: so with all of these.
    fn fetch(&mut self, adds: &'static u64) -> Result<u64, Self::Error>;

    /// Adds to the word, some time later.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn add(&mut self, adds: &'static u64) -> Result<(), Self::Error>;

    /// Writes a slot, before anything that this rank asks of the home later. What it was told of this home before is forgotten: numbers come again.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn register(&mut self, slot: usize, waiting: u64) -> Result<(), Self::Error>;

    /// Asks for a slot, of which [`answer`](Self::answer) says as this rank gives the lock back what was in it.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn ask(&mut self, slot: usize) -> Result<(), Self::Error>;

    /// What was in the slot that was asked for.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn answer(&mut self) -> Result<u64, Self::Error>;

    /// What is in a slot; and adds to the word, if there is something to add. Behind all that this rank has asked of it before.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn peek(&mut self, slot: usize, adds: Option<&'static u64>) -> Result<u64, Self::Error>;

    /// The word as it is, after some time in which this rank, before which there are `ahead`, was not told `told` (see [`tell`](Self::tell)); `None` if it was.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn wait(&mut self, told: u64, ahead: u64) -> Result<Option<u64>, Self::Error>;

    /// Tells a rank something about this home. What it is told later may take its place.
    ///
    /// # Errors
    /// The rank cannot be reached.
    fn tell(&mut self, rank: u32, what: u64) -> Result<(), Self::Error>;
}

/// A reader that waits, in a slot: beside its rank and number.
const READER: u64 = 1 << BITS;
/// What a slot has that somebody waited in.
const WAITING: u64 = 1 << 63;
const RANK_AT: u32 = ENTERED_AT;

/// Waits for the lock, of which so many ranks may want one ticket each.
///
/// # Errors
/// What [`Home`] says.
pub fn take<H: Home>(home: &mut H, rank: u32, ranks: usize, kind: Kind) -> Result<Ticket, H::Error> {
    let mut word = home.fetch(&TAKE)?;
    let mut ticket = Ticket::new(word, kind);
    begin(home, &mut ticket, &mut word, rank, ranks)?;
    while ticket.ahead(word) > 0 {
        match home.wait(told(ticket.number), ticket.ahead(word))? {
            Some(now) => word = now,
            None => break,
        }
    }
    enter(home, ticket, ranks)?;
    Ok(ticket)
}

/// The same of all ranks' locks at once, as a reader, by the words before [`TAKE`] was added to each. Whichever is free is entered, whatever others are waited
/// for: who has one of those may want this one.
///
/// # Errors
/// What [`Home`] says; what was entered is given back.
pub fn have_all<H: Home>(homes: &mut [H], words: Vec<u64>, rank: u32) -> Result<Vec<Ticket>, H::Error> {
    let (ranks, mut inside) = (homes.len(), vec![false; homes.len()]);
    let mut tickets: Vec<Ticket> = words.iter().map(|word| Ticket::new(*word, Kind::Reader)).collect();
    let entered = enter_all(homes, &mut tickets, words, &mut inside, rank);
    if let Err(why) = entered {
        let all = homes.iter_mut().zip(tickets).zip(inside);
        for ((home, ticket), _) in all.filter(|(_, inside)| *inside) {
            // one that cannot be reached keeps no other from being given back
            let _ = leave(home, ticket, ranks);
        }
        return Err(why);
    }
    Ok(tickets)
}

fn enter_all<H: Home>(
    homes: &mut [H],
    tickets: &mut [Ticket],
    mut words: Vec<u64>,
    inside: &mut [bool],
    rank: u32,
) -> Result<(), H::Error> {
    let ranks = homes.len();
    for (n, home) in homes.iter_mut().enumerate() {
        begin(home, &mut tickets[n], &mut words[n], rank, ranks)?;
        if tickets[n].ahead(words[n]) == 0 {
            enter(home, tickets[n], ranks)?;
            inside[n] = true;
        }
    }
    while inside.contains(&false) {
        for (n, home) in homes.iter_mut().enumerate().filter(|(n, _)| !inside[*n]).collect::<Vec<_>>() {
            let now = home.wait(told(tickets[n].number), tickets[n].ahead(words[n]))?;
            words[n] = now.unwrap_or(words[n]);
            if now.is_none() || tickets[n].ahead(words[n]) == 0 {
                enter(home, tickets[n], ranks)?;
                inside[n] = true;
            }
        }
    }
    Ok(())
}

/// After a ticket was taken: says where this rank waits, if it does, and looks again.
fn begin<H: Home>(
    home: &mut H,
    ticket: &mut Ticket,
    word: &mut u64,
    rank: u32,
    ranks: usize,
) -> Result<(), H::Error> {
    if let Some(adds) = ticket.taken() {
        home.add(adds)?;
    }
    if ticket.ahead(*word) > 0 {
        ticket.waited = true;
        let reader = if ticket.kind == Kind::Reader { READER } else { 0 };
        let waiting = WAITING | u64::from(rank) << RANK_AT | reader | ticket.number;
        home.register(ticket.number as usize % ranks, waiting)?;
        *word = home.fetch(&NOTHING)?;
    }
    Ok(())
}

/// This rank has the lock.
fn enter<H: Home>(home: &mut H, ticket: Ticket, ranks: usize) -> Result<(), H::Error> {
    let slot = behind(ticket) as usize % ranks;
    if let Some(adds) = ticket.entered() {
        home.add(adds)?;
        if ticket.waited {
            let waiting = home.peek(slot, None)?;
            tell_behind(home, ticket, waiting, true)?;
        }
    } else if ticket.waited {
        home.ask(slot)?;
    }
    Ok(())
}

/// Gives the lock back.
///
/// # Errors
/// What [`Home`] says.
pub fn leave<H: Home>(home: &mut H, ticket: Ticket, ranks: usize) -> Result<(), H::Error> {
    // of readers, others may still be inside
    if !ticket.waited || ticket.kind == Kind::Reader {
        return home.add(ticket.left());
    }
    // whoever waited already when this one came to it need not be looked for
    let waiting = home.answer()?;
    if is_behind(ticket, waiting) {
        home.add(ticket.left())?;
        return tell_behind(home, ticket, waiting, false);
    }
    let waiting = home.peek(behind(ticket) as usize % ranks, Some(ticket.left()))?;
    tell_behind(home, ticket, waiting, false)
}

/// What a look adds.
pub static NOTHING: u64 = 0;

fn behind(ticket: Ticket) -> u64 {
    ticket.number.wrapping_add(1) & MASK
}

/// What who has this ticket is told: never 0.
fn told(number: u64) -> u64 {
    number + 1
}

/// If a slot says that the next one waits, it may go on.
fn tell_behind<H: Home>(
    home: &mut H,
    ticket: Ticket,
    waiting: u64,
    only_readers: bool,
) -> Result<(), H::Error> {
    if !is_behind(ticket, waiting) || only_readers && waiting & READER == 0 {
        return Ok(());
    }
    home.tell(((waiting & !WAITING) >> RANK_AT) as u32, told(behind(ticket)))
}

fn is_behind(ticket: Ticket, waiting: u64) -> bool {
    waiting & WAITING != 0 && waiting & MASK == behind(ticket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    /// A word whose counts are all `n`, as after so many that came and went.
    fn after(n: u64) -> u64 {
        let n = n & MASK;
        n | n << ENTERED_AT | n << LEFT_AT
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum At {
        Away,
        Waiting(Ticket),
        Inside(Ticket),
    }

    struct Process {
        at: At,
        /// What it has added and has not arrived.
        under_way: VecDeque<u64>,
        rounds: u32,
    }

    /// Processes take the lock and give it back in any order that a schedule says; what they add without waiting for it arrives later, in order.
    fn run(first: u64, processes: usize, schedule: &[(u8, bool)]) {
        let mut word = after(first);
        let mut all: Vec<Process> =
            (0..processes).map(|_| Process { at: At::Away, under_way: VecDeque::new(), rounds: 0 }).collect();
        let mut order = VecDeque::new();
        let step = |all: &mut Vec<Process>,
                    word: &mut u64,
                    order: &mut VecDeque<usize>,
                    who: usize,
                    writes: bool| {
            let one = &mut all[who];
            if let Some(adds) = one.under_way.pop_front() {
                *word = word.wrapping_add(adds);
                return;
            }
            match one.at {
                At::Away => {
                    let ticket = Ticket::new(*word, if writes { Kind::Writer } else { Kind::Reader });
                    *word = word.wrapping_add(TAKE);
                    one.under_way.extend(ticket.taken());
                    one.at = At::Waiting(ticket);
                    order.push_back(who);
                }
                At::Waiting(ticket) if ticket.ahead(*word) == 0 => {
                    one.under_way.extend(ticket.entered());
                    one.at = At::Inside(ticket);
                    one.rounds += 1;
                    assert_eq!(order.pop_front(), Some(who), "in the order of their coming");
                }
                At::Waiting(_) => {}
                At::Inside(ticket) => {
                    one.under_way.push_back(*ticket.left());
                    one.at = At::Away;
                }
            }
            let inside = || {
                all.iter().filter_map(|one| match one.at {
                    At::Inside(ticket) => Some(ticket.kind),
                    _ => None,
                })
            };
            let writers = inside().filter(|kind| *kind == Kind::Writer).count();
            assert!(writers == 0 || inside().count() == 1, "a writer has it alone");
        };
        for (who, writes) in schedule {
            step(&mut all, &mut word, &mut order, usize::from(*who) % processes, *writes);
        }
        // all come to an end, whoever is where
        let mut left = 0;
        while all.iter().any(|one| one.at != At::Away || !one.under_way.is_empty()) {
            for who in 0..processes {
                if all[who].at != At::Away || !all[who].under_way.is_empty() {
                    step(&mut all, &mut word, &mut order, who, true);
                }
            }
            left += 1;
            assert!(left < 100 + processes * 10, "somebody waits for ever");
        }
        let taken: u64 = all.iter().map(|one| u64::from(one.rounds)).sum();
        assert_eq!(word, after(first + taken));
    }

    proptest! {
        #[test]
        fn a_writer_has_it_alone_and_all_have_it_in_turn(
            first in prop_oneof![Just(0), MASK - 40..=MASK, any::<u64>()],
            processes in 1usize..9,
            schedule in prop::collection::vec((any::<u8>(), any::<bool>()), 0..600),
        ) {
            run(first, processes, &schedule);
        }
    }

    #[test]
    fn readers_are_inside_together() {
        let mut word = after(MASK);
        let mut tickets = vec![];
        for _ in 0..3 {
            let ticket = Ticket::new(word, Kind::Reader);
            word = word.wrapping_add(TAKE).wrapping_add(ticket.taken().copied().unwrap_or(0));
            assert_eq!(ticket.ahead(word), 0);
            word = word.wrapping_add(*ticket.entered().unwrap());
            tickets.push(ticket);
        }
        let writer = Ticket::new(word, Kind::Writer);
        word = word.wrapping_add(TAKE);
        for (n, ticket) in tickets.iter().enumerate() {
            assert_eq!(writer.ahead(word), 3 - n as u64);
            word = word.wrapping_add(*ticket.left());
        }
        assert_eq!(writer.ahead(word), 0);
    }
}
