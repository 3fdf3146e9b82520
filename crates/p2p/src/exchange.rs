//! What moves between this process and the others: messages to links, words to machines, states to where they are kept, and one view after another.

use crate::Scheme;
use crate::error::{Error, breach, gone, other_length};
use crate::kept::{Kept, PIECE_HEAD, piece_head};
use crate::link::{Class, HEAD, Link, epoch_of, has_class, number_of, read_head, write_message};
use crate::members::{self, Members};
use crate::pause::Pause;
use crate::rounds::{Breach, Rounds, Word};
use crate::seat::{Seat, Way};
use crate::view::{Stamp, View};
use crate::wire::Wire;
use crate::words::{self, Said};
use polyrail_rails::PeerIdx;
use polyrail_rails::mailbox::Done;
use polyrail_rails::worker::Refused;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a part of what is posted, or of a state.
pub(crate) const PIECE: usize = 1 << 20;
/// Bytes of a word that goes as an active message, at most; longer ones go as messages.
const SHORT: usize = 4 << 10;
/// Words of views that are not known here yet, at most.
const EARLY: usize = 1 << 12;
/// How long somebody may be gone without anything being waited for that only it could bring.
const GONE: Duration = Duration::from_secs(2);
/// Between two answers to one who has an old view.
const TELL: Duration = Duration::from_millis(500);
/// The longest sleep of who waits.
pub(crate) const SLEEP: Duration = Duration::from_millis(50);

/// What has come by a link, and not been received.
#[derive(Default)]
pub(crate) struct Inbound {
    pub(crate) ready: VecDeque<Vec<u8>>,
    pub(crate) marked: VecDeque<Vec<u8>>,
    /// From whom receives are posted.
    posted: Option<PeerIdx>,
    posted_marked: Option<PeerIdx>,
    /// The iteration that was received last.
    pub(crate) last: Option<u64>,
    /// Whether something new was received since norms are small.
    pub(crate) fresh: bool,
}

/// What waits to be sent, to whom, and how: a word, or a message with this tag.
struct Outgoing {
    to: PeerIdx,
    tag: Option<u64>,
    bytes: Arc<[u8]>,
}

/// What a new view means for this member.
pub(crate) struct Changed {
    /// Parts that are not held here any more.
    pub(crate) lost: Vec<u32>,
    /// Parts whose state is to be set, and to which; none: as at the beginning.
    pub(crate) set: Vec<(u32, Option<Stamp>)>,
}

/// How long to wait for a member that says nothing.
pub(crate) struct Waited {
    since: Duration,
    /// When it was last asked whether to go on.
    asked: Instant,
    spins: u32,
    patience: Option<Duration>,
}

pub(crate) struct Exchange<W> {
    pub(crate) wire: W,
    pub(crate) view: View,
    pub(crate) epoch: u32,
    pub(crate) seat: Seat,
    /// By member.
    pub(crate) peers: Vec<PeerIdx>,
    numbers: HashMap<PeerIdx, usize>,
    /// Where members may be lost and join.
    members: Option<Members>,
    pub(crate) rounds: Option<Rounds>,
    pub(crate) inbound: HashMap<Link, Inbound>,
    /// Buffers to be used again.
    pub(crate) spare: Vec<Vec<u8>>,
    outgoing: VecDeque<Outgoing>,
    /// Pieces that were posted to this one, whole messages.
    posted: VecDeque<(PeerIdx, Vec<u8>)>,
    pub(crate) kept: Kept,
    /// States of parts held here of which the other has not said yet that it keeps them.
    pub(crate) unconfirmed: BTreeSet<(Stamp, u32)>,
    /// The stage that the program knows that it is in.
    pub(crate) stage: u32,
    /// Whether a view that it does not know of has gone back behind that.
    pub(crate) went_back: bool,
    pub(crate) changed: Option<Changed>,
    /// The parts that the program knows that it holds.
    pub(crate) known: Vec<u32>,
    /// From whom pieces can come.
    listening: HashSet<PeerIdx>,
    /// Members whose session had ended in this view, and who have another: of what they sent some pieces are missing, and come again.
    back: HashSet<usize>,
    /// Words of views that are not known here yet.
    early: VecDeque<(PeerIdx, Vec<u8>)>,
    /// Pieces of states of such views: who hands them over may have gone on before this one.
    early_states: Vec<(PeerIdx, Vec<u8>)>,
    answered: HashMap<PeerIdx, Duration>,
    /// How often something was told.
    pub(crate) told: u64,
    gone: Option<(usize, Duration)>,
    patience: Option<Duration>,
    pause: Option<Pause>,
}

