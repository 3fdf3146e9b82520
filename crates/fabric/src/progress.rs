//! From a worker's events to completion queues and counters.

use polyrail_core::frame::Matching;
use polyrail_core::proto::{Failure, PeerIdx};
use polyrail_core::wire::Address;
use polyrail_rails::worker::{is_asleep_elsewhere, wake_sleepers};
use polyrail_rails::{Event, EventKind, Listener, Nobody, User, Worker};

use crate::error;
use crate::ffi::*;
use crate::state::cntr::Cntr;
use crate::state::completion::{Class, Entry, Fault, mark};
use crate::state::cq::Cq;
use crate::state::endpoint::{Endpoint, Extra};
use crate::state::slab::Key;
use crate::state::{Sinks, State};

impl State {
    /// Moves what can be moved on one endpoint; returns whether anything did.
    #[inline(never)]
    pub fn progress(&mut self, key: Key<Endpoint>) -> bool {
        let (endpoint, sinks) = self.split(key);
        let Some(worker) = &mut endpoint.worker else { return false };
        let moved = if endpoint.source_err {
            worker.progress_telling(&mut Nobody)
        } else {
            worker.progress_telling(&mut Reader {
                endpoint: key.number,
                cq: endpoint.rx_cq.map(|cq| &mut sinks.cqs[cq]),
                cntr: endpoint.counter[Class::Recv as usize].map(|cntr| &mut sinks.cntrs[cntr]),
            })
        };
        let mut moved = moved > 0;
        let frees = !moved && worker.has_numbers_to_free();
        if worker.peek_event().is_some() {
            moved = true;
            self.handle_all(key);
        }
        if self.awaited.any() {
            self.rearm(key);
        }
        // not where something was moved: what a reader was just given names senders until it is translated
        if frees && !moved {
            self.forget_gone(key);
        }
        moved
    }

    /// Peers that the application has no address of went long ago: nothing here names them either, but completions that wait.
    #[cold]
    fn forget_gone(&mut self, key: Key<Endpoint>) {
        let (endpoint, sinks) = self.split(key);
        endpoint.forget_gone(|peer| {
            let source = Entry::source(key.number, peer);
            sinks.cqs.values_mut().any(|cq| cq.names(source))
        });
    }

    #[inline(never)]
    fn handle_all(&mut self, key: Key<Endpoint>) {
        let (endpoint, mut sinks) = self.split(key);
        while let Some(event) = endpoint.worker.as_mut().and_then(Worker::next_event) {
            endpoint.handle(key.number, event, &mut sinks);
        }
    }

    #[cold]
    fn rearm(&mut self, key: Key<Endpoint>) {
        let (endpoint, mut sinks) = self.split(key);
        endpoint.rearm(&mut sinks);
    }

    /// The same on all endpoints.
    pub fn progress_everywhere(&mut self) -> bool {
        let all: Vec<_> = self.endpoints.keys().collect();
        all.into_iter().fold(false, |moved, endpoint| self.progress(endpoint) | moved)
    }

    /// The addresses of all endpoints.
    pub fn addresses(&mut self) -> impl Iterator<Item = [u8; Address::LEN]> {
        self.endpoints.values_mut().filter_map(|endpoint| Some(endpoint.worker.as_ref()?.address()))
    }

    /// The same by a thread of ours, which wakes whoever sleeps elsewhere and may have waited for it.
    pub fn move_for_sleepers(&mut self) -> bool {
        let moved = self.progress_everywhere();
        if moved && is_asleep_elsewhere() {
            wake_sleepers(self.cqs.values_mut().any(|cq| !cq.is_empty()));
        }
        moved
    }

    /// The same on all endpoints of a list in a queue or counter, which is found by `list`.
    #[inline]
    pub fn progress_all(&mut self, list: impl Fn(&Self) -> &[Key<Endpoint>]) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&endpoint) = list(self).get(at) {
            moved |= self.progress(endpoint);
            at += 1;
        }
        moved
    }

    /// Whether something long is under way on an endpoint of a queue, whose rest takes its time.
    pub fn in_bulk(&self, cq: Key<Cq>) -> bool {
        let worker = |user: &Key<Endpoint>| self.endpoints[*user].worker.as_ref();
        self.cqs[cq].users.iter().filter_map(worker).any(Worker::in_bulk)
    }

    /// Counts a round of progress that would find nothing to do, on all endpoints of an empty queue. False: there may be something.
    #[inline(always)]
    pub fn skip(&mut self, cq: Key<Cq>) -> bool {
        let cq = &self.cqs[cq];
        if !cq.is_empty() || self.awaited.any() {
            return false;
        }
        for user in &cq.users {
            if let Some(worker) = &mut self.endpoints[*user].worker
                && (worker.has_numbers_to_free() || !worker.skip())
            {
                return false;
            }
        }
        true
    }
}

