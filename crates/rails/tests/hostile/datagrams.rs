//! Whoever sends datagrams to endpoints of UDP, or stands between two: a session there goes on, with the right content, and costs what it
//! did.

use crate::support::alone::{alone, pause};
use crate::support::node::{End, Node};
use crate::support::proxy::by_way_of;
use crate::support::puppet::{Puppet, settings};
use crate::support::stranger::Noise;
use crate::support::{limit_descriptors, resident, root};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    Chunk, Chunks, HEADER, Header, Kind, TAG, is_opening_tag, opening_tag, write, write_stream,
};
use polyrail_core::wire::{Address, Key};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const LINE: &str = "RAILS=udp";
const ENCRYPTED: &str = "RAILS=udp ENCRYPT=yes";

/// A datagram that went through, and whether it was the server's.
type Seen = (bool, Vec<u8>);

/// Where somebody is, who may go elsewhere.
type Place = Arc<Mutex<Arc<UdpSocket>>>;

fn place(socket: UdpSocket) -> Place {
    Arc::new(Mutex::new(Arc::new(socket)))
}

fn at(place: &Place) -> Arc<UdpSocket> {
    place.lock().expect("not poisoned").clone()
}

/// Somebody between two endpoints of UDP, who passes on what comes, and keeps a copy. To each, he has the other's address.
struct Relay {
    front: Place,
    back: Place,
    client: Arc<Mutex<Option<SocketAddr>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    ends: Arc<AtomicBool>,
    /// In a hundred.
    loss: Arc<AtomicU64>,
    /// So many in a hundred of the client's take another way, from this socket.
    astray: (Arc<AtomicU64>, Arc<UdpSocket>),
    /// Addresses of before: what is sent there is not refused, as nobody is told who a router translates for.
    left: Mutex<Vec<Arc<UdpSocket>>>,
    threads: Vec<JoinHandle<()>>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a bound");
    socket
}

fn port_of(address: &[u8]) -> u16 {
    Address::parse(address).expect("an address").port()
}

