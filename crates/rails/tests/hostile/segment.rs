//! Peers that know the key, run on this host, and then write anything into the memory that they share.

use crate::frames::Frames;
use crate::support::node::Node;
use crate::support::puppet::{Puppet, settings};
use crate::support::stranger::{ByMemory, Noise, beside, offer, shake_by_memory, shake_by_memory_offering};
use polyrail_core::frame::peek_lengths;
use polyrail_core::proto::{Delivery, PeerIdx, Scheme};
use polyrail_core::wire::offer::MemoryProbe;
use polyrail_core::wire::{Offer, Transport};
use polyrail_rails::shm::doorbell::Doorbell;
use polyrail_rails::shm::segment::{Ends, LAYOUT, SEGMENT_SIZE, Segment};
use polyrail_rails::sockets::unix;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a peer gives of its doorbell.
fn bell() -> [OwnedFd; 2] {
    Doorbell::new().and_then(|bell| bell.introduce()).expect("descriptors")
}

struct Victim {
    node: Node,
    address: Vec<u8>,
    _good: Puppet,
    to_good: PeerIdx,
}

impl Victim {
    fn new() -> Self {
        let mut node = Node::open(settings("RAILS=shm"));
        let address = node.worker.address().to_vec();
        let mut good = Puppet::start("RAILS=shm");
        good.ask("echo");
        let to_good = node.peer(&good.address);
        node.converse(to_good);
        node.region(5, 300_000);
        Self { node, address, _good: good, to_good }
    }

    fn hostile(&mut self) -> (ByMemory, PeerIdx) {
        let bell = bell();
        let peer =
            beside(&mut self.node, || shake_by_memory(&self.address, &bell.each_ref().map(AsFd::as_fd)));
        assert!(peer.outcome.is_ok(), "{:?}", peer.outcome);
        let number = self.node.peer(&peer.address);
        (peer, number)
    }
}

/// A segment, or a board, as bytes.
struct Bytes(*mut u8, usize);

