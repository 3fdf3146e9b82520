//! From connections to datagrams: as many as their channels let leave, in trains.

use super::adapt::adapt;
use super::link::Link;
use super::socket::{Socket, TRAIN, TRAIN_MAX};
use super::{Slot, UdpRail};
use crate::rail::{Memory, RawIov, Span};
use polyrail_core::connection::Datagram;
use polyrail_core::micro::Time;
use polyrail_core::wire::datagram::{HEADER, Kind, TAG, opening_tag};
use std::net::SocketAddr;

/// Has no memory.
pub(super) struct NoMemory;

impl Memory for NoMemory {
    fn resolve(&self, _span: Span, _out: &mut Vec<RawIov>) -> bool {
        false
    }
}

/// A train that is being made, or waits for the kernel to have room.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    len: usize,
    each: usize,
    count: usize,
    to: Option<(usize, SocketAddr)>,
    /// The kernel had no room for it.
    stuck: bool,
}

impl Batch {
    /// Room for one more datagram of at most `size` bytes; what is there leaves before if that does not go with it.
    fn room(&mut self, size: usize, to: (usize, SocketAddr), sockets: &[Socket]) -> Option<&mut [u8]> {
        let full = self.count >= TRAIN_MAX || self.len + size > TRAIN || self.to.is_some_and(|of| of != to);
        if full {
            self.leave(sockets);
        }
        if self.stuck {
            return None;
        }
        if self.bytes.is_empty() {
            self.bytes = vec![0; 1 << 16];
        }
        self.to = Some(to);
        self.bytes.get_mut(self.len..self.len + size)
    }

    /// The room now has a datagram of so many bytes.
    fn add(&mut self, size: usize, sockets: &[Socket]) {
        if self.count > 0 && size > self.each {
            // longer than those before it: it begins another train
            let (from, to) = (self.len, self.to);
            self.leave(sockets);
            if self.stuck {
                // it counts as lost
                return;
            }
            self.bytes.copy_within(from..from + size, 0);
            self.to = to;
        }
        if self.count == 0 {
            self.each = size;
        }
        (self.len, self.count) = (self.len + size, self.count + 1);
        if size < self.each {
            self.leave(sockets);
        }
    }

    /// Sends what is there.
    fn leave(&mut self, sockets: &[Socket]) {
        self.stuck = false;
        let Some((socket, to)) = self.to.filter(|_| self.len > 0) else { return };
        let mut sent = sockets[socket].send(to, &self.bytes[..self.len], self.each);
        if sent == Err(libc::ECONNREFUSED) {
            // that was of an earlier one, and perhaps to somebody else
            sent = sockets[socket].send(to, &self.bytes[..self.len], self.each);
        }
        match sent {
            Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                self.stuck = true;
                return;
            }
            // the kernel, or the path's first device, does not take trains: one by one
            Err(libc::EIO | libc::EINVAL) if self.count > 1 => {
                for one in self.bytes[..self.len].chunks(self.each) {
                    let _ = sockets[socket].send(to, one, self.each);
                }
            }
            // what does not leave counts as lost before long
            Ok(()) | Err(_) => {}
        }
        (self.len, self.count, self.to) = (0, 0, None);
    }
}

impl UdpRail {
    /// Sends what may leave of all connections that may have something.
    pub(super) fn transmit_all<M: Memory + ?Sized>(&mut self, mem: Option<&M>) {
        let now = self.now();
        if self.batch.stuck {
            self.batch.leave(&self.sockets);
        }
        let mut kept = 0;
        for at in 0..self.dirty.len() {
            let id = self.dirty[at];
            let Some(Slot::Up(link)) = self.slots.get_mut(id as usize) else { continue };
            // parts of users' memory leave when that can be asked for
            if self.batch.stuck || mem.is_none() && !link.is_copied() {
                self.dirty[kept] = id;
                kept += 1;
                continue;
            }
            link.dirty = false;
            if link.pipe.is_none() && adapt(link, now, self.choice) && !self.changed.contains(&id) {
                self.changed.push(id);
            }
            while let Some(value) = link.connection.poll_returned() {
                self.returned.extend(link.owner.map(|owner| (owner, value.tag, value.newest)));
            }
            transmit(link, now, &mut self.batch, &self.sockets, mem, &mut self.iov);
            if self.batch.stuck {
                link.dirty = true;
                self.dirty[kept] = id;
                kept += 1;
            }
            self.set_timer(id);
        }
        self.dirty.truncate(kept);
        if !self.batch.stuck {
            self.batch.leave(&self.sockets);
        }
    }

    /// Tells the other side that a connection ends.
    pub(super) fn say_goodbye(&mut self, id: u32, now: Time) {
        let Some(Slot::Up(link)) = self.slots.get_mut(id as usize) else { return };
        transmit_words(link, now, &mut self.batch, &self.sockets, &mut self.iov);
        self.batch.leave(&self.sockets);
    }
}

/// Sends what may leave of a connection.
fn transmit<M: Memory + ?Sized>(
    link: &mut Link,
    now: Time,
    batch: &mut Batch,
    sockets: &[Socket],
    mem: Option<&M>,
    iov: &mut Vec<RawIov>,
) {
    let size = link.connection.shared().most as usize;
    while let Some(room) = batch.room(size, (link.socket, link.to), sockets) {
        let content = &mut room[HEADER..];
        let Some(made) = link.connection.poll_datagram(now, content) else { return };
        let end = made.chunks + made.segment.len as usize;
        link.copy_to(made.segment, &mut content[made.chunks..end], mem, iov);
        let Some(whole) = authenticate(link, &made, room) else { return };
        batch.add(whole, sockets);
    }
}

/// Writes a datagram's header and tag around its content; its length. None where there are no keys for it.
pub(super) fn authenticate(link: &mut Link, made: &Datagram, room: &mut [u8]) -> Option<usize> {
    let end = HEADER + made.chunks + made.segment.len as usize;
    let whole = end + TAG;
    let mut head = made.header;
    match head.kind {
        Kind::Open | Kind::Answer => {
            room[..HEADER].copy_from_slice(&head.to_bytes());
            let client = if head.kind == Kind::Open { &[][..] } else { &link.connection.salts().0 };
            let tag = opening_tag(&link.key, client, &room[..end]);
            room[end..whole].copy_from_slice(&tag);
        }
        _ => {
            let (keys, encrypt) = link.sending(made.segment)?;
            head.generation = keys.generation;
            head.kind = if encrypt { Kind::Sealed } else { Kind::Plain };
            room[..HEADER].copy_from_slice(&head.to_bytes());
            keys.seal(made.number, &mut room[..whole], encrypt);
        }
    }
    Some(whole)
}

/// Sends what is to be said of a connection's end, and nothing of its stream.
fn transmit_words(link: &mut Link, now: Time, batch: &mut Batch, sockets: &[Socket], iov: &mut Vec<RawIov>) {
    transmit::<NoMemory>(link, now, batch, sockets, None, iov);
}
