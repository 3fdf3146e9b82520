//! A long broadcast that is sent once, to a group of hosts: the machines of [`core::coll::cast`](polyrail_core::coll::cast), and their drivers.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ops::Range;
use std::time::{Duration, Instant};

use polyrail_core::coll::cast::{
    ANSWER, Announcement, Answer, CHUNKS, HEAD, Head, Receiver, Sender, TAG, WORD, Word,
};
use polyrail_pmpi::abi;
use polyrail_rails::multicast::{Key, Mouth};

use crate::choice::Chosen;
use crate::group::{Casts, Group};
use crate::here::pieces;
use crate::letters::{Letters, Outbox};
use crate::library::{Failed, LookIn};
use crate::long::PIECE;
use crate::team::{Call, Team};
use crate::ways::Way;
use crate::within::SHORT;

/// Hosts from which on one that is sent once reaches all sooner than what goes from one to the other.
const HOSTS: usize = 3;
/// Tags of words and of answers: no operation has these.
const WORDS: c_int = 64;
const ANSWERS: c_int = 65;
/// Bytes of chunks that an answer has at most, and answers that are under way to a host.
const AGAIN: usize = 64 << 10;
const REPAIRS: usize = 4;
/// For how long the root waits for words before it says what it has sent.
const PATIENCE: Duration = Duration::from_millis(5);
/// For how long a device takes nothing, until what it is to send counts as lost.
const STUCK: Duration = Duration::from_millis(200);
/// Bytes of datagrams of later broadcasts that are kept, and how many later.
const EARLY: usize = 1 << 20;
const LATER: u32 = 4;
/// Times that a host takes datagrams, each time some, until it has taken all that its kernel may have had.
const CROWDED: u32 = 256;
/// Looks for what the kernel wakes for, and for messages, until this rank sleeps; and for how long.
const LOOKS: u32 = 4;
const YIELDS: u32 = 200;
const NAP: Duration = Duration::from_millis(1);
const SHORT_NAP: Duration = Duration::from_micros(50);

/// Chunks of a broadcast's bytes.
#[derive(Clone, Copy)]
struct Chunks {
    at: *mut u8,
    bytes: usize,
    each: usize,
}

impl Chunks {
    fn count(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(self.each)).unwrap_or(u32::MAX)
    }

    /// Where some of them are: the first byte, and how many.
    fn range(&self, from: u32, to: u32) -> (usize, usize) {
        let start = (from as usize * self.each).min(self.bytes);
        (start, (to as usize * self.each).min(self.bytes) - start)
    }

    /// Puts some of them where they belong, if they are as long as they have to be.
    fn put(&self, from: u32, to: u32, content: &[u8]) -> bool {
        let (start, length) = self.range(from, to);
        let fits = content.len() == length && length > 0;
        if fits {
            // SAFETY: within the program's place, or one of ours, of so many bytes
            unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.at.add(start), length) };
        }
        fits
    }

    fn get(&self, from: u32, to: u32) -> &[u8] {
        let (start, length) = self.range(from, to);
        // SAFETY: as above; the program changes nothing of it while it is sent
        unsafe { std::slice::from_raw_parts(self.at.add(start), length) }
    }
}

/// Giving the processor away, then sleeping, while nothing happens.
#[derive(Default)]
struct Rest(u32);

impl Rest {
    fn moved(&mut self) {
        self.0 = 0;
    }

    /// For datagrams, or a device: the kernel wakes this rank. Others need the processor to send them, or to take them.
    fn by_kernel(&mut self, sleep: impl FnOnce(Duration)) {
        self.0 += 1;
        std::thread::yield_now();
        if self.0 >= LOOKS {
            sleep(NAP);
        }
    }

    /// For messages: nobody does.
    fn by_mpi(&mut self) {
        self.0 += 1;
        if self.0 < YIELDS { std::thread::yield_now() } else { std::thread::sleep(SHORT_NAP) }
    }
}