impl Waited {
    fn is_long(&self, now: Duration) -> bool {
        self.patience.is_some_and(|patience| now.saturating_sub(self.since) > patience)
    }
}

impl<W: Wire> Exchange<W> {
    pub(crate) fn new(
        wire: W,
        view: View,
        epoch: u32,
        patience: Option<Duration>,
        pause: Option<Pause>,
    ) -> Result<Self, Error> {
        let address = wire.address();
        let me = view.members.iter().position(|member| member.address == address).ok_or(Error::Out)?;
        let mut one = Self {
            seat: Seat::new(&view, me),
            wire,
            view,
            epoch,
            peers: Vec::new(),
            numbers: HashMap::new(),
            members: None,
            rounds: None,
            inbound: HashMap::new(),
            spare: Vec::new(),
            outgoing: VecDeque::new(),
            posted: VecDeque::new(),
            kept: Kept::default(),
            unconfirmed: BTreeSet::new(),
            stage: 0,
            went_back: false,
            changed: None,
            known: Vec::new(),
            listening: HashSet::new(),
            back: HashSet::new(),
            early: VecDeque::new(),
            early_states: Vec::new(),
            answered: HashMap::new(),
            told: 0,
            gone: None,
            patience,
            pause,
        };
        // further views come by one of these, whoever has them
        for _ in 0..2 {
            one.wire.recv(None, Class::View.tag(0), vec![0; words::LONGEST]);
        }
        one.sit_down(0)?;
        // who joins a run that is under way has states to go on from
        if epoch > 1 {
            one.changed = Some(Changed { lost: Vec::new(), set: one.to_set(&[]) });
        } else {
            one.known = one.seat.mine.clone();
        }
        Ok(one)
    }

    fn now(&self) -> members::Time {
        self.wire.now().as_nanos() as members::Time
    }

    pub(crate) fn iteration(&self) -> u64 {
        self.rounds.as_ref().map_or(0, Rounds::iteration)
    }

    /// Takes its place in the view that it has, and goes on with this iteration, or the one of all who are in step.
    fn sit_down(&mut self, iteration: u64) -> Result<(), Error> {
        let iteration = self.view.from_of(self.seat.me).unwrap_or(iteration);
        let Self { wire, view, seat, .. } = self;
        self.peers =
            view.members.iter().map(|member| wire.peer(&member.address)).collect::<Result<_, _>>()?;
        for (peer, way) in self.peers.iter().zip(&seat.ways) {
            if let Way::Newest(_) = way {
                wire.newest_counts(*peer);
            }
            if *way != Way::Here && self.listening.insert(*peer) {
                wire.recv(Some(*peer), Class::Posted.tag(0), vec![0; HEAD + PIECE_HEAD + PIECE]);
            }
        }
        self.numbers = self.peers.iter().enumerate().map(|(number, peer)| (*peer, number)).collect();
        self.rounds = seat.rounds(view, iteration);
        let now = self.now();
        self.members = (self.view.job.keep > 0).then(|| {
            let mut members = Members::new(self.view.clone(), self.epoch, self.seat.me, now);
            self.kept.all().for_each(|(part, stamp)| members.keeps(part, stamp));
            members
        });
        Ok(())
    }

    /// What is to be set of the parts that are held here, where some were before.
    fn to_set(&self, before: &[u32]) -> Vec<(u32, Option<Stamp>)> {
        let in_step = self.view.from_of(self.seat.me).is_some();
        // out of step what stays goes on as it is; not so in a stage that others may not have come to
        let goes_on = !in_step && self.view.stage == self.stage && !self.went_back;
        let is_set = |part: &u32| !goes_on || !before.contains(part);
        self.seat
            .mine
            .iter()
            .filter(|part| is_set(part))
            .map(|part| (*part, self.view.state_of(*part)))
            .collect()
    }