/// Who reads an endpoint's completions: what comes goes straight there.
struct Reader<'a> {
    endpoint: usize,
    cq: Option<&'a mut Cq>,
    cntr: Option<&'a mut Cntr>,
}

impl Listener for Reader<'_> {
    #[inline(always)]
    fn received(&mut self, user: User, from: PeerIdx, tag: u64, data: Option<u64>, len: u64) -> bool {
        if user.flags & (mark::EXTRA | mark::LONG) != 0 {
            return false;
        }
        if let Some(cntr) = &mut self.cntr {
            cntr.add(1);
        }
        if let (true, Some(cq)) = (user.flags & mark::WANTED != 0, &mut self.cq) {
            cq.push(entry_of(user, Matching::Tag(tag), data, len, Entry::source(self.endpoint, from)));
        }
        true
    }
}

/// The entry of a message of which so many bytes were received.
#[inline(always)]
fn entry_of(user: User, matching: Matching, data: Option<u64>, len: u64, source: u64) -> Entry {
    let marks = user.flags & mark::SHOWN;
    Entry {
        context: user.context,
        flags: if data.is_some() { marks | FI_REMOTE_CQ_DATA } else { marks },
        len,
        buf: 0,
        data: data.unwrap_or_default(),
        tag: if let Matching::Tag(tag) = matching { tag } else { 0 },
        source,
    }
}

impl Endpoint {
    /// After anything that may have disarmed the worker or given it something to do.
    #[inline]
    pub fn after_call(&mut self, sinks: &mut Sinks<'_>) {
        if sinks.awaited.any() {
            self.rearm(sinks);
        }
    }

    /// Progress has disarmed the worker: arms it for those who sleep, or wakes them.
    #[cold]
    fn rearm(&mut self, sinks: &mut Sinks<'_>) {
        if self.worker.as_mut().is_none_or(|worker| worker.arm()) {
            return;
        }
        for cq in self.queues() {
            sinks.cqs[cq].wait.wake();
        }
        for cntr in self.counters() {
            sinks.cntrs[cntr].wait.wake();
        }
        sinks.region_counters().for_each(|cntr| cntr.wait.wake());
    }

    /// Counts a success.
    #[inline]
    pub fn count(&self, class: Class, sinks: &mut Sinks<'_>) {
        if let Some(cntr) = self.counter[class as usize] {
            sinks.cntrs[cntr].add(1);
        }
    }

    /// A send, write or injection that is complete at once.
    #[inline(always)]
    pub fn done(&self, class: Class, context: u64, flags: u64, sinks: &mut Sinks<'_>) {
        self.count(class, sinks);
        if flags & mark::WANTED != 0 {
            self.push(class, Entry { context, flags: flags & mark::SHOWN, ..Entry::default() }, sinks);
        }
    }

    #[inline]
    fn queue(&self, class: Class) -> Option<Key<Cq>> {
        match class {
            Class::Recv | Class::RemoteRead | Class::RemoteWrite => self.rx_cq,
            _ => self.tx_cq,
        }
    }

    #[inline(always)]
    pub fn push(&self, class: Class, entry: Entry, sinks: &mut Sinks<'_>) {
        if let Some(cq) = self.queue(class) {
            sinks.cqs[cq].push(entry);
        }
    }

    /// Reports a failure, whether or not a completion was wanted.
    #[cold]
    pub fn fail(&self, class: Class, mut fault: Fault, sinks: &mut Sinks<'_>) {
        if let Some(cntr) = self.counter[class as usize] {
            sinks.cntrs[cntr].add_error(1);
        }
        if fault.entry.context == 0 {
            fault.entry.context = self.context;
        }
        if let Some(cq) = self.queue(class) {
            sinks.cqs[cq].push_fault(fault);
        }
    }

