//! One connection: its machine, its keys, what it is to send and what comes.

use super::adapt::Changes;
use super::keys::{Keys, Receiving};
use super::moves::Elsewhere;
use super::pipe::Pipe;
use crate::keys::{Chain, LinkKeys};
use crate::rail::control::Cause;
use crate::rail::journal::{Pool, RetransmitBuffer};
use crate::rail::reader::Reader;
use crate::rail::{Memory, RawIov};
use polyrail_core::connection::{Connection, Number};
use polyrail_core::control::context::Watcher;
use polyrail_core::micro::{Segment, Time};
use polyrail_core::proto::PeerIdx;
use polyrail_core::values::Scheme;
use polyrail_core::wire::Key;
use polyrail_core::wire::datagram::first_chains;
use std::net::SocketAddr;

/// Datagrams that are kept until their keys are known.
const EARLY: usize = 16;

/// Datagrams that are sent again each time that nothing is heard, and how often that is enough for who wants to go.
const PROBED: u64 = 2;
const OFTEN: u32 = 5;

/// Most bytes and spans that wait in a link before it is full (exceeded by at most one frame).
const STAGED_MAX: usize = 256 << 10;
const SPANS_MAX: usize = 64;
/// What [`Link::wants_more`] allows to wait.
const EAGER_BYTES: usize = 512 << 10;
const EAGER_SPANS: usize = 2;

pub(super) struct Link {
    pub(super) connection: Connection,
    /// The key of the endpoint that was called.
    pub(super) key: Key,
    keys: Option<(Keys, Receiving)>,
    /// Of what it sends of the handshake, once that is over.
    first: Option<Keys>,
    /// What travels is encrypted.
    pub(super) encrypted: bool,
    pub(super) socket: usize,
    pub(super) to: SocketAddr,
    /// The first bytes of the stream: those of the handshake.
    pub(super) preface: Vec<u8>,
    pub(super) journal: RetransmitBuffer,
    pub(super) reader: Reader,
    /// Its handshake, before it is a link.
    pub(super) pipe: Option<Pipe>,
    /// Datagrams under keys that are not known yet.
    pub(super) early: Vec<Vec<u8>>,
    /// In the rail's list of connections that may have something to send.
    pub(super) dirty: bool,
    /// What its figures say of the path, and what came of that.
    pub(super) watcher: Watcher,
    /// Where the other side seems to be now, if that is elsewhere.
    pub(super) elsewhere: Option<Elsewhere>,
    /// Something long comes or goes by it.
    pub(super) long: bool,
    pub(super) changes: Changes,
    /// By which scheme this side sends, and by which the other does, as far as it has shown.
    pub(super) scheme: Scheme,
    pub(super) their_scheme: Scheme,
    /// Whose values it carries.
    pub(super) owner: Option<PeerIdx>,
    /// When its timer is set.
    pub(super) timer: Time,
    /// Since when its end is to be told, if nobody knows.
    pub(super) error: Option<i32>,
    /// When it was asked last whether it is there.
    pub(super) asked: Time,
    /// Errors that the network reported since something came last.
    pub(super) refusals: u32,
    /// When the first of these came.
    pub(super) refused: Option<Time>,
    /// The rail's round in which something was last sent at once.
    pub(super) round: u32,
}

impl Link {
    pub(super) fn new(
        mut connection: Connection,
        key: Key,
        (socket, to): (usize, SocketAddr),
        pipe: Pipe,
        begins: Cause,
    ) -> Self {
        connection.hurry(true);
        let changes = Changes::new(connection.composition(), begins);
        Self {
            connection,
            key,
            keys: None,
            first: None,
            encrypted: false,
            socket,
            to,
            preface: Vec::new(),
            journal: RetransmitBuffer::default(),
            reader: Reader::default(),
            pipe: Some(pipe),
            early: Vec::new(),
            dirty: false,
            watcher: Watcher::default(),
            elsewhere: None,
            long: false,
            changes,
            scheme: Scheme::Synchronous,
            their_scheme: Scheme::Synchronous,
            owner: None,
            timer: Time::MAX,
            error: None,
            asked: 0,
            refusals: 0,
            refused: None,
            round: 0,
        }
    }

