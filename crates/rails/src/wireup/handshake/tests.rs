//! Handshakes over channels that are no sockets.

use super::*;
use crate::config::Config;
use crate::error::Error;
use crate::list::Reach;
use crate::rail::connect::{Agreed, Discovered, Joined};
use polyrail_core::wire::offer::{Limits, Process};
use polyrail_core::wire::{Features, HostId, Key, Kind, Nonce, Offer, Transport, Versions};
use polyrail_core::wireup::{Initiate, Respond};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex};

/// What is on its way in one direction: bytes, descriptors, and how the next attempt to read or write ends if not well.
#[derive(Default)]
struct Way {
    bytes: VecDeque<u8>,
    descriptors: Vec<OwnedFd>,
    fails: Option<io::ErrorKind>,
    ended: bool,
}

/// One end of two ways. It takes few bytes at a time, and gives all that came.
struct Pipe {
    out: Arc<Mutex<Way>>,
    into: Arc<Mutex<Way>>,
    null: File,
}

impl Channel for Pipe {
    fn write(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut out = self.out.lock().expect("a lock");
        if let Some(kind) = out.fails {
            return Err(kind.into());
        }
        let taken = bytes.len().min(7);
        out.bytes.extend(&bytes[..taken]);
        out.descriptors.extend(descriptors.iter().map(|one| one.try_clone_to_owned().expect("a descriptor")));
        Ok(taken)
    }

    fn read(&mut self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut into = self.into.lock().expect("a lock");
        if let Some(kind) = into.fails {
            return Err(kind.into());
        }
        if into.bytes.is_empty() && !into.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        descriptors.append(&mut into.descriptors);
        let taken = into.bytes.len().min(bytes.len());
        into.bytes.drain(..taken).zip(bytes).for_each(|(from, to)| *to = from);
        Ok(taken)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn source(&self) -> Source {
        Source::User(7)
    }

    fn name(&self) -> String {
        "a pipe".into()
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        self.null.into()
    }
}

/// A rail that gives a descriptor along.
struct Giving;

impl Connector for Giving {
    fn discover(_settings: &Config) -> Result<Discovered, Error> {
        Ok(Discovered { devices: Vec::new(), direct: None })
    }

    fn introduce(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![File::open("/dev/null")?.into()])
    }

    fn adopt(&mut self, _agreed: Agreed<'_>) -> Result<Joined, String> {
        Err("it makes no links".into())
    }
}

fn key(n: u8) -> Key {
    Key::new([n; 16]).expect("a key")
}

fn offer() -> Offer {
    Offer::new(Process { pid: 1, uid: 1, host: HostId(1) }, Limits::new(4096, 4096).expect("limits"))
}

/// Who opens, who accepts, and the ways between them.
fn pair() -> ([Handshake; 2], [Arc<Mutex<Way>>; 2]) {
    let ways = [(); 2].map(|()| Arc::new(Mutex::new(Way::default())));
    let pipe = |side: usize| {
        let null = File::open("/dev/null").expect("a descriptor");
        Box::new(Pipe { out: ways[side].clone(), into: ways[1 - side].clone(), null })
    };
    let (versions, features, nonce) = (Versions::OURS, Features(0), Nonce([1; 16]));
    let (kind, transport) = (Kind::Session, Transport::TRIAL);
    let ours = Initiate { key: key(1), from: key(2).id(), versions, features, kind, transport, nonce };
    let theirs = Respond { key: key(1), versions, features, nonce };
    let destination = Destination::Named { called: "a pipe", name: Vec::new() };
    let first = Role::First(Box::new(Initiator::new(ours, offer())), PeerIdx(3), destination);
    let accepting = Role::Accepting(Box::new(Responder::new(theirs)), None);
    let rail = RailId::chosen().find(|rail| rail.reach() == Reach::Network).expect("a rail");
    let at = |side, role| Handshake::new(rail, pipe(side), role, Instant::now());
    let both = [at(0, first), at(1, accepting)];
    (both, ways)
}

#[test]
fn any_stream_of_bytes_is_enough_and_what_the_rail_gives_goes_along() {
    let ([mut opens, mut accepts], ways) = pair();
    assert_eq!((opens.source, accepts.source), (Source::Unknown, Source::User(7)));
    assert_eq!(accepts.stranger(), Some(ResponderPhase::AwaitHello));
    assert!(matches!(opens.turn(&Giving), Turn::Wait) && opens.reached && !opens.proving);
    let mut sessions = Vec::new();
    for _ in 0..10 {
        if let Turn::Done(session, leftover) = opens.turn(&Giving) {
            assert_eq!(leftover, b"f", "what follows is the link's");
            sessions.push(session);
            break;
        }
        match accepts.turn(&Giving) {
            Turn::Wait => {}
            Turn::Proven(session) => {
                assert_eq!((session.peer, session.transport), (key(2).id(), Transport::TRIAL));
                let Role::Accepting(responder, decided) = &mut accepts.role else { panic!("it accepts") };
                responder.accept(&offer()).expect("to be decided");
                *decided = Some((PeerIdx(9), session));
            }
            Turn::Done(session, _) => {
                sessions.push(session);
                ways[1].lock().expect("a lock").bytes.push_back(b'f');
            }
            _ => panic!("it fails"),
        }
    }
    let ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "one session: {ids:?}");
    assert_eq!((accepts.incoming.len(), opens.incoming.len()), (1, 0));
    assert!(opens.proving);
}

#[test]
fn how_a_channel_fails_says_whether_another_try_is_worth_it() {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    let ([mut opens, _], ways) = pair();
    ways[0].lock().expect("a lock").fails = Some(NotConnected);
    assert!(matches!(opens.turn(&Giving), Turn::Wait) && opens.wants_write() && !opens.reached);
    for (kind, again) in [(ConnectionReset, true), (BrokenPipe, true), (ConnectionRefused, false)] {
        ways[0].lock().expect("a lock").fails = Some(kind);
        let turn = opens.turn(&Giving);
        assert!(
            if again { matches!(turn, Turn::Cut(_)) } else { matches!(turn, Turn::Failed(_)) },
            "{kind:?}"
        );
    }
    ways[0].lock().expect("a lock").fails = None;
    ways[1].lock().expect("a lock").ended = true;
    let Turn::Cut(why) = opens.turn(&Giving) else { panic!("the end of the stream") };
    assert!(why.contains("closed the connection"), "{why}");
}

#[test]
fn who_does_not_know_the_key_is_told_apart_from_who_speaks_nonsense() {
    let ([_, mut accepts], ways) = pair();
    ways[0].lock().expect("a lock").bytes.extend(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(accepts.turn(&Giving), Turn::Failed(_)));
    let ([mut opens, mut accepts], _) = pair();
    let wrong =
        Respond { key: key(5), versions: Versions::OURS, features: Features(0), nonce: Nonce([2; 16]) };
    accepts.role = Role::Accepting(Box::new(Responder::new(wrong)), None);
    assert!(matches!(opens.turn(&Giving), Turn::Wait));
    assert!(matches!(accepts.turn(&Giving), Turn::Failed(_)), "another endpoint is wanted");
    assert!(matches!(opens.turn(&Giving), Turn::Denied(_)));
}
