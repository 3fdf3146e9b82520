//! Receiving: bytes into frames.
//!
//! One call brings many small frames into the staging buffer that all links share. Of a frame that is not all there, a
//! short one waits in the link's own memory (`partial`); a long one is begun: the sink says where its payload goes, and it
//! is received straight to there, with the staging buffer behind it so that the next headers come by the same call.

mod sealed;

use std::io;

use polyrail_core::frame::Frame;

use super::link::{Link, Shared};
use super::seal::{Broken, Opener, RECORD};
use crate::rail::journal::MAX_IOV;
use crate::rail::reader::{Manner, Reader};
use crate::rail::{Down, LinkId, Place, RawIov, Sink, Span};

/// The staging buffer: as many small frames per call as help; larger ones fall out of the second-level cache.
pub(super) const STAGING: usize = 64 << 10;
/// Where sealed records are received: what is left of one, and as many as fit into a second-level cache with what becomes of them.
pub(super) const SEALED: usize = 9 * RECORD;
/// Most handshake leftover that a link may start with.
pub(super) const MAX_LEFTOVER: usize = STAGING / 2;
/// A payload longer than this that is not all there is begun in its place rather than collected.
const BEGIN_MIN: usize = 8 << 10;
/// A payload from this on makes its link a bulk one ...
const BULK_MIN: usize = 64 << 10;
/// ... on which little is received to staging, because what lands there is copied once more.
const BULK_TAIL: usize = 512;
/// Calls and bytes that one link gets before it is the next one's turn.
const TURN_CALLS: usize = 4;
pub(super) const TURN_BYTES: usize = 512 << 10;

/// A peer is told what came when so many frames, or so many bytes that it keeps copies of, have gathered: the more where links are few,
/// so that the copies of all are no more than so much in all while that is possible. Each word of this is a packet against the stream
/// (docs/decisions/0014) ...
const ACK_FRAMES: u64 = 512;
const ACK_ALL: usize = 32 << 20;
const ACK_BYTES: (usize, usize) = (128 << 10, 512 << 10);
/// ... or so many times as many bytes of others, of which it only remembers where they are.
const REMEMBERED: usize = 16;
/// Of what was read from memory the sender keeps copies only where its program asked to hear of that.
const PERHAPS: usize = 2;
/// So many words of the protocol may stand between two parts of long messages.
const WORDS: u8 = 8;

pub(super) struct Rx {
    /// Opens what comes, where it is encrypted.
    opener: Option<Box<Opener>>,
    /// The stream taken apart.
    pub(super) reader: Reader,
    heeded: Heeded,
    /// The reader's rest, or the opener's, came with the link and may hold whole frames.
    leftover: bool,
    /// Of how many whole frames the peer was told.
    pub(super) acked: u64,
}

/// What was seen of the frames that came.
#[derive(Default)]
struct Heeded {
    /// The next payload may be long, as the last one was ...
    bulk: bool,
    /// ... and a part of a longer message: for so many words of the protocol.
    long: u8,
    /// Bytes that came since the peer was told last, as they count for that.
    fresh: usize,
}

/// What a link's turn came to.
#[derive(Default)]
pub(super) struct Turn {
    /// Frames that arrived, and begun ones that moved on.
    pub(super) events: usize,
    pub(super) bytes: usize,
}

pub(super) enum Next {
    /// All that was there has been received.
    Drained,
    /// There may be more.
    More,
    Ended(Down),
}

impl Rx {
    /// Bytes of the payload that has begun that are still to come by the socket, at least: of a record that came in part, the beginning is here.
    pub(super) fn to_come(&self) -> usize {
        let here = self.opener.as_ref().map_or(0, |opener| opener.partial.len());
        self.reader.rest().saturating_sub(here)
    }

    pub(super) fn new(leftover: &[u8], mut opener: Option<Box<Opener>>) -> Self {
        let mut partial = leftover.to_vec();
        if let Some(opener) = &mut opener {
            std::mem::swap(&mut partial, &mut opener.partial);
        }
        Self {
            opener,
            reader: Reader { partial, ..Reader::default() },
            heeded: Heeded::default(),
            leftover: !leftover.is_empty(),
            acked: 0,
        }
    }

