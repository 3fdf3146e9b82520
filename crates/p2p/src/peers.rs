//! The calls.

use crate::Scheme;
use crate::error::{Error, breach, gone, other_length};
use crate::link::{Class, HEAD, Link, TAGS, number_of, read_head, write_message};
use crate::rounds::{Breach, Rounds, Setting, Verdict};
use crate::view::View;
use crate::words::{self, Heard, Malformed, Said};
use polyrail_rails::mailbox::{self, Done, Mailbox, PutError, Taken};
use polyrail_rails::worker::Refused;
use polyrail_rails::{Config, PeerIdx};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a part of what is posted.
const PIECE: usize = 1 << 20;
/// How long somebody may be gone without anything being waited for that only it could bring.
const GONE: Duration = Duration::from_secs(2);
/// Rounds of progress before who waits sleeps.
const SPINS: u32 = 200;
/// The longest sleep of who waits.
const SLEEP: Duration = Duration::from_millis(50);

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Something new, of this iteration of the one who sent it.
    New {
        /// Which.
        iteration: u64,
    },
    /// Nothing that was not received before; the buffer is as it was.
    Unchanged {
        /// What was received last.
        iteration: u64,
        /// How long ago it came.
        age: Duration,
    },
    /// Nothing has come yet; the buffer is as it was.
    Nothing,
}

/// What is this process's alone.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of its endpoint.
    pub rails: Config,
    /// At which of the sites it is.
    pub site: u32,
    /// How much of the work it is given, as a share; 0: it looks on.
    pub weight: u16,
    /// How long to wait for somebody who is connected and says nothing; none: as long as it is connected.
    pub patience: Option<Duration>,
}

impl Settings {
    /// Those of the environment; a share of 1.
    ///
    /// # Errors
    /// A setting has a value that it cannot have.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self { rails: Config::from_env()?, site: 0, weight: 1, patience: None })
    }
}

/// How what is sent to a member goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Within this process.
    Here,
    InStep,
    /// The newest; for who receives it, at most so many iterations old.
    Newest(Option<u64>),
}

/// What has come by a link, and not been received.
#[derive(Default)]
struct Inbound {
    ready: VecDeque<Vec<u8>>,
    marked: VecDeque<Vec<u8>>,
    posted: bool,
    posted_marked: bool,
    /// The iteration that was received last, and when.
    last: Option<(u64, Instant)>,
    /// Whether something new was received since norms are small.
    fresh: bool,
}

/// One process of a run.
pub struct Peers {
    settings: Settings,
    mailbox: Mailbox,
    heard: Heard,
    view: View,
    epoch: u32,
    me: usize,
    peers: Vec<PeerIdx>,
    numbers: HashMap<PeerIdx, usize>,
    ways: Vec<Way>,
    /// The members that hold parts: what rounds number.
    workers: Vec<usize>,
    mine: Range<u32>,
    rounds: Option<Rounds>,
    inbound: HashMap<Link, Inbound>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    words: VecDeque<(usize, Arc<[u8]>)>,
    posted: VecDeque<(usize, Vec<u8>)>,
    gone: Option<(usize, Instant)>,
}

