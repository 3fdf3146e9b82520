//! A worker against a peer that knows the key and says anything by several lanes of one session: frames in any order, cut
//! anywhere, lanes that end in the middle of them.
#![no_main]
use polyrail_rails::list::RailSet;
use polyrail_rails::list::Reach;
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use polyrail_core::frame::Matching;
use polyrail_core::proto::Access;
use polyrail_core::wire::{Address, Features, HostId, Ip, Key, Kind, Nonce, SessionId, Transport, Versions};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent};
use polyrail_fuzz::{Input, offer};
use polyrail_rails::config::SecretFile;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, Worker};

/// Longest that anything may take; far beyond what it does.
const BOUND: Duration = Duration::from_secs(8);
const KEY: u64 = 3;
const LANES: u16 = 4;

struct Victim {
    worker: Worker,
    _region: Box<[u8; 4096]>,
    sessions: u64,
}

impl Victim {
    fn open() -> Self {
        let config = Config {
            rails: RailSet::ALL.without(Reach::Host),
            yielding: false,
            secret: SecretFile::None,
            ..Config::default()
        };
        let mut worker = Worker::open(config).expect("a worker");
        let mut region = Box::new([0; 4096]);
        let memory = RawIov { base: region.as_mut_ptr(), len: region.len() };
        let access = Access { read: true, write: true };
        // SAFETY: the region lives in the victim, behind the worker, which goes first.
        unsafe { worker.register(KEY, memory, 0, access).expect("a free key") };
        Self { worker, _region: region, sessions: 0 }
    }

    fn until(&mut self, mut holds: impl FnMut(&mut Worker) -> bool) {
        let start = Instant::now();
        while !holds(&mut self.worker) {
            self.worker.progress();
            while self.worker.next_event().is_some() {}
            assert!(start.elapsed() < BOUND, "it hangs");
        }
    }

    /// Enough for what has arrived.
    fn rounds(&mut self) {
        for _ in 0..20 {
            self.worker.progress();
            while self.worker.next_event().is_some() {}
        }
    }

    /// Opens a connection to the worker; none when it does not want that.
    fn connect(&mut self, own: Key, kind: Kind) -> Option<(TcpStream, SessionId)> {
        let address = self.worker.address();
        let there = Address::parse(&address).expect("an address");
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, there.port())).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let args = Initiate {
            key: there.key(),
            from: own.id(),
            versions: Versions::OURS,
            features: Features(0),
            kind,
            transport: Transport::TCP,
            nonce: Nonce([7; 16]),
        };
        let mut initiator = Initiator::new(args, offer());
        let mut session = None;
        self.until(|_| {
            while let Some(bytes) = initiator.poll_transmit().map(<[u8]>::to_vec) {
                initiator.transmitted(stream.write(&bytes).expect("room for a record"));
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => drop(initiator.handle_bytes(&buffer[..n])),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                _ => return true,
            }
            while let Some(event) = initiator.poll_event() {
                match event {
                    InitiatorEvent::Established(agreed) => session = Some(agreed.id),
                    InitiatorEvent::Rejected(_) => return true,
                    InitiatorEvent::NeedsKey => panic!("this side cannot encrypt"),
                    InitiatorEvent::Proving => {}
                }
            }
            session.is_some()
        });
        session.map(|id| (stream, id))
    }

    /// One peer's life: lanes, then pieces of bytes by any of them.
    fn meet(&mut self, mut input: Input<'_>) {
        self.sessions += 1;
        let mut key = [0x55; 16];
        key[..8].copy_from_slice(&self.sessions.to_le_bytes());
        let own = Key::new(key).expect("not zero");
        let mode = input.byte();
        let Some((first, id)) = self.connect(own, Kind::Session) else { return };
        let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
        let named = Address::new(&own, HostId(2), false, 9, ip).expect("an address").to_bytes();
        let peer = self.worker.peer(&named).expect("an address");
        let mut lanes = vec![Some(first)];
        for lane in 1..=u16::from(mode) % LANES {
            let opened = self.connect(own, Kind::Lane { session: id, lane });
            lanes.push(opened.map(|(stream, _)| stream));
        }
        for tag in 0..u64::from(mode / 16) {
            let mut bytes = [1; 3000];
            let memory = [RawIov { base: bytes.as_mut_ptr(), len: bytes.len() }];
            // SAFETY: an injected message is copied.
            let _ = unsafe { self.worker.inject(peer, Matching::Tag(tag), None, &memory) };
        }
        while !input.0.is_empty() {
            let control = input.byte();
            let lane = usize::from(control) % lanes.len();
            let bytes = input.bytes(usize::from(input.0.first().copied().unwrap_or(0)) + 1);
            match (&mut lanes[lane], control & 0xc0) {
                (at @ Some(_), 0xc0) => *at = None,
                (Some(stream), _) => {
                    let _ = stream.write(bytes.get(1..).unwrap_or_default());
                    let _ = stream.read(&mut [0; 65536]);
                }
                (None, _) => {}
            }
            if control & 0x20 != 0 {
                self.worker.progress();
            }
        }
        self.rounds();
        // its end: bytes that are no frame, by what is left of it
        for lane in lanes.iter_mut().flatten() {
            let _ = lane.write(&[0xff; 2048]);
        }
        self.rounds();
    }
}

thread_local! {
    static VICTIM: RefCell<Option<Victim>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    VICTIM.with_borrow_mut(|victim| {
        // peers are remembered: a new worker once in a while
        if victim.as_ref().is_none_or(|victim| victim.sessions > 200) {
            *victim = Some(Victim::open());
        }
        victim.as_mut().expect("opened").meet(Input(data));
    });
});