impl Relay {
    fn start(address: &[u8]) -> Self {
        let (front, back) = (place(socket()), place(socket()));
        at(&back).connect((Ipv4Addr::LOCALHOST, port_of(address))).expect("a port");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port_of(address)));
        let (client, seen, ends) =
            (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let loss = Arc::new(AtomicU64::new(0));
        let astray = (Arc::new(AtomicU64::new(0)), Arc::new(socket()));
        let passes = |of_server: bool| {
            let (loss, mut noise) = (loss.clone(), Noise(5 + u64::from(of_server)));
            let (front, back, client, astray) = (front.clone(), back.clone(), client.clone(), astray.clone());
            let (seen, ends): (Arc<Mutex<Vec<Seen>>>, Arc<AtomicBool>) = (seen.clone(), ends.clone());
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while !ends.load(Ordering::Relaxed) {
                    let heard = at(if of_server { &back } else { &front }).recv_from(&mut buffer);
                    let Ok((n, from)) = heard else { continue };
                    if noise.below(100) < loss.load(Ordering::Relaxed) {
                        continue;
                    }
                    seen.lock().expect("not poisoned").push((of_server, buffer[..n].to_vec()));
                    if of_server {
                        let to: Option<SocketAddr> = *client.lock().expect("not poisoned");
                        let _ = to.map(|to| at(&front).send_to(&buffer[..n], to));
                    } else {
                        *client.lock().expect("not poisoned") = Some(from);
                        let strays = noise.below(100) < astray.0.load(Ordering::Relaxed);
                        let _ = match strays {
                            true => astray.1.send_to(&buffer[..n], server),
                            false => at(&back).send(&buffer[..n]),
                        };
                    }
                }
            })
        };
        let threads = vec![passes(false), passes(true)];
        Self { front, back, client, seen, ends, loss, astray, left: Mutex::default(), threads }
    }

    /// The server's address by way of this.
    fn address(&self, address: &[u8]) -> Vec<u8> {
        let port = at(&self.front).local_addr().expect("it is bound").port();
        by_way_of(address, port, &["127.0.0.1"])
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// Says something in the name of either.
    fn say(&self, as_server: bool, bytes: &[u8]) {
        let to = *self.client.lock().expect("not poisoned");
        let _ = match (as_server, to) {
            (false, _) => at(&self.back).send(bytes),
            (true, Some(to)) => at(&self.front).send_to(bytes, to),
            (true, None) => return,
        };
    }

    /// From now on the client has another address, as the server sees it, or the server as the client does. What is sent to the one before
    /// goes nowhere.
    fn translate_anew(&self, of_server: bool) {
        let new = socket();
        let place = if of_server {
            &self.front
        } else {
            new.connect(at(&self.back).peer_addr().expect("it is connected")).expect("a port");
            &self.back
        };
        let left = std::mem::replace(&mut *place.lock().expect("not poisoned"), Arc::new(new));
        self.left.lock().expect("not poisoned").push(left);
    }

    fn client_port(&self) -> u16 {
        self.client.lock().expect("not poisoned").expect("it has spoken").port()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// A node, a puppet that echoes, a session between them, and somebody who has heard all of it.
struct Scene {
    node: Node,
    puppet: Puppet,
    peer: PeerIdx,
    relay: Relay,
    /// Memory and descriptors of the puppet.
    before: (usize, u64),
}

impl Scene {
    fn new(line: &str) -> Self {
        let mut puppet = Puppet::start(line);
        puppet.ask("echo");
        let relay = Relay::start(&puppet.address);
        // a machine that has much else to do takes its time, too
        let mut node = Node::open(settings(&format!("{line} CONNECT_TIMEOUT=60")));
        let peer = node.peer(&relay.address(&puppet.address));
        for _ in 0..3 {
            node.converse(peer);
        }
        let before = (resident_of(&puppet), puppet.number_beside(&mut node, "descriptors"));
        Self { node, puppet, peer, relay, before }
    }

    fn progress(&mut self) {
        for _ in 0..10 {
            self.node.progress();
        }
    }

    /// Datagrams of a kind that the client sent, or the server.
    fn recorded(&self, of_server: bool, kinds: &[Kind]) -> Vec<Vec<u8>> {
        let wanted = |(by, bytes): &Seen| {
            *by == of_server && Header::parse(bytes).is_ok_and(|header| kinds.contains(&header.kind))
        };
        self.relay.seen().into_iter().filter(wanted).map(|(_, bytes)| bytes).collect()
    }

    /// The session goes on, nothing has come that nobody sent, and the puppet has not grown.
    fn goes_on(&mut self) {
        let nothing = self.node.recv(None, None, 1 << 20);
        for _ in 0..200 {
            self.progress();
        }
        assert_eq!(self.node.end(nothing), None, "a message that nobody sent");
        let there = self.node.send(self.peer, 0xc0ffee, 20_000);
        assert_eq!(self.node.wait(there), End::Right, "{}", self.node.why(self.peer));
        assert_eq!(self.node.wait(nothing), End::Right);
        self.node.converse(self.peer);
        assert!(self.node.worker.is_connected(self.peer), "{}", self.node.why(self.peer));
        // a train that came, and what is copied of it
        let grown = resident_of(&self.puppet).saturating_sub(self.before.0);
        assert!(grown < 32 << 20, "{} KiB", grown >> 10);
    }

    fn descriptors(&mut self) -> u64 {
        self.puppet.number_beside(&mut self.node, "descriptors")
    }
}

/// A session outlives other addresses of its ends.
fn change_addresses(line: &str) {
    let mut scene = Scene::new(line);
    let number = |scene: &Scene| {
        scene.node.worker.lanes(scene.peer).iter().map(|lane| lane.number).collect::<Vec<_>>()
    };
    let before = number(&scene);
    for of_server in [false, true, false] {
        scene.relay.translate_anew(of_server);
        // who is elsewhere is found out by what he says
        scene.node.converse(scene.peer);
        scene.goes_on();
        assert_eq!(number(&scene), before, "it is the same link, server {of_server}");
    }
}

#[test]
fn a_link_outlives_other_addresses_of_either_side() {
    change_addresses(LINE);
}

#[test]
fn an_encrypted_link_outlives_other_addresses_of_either_side() {
    change_addresses(ENCRYPTED);
}

/// What is the client's and comes from elsewhere counts; but nobody is written to there who does not answer.
#[test]
fn who_sends_on_what_is_anothers_does_not_become_him() {
    let mut scene = Scene::new(LINE);
    scene.relay.astray.0.store(20, Ordering::Relaxed);
    for _ in 0..10 {
        scene.goes_on();
    }
    scene.relay.astray.0.store(0, Ordering::Relaxed);
    let thief = scene.relay.astray.1.clone();
    thief.set_read_timeout(Some(Duration::from_millis(20))).expect("a bound");
    let (mut heard, mut buffer) = (0, [0; 2048]);
    while let Ok(n) = thief.recv(&mut buffer) {
        assert_eq!(n, HEADER + 9 + TAG, "he is asked, and told nothing");
        heard += 1;
    }
    assert!(heard > 0, "he is asked");
    scene.goes_on();
}

/// Bytes of memory that a puppet's process has in use.
fn resident_of(puppet: &Puppet) -> usize {
    let path = format!("/proc/{}/statm", puppet.pid());
    let pages = std::fs::read_to_string(path).expect("it is there");
    pages.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
}

/// An OPEN as whoever has the key sends it.
fn open(key: &Key, salt: u64, says: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let header = Header { kind: Kind::Open, generation: 0, epoch: 0, connection: 0, number: 0 };
    let mut salt16 = [0x5a; 16];
    salt16[..8].copy_from_slice(&salt.to_le_bytes());
    let mut to = Writer::new(&mut bytes);
    to.bytes(&header.to_bytes());
    write(&mut to, &Chunk::Hello { connection: 7, salt: salt16, window: 1 << 20 });
    write_stream(&mut to, false, 0, says.len() as u16);
    to.bytes(says);
    let len = to.finish().expect("room");
    [&bytes[..len], &opening_tag(key, &[], &bytes[..len])].concat()
}

fn send_garbage_beside(line: &str) {
    let before = resident();
    let mut scene = Scene::new(line);
    let stranger = socket();
    let (to_node, to_puppet) = (scene.relay.client_port(), port_of(&scene.puppet.address));
    let mut noise = Noise(11);
    let seen = scene.relay.seen();
    for n in 0..6000 {
        let (of_server, honest) = &seen[noise.below(seen.len() as u64) as usize];
        let mut bytes = match n % 6 {
            // anything, of any length
            0 => {
                let len = noise.below(if n % 300 == 0 { 65_000 } else { 1500 }) as usize;
                noise.bytes(len)
            }
            // a header of a connection that there is, or might be
            1 => [&honest[..HEADER], &noise.bytes(200)].concat(),
            // one that is cut off
            2 => honest[..noise.below(honest.len() as u64) as usize].to_vec(),
            // one that goes on
            3 => [&honest[..], &noise.bytes(16)].concat(),
            _ => honest.clone(),
        };
        if n % 6 > 3 {
            // one with a bit that is not as it was
            let bit = noise.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        match n % 4 {
            0 => drop(stranger.send_to(&bytes, (Ipv4Addr::LOCALHOST, to_node))),
            1 => drop(stranger.send_to(&bytes, (Ipv4Addr::LOCALHOST, to_puppet))),
            _ => scene.relay.say(*of_server, &bytes),
        }
        if n % 50 == 0 {
            scene.progress();
        }
        if n % 2000 == 0 {
            scene.node.converse(scene.peer);
        }
    }
    scene.goes_on();
    let mut buffer = [0; 64];
    assert!(stranger.recv(&mut buffer).is_err(), "nobody answers to that");
    assert_eq!(scene.descriptors(), scene.before.1, "nothing has begun");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} KiB", grown >> 10);
}

#[test]
fn garbage_and_torn_datagrams_disturb_nobody() {
    alone(|| send_garbage_beside(LINE));
}

#[test]
fn garbage_and_torn_datagrams_disturb_no_encrypted_link() {
    send_garbage_beside(ENCRYPTED);
}

fn say_all_again(line: &str) {
    let mut scene = Scene::new(line);
    let data = [Kind::Plain, Kind::Sealed, Kind::Answer, Kind::Open];
    let elsewhere = socket();
    for round in 0..4 {
        for of_server in [false, true] {
            let mut recorded = scene.recorded(of_server, &data);
            if round % 2 == 1 {
                recorded.reverse();
            }
            let to = if of_server { scene.relay.client_port() } else { port_of(&scene.puppet.address) };
            for (n, bytes) in recorded.iter().enumerate() {
                // by the way that it came, or from elsewhere
                if round < 2 {
                    scene.relay.say(of_server, bytes);
                    // and to who sent it
                    scene.relay.say(!of_server, bytes);
                } else {
                    drop(elsewhere.send_to(bytes, (Ipv4Addr::LOCALHOST, to)));
                }
                if n % 20 == 0 {
                    scene.progress();
                }
            }
        }
        scene.goes_on();
    }
}

#[test]
fn datagrams_that_come_again_count_once() {
    say_all_again(LINE);
}

#[test]
fn datagrams_of_an_encrypted_link_that_come_again_count_once() {
    say_all_again(ENCRYPTED);
}

/// What comes by another address is of the connection, if it is authentic; nothing goes there.
#[test]
fn data_from_elsewhere_moves_no_connection() {
    let mut scene = Scene::new(LINE);
    let elsewhere = socket();
    let mut fresh = 0;
    for _ in 0..5 {
        let before = scene.relay.seen().len();
        scene.node.converse(scene.peer);
        for (of_server, bytes) in scene.relay.seen().split_off(before) {
            let to = if of_server { scene.relay.client_port() } else { port_of(&scene.puppet.address) };
            drop(elsewhere.send_to(&bytes, (Ipv4Addr::LOCALHOST, to)));
            fresh += 1;
        }
    }
    assert!(fresh > 20);
    scene.goes_on();
    let mut buffer = [0; 64];
    assert!(elsewhere.recv(&mut buffer).is_err(), "something was sent to where nobody was called");
}

#[test]
fn an_open_with_a_wrong_tag_begins_nothing() {
    let mut scene = Scene::new(LINE);
    let key = Address::parse(&scene.puppet.address).expect("an address").key();
    let (other, to) = (Key::new([9; 16]).expect("not zero"), port_of(&scene.puppet.address));
    let recorded = scene.recorded(false, &[Kind::Open]).swap_remove(0);
    let stranger = socket();
    for n in 0..6000_u64 {
        let mut bytes = match n % 3 {
            0 => open(&other, n, b"PLYR"),
            1 => open(&key, n, b"PLYR"),
            _ => recorded.clone(),
        };
        if n % 3 > 0 {
            // its salt, or its tag
            let at = if n % 2 == 0 {
                HEADER + 5 + (n % 16) as usize
            } else {
                bytes.len() - 1 - (n % TAG as u64) as usize
            };
            bytes[at] ^= 1 << (n % 8);
        }
        let (said, tag) = bytes.split_at(bytes.len() - TAG);
        assert!(!is_opening_tag(&key, &[], said, tag));
        drop(stranger.send_to(&bytes, (Ipv4Addr::LOCALHOST, to)));
        if n % 50 == 0 {
            scene.progress();
        }
    }
    scene.goes_on();
    assert_eq!(scene.descriptors(), scene.before.1);
    let mut buffer = [0; 64];
    assert!(stranger.recv(&mut buffer).is_err(), "nobody answers to that");
}

/// Who has heard an OPEN says it from many places: one connection begins at a time, which hears no more than three times what was said.
#[test]
fn an_open_that_comes_again_begins_one_connection() {
    let mut scene = Scene::new(LINE);
    let recorded = scene.recorded(false, &[Kind::Open]).swap_remove(0);
    let to = (Ipv4Addr::LOCALHOST, port_of(&scene.puppet.address));
    let places: Vec<UdpSocket> = (0..40).map(|_| socket()).collect();
    for n in 0..4000 {
        drop(places[n % places.len()].send_to(&recorded, to));
        if n % 50 == 0 {
            scene.progress();
            let more = scene.descriptors() - scene.before.1;
            assert!(more <= 8, "{more} descriptors for one recorded datagram");
        }
    }
    scene.goes_on();
    let mut answered = 0;
    for place in &places {
        let (said, mut heard, mut buffer) = (4000 / places.len() * recorded.len(), 0, [0; 2048]);
        place.set_read_timeout(Some(Duration::from_millis(1))).expect("a bound");
        while let Ok(n) = place.recv(&mut buffer) {
            heard += n;
            assert_eq!(Header::parse(&buffer[..n]).map(|header| header.kind), Ok(Kind::Answer));
        }
        assert!(heard <= 3 * said, "{heard} bytes for {said}");
        answered += usize::from(heard > 0);
    }
    assert!(answered > 0, "somebody has an answer");
}

/// Members that open connections and say no more: they have a bound, and a session that stands does not notice.
#[test]
fn half_open_connections_are_bounded() {
    let mut scene = Scene::new(LINE);
    let key = Address::parse(&scene.puppet.address).expect("an address").key();
    let to = (Ipv4Addr::LOCALHOST, port_of(&scene.puppet.address));
    let places: Vec<UdpSocket> = (0..16).map(|_| socket()).collect();
    for n in 0..5000_u64 {
        let says = &crate::support::stranger::hello(&scene.puppet.address)[..if n % 2 == 0 { 80 } else { 3 }];
        drop(places[n as usize % places.len()].send_to(&open(&key, n, says), to));
        if n % 50 == 0 {
            scene.progress();
        }
        if n % 1000 == 0 {
            scene.node.converse(scene.peer);
        }
    }
    let held = scene.descriptors() - scene.before.1;
    assert!((1..=2 * 1024 + 16).contains(&held), "{held} descriptors");
    scene.goes_on();
}

/// What goes on beside it ends with a test, however that ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While members open connections without end to a process that may have so many descriptors, one that means well is let in.
fn is_let_in_beside_a_flood(first: fn() -> std::io::Result<()>) {
    let mut victim = Puppet::after(first, LINE);
    victim.ask("echo");
    let key = Address::parse(&victim.address).expect("an address").key();
    let to = (Ipv4Addr::LOCALHOST, port_of(&victim.address));
    let hello = crate::support::stranger::hello(&victim.address);
    let (attacker, over) = (socket(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (over, attacker, _ends) = (&over, &attacker, Over(&over));
        scope.spawn(move || {
            for n in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                drop(attacker.send_to(&open(&key, n, &hello), to));
                if n % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        // until it is a crowd
        pause(1500);
        let mut node = Node::open(settings(LINE));
        let peer = node.peer(&victim.address);
        let sent = node.send(peer, 0xc0ffee, 20_000);
        assert_eq!(node.wait(sent), End::Right, "{}", node.why(peer));
    });
}

#[test]
fn half_open_connections_keep_nobody_out_where_descriptors_are_few() {
    is_let_in_beside_a_flood(|| {
        limit_descriptors(1024);
        Ok(())
    });
}

#[test]
fn half_open_connections_keep_nobody_out_where_descriptors_are_many() {
    is_let_in_beside_a_flood(|| {
        limit_descriptors(40_000);
        Ok(())
    });
}

/// Some talk over a path that loses, from the first datagram on.
fn converse_over_a_bad_path(line: &str) {
    for loss in [5, 20, 35, 50] {
        let mut puppet = Puppet::start(line);
        puppet.ask("echo");
        let relay = Relay::start(&puppet.address);
        relay.loss.store(loss, Ordering::Relaxed);
        // a machine that has much else to do takes its time, too
        let mut node = Node::open(settings(&format!("{line} CONNECT_TIMEOUT=60")));
        let peer = node.peer(&relay.address(&puppet.address));
        for _ in 0..3 {
            node.converse(peer);
        }
    }
}

#[test]
fn a_path_that_loses_is_slow_and_nothing_else() {
    converse_over_a_bad_path(LINE);
}

#[test]
fn a_path_that_loses_what_is_encrypted_is_slow_and_nothing_else() {
    converse_over_a_bad_path(ENCRYPTED);
}

/// What chunks of an OPEN say after its HELLO is not read before the tag is right; what a member says there is malformed, and ends that
/// connection alone.
#[test]
fn a_malformed_open_of_a_member_ends_alone() {
    let mut scene = Scene::new(LINE);
    let key = Address::parse(&scene.puppet.address).expect("an address").key();
    let to = (Ipv4Addr::LOCALHOST, port_of(&scene.puppet.address));
    let member = socket();
    for n in 0..200_u64 {
        let whole = open(&key, n, b"");
        let said = &whole[..whole.len() - TAG];
        // behind HELLO: what is no chunk, a part of the stream far ahead, an acknowledgement of nothing, more than any handshake has
        let more: Vec<u8> = match n % 4 {
            0 => vec![0xff; 40],
            1 => [&[2, 0, 1, 0][..], &(1_u64 << 40).to_le_bytes(), &[1]].concat(),
            2 => [&[1, 0, 0, 0][..], &9_u32.to_le_bytes(), &[0; 4]].concat(),
            _ => [&[2, 0, 0, 0x60][..], &0_u64.to_le_bytes(), &[1; 0x6000]].concat(),
        };
        let said = [said, &more].concat();
        assert!(matches!(Chunks::new(&said[HEADER..]).next(), Some(Ok(Chunk::Hello { .. }))));
        drop(member.send_to(&[&said[..], &opening_tag(&key, &[], &said)].concat(), to));
        if n % 20 == 0 {
            scene.progress();
        }
    }
    scene.goes_on();
    // they are given up, one and all; what they were takes a while to be forgotten
    let before = scene.before.1;
    let puppet = &mut scene.puppet;
    let mut left = puppet.number_beside(&mut scene.node, "descriptors");
    for _ in 0..100 {
        if left <= before {
            break;
        }
        scene.node.converse(scene.peer);
        left = puppet.number_beside(&mut scene.node, "descriptors");
    }
    assert!(left <= before, "{left} descriptors, {before} before");
}

/// Who read the address on its way, and listens on the path, has the endpoint's key, numbers and salts. On an encrypted link that is to get
/// him nothing: its keys come of what both sides have forgotten.
#[test]
fn who_knows_the_key_has_no_say_on_an_encrypted_link() {
    let saying: [fn(u64) -> Vec<u8>; 2] = [
        |_| vec![4, 0],
        // what has its turn is somewhere among the first two MiB
        |n| [&[2, 0][..], &1400_u16.to_le_bytes(), &(1400 * n).to_le_bytes(), &[0xff; 1400]].concat(),
    ];
    for say in saying {
        let mut scene = Scene::new(ENCRYPTED);
        let key = Address::parse(&scene.puppet.address).expect("an address").key();
        let salt = |bytes: &[u8]| match Chunks::new(&bytes[HEADER..bytes.len() - TAG]).next() {
            Some(Ok(Chunk::Hello { salt, .. })) => salt,
            other => panic!("{other:?} is no HELLO"),
        };
        let client = salt(&scene.recorded(false, &[Kind::Open])[0]);
        let answer = scene.recorded(true, &[Kind::Answer]).swap_remove(0);
        for n in 0..1500 {
            let number = 100_000 + n as u32;
            let header = Header { number, ..Header::parse(&answer).expect("a header") };
            let hello = &answer[HEADER..HEADER + 25];
            let said = [&header.to_bytes()[..], hello, &say(n)].concat();
            scene.relay.say(true, &[&said[..], &opening_tag(&key, &client, &said)].concat());
            if n % 20 == 0 {
                scene.progress();
            }
        }
        scene.goes_on();
        let opens = scene.recorded(false, &[Kind::Open]);
        assert!(opens.iter().all(|open| salt(open) == client), "the connection had to be made anew");
    }
}

/// A message of ICMP that nobody is at a port: of a datagram that was never sent.
fn unreachable(from: u16, to: u16) -> Vec<u8> {
    let loopback = [127, 0, 0, 1];
    let ip = [&[0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0][..], &loopback, &loopback].concat();
    let udp = [from.to_be_bytes(), to.to_be_bytes(), [0, 80], [0, 0]].concat();
    let mut bytes = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &ip, &udp, &[0; 64]].concat();
    let sum: u32 = bytes.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Anybody can say that nobody is there, who knows two addresses and ports.
#[test]
fn errors_that_the_network_did_not_report_end_no_link() {
    if !root("raw sockets") {
        return;
    }
    let mut scene = Scene::new(LINE);
    // SAFETY: a plain call; the descriptor is new and ours.
    let raw = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP);
        assert!(fd >= 0, "a raw socket");
        UdpSocket::from_raw_fd(fd)
    };
    let relay = at(&scene.relay.front).local_addr().expect("it is bound").port();
    let said = unreachable(scene.relay.client_port(), relay);
    let salts = scene.recorded(false, &[Kind::Open]).len();
    for _ in 0..20 {
        raw.send_to(&said, (Ipv4Addr::LOCALHOST, 0)).expect("room");
    }
    scene.goes_on();
    assert_eq!(scene.recorded(false, &[Kind::Open]).len(), salts, "the connection had to be made anew");
}

/// Somebody who hears an OPEN says it again from elsewhere before it arrives.
#[test]
fn who_is_first_with_an_open_that_he_heard_keeps_nobody_out() {
    let mut victim = Puppet::start(LINE);
    victim.ask("echo");
    let to = (Ipv4Addr::LOCALHOST, port_of(&victim.address));
    let front = socket();
    let port = front.local_addr().expect("it is bound").port();
    let mut node = Node::open(settings(LINE));
    let peer = node.peer(&by_way_of(&victim.address, port, &["127.0.0.1"]));
    let sent = node.send(peer, 0xc0ffee, 20_000);
    let (first, back) = (socket(), socket());
    let (mut told, mut client, mut buffer) = (HashSet::new(), None, [0; 2048]);
    for socket in [&front, &back] {
        socket.set_nonblocking(true).expect("a socket");
    }
    node.until("its message is there", |node| {
        while let Ok((n, from)) = front.recv_from(&mut buffer) {
            client = Some(from);
            // once each, and a moment before
            if Header::parse(&buffer[..n]).is_ok_and(|header| header.kind == Kind::Open)
                && told.insert(buffer[..n].to_vec())
            {
                drop(first.send_to(&buffer[..n], to));
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(back.send_to(&buffer[..n], to));
        }
        while let (Ok(n), Some(to)) = (back.recv(&mut buffer), client) {
            drop(front.send_to(&buffer[..n], to));
        }
        node.end(sent).is_some()
    });
    assert_eq!(node.wait(sent), End::Right, "{}", node.why(peer));
}