impl Peers {
    /// A member of a view.
    pub(crate) fn new(
        settings: Settings,
        mut mailbox: Mailbox,
        heard: Heard,
        view: View,
        epoch: u32,
    ) -> Result<Self, Error> {
        let address = mailbox.worker().address();
        let me = (view.members.iter().position(|member| member.address == address))
            .ok_or_else(|| Error::Use("the run's members do not have this one among them".into()))?;
        let peers: Vec<_> =
            view.members.iter().map(|member| mailbox.peer(&member.address)).collect::<Result<_, _>>()?;
        let way = |number: usize| match view.job.scheme {
            _ if number == me => Way::Here,
            Scheme::Synchronous => Way::InStep,
            Scheme::Asynchronous => Way::Newest(None),
            Scheme::Bounded(most) => Way::Newest(Some(most)),
            Scheme::Hybrid if view.members[number].site == settings.site => Way::InStep,
            Scheme::Hybrid => Way::Newest(None),
        };
        let ways: Vec<_> = (0..peers.len()).map(way).collect();
        for (peer, way) in peers.iter().zip(&ways) {
            if let Way::Newest(_) = way {
                mailbox.set_scheme(*peer, mailbox::Scheme::Asynchronous);
            }
            mailbox.recv(Some(*peer), Class::Posted.tag(0), vec![0; HEAD + PIECE]);
        }
        let mut workers: Vec<usize> = view.owners.iter().map(|owner| usize::from(*owner)).collect();
        workers.sort_unstable();
        workers.dedup();
        let owned = |owner: &u16| usize::from(*owner) == me;
        let first = view.owners.iter().position(owned).unwrap_or(0);
        let count = view.owners[first..].iter().take_while(|owner| owned(owner)).count();
        let number = workers.iter().position(|worker| *worker == me);
        let in_step = |worker: &usize| matches!(ways[*worker], Way::InStep | Way::Here);
        let rounds = number.map(|me| {
            Rounds::new(Setting {
                me,
                members: workers.len(),
                tolerance: view.job.tolerance,
                in_step: (0..workers.len()).filter(|number| in_step(&workers[*number])).collect(),
                every: view.job.every,
            })
        });
        let numbers = peers.iter().enumerate().map(|(number, peer)| (*peer, number)).collect();
        Ok(Self {
            mine: first as u32..(first + count) as u32,
            settings,
            mailbox,
            heard,
            view,
            epoch,
            me,
            peers,
            numbers,
            ways,
            workers,
            rounds,
            inbound: HashMap::new(),
            spare: Vec::new(),
            words: VecDeque::new(),
            posted: VecDeque::new(),
            gone: None,
        })
    }

    /// Who takes part, and in what.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// This member's number.
    pub fn me(&self) -> usize {
        self.me
    }

    /// The parts that this process holds.
    pub fn parts(&self) -> Range<u32> {
        self.mine.clone()
    }

    /// The iteration that is computed, from 0 on.
    pub fn iteration(&self) -> u64 {
        self.rounds.as_ref().map_or(0, Rounds::iteration)
    }

    fn owner(&self, part: u32) -> Result<usize, Error> {
        let owner = self.view.owners.get(part as usize);
        owner.map(|owner| usize::from(*owner)).ok_or_else(|| {
            Error::Use(format!("there is no part {part}: there are {} of them", self.view.owners.len()))
        })
    }

    fn check(&self, link: Link, here: u32) -> Result<(), Error> {
        if link.tag >= TAGS {
            return Err(Error::Use(format!("a link's tag is {}: less than {TAGS} is possible", link.tag)));
        }
        if !self.mine.contains(&here) {
            return Err(Error::Use(format!("part {here} is not held here: {:?} are", self.mine)));
        }
        Ok(())
    }

    /// Whether what is sent in this iteration may be what all stop with: who goes on from it keeps it until [`Peers::converged`] has returned, and has
    /// its norm exactly.
    pub fn judged(&self) -> bool {
        self.marked().is_some()
    }

    fn marked(&self) -> Option<u64> {
        self.rounds.as_ref()?.marked()
    }

