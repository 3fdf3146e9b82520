//! Asynchronous: of each tag the latest value counts; nothing waits, neither who sends nor who receives.
//!
//! Asynchronous iterations want usable data, the newest first, and bear that some is lost (Bertsekas and Tsitsiklis, 1989; P2PSAP). Each
//! **tag** has a **register** on the sending side: what is given while a value is being sent waits, one value at most, and is replaced
//! by what is given later. Parts that come are the user's at once, who keeps the newest whole value, and never goes back.
//!
//! A value of several parts is finished before the next begins, else none would ever be whole where they are given faster than they
//! can be sent. It **gives way** where that gains nothing: nothing of it was sent, or all of it was lost; or it lacks as many bytes as the
//! newer one has in all, which is then whole no later. Where all of it has left and nothing is known of its last parts, the next begins
//! if those will more likely than not come, or there were repairs for them, and always if the value fits a datagram.
//!
//! **Losses.** A value that stays the newest and of which it is not known that it came is sent again: parts that count as lost, and, where
//! no more than [`SHORT`] parts are unknown, those parts at even distances, so many in a round trip that one comes almost surely at the
//! loss that is measured; with hardly any loss, after a probe time-out. Of a longer one some parts are sent again if for one and a half round
//! trips nothing more was known. Copies leave behind whatever was never sent, and all of it by the
//! send bits of the composition. A value of several parts has **repairs** behind it where something is lost
//! ([`crate::values::repair`]), as many as almost surely make up for what will be lost, and more when they turn out to be too few. Where the
//! other side says nothing of values (`AsyncIntraEth`), each is repeated a few times at growing distances ([`REPEAT`]), for nobody else would
//! bring the last one of a program; over a reliable network none is.
//!
//! The stream of such a channel is the control channel's share: little, and reliable, by micro-protocols that the composition adds for it;
//! those of P2PSAP's table are for data. Stream and values take turns.

mod losses;
mod sending;

use super::retransmit::patience;
use super::shared::Acknowledged;
use super::{Fate, MicroProtocol, NEVER, Outgoing, PutError, Segment, Sent, Settled, Shared, Time};
use crate::values::repair::encode;
use crate::values::{BYTES, Register, may_put};
use crate::wire::datagram::{self, HEADER, TAG, VALUE_HEAD, Value, write_value};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use losses::Losses;
use sending::{Path, Piece, Sending};

/// Copies are sent of what is not known to have come if that is not more than so many datagrams' bytes.
pub const SHORT: u64 = 8;
/// Where the other side says nothing of values, one is repeated after so many nanoseconds, then after four times as many, ...
pub const REPEAT: Time = 8_000_000;
/// ... so often.
const REPEATS: u32 = 5;
/// Copies are no closer than this, in nanoseconds.
const CLOSEST: Time = 10_000;
/// Beside other parts in a datagram, a part is not cut to less than so many bytes.
const LEAST_CUT: u64 = 512;

/// So many repairs of a value leave in a row, at most.
const RUN: u32 = 64;

/// A part of a value in a datagram.
#[derive(Clone, Debug)]
struct Part {
    slot: u32,
    iteration: u64,
    piece: Piece,
}

/// The repairs of the value of which some left last. Those of a value leave in a row, so that no more need be kept.
#[derive(Debug, Default)]
struct Encoded {
    slot: u32,
    iteration: u64,
    size: usize,
    bytes: Vec<u8>,
}