    /// Goes on in another view.
    fn install(&mut self, epoch: u32, view: View) -> Result<(), Error> {
        if view.job != self.view.job {
            return Err(Error::Use("a view of the run is of another job than it began with".into()));
        }
        let address = self.wire.address();
        let me = view.members.iter().position(|member| member.address == address).ok_or(Error::Out)?;
        let before = self.known.clone();
        // who has joined is at its first iteration: where iterations are compared, all begin anew
        let was_at = if matches!(view.job.scheme, Scheme::Bounded(_)) { 0 } else { self.iteration() };
        // what came after the iteration that is gone back to is of a run that has not been; so is all of a later stage
        self.kept.forget(|part, stamp| {
            // a part may have come to a group that is at an earlier iteration than its own was
            let from = view.from_of(usize::from(view.owners[part as usize]));
            let is_later = from.is_some_and(|number| stamp > Stamp { stage: view.stage, number });
            stamp.stage > view.stage || is_later && Some(stamp) != view.state_of(part)
        });
        self.kept.begin_anew();
        self.unconfirmed.clear();
        self.back.clear();
        (self.seat, self.view, self.epoch) = (Seat::new(&view, me), view, epoch);
        self.sit_down(was_at)?;
        self.went_back |= self.view.stage < self.stage;
        let lost = before.iter().copied().filter(|part| !self.seat.mine.contains(part)).collect();
        self.changed = Some(Changed { lost, set: self.to_set(&before) });
        let epoch = u64::from(epoch);
        for inbound in self.inbound.values_mut() {
            inbound.ready.retain(|message| epoch_of(message) == epoch);
            inbound.marked.retain(|message| epoch_of(message) == epoch);
            (inbound.last, inbound.fresh) = (None, false);
        }
        self.posted.retain(|(_, message)| epoch_of(message) >= epoch);
        self.outgoing.retain(|outgoing| outgoing.tag.is_some());
        self.gone = None;
        self.hand_over(None);
        for (from, message) in std::mem::take(&mut self.early_states) {
            match (epoch_of(&message).cmp(&epoch), self.numbers.get(&from).copied(), read_head(&message)) {
                (Ordering::Equal, Some(number), Some((_, link))) => {
                    self.take_state(number, link.from, &message)?
                }
                (Ordering::Greater, ..) => self.early_states.push((from, message)),
                _ => {}
            }
        }
        for (from, bytes) in std::mem::take(&mut self.early) {
            self.hear(from, &bytes)?;
        }
        Ok(())
    }

    /// Sends states that are kept here to those who go on from them, or to one of those.
    fn hand_over(&mut self, to: Option<usize>) {
        for part in 0..self.view.job.parts {
            let (holder, owner) = (self.view.holders[part as usize].0, self.view.owners[part as usize]);
            let (holder, owner) = (usize::from(holder), usize::from(owner));
            if let Some(stamp) = self.view.state_of(part)
                && holder == self.seat.me
                && to.is_none_or(|to| owner == to)
                && owner != self.seat.me
            {
                self.send_state(owner, part, stamp);
            }
        }
    }

    /// Sends a state that is kept here to a member, piece by piece.
    fn send_state(&mut self, to: usize, part: u32, stamp: Stamp) {
        let Some(state) = self.kept.get(part, stamp) else { return };
        let (mut pieces, mut offset) = (Vec::new(), 0_usize);
        while offset < state.len() || pieces.is_empty() {
            let piece = &state[offset..(offset + PIECE).min(state.len())];
            let mut message = Vec::new();
            write_message(
                &mut message,
                Class::Kept,
                Link::new(part, 0),
                self.epoch,
                stamp.number,
                &[&piece_head(state.len(), offset, stamp.stage), piece],
            );
            offset += piece.len();
            pieces.push(message);
        }
        let to = self.peers[to];
        let tag = Some(Class::Posted.tag(0));
        self.outgoing.extend(pieces.into_iter().map(|bytes| Outgoing { to, tag, bytes: bytes.into() }));
    }