    /// An event of the worker.
    fn handle(&mut self, number: usize, event: Event, sinks: &mut Sinks<'_>) {
        let flags = event.user.flags;
        if flags & mark::LONG != 0 {
            self.long -= 1;
        }
        match event.kind {
            EventKind::Recv => self.received(number, event, sinks),
            EventKind::RemoteWrite | EventKind::RemoteRead => self.accessed(number, &event, sinks),
            EventKind::Send | EventKind::Put | EventKind::Get | EventKind::Atomic => {
                let class = match event.kind {
                    EventKind::Send => Class::Send,
                    _ if flags & FI_READ != 0 => Class::Read,
                    _ => Class::Write,
                };
                let context = match flags & mark::EXTRA {
                    0 => event.user.context,
                    _ => self.extras.remove(event.user.context as usize).map_or(0, |extra| extra.context),
                };
                match event.error {
                    None => self.done(class, context, flags, sinks),
                    Some(failure) => self.failed(class, context, failure, &event, sinks),
                }
            }
        }
    }

    fn received(&mut self, number: usize, event: Event, sinks: &mut Sinks<'_>) {
        let marks = event.user.flags;
        let source = event.peer.map_or(Entry::NO_SOURCE, |peer| Entry::source(number, peer));
        let mut entry = entry_of(event.user, event.matching, event.data, event.got, source);
        let mut wanted = marks & mark::WANTED != 0;
        if marks & mark::EXTRA != 0 {
            self.place_in_multi(&mut entry, &event);
            wanted |= event.released;
        }
        match event.error {
            None if event.got == event.len => {
                if self.source_err && self.is_stranger(&event, sinks) {
                    return self.report_stranger(entry, &event, sinks);
                }
                self.count(Class::Recv, sinks);
                if wanted {
                    self.push(Class::Recv, entry, sinks);
                }
            }
            None => {
                let fault = Fault { entry, olen: event.len - event.got, ..Fault::new(error::truncated()) };
                self.fail(Class::Recv, fault, sinks);
            }
            Some(failure) => {
                let why = self.why(failure, event.peer);
                self.fail(Class::Recv, Fault { entry, ..Fault::new(why) }, sinks);
            }
        }
    }

    /// A message in a multi-receive buffer, or that buffer's end.
    #[cold]
    fn place_in_multi(&mut self, entry: &mut Entry, event: &Event) {
        let number = event.user.context as usize;
        if let Some(Extra { context, base, .. }) = self.extras.get(number) {
            entry.context = *context;
            entry.buf = base + event.offset;
        }
        if event.released {
            entry.flags |= FI_MULTI_RECV;
            self.extras.remove(number);
        }
    }

    fn is_stranger(&mut self, event: &Event, sinks: &mut Sinks<'_>) -> bool {
        event.peer.is_some_and(|peer| self.address_of(peer, sinks.avs) == FI_ADDR_NOTAVAIL)
    }

    /// With `FI_SOURCE_ERR`: a message from an address that was never inserted comes as an error, with the address.
    #[cold]
    fn report_stranger(&mut self, entry: Entry, event: &Event, sinks: &mut Sinks<'_>) {
        let bytes = event.peer.and_then(|peer| self.worker.as_ref()?.address_of(peer));
        let address = bytes.and_then(|bytes| self.format.write(&Address::parse(&bytes).ok()?));
        let why = error::Why { data: address.unwrap_or_default(), ..error::stranger() };
        self.count(Class::Recv, sinks);
        if let Some(cq) = self.rx_cq {
            sinks.cqs[cq].push_fault(Fault { entry, ..Fault::new(why) });
        }
    }

    /// A peer wrote to, or read from, memory of this process.
    fn accessed(&mut self, number: usize, event: &Event, sinks: &mut Sinks<'_>) {
        let class = if event.kind == EventKind::RemoteWrite { Class::RemoteWrite } else { Class::RemoteRead };
        self.count(class, sinks);
        if let Some(cntr) = sinks.regions.counter(event.key, class) {
            sinks.cntrs[cntr].add(1);
        }
        if let (Class::RemoteWrite, Some(data)) = (class, event.data) {
            let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            let source = event.peer.map_or(Entry::NO_SOURCE, |peer| Entry::source(number, peer));
            self.push(class, Entry { flags, len: event.len, data, source, ..Entry::default() }, sinks);
        }
    }

    #[cold]
    fn failed(&mut self, class: Class, context: u64, failure: Failure, event: &Event, sinks: &mut Sinks<'_>) {
        let entry = Entry { context, flags: event.user.flags & mark::SHOWN, ..Entry::default() };
        let why = self.why(failure, event.peer);
        self.fail(class, Fault { entry, ..Fault::new(why) }, sinks);
    }

    /// A failure with its reason, as far as it is known.
    #[cold]
    fn why(&mut self, failure: Failure, peer: Option<PeerIdx>) -> error::Why {
        let reason = peer.filter(|_| failure == Failure::PeerGone).and_then(|peer| self.why_gone(peer));
        error::failed(failure, reason)
    }
}