    /// Whether so much came that the peer is to be told, where so many links are up.
    pub(super) fn ack_is_due(&self, links: usize) -> bool {
        let bytes = (ACK_ALL / links.max(1)).clamp(ACK_BYTES.0, ACK_BYTES.1);
        let received = self.reader.received;
        received - self.acked >= ACK_FRAMES || self.heeded.fresh >= bytes && received > self.acked
    }

    /// The peer is told now: of how many frames.
    pub(super) fn take_ack(&mut self) -> u64 {
        (self.acked, self.heeded.fresh) = (self.reader.received, 0);
        self.acked
    }

    fn tail(&self) -> usize {
        if self.heeded.bulk { BULK_TAIL } else { STAGING }
    }

    /// Gives the frames in `bytes` to the sink, and keeps what is left of them.
    fn parse<S: Sink + ?Sized>(
        &mut self,
        id: LinkId,
        bytes: &[u8],
        iov: &mut Vec<RawIov>,
        sink: &mut S,
        turn: &mut Turn,
    ) -> Result<(), Stop> {
        let Self { reader, heeded, .. } = self;
        let mut manner = Manner { begin_min: BEGIN_MIN, heed: |frame: &Frame, len| heeded.heed(frame, len) };
        turn.events += reader.parse(id, bytes, &mut manner, iov, sink).map_err(Stop::Protocol)?;
        Ok(())
    }

    /// Notes that `n` bytes of a begun payload have arrived.
    fn advance<S: Sink + ?Sized>(&mut self, id: LinkId, rest: Span, n: usize, sink: &mut S, turn: &mut Turn) {
        turn.events += 1;
        self.reader.advance(id, rest, n, sink);
    }
}

impl Heeded {
    /// Notes what comes: its sender keeps a copy of what the operation does not keep until it has an answer.
    fn heed(&mut self, frame: &Frame, len: usize) {
        let divisor = match frame {
            _ if len <= super::tx::SMALL => 1,
            Frame::Frag { .. } | Frame::Put { .. } | Frame::Eager { ack: Some(_), .. } => REMEMBERED,
            Frame::GetData { .. } => PERHAPS,
            _ => 1,
        };
        self.fresh += len / divisor;
        // words of the protocol stand between the parts of long messages, and say nothing of what comes next
        self.long = match len {
            0 => self.long.saturating_sub(1),
            BULK_MIN.. if divisor > 1 => WORDS,
            _ => 0,
        };
        self.bulk = len >= BULK_MIN || self.long > 0;
    }
}

/// Receives one link's turn.
pub(super) fn receive<S: Sink + ?Sized>(
    id: LinkId,
    link: &mut Link,
    sh: &mut Shared,
    sink: &mut S,
    turn: &mut Turn,
) -> Next {
    for _ in 0..TURN_CALLS {
        let step = match link.rx.reader.body {
            _ if link.rx.opener.is_some() => sealed::receive(id, link, sh, sink, turn),
            None => head(id, link, sh, sink, turn),
            Some(rest) => body(id, rest, link, sh, sink, turn),
        };
        match step {
            Ok(Step::Short) if !link.ending => return Next::Drained,
            Ok(Step::Unsure) => return Next::More,
            Ok(_) => {}
            Err(Stop::Again) => {
                link.ending = false;
                return match link.error {
                    Some(_) => Next::Ended(ended(link, libc::EIO)),
                    None => Next::Drained,
                };
            }
            Err(Stop::Errno(e)) => return Next::Ended(ended(link, e)),
            Err(Stop::Protocol(text)) => return Next::Ended(Down::Protocol(text)),
            Err(Stop::Broken(why)) => {
                let why = io::Error::new(io::ErrorKind::InvalidData, why.to_string());
                return Next::Ended(Down::Lost(why));
            }
        }
        if turn.bytes >= TURN_BYTES {
            break;
        }
    }
    Next::More
}

/// One call's outcome.
enum Step {
    /// It brought all that was asked for.
    Whole,
    /// It brought less: nothing is left.
    Short,
    /// It brought less, but perhaps because the user's memory cannot be written: nobody may sleep before another attempt.
    Unsure,
}

