//! The TCP rail's decoder against any stream, cut into pieces anywhere: the frames that come out are those that one gets by
//! reading the stream at once.
#![no_main]
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use polyrail_core::frame::{Frame, OpId, PREFIX, peek_lengths};
use polyrail_fuzz::Input;
use polyrail_rails::rail::{Down, LinkId, Memory, Payload, Place, Rail, RawIov, Sink, Span};
use polyrail_rails::tcp::{Config, TcpRail};

/// Longest stream.
const MOST: usize = 1 << 20;

/// What was received.
#[derive(Default)]
struct Received {
    frames: Vec<(Frame, Vec<u8>)>,
    begun: Option<(Frame, u32)>,
    memory: HashMap<u32, Vec<u8>>,
    /// Into pieces of how many bytes memory is divided; 0: begun payloads are thrown away.
    piece: usize,
    down: Option<Down>,
}

impl Memory for Received {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let Place::Recv(OpId { slot, .. }) = span.place else { return false };
        let from = span.offset as usize;
        let Some(bytes) = self.memory.get(&slot).and_then(|bytes| bytes.get(from..from + span.len)) else {
            return false;
        };
        out.extend(
            bytes
                .chunks(self.piece)
                .map(|piece| RawIov { base: piece.as_ptr().cast_mut(), len: piece.len() }),
        );
        true
    }
}

impl Sink for Received {
    fn frame(&mut self, _: LinkId, frame: Frame, payload: Payload) {
        assert!(self.begun.is_none() && self.down.is_none());
        self.frames.push((frame, payload.to_vec()));
    }
    fn begin(&mut self, _: LinkId, frame: Frame, len: usize) -> Span {
        assert!(self.begun.is_none() && self.down.is_none());
        let slot = self.frames.len() as u32;
        self.begun = Some((frame, slot));
        self.memory.insert(slot, vec![0; len]);
        let place = if self.piece == 0 { Place::Discard } else { Place::Recv(OpId { slot, generation: 0 }) };
        Span { place, offset: 0, len }
    }
    fn end(&mut self, _: LinkId) {
        let (frame, slot) = self.begun.take().expect("an end follows a beginning");
        let bytes = self.memory.remove(&slot).expect("its memory");
        self.frames.push((frame, bytes));
    }
    fn down(&mut self, _: LinkId, why: Down) {
        assert!(self.down.replace(why).is_none(), "a link ends once");
    }
}

/// The frames of a stream, and whether what follows them breaks the protocol.
fn at_once(mut rest: &[u8]) -> (Vec<(Frame, &[u8])>, bool) {
    let mut frames: Vec<(Frame, &[u8])> = Vec::new();
    while let Some(prefix) = rest.first_chunk::<PREFIX>() {
        let Ok((header, len)) = peek_lengths(prefix) else { return (frames, true) };
        if frames.last().is_some_and(|(frame, _)| *frame == Frame::Bye) {
            return (frames, true);
        }
        let Some(bytes) = rest.get(..header) else { break };
        let Ok((frame, _)) = Frame::parse(bytes) else { return (frames, true) };
        let Some(payload) = rest.get(header..header + len) else { break };
        frames.push((frame, payload));
        rest = &rest[header + len..];
    }
    (frames, false)
}

/// The pieces in which a stream is written: as they are, or headers with a payload length of the input's choice, or long
/// stretches of one byte, which make payloads that do not fit into an input.
fn pieces(mut input: Input<'_>) -> Vec<Vec<u8>> {
    let (mut pieces, mut total) = (Vec::new(), 0);
    while !input.0.is_empty() && total < MOST {
        let (kind, n) = (input.byte(), u16::from_le_bytes(input.array()));
        let piece = match kind % 4 {
            0 | 1 => input.bytes(usize::from(n) % 512).to_vec(),
            2 => vec![input.byte(); 4 * usize::from(n)],
            _ => {
                let len = usize::from(input.byte() % 49);
                let mut header = input.bytes(len).to_vec();
                if let Some(len) = header.get_mut(4..8) {
                    len.copy_from_slice(&(4 * u32::from(n)).to_le_bytes());
                }
                header
            }
        };
        total += piece.len();
        pieces.push(piece);
    }
    pieces
}

/// Ends a connection by a reset, which leaves nothing behind in the kernel.
fn reset(stream: TcpStream) {
    let now = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of_val(&now) as u32;
    // SAFETY: the option's value is a linger of the length given.
    unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const now).cast(), len)
    };
}

thread_local! {
    static LISTENER: TcpListener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
}

fn sockets() -> (TcpStream, TcpStream) {
    LISTENER.with(|listener| {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        client.set_nonblocking(true).expect("a socket");
        (client, listener.accept().expect("connected").0)
    })
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (mode, piece) = (input.byte(), u16::from_le_bytes(input.array()));
    let mut pieces = pieces(input);
    let stream = pieces.concat();
    let (frames, broken) = at_once(&stream);

    let (mut client, server) = sockets();
    let mut rail = TcpRail::new(Config::default()).expect("an epoll set");
    let mut received =
        Received { piece: if mode & 1 == 1 { 1 + usize::from(piece) } else { 0 }, ..Received::default() };
    // what came with the handshake
    let leftover = if mode & 2 == 2 && !pieces.is_empty() { pieces.remove(0) } else { Vec::new() };
    let Ok(link) = rail.adopt(server.into(), &leftover) else {
        assert!(leftover.len() > 32 << 10);
        return reset(client);
    };
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() && received.down.is_none() {
            match client.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            rail.progress(&mut received);
        }
    }
    let start = Instant::now();
    let all =
        |received: &Received| received.frames.len() >= frames.len() && (received.down.is_some() || !broken);
    while !all(&received) && start.elapsed() < Duration::from_secs(5) {
        rail.progress(&mut received);
    }
    rail.progress(&mut received);
    assert_eq!(received.frames.len(), frames.len(), "broken: {broken}, {:?}", received.down);
    for ((frame, bytes), (expected, payload)) in received.frames.iter().zip(&frames) {
        assert_eq!(frame, expected);
        // a payload that was thrown away is of the right length only
        let kept = received.piece > 0 || payload.len() <= 8 << 10;
        assert!(bytes.len() == payload.len() && (bytes == payload || !kept));
    }
    assert_eq!(matches!(received.down, Some(Down::Protocol(_))), broken, "{:?}", received.down);
    if received.down.is_none() && mode & 4 == 4 {
        reset(client);
        let start = Instant::now();
        while received.down.is_none() && start.elapsed() < Duration::from_secs(5) {
            rail.progress(&mut received);
        }
        let said = frames.last().is_some_and(|(frame, _)| *frame == Frame::Bye);
        assert!(matches!((&received.down, said), (Some(Down::Orderly), true) | (Some(Down::Lost(_)), false)));
        rail.close(link);
    } else {
        rail.close(link);
        reset(client);
    }
});