impl Encoded {
    /// A repair of a register's value; none if it has no such.
    fn repair(&mut self, slot: u32, register: &Sending, number: usize) -> &[u8] {
        let Some((code, wanted)) = register.value.code() else { return &[] };
        let (iteration, size) = (register.values.iteration, code.size());
        let is_kept = (self.slot, self.iteration, self.size) == (slot, iteration, size);
        if !is_kept || self.bytes.len() < (number + 1) * size {
            // some more than are wanted: it may turn out that they are
            let count = code.repairs().min(2 * wanted);
            let bytes = encode(&code, &register.values.bytes, count).unwrap_or_default();
            *self = Self { slot, iteration, size, bytes };
        }
        self.bytes.get(number * size..(number + 1) * size).unwrap_or_default()
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct Asynchronous {
    slots: BTreeMap<u64, u32>,
    registers: Vec<Sending>,
    /// Registers with what was never sent, or is lost; each is in it once.
    ready: VecDeque<u32>,
    /// Registers with copies to send.
    copies: VecDeque<u32>,
    /// When which register is to send copies.
    timers: BTreeSet<(Time, u32)>,
    /// Parts in the datagram that is being made.
    written: Vec<Part>,
    encoded: Encoded,
    /// So many repairs of one value have left in a row.
    run: u32,
    /// Parts in those that were sent, by their numbers.
    parts: VecDeque<(u64, Part)>,
    losses: Losses,
    /// When something was acknowledged last.
    heard: Time,
    /// The last datagram was the stream's.
    streamed: bool,
}

/// What of a value goes into a datagram.
fn part_size(shared: &Shared) -> u64 {
    u64::from(shared.size).saturating_sub((HEADER + TAG + VALUE_HEAD) as u64).max(1)
}

impl Asynchronous {
    fn path(&self, shared: &Shared) -> Path {
        Path {
            part: part_size(shared),
            acknowledged: shared.acknowledged == Acknowledged::All,
            may_repair: shared.values_held <= BYTES / 8,
            losses: self.losses,
        }
    }

    fn set_timer(&mut self, slot: u32, at: Time) {
        let register = &mut self.registers[slot as usize];
        if register.timer != NEVER {
            self.timers.remove(&(register.timer, slot));
        }
        register.timer = at;
        if at != NEVER {
            self.timers.insert((at, slot));
        }
    }

    /// How long after the last copy another one leaves.
    fn distance(&self, shared: &Shared, register: &Sending) -> Time {
        let repeats = register.repeats;
        match shared.acknowledged {
            Acknowledged::Nothing => NEVER,
            Acknowledged::Stream if repeats >= REPEATS => NEVER,
            Acknowledged::Stream => REPEAT << (2 * repeats),
            Acknowledged::All => {
                let rtt = shared.rtt.smoothed;
                let short = self.is_short(shared, register);
                let once = match self.losses.copies() {
                    _ if rtt == 0 => patience(shared),
                    // by then what is lost is mostly known
                    _ if !short => rtt * 3 / 2 + shared.ack_delay,
                    1 => patience(shared),
                    // of what leaves within so long an answer may be had just after it is too late
                    copies => (rtt * 5 / 4 / u64::from(copies)).max(CLOSEST),
                };
                // who hears nothing slows down
                let since = self.heard.max(register.began);
                let silent = shared.now.saturating_sub(since + 2 * rtt.max(CLOSEST));
                once.max(silent / 4)
            }
        }
    }

    /// Whether so little of the register's value is unknown that copies of that are sent without waiting.
    fn is_short(&self, shared: &Shared, register: &Sending) -> bool {
        !register.value.is_repaired() && register.value.unknown() <= SHORT * part_size(shared)
    }

    /// After something changed for a register: the next value begins, it stands in a queue, or has a timer.
    fn arrange(&mut self, shared: &Shared, slot: u32) {
        let path = self.path(shared);
        let register = &mut self.registers[slot as usize];
        let began = register.advance(&path);
        let (wants, unknown) = (register.value.wants(), register.value.unknown());
        let push = !register.ready && (began || wants && !register.copied);
        register.ready |= push;
        if began {
            register.began = shared.now;
        }
        if push {
            self.ready.push_back(slot);
        }
        if wants || unknown == 0 {
            self.set_timer(slot, NEVER);
        } else if self.registers[slot as usize].timer == NEVER {
            let distance = self.distance(shared, &self.registers[slot as usize]);
            self.set_timer(slot, shared.now.saturating_add(distance));
        }
    }

    /// Tells when something is to leave.
    fn announce(&self, shared: &mut Shared) {
        let at_once = !self.ready.is_empty() || !self.copies.is_empty();
        let timer = self.timers.first().map_or(NEVER, |(at, _)| *at);
        shared.value_at = if at_once { 0 } else { timer };
    }

    /// Registers whose timers are due have copies to send.
    fn wake(&mut self, shared: &Shared) {
        // what nobody speaks of is repeated whole
        let known = shared.acknowledged == Acknowledged::All;
        let most = if known { SHORT * part_size(shared) } else { u64::MAX };
        while let Some((_, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= shared.now) {
            self.set_timer(slot, NEVER);
            let register = &mut self.registers[slot as usize];
            if !register.value.want_repairs(&self.losses) {
                register.value.repeat(0..register.value.span(), most);
            }
            register.repeats += 1;
            if !register.copied {
                register.copied = true;
                self.copies.push_back(slot);
            }
        }
    }

    /// A probe with nothing to send has the oldest part of a value that is not known to have come.
    fn recall(&mut self, shared: &Shared) {
        let most = part_size(shared);
        let current = |(_, part): &&(u64, Part)| {
            let register = &self.registers[part.slot as usize];
            let misses = |piece: &Piece| matches!(piece, Piece::Bytes(range) if register.value.misses(range));
            register.values.iteration == part.iteration && misses(&part.piece)
        };
        let Some((_, part)) = self.parts.iter().find(current).cloned() else { return };
        let Piece::Bytes(range) = part.piece else { return };
        let register = &mut self.registers[part.slot as usize];
        register.value.repeat(range, most);
        if register.value.wants() && !register.copied {
            register.copied = true;
            self.copies.push_back(part.slot);
        }
    }

    /// The next register with something to send, if that fits beside what is written already.
    fn next(&mut self, shared: &Shared, room: usize) -> Option<u32> {
        loop {
            let first = !self.ready.is_empty();
            let queue = if first { &mut self.ready } else { &mut self.copies };
            let slot = *queue.front()?;
            let register = &mut self.registers[slot as usize];
            if register.value.wants() {
                let least = match register.value.next_piece() {
                    (len, true) if len > part_size(shared) => {
                        register.value.forget_repairs();
                        self.arrange(shared, slot);
                        continue;
                    }
                    (len, true) => len,
                    (_, false) if self.written.is_empty() => 1,
                    (len, false) => len.min(LEAST_CUT),
                };
                return (VALUE_HEAD as u64 + least <= room as u64).then_some(slot);
            }
            queue.pop_front();
            *(if first { &mut register.ready } else { &mut register.copied }) = false;
        }
    }

    /// The register at the front has had its turn: it goes behind the others, or out; but those of its repairs leave in a row that are encoded.
    fn turn(&mut self, shared: &Shared, slot: u32) {
        let register = &mut self.registers[slot as usize];
        let wants = register.value.wants();
        if register.value.repairs_next() && self.run < RUN {
            self.run += 1;
            return;
        }
        self.run = 0;
        let (queue, is_in) = match self.ready.front() {
            Some(front) if *front == slot => (&mut self.ready, &mut register.ready),
            _ => (&mut self.copies, &mut register.copied),
        };
        queue.pop_front();
        *is_in = wants;
        if wants {
            queue.push_back(slot);
        } else {
            self.encoded = Encoded::default();
            self.arrange(shared, slot);
        }
    }

    /// Writes parts of values into a datagram.
    fn fill(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        while let Some(slot) = self.next(shared, out.to.room()) {
            let register = &mut self.registers[slot as usize];
            let most = (out.to.room() - VALUE_HEAD).min(usize::from(u16::MAX));
            let piece = register.value.take(most as u64);
            let Register { tag, iteration, bytes, .. } = &register.values;
            let (tag, iteration, total) = (*tag, *iteration, bytes.len() as u32);
            let (part, bytes) = match &piece {
                Piece::Bytes(range) => {
                    let end = (range.end as usize).min(bytes.len());
                    (datagram::Part::At(range.start as u32), &bytes[range.start as usize..end])
                }
                Piece::Repair(number) => {
                    let repair = self.encoded.repair(slot, register, *number);
                    (datagram::Part::Repair(*number as u16), repair)
                }
            };
            if bytes.is_empty() && total > 0 {
                register.value.forget_repairs();
                self.turn(shared, slot);
                continue;
            }
            write_value(&mut out.to, &Value { tag, iteration, total, part, bytes });
            self.written.push(Part { slot, iteration, piece });
            shared.counters.value_parts += 1;
            self.turn(shared, slot);
        }
    }

    /// Of a datagram it is known now whether it came.
    fn settle(&self, shared: &mut Shared, sent: &Sent) {
        let at = self.parts.partition_point(|(of, _)| *of < sent.number);
        if self.parts.get(at).is_some_and(|(of, _)| *of == sent.number) {
            shared.values_settled += u64::from(sent.size);
        }
    }

    /// What a datagram carried, where it is still of use.
    fn each_part(&mut self, number: u64, mut with: impl FnMut(&mut Self, u32, Piece)) {
        let mut at = self.parts.partition_point(|(of, _)| *of < number);
        while let Some((_, part)) = self.parts.get(at).filter(|(of, _)| *of == number) {
            let Part { slot, iteration, piece } = part.clone();
            if self.registers[slot as usize].values.iteration == iteration {
                with(self, slot, piece);
            }
            at += 1;
        }
    }
}

impl MicroProtocol for Asynchronous {
    const NAME: &'static str = "Asynchronous";
    const HAS_VALUES: bool = true;

    fn open(&mut self, shared: &mut Shared) {
        self.losses = Losses::known(shared.lost_before);
    }

    fn put_value(
        &mut self,
        shared: &mut Shared,
        tag: u64,
        iteration: u64,
        bytes: &[u8],
    ) -> Result<(), PutError> {
        let slot = self.slots.get(&tag).copied();
        let register = slot.map(|slot| &self.registers[slot as usize].values);
        may_put(register, (self.registers.len(), shared.values_held), iteration, bytes.len())?;
        let slot = match slot {
            Some(slot) => {
                let register = &mut self.registers[slot as usize];
                shared.values_held -= register.values.held();
                shared.counters.values_replaced += u64::from(register.put(iteration, bytes));
                slot
            }
            None => {
                let slot = self.registers.len() as u32;
                let path = self.path(shared);
                self.registers.push(Sending::new(shared.now, tag, iteration, bytes, &path));
                self.slots.insert(tag, slot);
                slot
            }
        };
        shared.values_held += self.registers[slot as usize].values.held();
        shared.counters.values_put += 1;
        self.arrange(shared, slot);
        self.announce(shared);
        Ok(())
    }

    /// Where nobody says what came, those are to leave that are to be repeated.
    fn owes_values(&self) -> bool {
        self.registers
            .iter()
            .any(|one| one.values.waiting().is_some() || one.value.wants() || one.timer != NEVER)
    }

    fn give_back(&mut self, shared: &mut Shared) -> Vec<Register> {
        let all = Self { losses: self.losses, heard: self.heard, ..Self::default() };
        let all = core::mem::replace(self, all).registers;
        (shared.values_held, shared.value_at, shared.values_settled) = (0, NEVER, shared.values_sent);
        let lacks = |one: &Sending| one.values.waiting().is_some() || one.value.unknown() > 0;
        all.into_iter().filter(lacks).map(|one| one.values).collect()
    }

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        if !out.takes_data || out.probes_path {
            return;
        }
        let stream = out.segment.len > 0 || shared.has_stream();
        if stream && !self.streamed {
            self.streamed = true;
            return;
        }
        self.streamed = false;
        self.wake(shared);
        if shared.probes > 0 && self.ready.is_empty() && self.copies.is_empty() {
            self.recall(shared);
        }
        self.fill(shared, out);
        if !self.written.is_empty() {
            (out.values, out.segment) = (true, Segment::default());
            out.elicits |= shared.acknowledged == Acknowledged::All;
        }
        self.announce(shared);
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        match shared.acknowledged {
            Acknowledged::All => {
                shared.values_sent += if self.written.is_empty() { 0 } else { u64::from(sent.size) };
                self.parts.extend(self.written.drain(..).map(|part| (sent.number, part)));
            }
            _ => self.written.clear(),
        }
    }

    fn acked(&mut self, shared: &mut Shared, sent: &Sent) {
        self.heard = shared.now;
        if sent.fate != Fate::Lost {
            self.settle(shared, sent);
        }
        if !sent.probes_path {
            self.losses.note(false);
        }
        self.each_part(sent.number, |this, slot, piece| {
            this.registers[slot as usize].value.came(&piece);
            this.arrange(shared, slot);
        });
        self.announce(shared);
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        self.settle(shared, sent);
        if !sent.probes_path {
            self.losses.note(true);
        }
        let copies = self.losses.copies() > 1;
        self.each_part(sent.number, |this, slot, piece| {
            // the timer sees to what copies are sent of
            let register = &this.registers[slot as usize];
            let again = !copies || register.timer == NEVER || !this.is_short(shared, register);
            let value = &mut this.registers[slot as usize].value;
            let is_made_up_for = value.was_lost(&this.losses);
            if let Piece::Bytes(range) = piece
                && again
                && !is_made_up_for
            {
                value.repeat(range, u64::MAX);
            }
            this.arrange(shared, slot);
        });
        self.announce(shared);
    }

    fn settled(&mut self, shared: &mut Shared, _settled: &Settled) {
        shared.let_ahead();
        let floor = shared.flight.floor();
        while self.parts.front().is_some_and(|(number, _)| *number < floor) {
            self.parts.pop_front();
        }
    }

    fn due(&self, shared: &Shared) -> Time {
        // what may leave now waits for the send bits, which have timers of their own
        if shared.value_at > shared.now { shared.value_at } else { NEVER }
    }
}