impl Step {
    fn new(got: usize, asked: usize) -> Self {
        if got < asked { Self::Short } else { Self::Whole }
    }
}

enum Stop {
    Again,
    /// 0: the end of the stream.
    Errno(i32),
    Protocol(String),
    /// A record does not open.
    Broken(Broken),
}

impl From<Broken> for Stop {
    fn from(why: Broken) -> Self {
        Self::Broken(why)
    }
}

impl From<i32> for Stop {
    fn from(e: i32) -> Self {
        match e {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Self::Again,
            e => Self::Errno(e),
        }
    }
}

/// What to say of a connection that ended by `errno` (0: by an end of stream).
fn ended(link: &Link, errno: i32) -> Down {
    if link.rx.reader.bye {
        return Down::Orderly;
    }
    Down::Lost(match (link.error, errno) {
        (Some(first), _) => io::Error::from_raw_os_error(first),
        (None, 0) => io::Error::new(io::ErrorKind::UnexpectedEof, "the peer's socket closed without a Bye"),
        (None, e) => io::Error::from_raw_os_error(e),
    })
}

fn count(n: usize, turn: &mut Turn) -> Result<(), Stop> {
    turn.bytes += n;
    if n == 0 { Err(Stop::Errno(0)) } else { Ok(()) }
}

/// Receives to staging, behind what is there of a frame.
fn head<S: Sink + ?Sized>(
    id: LinkId,
    link: &mut Link,
    sh: &mut Shared,
    sink: &mut S,
    turn: &mut Turn,
) -> Result<Step, Stop> {
    let have = link.rx.reader.partial.len();
    sh.staging[..have].copy_from_slice(&link.rx.reader.partial);
    if std::mem::take(&mut link.rx.leftover) {
        link.rx.parse(id, &sh.staging[..have], &mut sh.iov, sink, turn)?;
        return Ok(Step::Whole);
    }
    let end = STAGING.min(have + link.rx.tail());
    sh.stats.recvs += 1;
    let n = super::sys::recv(link.fd(), &mut sh.staging[have..end])?;
    count(n, turn)?;
    link.rx.parse(id, &sh.staging[..have + n], &mut sh.iov, sink, turn)?;
    Ok(Step::new(have + n, end))
}

/// Receives a begun payload to its place, and what follows it to staging.
fn body<S: Sink + ?Sized>(
    id: LinkId,
    rest: Span,
    link: &mut Link,
    sh: &mut Shared,
    sink: &mut S,
    turn: &mut Turn,
) -> Result<Step, Stop> {
    sh.iov.clear();
    sh.stats.recvs += 1;
    if !sink.resolve(rest, &mut sh.iov) {
        let n = super::sys::discard(link.fd(), rest.len)?;
        count(n, turn)?;
        link.rx.advance(id, Span { place: Place::Discard, ..rest }, n, sink, turn);
        return Ok(Step::new(n, rest.len));
    }
    sh.iov.truncate(MAX_IOV);
    let mut asked: usize = sh.iov.iter().map(|v| v.len).sum();
    if asked == rest.len && sh.iov.len() < MAX_IOV {
        let len = link.rx.tail();
        sh.iov.push(RawIov { base: sh.staging.as_mut_ptr(), len });
        asked += len;
    }
    // SAFETY: the sink just named these addresses as the span's memory; staging is ours.
    let n = match unsafe { super::sys::recv_iov(link.fd(), &sh.iov) } {
        Err(libc::EFAULT) => {
            // Not writable after all: the stream stays in step, and the operation's owner has to know what it gave.
            link.rx.reader.body = Some(Span { place: Place::Discard, ..rest });
            return Ok(Step::Whole);
        }
        n => n?,
    };
    count(n, turn)?;
    let here = n.min(rest.len);
    link.rx.advance(id, rest, here, sink, turn);
    link.rx.parse(id, &sh.staging[..n - here], &mut sh.iov, sink, turn)?;
    Ok(if here < rest.len { Step::Unsure } else { Step::new(n, asked) })
}