    /// `P2Psend`: what a part of this process has for another in this iteration; once for each link and iteration. The bytes may be changed
    /// when it returns. It waits only where the other is in step and has not taken what was sent before.
    ///
    /// # Errors
    /// Parts that there are not, or not here; a member is gone.
    pub fn send(&mut self, link: Link, bytes: &[u8]) -> Result<(), Error> {
        self.check(link, link.from)?;
        let (to, iteration) = (self.owner(link.to)?, self.iteration());
        match self.ways[to] {
            Way::Here => {
                let message = self.message(Class::InStep, link, iteration, bytes);
                self.inbound.entry(link).or_default().ready.push_back(message);
            }
            Way::InStep => self.send_data(to, Class::InStep, link, iteration, bytes)?,
            Way::Newest(_) => {
                match self.mailbox.put(self.peers[to], link.name(), iteration + 1, bytes) {
                    Ok(()) => {}
                    Err(PutError::Gone) => self.miss(to)?,
                    Err(why) => {
                        return Err(Error::Use(format!(
                            "for part {} in iteration {iteration}: {why}",
                            link.to
                        )));
                    }
                }
                if let Some(round) = self.marked() {
                    self.send_data(to, Class::Marked, link, round, bytes)?;
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, class: Class, link: Link, number: u64, bytes: &[u8]) -> Vec<u8> {
        let mut message = self.spare.pop().unwrap_or_default();
        write_message(&mut message, class, link, self.epoch, number, bytes);
        message
    }

    fn send_data(
        &mut self,
        to: usize,
        class: Class,
        link: Link,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let message = self.message(class, link, number, bytes);
        let shared: Arc<[u8]> = message.as_slice().into();
        self.spare.push(message);
        self.send_message(to, class.tag(link.name()), &shared)
    }

    pub(crate) fn send_message(&mut self, to: usize, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Error> {
        let mut waited = Waited::new(self.settings.patience);
        loop {
            match self.mailbox.send(self.peers[to], tag, bytes) {
                Ok(_) => return Ok(()),
                Err(Refused::Gone) => return Err(gone(&self.mailbox, to, self.peers[to])),
                Err(Refused::Again) => self.turn(&mut waited, to)?,
            }
        }
    }

    /// `P2Preceive`: what another part has for one of this process, as long as `into`. In step it is what that sent in this iteration, and waited for; else
    /// the newest that has come, and not waited for unless it is too old for the scheme.
    ///
    /// # Errors
    /// Parts that there are not, or not here; what comes has another length; a member is gone.
    pub fn receive(&mut self, link: Link, into: &mut [u8]) -> Result<Received, Error> {
        self.check(link, link.to)?;
        let from = self.owner(link.from)?;
        let iteration = self.iteration();
        match self.ways[from] {
            Way::Here | Way::InStep => {
                let mut waited = Waited::new(self.settings.patience);
                loop {
                    self.post(link, from, into.len(), Class::InStep);
                    if let Some(message) = self.inbound.entry(link).or_default().ready.pop_front() {
                        self.take(link, from, message, iteration, into)?;
                        return Ok(Received::New { iteration });
                    }
                    if self.ways[from] == Way::Here {
                        return Err(Error::Use(format!(
                            "part {} has sent nothing to part {} in iteration {iteration}",
                            link.from, link.to
                        )));
                    }
                    self.turn(&mut waited, from)?;
                }
            }
            Way::Newest(most) => {
                if let Some(round) = self.marked()
                    && let Some(received) = self.receive_marked(link, from, round, into)?
                {
                    return Ok(received);
                }
                let mut waited = Waited::new(self.settings.patience);
                loop {
                    let received = self.newest(link, from, into)?;
                    let last = match received {
                        Received::New { iteration } | Received::Unchanged { iteration, .. } => {
                            Some(iteration)
                        }
                        Received::Nothing => None,
                    };
                    let behind = most.is_some_and(|most| {
                        iteration > most && last.is_none_or(|last| last < iteration - most)
                            || iteration == most && last.is_none()
                    });
                    if !behind {
                        return Ok(received);
                    }
                    self.turn(&mut waited, from)?;
                }
            }
        }
    }

    fn newest(&mut self, link: Link, from: usize, into: &mut [u8]) -> Result<Received, Error> {
        let inbound = self.inbound.entry(link).or_default();
        match self.mailbox.take(self.peers[from], link.name()) {
            Taken::New { iteration, bytes, .. } => {
                if bytes.len() != into.len() {
                    return Err(breach(from, other_length(link, bytes.len(), into.len())));
                }
                into.copy_from_slice(bytes);
                let iteration = iteration.saturating_sub(1);
                inbound.last = Some((iteration, Instant::now()));
                inbound.fresh = true;
                Ok(Received::New { iteration })
            }
            Taken::Unchanged { iteration, age } => Ok(Received::Unchanged {
                iteration: iteration.saturating_sub(1),
                age: Duration::from_nanos(age),
            }),
            Taken::Nothing => Ok(Received::Nothing),
        }
    }

    /// What the other sent in the iteration that it marked; none once the round is over.
    fn receive_marked(
        &mut self,
        link: Link,
        from: usize,
        round: u64,
        into: &mut [u8],
    ) -> Result<Option<Received>, Error> {
        let mut waited = Waited::new(self.settings.patience);
        loop {
            self.post(link, from, into.len(), Class::Marked);
            let marked = &mut self.inbound.entry(link).or_default().marked;
            // of rounds that were over before it was received
            while marked.front().is_some_and(|message| number_of(message) < round) {
                self.spare.extend(marked.pop_front());
            }
            if let Some(message) = marked.pop_front() {
                self.take(link, from, message, round, into)?;
                let inbound = self.inbound.entry(link).or_default();
                inbound.fresh = true;
                let iteration = inbound.last.map_or(0, |(iteration, _)| iteration);
                return Ok(Some(Received::New { iteration }));
            }
            if self.rounds.as_ref().is_none_or(|rounds| rounds.is_over(round)) {
                return Ok(None);
            }
            self.turn(&mut waited, from)?;
        }
    }

    fn post(&mut self, link: Link, from: usize, len: usize, class: Class) {
        if self.ways[from] == Way::Here {
            return;
        }
        let inbound = self.inbound.entry(link).or_default();
        let (posted, count) = match class {
            Class::InStep => (&mut inbound.posted, 2),
            _ => (&mut inbound.posted_marked, 1),
        };
        if !std::mem::replace(posted, true) {
            for _ in 0..count {
                self.mailbox.recv(Some(self.peers[from]), class.tag(link.name()), vec![0; HEAD + len]);
            }
        }
    }

    fn take(
        &mut self,
        link: Link,
        from: usize,
        message: Vec<u8>,
        number: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if number_of(&message) != number {
            let had = number_of(&message);
            return Err(breach(
                from,
                format!(
                    "part {} has iteration or round {had} for part {}, which is at {number}; does it send once in each iteration?",
                    link.from, link.to
                ),
            ));
        }
        let bytes = &message[HEAD..];
        if bytes.len() != into.len() {
            return Err(breach(from, other_length(link, bytes.len(), into.len())));
        }
        into.copy_from_slice(bytes);
        self.spare.push(message);
        Ok(())
    }

    /// `P2Pwait`: until each of these links has what a receive would take at once: in step, this iteration's; else something that is new. False: `most` has
    /// passed first. Meanwhile whatever there is to be moved is moved; with no time at all too, which is what to call now and then in long computations.
    ///
    /// # Errors
    /// As [`Peers::receive`].
    pub fn wait(&mut self, links: &[Link], most: Duration) -> Result<bool, Error> {
        let until = Instant::now() + most;
        let mut spins = 0;
        loop {
            let moved = self.step()?;
            let mut there = true;
            for link in links {
                self.check(*link, link.to)?;
                let from = self.owner(link.from)?;
                there &= match self.ways[from] {
                    Way::Here => true,
                    Way::InStep => self.inbound.get(link).is_some_and(|inbound| !inbound.ready.is_empty()),
                    Way::Newest(_) => self.mailbox.worker().has_value(self.peers[from], link.name()),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if there || left.is_zero() {
                return Ok(there);
            }
            spins = if moved { 0 } else { spins + 1 };
            if spins > SPINS {
                self.mailbox.sleep(left.min(SLEEP));
            }
        }
    }

    /// Ends the iteration. `norm` is how far the vector is from a solution that this member's parts and what they received make, before they were computed anew: the
    /// largest of all counts. With a verdict all stop, with what they sent in the iteration that it names; the norm is that of this, whatever
    /// came late or not at all.
    ///
    /// # Errors
    /// A member is gone, or breaks the rules.
    pub fn converged(&mut self, norm: f64) -> Result<Option<Verdict>, Error> {
        let Some(rounds) = &mut self.rounds else {
            return Err(Error::Use(
                "this member holds no part of the run, so that it has no iterations".into(),
            ));
        };
        if norm > self.view.job.tolerance {
            self.inbound.values_mut().for_each(|inbound| inbound.fresh = false);
        }
        let ways = &self.ways;
        let owners = &self.view.owners;
        let fresh = self.inbound.iter().all(|(link, inbound)| {
            inbound.fresh || !matches!(ways[usize::from(owners[link.from as usize])], Way::Newest(_))
        });
        rounds.end(norm, fresh);
        self.step()?;
        let mut waited = Waited::new(self.settings.patience);
        loop {
            let rounds = self.rounds.as_ref().expect("it was there");
            if rounds.stopped().is_some() || !rounds.holds() {
                return Ok(rounds.stopped());
            }
            self.turn(&mut waited, 0)?;
        }
    }

    /// Gives another member the newest of something that is not of an iteration: how far this one is, say. Nothing is waited for.
    ///
    /// # Errors
    /// There is no such member.
    pub fn tell(&mut self, member: usize, iteration: u64, bytes: &[u8]) -> Result<(), Error> {
        let peer =
            *self.peers.get(member).ok_or_else(|| Error::Use(format!("there is no member {member}")))?;
        if member != self.me {
            self.mailbox.set_scheme(peer, mailbox::Scheme::Asynchronous);
            // what cannot be told is not
            let _ = self.mailbox.put(peer, u64::MAX, iteration + 1, bytes);
        }
        Ok(())
    }

    /// The newest that another member told, if it was not had before.
    pub fn told(&mut self, member: usize) -> Option<Vec<u8>> {
        match self.mailbox.take(*self.peers.get(member)?, u64::MAX) {
            Taken::New { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        }
    }

    /// Sends bytes to another member, whole, after all that was posted to it before.
    ///
    /// # Errors
    /// It is gone, or there is none.
    pub fn post_to(&mut self, member: usize, bytes: &[u8]) -> Result<(), Error> {
        if member >= self.peers.len() || member == self.me {
            return Err(Error::Use(format!("there is no other member {member}")));
        }
        for piece in bytes.chunks(PIECE) {
            self.send_data(member, Class::Posted, Link::new(0, 0), 0, piece)?;
        }
        Ok(())
    }

    /// The next piece that was posted, and by whom; pieces are those of at most 1 MiB that [`Peers::post_to`] sends. Waits at most so long.
    ///
    /// # Errors
    /// As [`Peers::wait`].
    pub fn posted(&mut self, most: Duration) -> Result<Option<(usize, Vec<u8>)>, Error> {
        let until = Instant::now() + most;
        loop {
            self.step()?;
            if let Some(posted) = self.posted.pop_front() {
                return Ok(Some(posted));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.mailbox.sleep(left.min(SLEEP));
        }
    }

    /// Whether a member is known to be gone.
    pub fn is_gone(&self, member: usize) -> Option<String> {
        self.mailbox.worker().why(*self.peers.get(member)?).map(str::to_owned)
    }

    /// Leaves: what was sent is brought to its end, for at most so long.
    pub fn leave(mut self, most: Duration) {
        let _ = self.step();
        self.mailbox.close(most);
    }

    /// Moves what can be moved; whether something was.
    fn step(&mut self) -> Result<bool, Error> {
        let mut moved = self.mailbox.progress() > 0;
        while let Some(done) = self.mailbox.next_done() {
            moved = true;
            self.done(done)?;
        }
        while let Ok((from, bytes)) = self.heard.try_recv() {
            moved = true;
            self.hear(from, &bytes)?;
        }
        self.say()?;
        Ok(moved)
    }

    /// One step of a wait for a member.
    fn turn(&mut self, waited: &mut Waited, member: usize) -> Result<(), Error> {
        if self.step()? {
            waited.spins = 0;
            return Ok(());
        }
        waited.spins += 1;
        if let Some(patience) = waited.patience
            && waited.since.elapsed() > patience
        {
            return Err(Error::Silent(format!("member {member}"), patience));
        }
        if let Some((gone, since)) = self.gone
            && since.elapsed() > GONE
        {
            return Err(crate::error::gone(&self.mailbox, gone, self.peers[gone]));
        }
        if waited.spins > SPINS {
            self.mailbox.sleep(SLEEP);
        }
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), Error> {
        let Done::Received { from, buffer, outcome } = done else { return Ok(()) };
        let number = from.and_then(|from| self.numbers.get(&from).copied());
        let (Some(from), Some(number)) = (from, number) else { return Ok(()) };
        let (len, cut) = match outcome {
            Ok(got) => got,
            // that somebody is gone is an error for who waits for it
            Err(_) => return self.miss(number),
        };
        let Some((class, link)) = buffer[..len].get(..HEAD).and_then(read_head) else {
            return Err(breach(number, "a message has no head"));
        };
        if class == Class::Posted {
            self.posted.push_back((number, buffer[HEAD..len].to_vec()));
            self.mailbox.recv(Some(from), Class::Posted.tag(0), buffer);
            return Ok(());
        }
        if cut {
            return Err(breach(number, other_length(link, buffer.len() - HEAD + 1, buffer.len() - HEAD)));
        }
        let Some(inbound) = self.inbound.get_mut(&link) else {
            return Err(breach(number, "a message is of another link than its tag says"));
        };
        let mut next = self.spare.pop().unwrap_or_default();
        next.resize(buffer.len(), 0);
        let mut buffer = buffer;
        buffer.truncate(len);
        if class == Class::Marked { &mut inbound.marked } else { &mut inbound.ready }.push_back(buffer);
        self.mailbox.recv(Some(from), class.tag(link.name()), next);
        Ok(())
    }

    /// A member cannot be reached: an error when that has been so for a while.
    fn miss(&mut self, member: usize) -> Result<(), Error> {
        match self.gone {
            None => self.gone = Some((member, Instant::now())),
            Some((_, since)) if since.elapsed() > GONE => {
                return Err(gone(&self.mailbox, member, self.peers[member]));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn hear(&mut self, from: PeerIdx, bytes: &[u8]) -> Result<(), Error> {
        let Some(number) = self.numbers.get(&from).copied() else {
            if let Ok((_, Said::Join(_))) = words::decode(bytes) {
                let word = words::encode(self.epoch, &Said::Refuse("it has begun".into()));
                // who does not hear it is told by the end of the connection
                let _ = self.mailbox.send_active(from, words::ACTIVE, &word);
            }
            return Ok(());
        };
        let (epoch, said) = words::decode(bytes).map_err(|why: Malformed| breach(number, why))?;
        match (said, &mut self.rounds) {
            (Said::Round(word), Some(rounds)) if epoch == self.epoch => {
                let worker = self.workers.iter().position(|worker| *worker == number);
                let worker = worker.ok_or_else(|| breach(number, "it holds no part and speaks of rounds"))?;
                rounds.hear(worker, word).map_err(|why: Breach| breach(number, why))
            }
            _ => Ok(()),
        }
    }

    fn say(&mut self) -> Result<(), Error> {
        while let Some((worker, word)) = self.rounds.as_mut().and_then(Rounds::say) {
            let bytes = words::encode(self.epoch, &Said::Round(word)).into();
            self.words.push_back((self.workers[worker], bytes));
        }
        let mut full: Vec<usize> = Vec::new();
        for _ in 0..self.words.len() {
            let Some((to, bytes)) = self.words.pop_front() else { break };
            // in order to each, and nobody waits for another
            if full.contains(&to) {
                self.words.push_back((to, bytes));
                continue;
            }
            match self.mailbox.send_active(self.peers[to], words::ACTIVE, &bytes) {
                Ok(()) => {}
                Err(Refused::Again) => {
                    full.push(to);
                    self.words.push_back((to, bytes));
                }
                Err(Refused::Gone) => self.miss(to)?,
            }
        }
        Ok(())
    }
}

struct Waited {
    since: Instant,
    spins: u32,
    patience: Option<Duration>,
}

impl Waited {
    fn new(patience: Option<Duration>) -> Self {
        Self { since: Instant::now(), spins: 0, patience }
    }
}