impl Team {
    /// `MPI_Bcast` of what is long, between hosts.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn bcast_long(&mut self, call: Call, at: *mut u8, bytes: usize) -> Result<(), Failed> {
        self.goes(Way::Line);
        if self.layout.hosts() < HOSTS {
            return self.bcast_in_line(call, at, bytes);
        }
        if matches!(self.casts, Casts::Unasked) {
            self.casts = Casts::None;
            // who calls for something short waits for that, from the same: what comes is longer, and an error there
            let mut first = [0; SHORT + 1];
            self.take_announced(call, &mut first)?;
            if let Some(group) = self.agree_on_group(call)? {
                self.casts = Casts::Group(group);
            }
        }
        let Casts::Group(mut group) = std::mem::replace(&mut self.casts, Casts::None) else {
            self.goes(Way::Alone);
            return self.bcast_in_line(call, at, bytes);
        };
        let done = self.bcast_announced(&mut group, call, at, bytes);
        self.casts = Casts::Group(group);
        done
    }

    fn bcast_announced(
        &mut self,
        group: &mut Group,
        call: Call,
        at: *mut u8,
        bytes: usize,
    ) -> Result<(), Failed> {
        group.next();
        let speaker = self.layout.speaker(self.host, Some(call.root()));
        if self.rank != speaker {
            self.goes(Way::Behind);
            return self.spread(self.layout.place_of(speaker), call, at, bytes);
        }
        let chunks = Chunks { at, bytes, each: group.chunk };
        let is_root = self.rank == call.root();
        let chosen = match is_root {
            // the last number may come again
            true if group.operation == u32::MAX || chunks.count() > CHUNKS || group.mouths().is_empty() => {
                Chosen::Unable
            }
            true => group.choice.choose(bytes),
            false => Chosen::Line,
        };
        let cast = chosen == Chosen::Cast;
        let each = group.window.each();
        let own = Announcement { cast, each, operation: group.operation, bytes: bytes as u64 };
        let mut announced = own.to_bytes();
        self.take_announced(call, &mut announced)?;
        let Some(told) = Announcement::parse(&announced) else {
            return Err(Failed::Message(abi().other_error));
        };
        if told.operation != group.operation {
            return Err(Failed::Message(abi().other_error));
        }
        let begin = Instant::now();
        // datagrams are waited for beside messages: the provider, which knows nothing of them, is not to sleep
        let _looking = told.cast.then(LookIn::begin);
        match (is_root, told.cast) {
            (true, true) => {
                let lost = self.cast_out(group, call, chunks)?;
                self.goes(if lost > 0.0 { Way::Mended } else { Way::Cast });
                group.choice.was_cast(bytes, begin.elapsed(), lost);
            }
            (false, true) => {
                self.goes(Way::Cast);
                self.cast_in(group, call, chunks, told)?;
            }
            (true, false) => {
                self.goes(match chosen {
                    Chosen::Lossy => Way::Lossy,
                    Chosen::Unable => Way::Unable,
                    _ => Way::Faster,
                });
                self.bcast_in_line(call, at, bytes)?;
                if chosen != Chosen::Line {
                    return Ok(());
                }
                group.choice.went_along(bytes, begin.elapsed(), self.layout.hosts(), PIECE);
            }
            (false, false) => self.bcast_in_line(call, at, bytes)?,
        }
        Ok(())
    }

    /// What the root has to say goes to the ranks that speak for their hosts.
    fn take_announced(&mut self, call: Call, bytes: &mut [u8]) -> Result<(), Failed> {
        if self.rank != self.layout.speaker(self.host, Some(call.root())) {
            return Ok(());
        }
        self.take(&self.broadcast_steps(call.root()), call.what(), bytes.as_mut_ptr(), bytes.len(), None)
    }

    /// The root's side; how much was sent to the host alone that lacked most, of all.
    fn cast_out(&mut self, group: &mut Group, call: Call, chunks: Chunks) -> Result<f64, Failed> {
        let (Some(comm), Some(key)) = (self.between, Key::of(&group.key, group.operation)) else {
            return Err(Failed::Message(abi().other_error));
        };
        let (operation, rank) = (group.operation, self.rank as u32);
        let others: Vec<usize> = (0..self.layout.hosts())
            .filter(|host| *host != self.host)
            .map(|host| self.layout.speaker(host, None))
            .collect();
        let mut sender = Sender::new(chunks.count(), group.window, others.len());
        let mut words: Vec<_> = others.iter().map(|other| Letters::new(comm, WORDS, *other, WORD)).collect();
        words.iter_mut().try_for_each(Letters::expect)?;
        let mut repairs: Vec<_> = others.iter().map(|other| Repairs::new(comm, *other, operation)).collect();
        let mut here = pieces(chunks.bytes, PIECE).peekable();
        let mouths = group.mouths();
        let mut trains: Vec<Train> = mouths.drain(..).map(Train::new).collect();
        let each = HEAD + chunks.each + TAG;
        let (mut told, mut refused, mut rest, mut heard) = (0, None, Rest::default(), Instant::now());
        loop {
            let mut moved = false;
            trains.retain_mut(|train| {
                if train.bytes.is_empty() {
                    let may = sender.may_send();
                    let count = may.len().min(Mouth::train(each)) as u32;
                    for chunk in may.start..may.start + count {
                        let begin = train.bytes.len();
                        train.bytes.extend(Head { operation, chunk, rank }.to_bytes());
                        train.bytes.extend(chunks.get(chunk, chunk + 1));
                        train.bytes.extend([0; TAG]);
                        key.seal(&mut train.bytes[begin..]);
                    }
                    sender.sent(count);
                }
                let leaves = train.leaves(each);
                moved |= leaves == Some(true);
                leaves.is_some()
            });
            if trains.is_empty() || sender.is_deaf() {
                sender.give_up();
            }
            for (host, letters) in words.iter_mut().enumerate() {
                while let Some(bytes) = letters.take()? {
                    (moved, heard) = (true, Instant::now());
                    let word = Word::parse(bytes).filter(|(of, _)| *of == operation);
                    let Some((_, word)) = word else { return Err(Failed::Message(abi().other_error)) };
                    if let Word::Refuses(expected) = word {
                        refused = Some(Failed::Length { expected: chunks.bytes, came: expected as usize });
                    }
                    if let Some(again) = sender.heard(host, &word) {
                        repairs[host].owes(again);
                    }
                    if !sender.is_over_at(host) {
                        letters.expect()?;
                    }
                }
            }
            let full = trains.iter().position(|train| !train.bytes.is_empty());
            let (sent, now) = (sender.may_send().start, Instant::now());
            heard = if moved { now } else { heard };
            // what is said by messages overtakes what a device has not sent yet
            let left = || trains.iter().all(|train| train.mouth.is_empty()) || now - heard >= STUCK;
            let waits = || sender.may_send().is_empty() && now - heard >= PATIENCE;
            if full.is_none() && told < sent && (sender.is_all_sent() || waits()) && left() {
                told = sent;
                repairs.iter_mut().try_for_each(|host| host.say(Answer::Sent(sent), &[]))?;
            }
            let reached = chunks.range(0, sent).1;
            while let Some((start, length)) = here.next_if(|(start, length)| start + length <= reached) {
                self.spread(self.place, call, chunks.at.wrapping_add(start), length)?;
                moved = true;
            }
            let mut mended = true;
            for host in &mut repairs {
                mended &= host.go_on(&chunks)?;
            }
            if mended && told == chunks.count() && sender.is_over() && here.peek().is_none() {
                group.window = sender.window();
                group.mouths().extend(trains.into_iter().map(|train| (train.place, train.mouth)));
                return refused.map_or(Ok(sender.lost()), Err);
            }
            match full {
                _ if moved => rest.moved(),
                Some(full) => rest.by_kernel(|most| trains[full].mouth.wait(most)),
                None => rest.by_mpi(),
            }
        }
    }

    /// The side of a host that hears it.
    fn cast_in(
        &mut self,
        group: &mut Group,
        call: Call,
        chunks: Chunks,
        told: Announcement,
    ) -> Result<(), Failed> {
        let (key, slack) = (Key::of(&group.key, group.operation), group.slack());
        let (Some(comm), Some(key), Some(ear)) = (self.between, key, &mut group.ear) else {
            return Err(Failed::Message(abi().other_error));
        };
        let (operation, root) = (group.operation, call.root());
        let mut words = Outbox::new(comm, WORDS);
        let mut answers = Letters::new(comm, ANSWERS, root, ANSWER + AGAIN.max(chunks.each));
        let mut here = pieces(chunks.bytes, PIECE).peekable();
        let differs = told.bytes != chunks.bytes as u64;
        // who expects another length takes nothing, but hears the root to its end
        let bytes = usize::try_from(told.bytes).unwrap_or(usize::MAX);
        let mut receiver = Receiver::new(Chunks { bytes, ..chunks }.count(), told.each, slack);
        let (mut refuses, mut rest, mut crowded) = (differs, Rest::default(), 0_u32);
        // datagrams that came before
        let early = std::mem::take(&mut group.early);
        let take = |receiver: &mut Receiver, datagram: &mut [u8], early: &mut Vec<Vec<u8>>| {
            let Some(head) = Head::parse(datagram) else { return false };
            if head.operation != operation {
                // nobody is further ahead, and what is not what it says goes with the broadcast that it names
                let ahead = (1..=LATER).contains(&head.operation.wrapping_sub(operation));
                let most = HEAD + chunks.each + TAG;
                if ahead && datagram.len() <= most && early.len() * most < EARLY {
                    early.push(datagram.to_vec());
                }
                return false;
            }
            match key.open(datagram) {
                Some((Head { chunk, .. }, content)) if !differs && chunk < chunks.count() => {
                    // twice is no harm: it is the same
                    chunks.put(chunk, chunk + 1, content) && receiver.came(chunk..chunk + 1)
                }
                _ => false,
            }
        };
        for mut datagram in early {
            take(&mut receiver, &mut datagram, &mut group.early);
        }
        loop {
            let mut moved = false;
            let early = &mut group.early;
            // what the kernel says of its socket is not worth an error: what does not come is asked for
            let more = ear.receive(|datagram| moved |= take(&mut receiver, datagram, early)).unwrap_or(false);
            // strangers may send more than is taken: then what came before has been taken all the same
            crowded = if more { crowded + 1 } else { 0 };
            let mut drained = crowded % CROWDED == 0;
            if receiver.expects() {
                answers.expect()?;
            }
            while let Some(bytes) = answers.take()? {
                moved = true;
                let answer = Answer::parse(bytes).filter(|(of, ..)| *of == operation);
                let Some((_, answer, content)) = answer else {
                    return Err(Failed::Message(abi().other_error));
                };
                match answer {
                    Answer::Sent(sent) => {
                        receiver.sent(sent);
                        // what was sent before may have come since
                        (drained, crowded) = (false, 1);
                    }
                    Answer::Chunks(range, last) => {
                        if !differs && !range.is_empty() && chunks.put(range.start, range.end, content) {
                            receiver.came(range);
                        }
                        if last {
                            receiver.answered();
                        }
                    }
                }
                if receiver.expects() {
                    answers.expect()?;
                }
            }
            let word = match differs {
                true => std::mem::take(&mut refuses).then_some(Word::Refuses(chunks.bytes as u64)),
                false => receiver.word(drained),
            };
            if let Some(word) = word {
                words.send(root, word.to_bytes(operation))?;
                moved = true;
            }
            let there = chunks.range(0, receiver.prefix()).1;
            while let Some((start, length)) = here.next_if(|(start, length)| start + length <= there) {
                self.spread(self.place, call, chunks.at.wrapping_add(start), length)?;
                moved = true;
            }
            let gone = words.left()? == 0;
            if gone && differs && !receiver.expects() {
                return Err(Failed::Length { expected: chunks.bytes, came: told.bytes as usize });
            }
            if gone && receiver.is_over() && here.peek().is_none() {
                return Ok(());
            }
            match receiver.waits_for_datagrams() {
                _ if moved || more => rest.moved(),
                true => rest.by_kernel(|most| ear.wait(most)),
                false => rest.by_mpi(),
            }
        }
    }
}