    /// Both salts are known: the first keys follow from them. False: there are none.
    pub(super) fn derive_keys(&mut self, opened: bool) -> bool {
        let (client, server) = self.connection.salts();
        let (client, server) = first_chains(&self.key, client, server);
        let (send, receive) = if opened { (client, server) } else { (server, client) };
        self.keys = Keys::new(Chain(send), 0).zip(Receiving::new(Chain(receive), 0));
        self.keys.is_some()
    }

    /// The handshake is over: what travels from now on does by other keys, and encrypted if they are of the handshake. So what belongs to the
    /// handshake is told apart, and nothing else counts before there is a link on the other side, too. False: there are no such keys.
    pub(super) fn begin(&mut self, keys: Option<LinkKeys>) -> bool {
        let Some((send, receive)) = &self.keys else { return false };
        self.encrypted = keys.is_some();
        let chains = match keys {
            Some(keys) => Some((keys.send, keys.receive)),
            None => send.next_chain().zip(receive.next_chain()),
        };
        let new = chains.and_then(|(send, receive)| Keys::new(send, 1).zip(Receiving::new(receive, 1)));
        let Some(new) = new else { return false };
        self.first = self.keys.replace(new).map(|(send, _)| send);
        true
    }

    /// Whether the handshake is over on this side.
    pub(super) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// The keys of a datagram with this part of the stream, and whether they encrypt: those of the handshake are as they were, since the
    /// other side has others only by it.
    pub(super) fn sending(&mut self, segment: Segment) -> Option<(&mut Keys, bool)> {
        let frames = segment.len == 0 || segment.pos >= self.preface.len() as u64;
        match (&mut self.first, &mut self.keys) {
            (Some(first), _) if !frames => Some((first, false)),
            (_, Some((send, _))) => {
                send.renew()?;
                Some((send, self.encrypted))
            }
            _ => None,
        }
    }