    /// Keeps a state, and has another keep it, too.
    pub(crate) fn keep(&mut self, part: u32, stamp: Stamp, bytes: Vec<u8>) {
        self.kept.put(part, stamp, bytes);
        self.is_kept(part, stamp);
        if let Some(backup) = self.seat.backup {
            self.unconfirmed.insert((stamp, part));
            self.send_state(backup, part, stamp);
        }
    }

    fn is_kept(&mut self, part: u32, stamp: Stamp) {
        let Some(members) = &mut self.members else { return };
        let most = if members.has_promised() { self.seat.keeps.twice() } else { self.seat.keeps };
        members.keeps(part, stamp);
        // what the view goes on from, and what was promised for the next, stays
        let held = self.view.state_of(part);
        let is_needed = |stamp| Some(stamp) == held || members.counts_on(part, stamp);
        for old in self.kept.retire(part, most, is_needed) {
            members.forgets(part, old);
        }
    }

    /// Moves what can be moved; whether something was.
    pub(crate) fn step(&mut self) -> Result<bool, Error> {
        let mut moved = self.wire.progress() > 0;
        while let Some(done) = self.wire.next_done() {
            moved = true;
            self.done(done)?;
        }
        while let Some((from, bytes)) = self.wire.heard() {
            moved = true;
            self.hear(from, &bytes)?;
        }
        let now = self.now();
        if let Some(members) = &mut self.members {
            members.tick(now);
            if let Some(view) = members.decided() {
                self.decide(view)?;
            }
        }
        self.say()?;
        Ok(moved)
    }

    /// Tells all of a view that was decided here, and goes on in it.
    fn decide(&mut self, view: View) -> Result<(), Error> {
        let epoch = self.epoch + 1;
        let bytes: Arc<[u8]> = words::encode(epoch, &Said::View(Box::new(view.clone()))).into();
        let own = self.peers[self.seat.me];
        let mut all = self.peers.clone();
        for member in &view.members {
            all.push(self.wire.peer(&member.address)?);
        }
        all.sort_unstable_by_key(|peer| peer.0);
        all.dedup();
        // words of the view before are not waited for
        self.outgoing.retain(|outgoing| outgoing.tag.is_some());
        for to in all.into_iter().filter(|peer| *peer != own) {
            self.outgoing.push_back(Outgoing { to, tag: Some(Class::View.tag(0)), bytes: bytes.clone() });
        }
        self.install(epoch, view)
    }

    /// Whether nobody else is left who computes, where members may be lost.
    pub(crate) fn is_alone(&self) -> bool {
        self.members.as_ref().is_some_and(Members::is_alone)
    }