// SAFETY: an address of shared memory that this process never refers to by a Rust reference.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn map(memory: &OwnedFd, size: usize) -> Self {
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, shared, memory.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast(), size)
    }

    fn write(&self, at: usize, byte: u8) {
        assert!(at < self.1);
        // SAFETY: within the mapping.
        unsafe { self.0.add(at).write_volatile(byte) };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn garbage_in_a_segment_does_no_harm() {
    let mut victim = Victim::new();
    let mut cut = 0;
    for seed in 1..=60 {
        let (hostile, peer) = victim.hostile();
        let node = &mut victim.node;
        let bytes = Bytes::map(&hostile.fds[0], SEGMENT_SIZE);
        let mut ids = vec![node.recv(Some(peer), Some(1), 100_000)];
        // both ways are in use while the memory changes under them
        ids.extend((0..200).map(|tag| node.send_until(peer, tag, 30_000, Delivery::Delivered)));
        let mut noise = Noise(seed * 0x1234_5677);
        beside(node, || {
            for _ in 0..300 {
                // the words that matter are at the beginning of each ring, the rest anywhere
                let at = match noise.below(3) {
                    0 => noise.below(SEGMENT_SIZE as u64),
                    1 => 4096 + noise.below(2) * (SEGMENT_SIZE as u64 - 4096) / 2 + noise.below(16),
                    _ => 4096 + noise.below(2) * (SEGMENT_SIZE as u64 - 4096) / 2 + noise.below(4096),
                };
                bytes.write(at as usize, noise.next() as u8);
            }
        });
        for _ in 0..200 {
            node.progress();
        }
        cut += u32::from(!node.worker.is_connected(peer));
        let address = hostile.address.clone();
        drop((bytes, hostile));
        node.lost(peer, &address);
        for id in ids {
            node.wait(id);
        }
    }
    assert!(cut > 20, "only {cut} were cut off: this garbage is too tame");
    victim.node.converse(victim.to_good);
}

#[test]
fn progress_that_cannot_be_ends_the_link() {
    let mut victim = Victim::new();
    let (hostile, peer) = victim.hostile();
    let bytes = Bytes::map(&hostile.fds[0], SEGMENT_SIZE);
    // the first ring's progress, which this side writes as the receiver: frames that were never sent are consumed
    for at in 0..8 {
        bytes.write(4096 + at, 0x77);
    }
    let ids: Vec<_> = (0..1000).map(|tag| victim.node.send(peer, tag, 1000)).collect();
    let why = victim.node.lost(peer, &hostile.address);
    assert!(why.contains("damaged"), "{why}");
    for id in ids {
        victim.node.wait(id);
    }
    victim.node.converse(victim.to_good);
}

#[test]
fn any_frames_in_a_segment_do_no_harm() {
    let mut victim = Victim::new();
    let mut cut = 0;
    for seed in 1..=60 {
        let (hostile, peer) = victim.hostile();
        let node = &mut victim.node;
        for (tag, len) in [(0, 100), (1, 100_000)] {
            node.recv(Some(peer), Some(tag), len);
            node.recv(None, Some(tag + 2), len);
            node.send_until(peer, tag, len, Delivery::Matched);
            node.put(peer, 1, 1, len);
            node.get(peer, 1, len);
        }
        let segment = Segment::open(hostile.fds[0].as_fd()).expect("the worker's segment");
        let Ends { mut producer, mut consumer, .. } = segment.split();
        let mut frames = Frames::new(seed + 1000);
        beside(node, || {
            for _ in 0..60 {
                let bytes = frames.next();
                let header =
                    bytes.first_chunk().and_then(|prefix| peek_lengths(prefix).ok()).map_or(16, |l| l.0);
                let (header, payload) = bytes.split_at(header.min(bytes.len()));
                let payload = &payload[..payload.len().min(32 << 10)];
                while producer.try_send(header, &[payload]).is_err() {
                    // once it is cut off nobody makes room any more
                    match unix::recv(hostile.control.as_fd(), &mut [0; 64], &mut Vec::new()) {
                        Ok(1..) => {}
                        Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                        _ => return,
                    }
                }
                while consumer.peek().is_some_and(|frame| frame.is_ok()) {
                    consumer.release();
                }
            }
        });
        for _ in 0..200 {
            node.progress();
        }
        cut += u32::from(!node.worker.is_connected(peer));
        let address = hostile.address.clone();
        drop(hostile);
        node.lost(peer, &address);
    }
    assert!(cut > 20, "only {cut} were cut off: these frames are too tame");
    victim.node.converse(victim.to_good);
}

#[test]
fn what_is_no_doorbell_is_not_rung() {
    let mut victim = Victim::new();
    let file = std::fs::File::open("/dev/zero").expect("it is there");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: a plain call; the descriptor is new and ours.
    let blocking = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
    let right = bell();
    let [event, board] = right.each_ref().map(AsFd::as_fd);
    let no_event = [file.as_fd(), writer.as_fd(), blocking.as_fd(), board].map(|wrong| vec![wrong, board]);
    let no_board = [file.as_fd(), event].map(|wrong| vec![event, wrong]);
    for wrong in no_event.into_iter().chain(no_board).chain([vec![], vec![event]]) {
        let peer = beside(&mut victim.node, || shake_by_memory(&victim.address, &wrong));
        let number = victim.node.peer(&peer.address);
        let why = victim.node.lost(number, &peer.address);
        assert!(["doorbell", "descriptors", "F_GET_SEALS"].iter().any(|word| why.contains(word)), "{why}");
    }
    drop(reader);
    victim.node.converse(victim.to_good);
}

/// All peers of a host write to a worker's board.
#[test]
fn garbage_on_a_board_does_no_harm() {
    let mut victim = Victim::new();
    let (hostile, peer) = victim.hostile();
    let board = Bytes::map(&hostile.fds[2], 4096);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut noise = Noise(1);
            while !over.load(Ordering::Relaxed) {
                // also zeros, which take the marks of others away
                let byte = if noise.below(2) == 0 { 0 } else { noise.below(256) as u8 };
                board.write(noise.below(1024) as usize, byte);
            }
        });
        for _ in 0..50 {
            victim.node.converse(victim.to_good);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(victim.node.worker.is_connected(peer), "nothing is known against it");
}

/// The layout is told before anything is mapped: who has another uses another transport.
#[test]
fn memory_of_another_layout_is_not_shared() {
    let mut victim = Victim::new();
    let bell = bell();
    let bell = bell.each_ref().map(AsFd::as_fd);
    let (before, now, after) = ((LAYOUT - 1).to_le_bytes(), LAYOUT.to_le_bytes(), (LAYOUT + 1).to_le_bytes());
    for layout in [&before[..], &after, &now[..1], &[now[0], now[1], 0], &[]] {
        let bare = offer();
        let mut offer = Offer::new(bare.process, bare.limits);
        assert!(offer.push_transport(Transport::SHM, layout));
        let peer = beside(&mut victim.node, || shake_by_memory_offering(&victim.address, &bell, offer));
        let why = peer.outcome.expect_err("not accepted");
        assert!(why.contains("no such transport, or only another version"), "{layout:?}: {why}");
    }
}

/// Else a peer could have this process, which may have more rights, read and write the memory of others for it.
#[test]
fn whose_memory_is_reached_is_the_kernels_word() {
    let mut victim = Victim::new();
    let bell = bell();
    let bell = bell.each_ref().map(AsFd::as_fd);
    let nonce = Box::new(0x1357_9bdf_u64);
    let mut offer = offer();
    // the number of a process that is not the peer, but a place where the peer's nonce is
    offer.process.pid = 1;
    offer.probe = Some(MemoryProbe { address: &raw const *nonce as u64, nonce: *nonce });
    let peer = beside(&mut victim.node, || shake_by_memory_offering(&victim.address, &bell, offer.clone()));
    let number = victim.node.peer(&peer.address);
    assert!(peer.outcome.is_ok());
    victim.node.until("the link", |node| node.worker.is_connected(number));
    assert_eq!(victim.node.worker.route(number).expect("connected").1.scheme, Scheme::Get);
}
