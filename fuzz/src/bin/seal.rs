//! Somebody between the two ends of an encrypted link, who passes on, changes, leaves out, repeats, moves and makes up what the input
//! says: what arrives is what was sent up to there, and the link ends as one that was cut.
#![no_main]
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use polyrail_core::frame::{Frame, Matching, Order};
use polyrail_fuzz::Input;
use polyrail_rails::keys::{Chain, LinkKeys};
use polyrail_rails::rail::{Down, LinkId, Memory, Payload, Place, Rail, RawIov, Sink, Span};
use polyrail_rails::tcp::{Config, TcpRail};

/// Lengths of the payloads that are sent.
const SENT: [usize; 8] = [8, 0, 100, 9000, 16_366, 70_000, 33, 1];

fn keys(send: u8, receive: u8) -> Option<LinkKeys> {
    Some(LinkKeys { send: Chain([send; 32]), receive: Chain([receive; 32]) })
}

fn frame(n: usize) -> Frame {
    Frame::Eager { order: Order::default(), matching: Matching::Tag(n as u64), data: None, ack: None }
}

fn payload(n: usize) -> Vec<u8> {
    (0..SENT[n]).map(|at| (at * 7 + n) as u8).collect()
}

/// What was received; begun payloads go to one place.
#[derive(Default)]
struct Received {
    frames: Vec<(Frame, Vec<u8>)>,
    begun: Option<Frame>,
    place: Vec<u8>,
    down: Option<Down>,
}

impl Memory for Received {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        let bytes = &self.place[span.offset as usize..][..span.len];
        out.push(RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() });
        true
    }
}

impl Sink for Received {
    fn frame(&mut self, _: LinkId, frame: Frame, payload: Payload) {
        assert!(self.begun.is_none() && self.down.is_none());
        self.frames.push((frame, payload.to_vec()));
    }
    fn begin(&mut self, _: LinkId, frame: Frame, len: usize) -> Span {
        assert!(self.begun.replace(frame).is_none() && self.down.is_none());
        self.place = vec![0; len];
        Span { place: Place::Recv(Default::default()), offset: 0, len }
    }
    fn end(&mut self, _: LinkId) {
        let frame = self.begun.take().expect("an end follows a beginning");
        self.frames.push((frame, std::mem::take(&mut self.place)));
    }
    fn down(&mut self, _: LinkId, why: Down) {
        assert!(self.down.replace(why).is_none(), "a link ends once");
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    thread_local! {
        static LISTENER: TcpListener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    }
    LISTENER.with(|listener| {
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        client.set_nonblocking(true).expect("a socket");
        (client, listener.accept().expect("connected").0)
    })
}

/// The records by which the frames travel, and where in their stream each frame ends.
fn honest() -> (Vec<Vec<u8>>, Vec<usize>) {
    let (mut raw, socket) = sockets();
    let mut rail = TcpRail::new(Config::default()).expect("an epoll set");
    let link = rail.adopt_sealed(socket.into(), &[], keys(1, 2)).expect("connected");
    let (mut worker, mut stream, mut ends) = (Received::default(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 20];
    for n in 0..SENT.len() {
        let bytes = payload(n);
        let iov = [RawIov { base: bytes.as_ptr().cast_mut(), len: bytes.len() }];
        // SAFETY: the payload outlives the call.
        unsafe { rail.send(link, &frame(n).encode(bytes.len()), &iov, None) }.expect("room");
        loop {
            rail.progress(&mut worker);
            rail.flush(&worker);
            match raw.read(&mut buffer) {
                Ok(n) => stream.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock && rail.idle(link) => break,
                Err(_) => {}
            }
        }
        ends.push(stream.len());
    }
    let mut records = Vec::new();
    while let Some(head) = stream.first_chunk::<2>() {
        let rest = stream.split_off(2 + usize::from(u16::from_le_bytes(*head)));
        records.push(std::mem::replace(&mut stream, rest));
    }
    (records, ends)
}

/// What is passed on of these records.
fn passed_on(mut input: Input<'_>, mut records: Vec<Vec<u8>>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.0.is_empty() && stream.len() < 1 << 20 {
        let (what, which) = (input.byte(), usize::from(input.byte()));
        let last = records.len() - 1;
        match what % 8 {
            // as it is; the rest as it is
            0 | 1 if which <= last => stream.extend_from_slice(&records[which]),
            2 => records.iter().skip(which).for_each(|record| stream.extend_from_slice(record)),
            3 => {
                let at = usize::from(u16::from_le_bytes(input.array()));
                let record = &mut records[which % (last + 1)];
                let at = at % record.len();
                record[at] ^= input.byte();
            }
            4 => records.swap(which % (last + 1), usize::from(input.byte()) % (last + 1)),
            5 => {
                let len = usize::from(input.byte());
                stream.extend_from_slice(input.bytes(len));
            }
            6 => stream.truncate(stream.len().saturating_sub(which)),
            _ => {}
        }
    }
    stream
}

fuzz_target!(|data: &[u8]| {
    thread_local! {
        static HONEST: (Vec<Vec<u8>>, Vec<usize>) = honest();
    }
    let (records, ends) = HONEST.with(Clone::clone);
    let mut input = Input(data);
    let piece = 1 + usize::from(u16::from_le_bytes(input.array()));
    let sent = records.concat();
    let stream = passed_on(input, records.clone());
    let same = stream.iter().zip(&sent).take_while(|(a, b)| a == b).count();
    // a record that is all there is taken, whatever comes after it
    let mut taken = 0;
    for record in &records {
        taken += if taken + record.len() <= same { record.len() } else { break };
    }
    let frames = ends.iter().filter(|end| **end <= taken).count();

    let (mut client, server) = sockets();
    let mut rail = TcpRail::new(Config::default()).expect("an epoll set");
    let link = rail.adopt_sealed(server.into(), &[], keys(2, 1)).expect("connected");
    let mut received = Received::default();
    for mut rest in stream.chunks(piece) {
        while !rest.is_empty() && received.down.is_none() {
            match client.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            rail.progress(&mut received);
        }
    }
    drop(client);
    let start = Instant::now();
    while received.down.is_none() && start.elapsed() < Duration::from_secs(5) {
        rail.progress(&mut received);
    }
    assert!(matches!(received.down, Some(Down::Lost(_))), "{:?}", received.down);
    assert_eq!(received.frames.len(), frames, "{taken} of {same} bytes: {:?}", received.down);
    for (n, (got, bytes)) in received.frames.iter().enumerate() {
        assert!(*got == frame(n) && *bytes == payload(n), "frame {n}");
    }
    rail.close(link);
});