    /// How many states have not been said to be kept yet, and how much waits to be sent.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        (self.unconfirmed.len(), self.outgoing.len())
    }

    pub(crate) fn waited(&self) -> Waited {
        Waited { since: self.wire.now(), asked: Instant::now(), spins: 0, patience: self.patience }
    }

    /// Asks now and then whether to go on with a wait; `last` is when that was, or the wait began.
    pub(crate) fn ask(&self, last: &mut Instant) -> Result<(), Error> {
        Pause::ask(&self.pause, last)
    }

    /// One step of a wait for a member.
    pub(crate) fn turn(&mut self, waited: &mut Waited, member: usize) -> Result<(), Error> {
        self.ask(&mut waited.asked)?;
        let moved = self.step()?;
        if self.changed.is_some() {
            return Err(Error::Changed);
        }
        if moved {
            waited.spins = 0;
            return Ok(());
        }
        waited.spins += 1;
        if waited.is_long(self.wire.now()) {
            let patience = waited.patience.unwrap_or_default();
            return Err(Error::Silent(format!("member {member}"), patience));
        }
        if let Some((member, since)) = self.gone
            && self.wire.now().saturating_sub(since) > GONE
        {
            return Err(gone(self.wire.why(self.peers[member]), member));
        }
        if waited.spins > W::SPINS {
            self.wire.sleep(SLEEP);
        }
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), Error> {
        let Done::Received { from, buffer, outcome } = done else { return Ok(()) };
        let Some(from) = from else { return Ok(()) };
        let number = self.numbers.get(&from).copied();
        let (len, cut) = match outcome {
            Ok(got) => got,
            // that somebody is gone is an error for who waits for it
            Err(_) => {
                if buffer.len() == words::LONGEST {
                    self.wire.recv(None, Class::View.tag(0), buffer);
                }
                self.listening.remove(&from);
                for inbound in self.inbound.values_mut() {
                    inbound.posted.take_if(|peer| *peer == from);
                    inbound.posted_marked.take_if(|peer| *peer == from);
                }
                return number.map_or(Ok(()), |number| self.miss(number));
            }
        };
        // a message between parts may be just as long
        if buffer.len() == words::LONGEST && !has_class(&buffer[..len]) {
            // one that was cut is as one that did not come
            let heard = if cut { Ok(()) } else { self.hear(from, &buffer[..len]) };
            self.wire.recv(None, Class::View.tag(0), buffer);
            return heard;
        }
        let bad = |why: String| Err(breach(number.unwrap_or(usize::MAX), why));
        let Some((class, link)) = read_head(&buffer[..len]) else {
            return bad("a message has no head".into());
        };
        let old = epoch_of(&buffer) < u64::from(self.epoch) || number.is_none();
        if matches!(class, Class::Posted | Class::Kept) {
            if let (false, Some(number)) = (old, number) {
                if class == Class::Posted {
                    self.posted.push_back((from, buffer[..len].to_vec()));
                } else if epoch_of(&buffer) == u64::from(self.epoch) {
                    self.take_state(number, link.from, &buffer[..len])?;
                } else if self.early_states.len() < EARLY {
                    self.early_states.push((from, buffer[..len].to_vec()));
                }
            }
            self.wire.recv(Some(from), Class::Posted.tag(0), buffer);
            return Ok(());
        }
        if cut {
            return bad(other_length(link, buffer.len() - HEAD + 1, buffer.len() - HEAD));
        }
        let Some(inbound) = self.inbound.get_mut(&link) else {
            return bad("a message is of another link than its tag says".into());
        };
        let mut next = self.spare.pop().unwrap_or_default();
        next.resize(buffer.len(), 0);
        let mut buffer = buffer;
        buffer.truncate(len);
        if old {
            self.spare.push(buffer);
        } else if class == Class::Marked {
            inbound.marked.push_back(buffer);
        } else {
            inbound.ready.push_back(buffer);
        }
        self.wire.recv(Some(from), class.tag(link.name()), next);
        Ok(())
    }

    fn take_state(&mut self, from: usize, part: u32, message: &[u8]) -> Result<(), Error> {
        if part >= self.view.job.parts {
            return Err(breach(from, "a state is of a part that there is not"));
        }
        let has_reason = |one: u16| usize::from(one) == from;
        if !has_reason(self.view.owners[part as usize]) && !has_reason(self.view.holders[part as usize].0) {
            return Err(breach(from, "a state comes of one that neither holds the part nor hands it over"));
        }
        let number = number_of(message);
        let whole = match self.kept.take_in(from, part, number, &message[HEAD..]) {
            Err(_) if self.back.contains(&from) => None,
            whole => whole.map_err(|why| breach(from, why))?,
        };
        if let Some(stamp) = whole {
            self.is_kept(part, stamp);
            self.say_to(from, &Said::Kept(part, stamp));
        }
        Ok(())
    }

    /// The next piece that was posted in this view, and by which member.
    pub(crate) fn next_posted(&mut self) -> Option<(usize, Vec<u8>)> {
        let epoch = u64::from(self.epoch);
        let at = self.posted.iter().position(|(_, message)| epoch_of(message) == epoch)?;
        let (from, mut message) = self.posted.remove(at)?;
        message.drain(..HEAD);
        Some((self.numbers.get(&from).copied()?, message))
    }

    /// Whether words wait to be sent.
    pub(crate) fn has_words(&self) -> bool {
        self.outgoing.iter().any(|outgoing| outgoing.tag.is_none())
    }

    /// The next message of a link, if it is of this view: one that has gone on to the next before this one may be ahead.
    pub(crate) fn next_of(&mut self, link: Link, class: Class) -> Option<Vec<u8>> {
        let epoch = u64::from(self.epoch);
        let inbound = self.inbound.get_mut(&link)?;
        let queue = if class == Class::Marked { &mut inbound.marked } else { &mut inbound.ready };
        if epoch_of(queue.front()?) == epoch { queue.pop_front() } else { None }
    }

    /// Whether there is a next one in step.
    pub(crate) fn has_next(&self, link: Link) -> bool {
        let next = self.inbound.get(&link).and_then(|inbound| inbound.ready.front());
        next.is_some_and(|message| epoch_of(message) == u64::from(self.epoch))
    }

    /// Has receives posted for a link.
    pub(crate) fn post(&mut self, link: Link, from: usize, len: usize, class: Class) {
        if self.seat.ways[from] == Way::Here {
            return;
        }
        let peer = self.peers[from];
        let inbound = self.inbound.entry(link).or_default();
        let posted = match class {
            Class::InStep => &mut inbound.posted,
            _ => &mut inbound.posted_marked,
        };
        // one at a time: of two, the later message may be whole first where packets are lost
        if posted.replace(peer) != Some(peer) {
            self.wire.recv(Some(peer), class.tag(link.name()), vec![0; HEAD + len]);
        }
    }

    /// A member cannot be reached: where it may not be lost, an error when that has been so for a while.
    pub(crate) fn miss(&mut self, member: usize) -> Result<(), Error> {
        let now = self.now();
        if let Some(members) = &mut self.members {
            members.lost(member, now);
            return Ok(());
        }
        match self.gone {
            None => self.gone = Some((member, self.wire.now())),
            Some((_, since)) if self.wire.now().saturating_sub(since) > GONE => {
                return Err(gone(self.wire.why(self.peers[member]), member));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// A member whose session had ended has another: what was on its way between the two comes again.
    fn is_back(&mut self, from: PeerIdx, number: usize) {
        if self.seat.ways[number] == Way::Here || !self.listening.insert(from) {
            return;
        }
        self.wire.recv(Some(from), Class::Posted.tag(0), vec![0; HEAD + PIECE_HEAD + PIECE]);
        self.back.insert(number);
        self.hand_over(Some(number));
        if self.seat.backup == Some(number) {
            for (stamp, part) in self.unconfirmed.clone() {
                self.send_state(number, part, stamp);
            }
        }
    }

    fn hear(&mut self, from: PeerIdx, bytes: &[u8]) -> Result<(), Error> {
        let number = self.numbers.get(&from).copied();
        if let Some(number) = number {
            self.is_back(from, number);
        }
        let (epoch, said) = match words::decode(bytes) {
            Ok(word) => word,
            // who is not in the view is not taken at its word for anything
            Err(why) => return number.map_or(Ok(()), |number| Err(breach(number, why))),
        };
        match said {
            Said::Join(member) => {
                let is_itself = self.wire.peer(&member.address).is_ok_and(|peer| peer == from);
                let now = self.now();
                match &mut self.members {
                    Some(members) if is_itself && number.is_none() => members.joins(member, now),
                    _ if number.is_none() => {
                        let why = "it has begun, and keeps no states that a newcomer could go on from".into();
                        let bytes = words::encode(self.epoch, &Said::Refuse(why)).into();
                        self.outgoing.push_back(Outgoing { to: from, tag: None, bytes });
                    }
                    _ => {}
                }
                Ok(())
            }
            Said::Refuse(_) => Ok(()),
            Said::View(view) if epoch > self.epoch && self.members.is_some() => self.install(epoch, *view),
            Said::View(_) => Ok(()),
            // of the view before, or to be said anew
            Said::Kept(..) if epoch != self.epoch => Ok(()),
            Said::Kept(part, stamp) => {
                if number.is_some_and(|number| self.seat.backup == Some(number)) {
                    self.unconfirmed.remove(&(stamp, part));
                }
                Ok(())
            }
            Said::Round(_) | Said::Members(_) if epoch < self.epoch => {
                self.tell_view(from);
                Ok(())
            }
            Said::Round(_) | Said::Members(_) if epoch > self.epoch => {
                if matches!(said, Said::Round(Word::Pace { .. })) {
                    // of words of one kind and view, which stand first in it, the newest says all
                    self.early.retain(|(of, had)| *of != from || had[..words::HEAD] != bytes[..words::HEAD]);
                }
                if self.early.len() < EARLY {
                    self.early.push_back((from, bytes.to_vec()));
                }
                Ok(())
            }
            Said::Round(word) => {
                let (Some(number), Some(rounds)) = (number, &mut self.rounds) else { return Ok(()) };
                let worker = self.seat.workers.iter().position(|worker| *worker == number);
                let worker = worker.ok_or_else(|| breach(number, "it holds no part and speaks of rounds"))?;
                rounds.hear(worker, word).map_err(|why: Breach| breach(number, why))
            }
            Said::Members(word) => {
                let now = self.now();
                if let (Some(number), Some(members)) = (number, &mut self.members) {
                    members.hear(number, word, now);
                    if let Some(view) = members.decided() {
                        self.decide(view)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Tells one who has an old view of the one in force.
    fn tell_view(&mut self, to: PeerIdx) {
        let (now, answered) = (self.wire.now(), self.answered.get(&to));
        if self.members.is_none() || answered.is_some_and(|answered| now.saturating_sub(*answered) < TELL) {
            return;
        }
        self.answered.insert(to, now);
        let bytes = words::encode(self.epoch, &Said::View(Box::new(self.view.clone()))).into();
        self.outgoing.push_back(Outgoing { to, tag: Some(Class::View.tag(0)), bytes });
    }

    fn say(&mut self) -> Result<(), Error> {
        while let Some((worker, word)) = self.rounds.as_mut().and_then(Rounds::say) {
            self.say_to(self.seat.workers[worker], &Said::Round(word));
        }
        while let Some((member, word)) = self.members.as_mut().and_then(Members::say) {
            self.say_to(member, &Said::Members(word));
        }
        let mut full: HashSet<PeerIdx> = HashSet::new();
        for _ in 0..self.outgoing.len() {
            let Some(outgoing) = self.outgoing.pop_front() else { break };
            // in order to each, and nobody waits for another
            let sent = if full.contains(&outgoing.to) {
                Err(Refused::Again)
            } else {
                match outgoing.tag {
                    None if outgoing.bytes.len() <= self.wire.active_max(outgoing.to) => {
                        self.wire.send_active(outgoing.to, words::ACTIVE, &outgoing.bytes)
                    }
                    None => self.wire.send(outgoing.to, Class::View.tag(0), &outgoing.bytes),
                    Some(tag) => self.wire.send(outgoing.to, tag, &outgoing.bytes),
                }
            };
            match sent {
                Ok(()) => {}
                Err(Refused::Again) => {
                    full.insert(outgoing.to);
                    self.outgoing.push_back(outgoing);
                }
                Err(Refused::Gone) => {
                    let number = self.numbers.get(&outgoing.to).copied();
                    number.map_or(Ok(()), |number| self.miss(number))?;
                }
            }
        }
        Ok(())
    }

    fn say_to(&mut self, member: usize, said: &Said) {
        let bytes: Arc<[u8]> = words::encode(self.epoch, said).into();
        let to = self.peers[member];
        let tag = (bytes.len() > SHORT).then(|| Class::View.tag(0));
        self.outgoing.push_back(Outgoing { to, tag, bytes });
    }

    /// Sends a message, and waits until it is on its way.
    pub(crate) fn send_message(&mut self, to: usize, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Error> {
        let mut waited = self.waited();
        loop {
            match self.wire.send(self.peers[to], tag, bytes) {
                Ok(()) => return Ok(()),
                // where members may be lost, the next view follows: what was for this one is not wanted then
                Err(Refused::Gone) if self.members.is_some() => return self.miss(to),
                Err(Refused::Gone) => return Err(gone(self.wire.why(self.peers[to]), to)),
                Err(Refused::Again) => self.turn(&mut waited, to)?,
            }
        }
    }
}