    /// Opens a datagram that came for it in place: its content. None: it is not by the other side, or its keys are not known yet, in which
    /// case it is kept.
    pub(super) fn open<'a>(
        &mut self,
        generation: u8,
        number: Number,
        sealed: bool,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        if !self.has_begun() && (sealed || generation != 0) {
            // the other side is a step ahead
            if self.pipe.is_some() && self.early.len() < EARLY {
                self.early.push(datagram.to_vec());
            }
            return None;
        }
        // once it is encrypted nothing counts that is not
        if self.has_begun() && self.encrypted != sealed {
            return None;
        }
        let (_, receive) = self.keys.as_mut()?;
        receive.open(generation, number, datagram, sealed)
    }

    /// Whether all that was given has been acknowledged.
    pub(super) fn is_delivered(&self) -> bool {
        self.connection.is_delivered() && !self.connection.owes_values()
    }

    /// Whether what the other side has not acknowledged is so little that all of it was sent again and again, to no avail. Its program
    /// computes, then, and its kernel has it, but for the chance that all were lost.
    pub(super) fn has_said_all_often(&self) -> bool {
        let shared = self.connection.shared();
        let little = shared.flight.bytes() <= PROBED * u64::from(shared.size) && shared.again.is_empty();
        little && self.journal.is_written() && shared.timeouts >= OFTEN
    }

    /// The stream has grown. Frames wait until the other side has the handshake: none goes along with that.
    pub(super) fn extend(&mut self) {
        let preface = self.preface.len() as u64;
        let frames = self.has_begun() && self.connection.had_upto() >= preface;
        self.connection.hurry(!frames);
        self.connection.extend(preface + if frames { self.journal.given() } else { 0 });
    }

    /// Bytes of frames that the peer has.
    pub(super) fn delivered(&self) -> u64 {
        self.connection.had_upto().saturating_sub(self.preface.len() as u64)
    }

    /// What the peer has is not needed any more.
    pub(super) fn forget_delivered(&mut self, pool: &mut Pool) {
        let delivered = self.delivered();
        if self.journal.keeps_before(delivered) {
            self.journal.forget_before(delivered, pool);
        }
    }

    /// Copies the stream's bytes to where they are sent from. Without memory only where all of them are copies.
    pub(super) fn copy_to<M: Memory + ?Sized>(
        &mut self,
        segment: Segment,
        out: &mut [u8],
        mem: Option<&M>,
        iov: &mut Vec<RawIov>,
    ) {
        if segment.len == 0 {
            return;
        }
        let preface = self.preface.len() as u64;
        let first = preface.saturating_sub(segment.pos).min(out.len() as u64) as usize;
        if first > 0 {
            let from = segment.pos as usize;
            out[..first].copy_from_slice(&self.preface[from..from + first]);
        }
        let from = (segment.pos + first as u64).saturating_sub(preface);
        self.journal.read_at(from, &mut out[first..], mem, iov);
        let end = (segment.end()).saturating_sub(preface);
        self.journal.advance(end.saturating_sub(self.journal.written()) as usize);
    }

    /// Whether what may be sent next is all copied: it needs nobody's memory.
    pub(super) fn is_copied(&self) -> bool {
        !self.journal.has_spans()
    }

    pub(super) fn is_full(&self) -> bool {
        self.journal.staged() >= STAGED_MAX || self.journal.spans() >= SPANS_MAX
    }

    pub(super) fn wants_more(&self) -> bool {
        !self.is_full() && self.journal.spans() < EAGER_SPANS && self.journal.unwritten() < EAGER_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyrail_core::connection::Settings;
    use polyrail_core::micro::Composition;
    use polyrail_core::wire::datagram::{HEADER, TAG};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// Both ends of a connection whose keys are known, and which is no link yet: the client's, and the server's.
    fn ends() -> [Link; 2] {
        let settings =
            Settings { composition: Composition::SyncCubic, size: 1452, holds: 1 << 20, fixed: false };
        let at = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut client = Connection::open(0, 7, [1; 16], settings);
        let server = Connection::answer(0, (8, [2; 16]), (7, [1; 16], 1 << 20), settings);
        assert!(client.answered(8, [2; 16], 1 << 20));
        let key = Key::new([5; 16]).expect("a key");
        let link = |connection, opened| {
            let (pipe, _far) = Pipe::new(Arc::new(AtomicBool::new(false)), at).expect("a pipe");
            let mut link = Link::new(connection, key, (0, at), pipe, Cause::First);
            assert!(link.derive_keys(opened));
            link
        };
        [link(client, true), link(server, false)]
    }

    /// A datagram under a number, of a part of the stream from here on.
    fn says(link: &mut Link, number: u64, pos: u64) -> (u8, Vec<u8>) {
        let mut bytes = [&[0; HEADER][..], &[3], &[0; TAG]].concat();
        let (keys, encrypt) = link.sending(Segment { pos, len: 1 }).expect("keys");
        keys.seal(Number { number, changes: 0 }, &mut bytes, encrypt);
        (keys.generation, bytes)
    }

    fn opens(link: &mut Link, number: u64, (generation, bytes): &(u8, Vec<u8>)) -> bool {
        let sealed = link.encrypted && *generation > 0;
        link.open(*generation, Number { number, changes: 0 }, sealed, &mut bytes.clone()).is_some()
    }

    #[test]
    fn frames_count_for_nobody_who_has_not_made_a_link_of_it() {
        let [mut client, mut server] = ends();
        let handshake = says(&mut server, 1, 0);
        assert!(opens(&mut client, 1, &handshake));
        server.preface = vec![0; 10];
        assert!(server.begin(None));
        let (verdict, frames) = (says(&mut server, 2, 9), says(&mut server, 3, 10));
        assert!(opens(&mut client, 2, &verdict), "what belongs to the handshake does as before");
        assert!(
            !opens(&mut client, 3, &frames) && client.early.len() == 1,
            "it waits, and is not acknowledged"
        );
        for number in 4..100 {
            let frames = says(&mut server, number, number * 10);
            assert!(!opens(&mut client, number, &frames));
        }
        assert_eq!(client.early.len(), EARLY);
        client.pipe = None;
        assert!(client.begin(None));
        assert!(opens(&mut client, 3, &frames));
        assert!(!opens(&mut client, 2, &verdict), "it was in time, or did not matter");
        let word = says(&mut client, 1, 0);
        assert_eq!(word.0, 1);
        assert!(opens(&mut server, 1, &word));
    }

    #[test]
    fn frames_wait_until_the_other_side_is_known_to_have_the_handshake() {
        let [_, mut server] = ends();
        server.preface = vec![0; 10];
        server.extend();
        assert!(!server.connection.is_delivered(), "that is owed");
        assert!(server.begin(None));
        server.extend();
        server.connection.assume_had(10);
        assert_eq!(server.connection.had_upto(), 10);
        assert!(server.connection.is_delivered());
    }
}
