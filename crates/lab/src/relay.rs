//! Moves packets from each TUN device to the other, by the shapers' leave.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use polyrail_lab::settings::Settings;
use polyrail_lab::shaper::Shaper;
use tun_rs::{GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

use crate::pcap::Pcap;

/// The shortest sleep. Packets that are due sooner leave late by so much, but together: a busy rail costs a wake-up for many
/// packets, and the other end is handed many at once, as by an interrupt of a network card.
const QUANTUM: Duration = Duration::from_micros(100);

/// The longest sleep while packets queue up, so that more of them do not pile up in the device.
const LONGEST: Duration = Duration::from_millis(1);

/// Packets written by one call, and what one of them may grow to when others of its stream are put into it.
const BATCH: usize = 64;
const LARGEST: usize = VIRTIO_NET_HDR_LEN + 65_535;

/// Packets that one read may turn into: 64 KiB in segments of 256 bytes.
const SEGMENTS: usize = 256;

/// What a packet would have on a wire besides: the header that the shapers of veth rails count too, so that both kinds of
/// rail carry the same at the same rate.
const ETHERNET: usize = 14;

/// Reads from one device before the other's turn.
const TURN: usize = 16;

/// The device was taken away, with its namespace.
const GONE: i32 = 77; // EBADFD, which the standard library does not name

type Packet = Vec<u8>;

/// Two devices and what lies between them; index 0 is what a sends, 1 what b sends.
pub struct Relay {
    start: Instant,
    devices: [SyncDevice; 2],
    /// One for each direction.
    pub shapers: [Shaper<Packet>; 2],
    /// Records what host a sends and is given.
    pub pcap: Option<Pcap>,
    pool: Pool,
    segments: Vec<Packet>,
    sizes: Vec<usize>,
    whole: Vec<u8>,
    batch: Vec<Packet>,
    streams: GROTable,
}

impl Relay {
    /// Relays packets of at most `mtu` bytes.
    pub fn new(devices: [SyncDevice; 2], mtu: usize, settings: [Settings; 2], seed: u64) -> Self {
        let mut pool = Pool { mtu, spare: Vec::new() };
        Relay {
            start: Instant::now(),
            devices,
            shapers: [Shaper::new(settings[0], seed), Shaper::new(settings[1], !seed)],
            pcap: None,
            segments: (0..SEGMENTS).map(|_| pool.take()).collect(),
            sizes: vec![0; SEGMENTS],
            whole: vec![0; LARGEST],
            batch: (0..BATCH).map(|_| Vec::with_capacity(LARGEST)).collect(),
            streams: GROTable::new(),
            pool,
        }
    }

    /// Time since the start: what the shapers take for the time.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Relays, and answers who connects to `listener`, until a device is gone.
    pub fn run(mut self, listener: &UnixListener) -> io::Result<()> {
        // By default the kernel lets timers be 50 us late.
        set_timerslack(1000)?;
        loop {
            let [a, b, asked] = self.sleep(listener)?;
            if asked && let Ok((stream, _)) = listener.accept() {
                // Who asks and goes away before the answer misses only the answer.
                let _ = self.answer(stream);
            }
            for from in (0..2).filter(|from| [a, b][*from]) {
                self.receive(from)?;
            }
            for from in 0..2 {
                self.deliver(from)?;
            }
        }
    }

    /// Sleeps until there is something to do; says which device may have packets, and whether somebody connects.
    ///
    /// Where so much queues up that newcomers could not leave for that long, they wake nobody. Else each acknowledgement
    /// would cost a wake-up for the few packets that it lets its sender send.
    fn sleep(&mut self, listener: &UnixListener) -> io::Result<[bool; 3]> {
        let due = self.shapers.iter().filter_map(Shaper::next).min();
        if due.is_none()
            && let Some(pcap) = &mut self.pcap
        {
            pcap.flush();
        }
        let congested = self.shapers.iter().any(|shaper| shaper.congested(LONGEST));
        let (events, longest) = match congested {
            true => (PollFlags::empty(), LONGEST),
            false => (PollFlags::POLLIN, Duration::MAX),
        };
        let timeout = due.map(|due| TimeSpec::from(due.saturating_sub(self.now()).clamp(QUANTUM, longest)));
        let [a, b] = self.devices.each_ref().map(|device| PollFd::new(device.as_fd(), events));
        let mut ready = [a, b, PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut ready, timeout, None) {
            Err(why) if why != nix::Error::EINTR => return Err(why.into()),
            _ => {}
        }
        let [a, b, asked] = ready.map(|source| source.any().unwrap_or(false));
        Ok([a || congested, b || congested, asked])
    }

    /// Takes in what the host sends by device `from`.
    fn receive(&mut self, from: usize) -> io::Result<()> {
        for _ in 0..TURN {
            let read =
                self.devices[from].recv_multiple(&mut self.whole, &mut self.segments, &mut self.sizes, 0);
            let count = match read {
                Ok(count) => count,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) if why.raw_os_error() == Some(GONE) => return Err(why),
                // What cannot be cut up is lost.
                Err(_) => continue,
            };
            let now = self.now();
            for (segment, size) in self.segments.iter_mut().zip(&self.sizes).take(count) {
                let mut packet = std::mem::replace(segment, self.pool.take());
                packet.truncate(*size);
                if from == 0
                    && let Some(pcap) = &mut self.pcap
                {
                    pcap.write(&packet);
                }
                if let Some(dropped) = self.shapers[from].push(now, *size + ETHERNET, packet) {
                    self.pool.give(dropped);
                }
            }
        }
        Ok(())
    }

    /// Hands what is due to the other host.
    fn deliver(&mut self, from: usize) -> io::Result<()> {
        let now = self.now();
        loop {
            let mut count = 0;
            while count < BATCH
                && let Some(packet) = self.shapers[from].pop(now)
            {
                if from == 1
                    && let Some(pcap) = &mut self.pcap
                {
                    pcap.write(&packet);
                }
                let place = &mut self.batch[count];
                place.clear();
                place.resize(VIRTIO_NET_HDR_LEN, 0);
                place.extend_from_slice(&packet);
                self.pool.give(packet);
                count += 1;
            }
            let written = self.devices[1 - from].send_multiple(
                &mut self.streams,
                &mut self.batch[..count],
                VIRTIO_NET_HDR_LEN,
            );
            match written {
                Err(why) if why.raw_os_error() == Some(GONE) => return Err(why),
                // A device that is down takes nothing: the packet is lost, as with a pulled cable.
                _ if count < BATCH => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Buffers of one size for packets, used again and again.
struct Pool {
    mtu: usize,
    spare: Vec<Packet>,
}

impl Pool {
    fn take(&mut self) -> Packet {
        self.spare.pop().unwrap_or_else(|| vec![0; self.mtu])
    }

    fn give(&mut self, mut packet: Packet) {
        packet.resize(self.mtu, 0);
        self.spare.push(packet);
    }
}