/// A network, and the datagrams that are next to leave by it: as they are, as no others may have their numbers.
struct Train {
    place: u32,
    mouth: Mouth,
    bytes: Vec<u8>,
    /// Since when its device has taken none.
    stuck: Option<Instant>,
}

impl Train {
    fn new((place, mouth): (u32, Mouth)) -> Self {
        Self { place, mouth, bytes: Vec::new(), stuck: None }
    }

    /// Whether they have left now, if there are any. None: the network does not take them at all, or not for long. What it was to carry comes to each host
    /// alone, and it is used no more.
    fn leaves(&mut self, each: usize) -> Option<bool> {
        if self.bytes.is_empty() {
            return Some(false);
        }
        if self.mouth.send(&self.bytes, each).ok()? {
            self.bytes.clear();
            self.stuck = None;
            return Some(true);
        }
        (self.stuck.get_or_insert_with(Instant::now).elapsed() < STUCK).then_some(false)
    }
}

/// What a host gets alone: a few messages at a time, however much it has asked for.
struct Repairs {
    to: usize,
    operation: u32,
    outbox: Outbox,
    owed: VecDeque<Range<u32>>,
    asked: bool,
}

impl Repairs {
    fn new(comm: usize, to: usize, operation: u32) -> Self {
        Self { to, operation, outbox: Outbox::new(comm, ANSWERS), owed: VecDeque::new(), asked: false }
    }

    fn owes(&mut self, again: Vec<Range<u32>>) {
        self.asked = true;
        self.owed.extend(again);
    }

    fn say(&mut self, answer: Answer, content: &[u8]) -> Result<(), Failed> {
        let mut bytes = answer.to_bytes(self.operation).to_vec();
        bytes.extend(content);
        self.outbox.send(self.to, bytes)
    }

    /// Sends more of it; whether nothing is owed, or under way.
    fn go_on(&mut self, chunks: &Chunks) -> Result<bool, Failed> {
        let most = (AGAIN / chunks.each).max(1) as u32;
        let mut left = self.outbox.left()?;
        while self.asked && left < REPAIRS {
            let Some(range) = self.owed.front_mut() else {
                self.asked = false;
                self.say(Answer::Chunks(0..0, true), &[])?;
                return Ok(false);
            };
            let some = range.start..range.end.min(range.start + most);
            range.start = some.end;
            if range.start >= range.end {
                self.owed.pop_front();
            }
            self.say(Answer::Chunks(some.clone(), false), chunks.get(some.start, some.end))?;
            left += 1;
        }
        Ok(left == 0 && !self.asked)
    }
}
