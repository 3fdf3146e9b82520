//! The streams of a session: how they begin, what goes into them and comes out, how they end.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{End, HELD_MUCH, LITTLE, Over, READ, SPARE, STREAMS, Trunk, WAITING};
use crate::classes::{self, Called, Kind, Shares};
use crate::config::File;
use crate::run::lookup::Found;
use crate::run::poll::{Ready, Token};
use crate::run::stream::{Got, Phase, Received, Stream, reason};
use crate::run::{Around, Asker};
use crate::wire::{self, HEAD, MESSAGE_MAX, Message, Reason, Wish};
use crate::{call, flow, net};

impl Trunk {
    pub(super) fn told(&mut self, message: &Message<'_>, around: &Around) -> Result<(), Over> {
        match message {
            Message::Open { stream, room, wish } => self.wished(*stream, *room, wish, around)?,
            Message::Opened { stream: id, room } => {
                let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.phase == Phase::Asked)
                else {
                    // its program has given up
                    self.send_message(&Message::Closed { stream: *id, reason: Reason::Reset });
                    return Ok(());
                };
                stream.phase = Phase::Open;
                stream.out.raise(*room);
                let near = stream.near().unwrap_or(([0, 0, 0, 0], 0).into());
                stream.tell(call::reply(Ok(near)));
                self.write(*id, around);
            }
            Message::Closed { stream: id, reason } => match self.streams.get(id).map(|stream| stream.phase) {
                Some(Phase::Asked) => self.refuse(*id, *reason, around),
                Some(_) => self.drop_stream(*id, true, around),
                None => _ = self.looked_up.remove(id),
            },
            Message::Room { stream, upto } => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.out.raise(*upto);
                }
                self.touched.push(*stream);
            }
            Message::End { stream, total } => {
                if let Some(one) = self.streams.get_mut(stream) {
                    one.incoming.finish(*total)?;
                    self.write(*stream, around);
                }
            }
            Message::Bye { why } => return Err(Over(format!("it says: {why}"))),
            Message::Here { .. } | Message::Hello { .. } | Message::Data { .. } => {}
        }
        Ok(())
    }

    /// The other site wants to be connected with something here.
    pub(super) fn wished(&mut self, id: u64, room: u64, wish: &Wish, around: &Around) -> Result<(), Over> {
        let theirs = u64::from(matches!(self.end, End::Dials(_)));
        if id & 1 != theirs || self.streams.contains_key(&id) || self.looked_up.contains_key(&id) {
            return Err(Over("it named a stream as it may not".into()));
        }
        let outcome = match &wish.to {
            net::Target::At(at) => self.join(id, (room, wish.from), &[*at], around),
            net::Target::Named(name, port) => {
                let begun = around
                    .lookup
                    .begin(Asker::Stream(self.number, self.epoch, id), vec![(name.clone(), *port)]);
                if begun {
                    self.looked_up.insert(id, (room, wish.from));
                }
                begun.then_some(()).ok_or(Reason::Full)
            }
        };
        if let Err(reason) = outcome {
            self.not_joined(id, reason);
        }
        Ok(())
    }

    fn not_joined(&mut self, id: u64, reason: Reason) {
        self.counts.refused += 1;
        self.send_message(&Message::Closed { stream: id, reason });
    }

    /// The name of a stream's target has been found out.
    pub fn found(&mut self, epoch: u64, id: u64, found: &Found<Asker>, around: &Around) {
        // of a session that is over
        if epoch != self.epoch {
            return;
        }
        let Some(wanted) = self.looked_up.remove(&id) else { return };
        let outcome = match found.at.is_empty() {
            true => Err(Reason::NoName),
            false => self.join(id, wanted, &found.at, around),
        };
        if let Err(reason) = outcome {
            self.not_joined(id, reason);
        }
        self.settle(around);
    }

    /// Connects a stream with the first of these addresses that is this site's.
    fn join(
        &mut self,
        id: u64,
        (room, from): (u64, Option<SocketAddr>),
        at: &[SocketAddr],
        around: &Around,
    ) -> Result<(), Reason> {
        let ours = |at: &&SocketAddr| around.file.networks.iter().any(|network| network.has(at.ip()));
        let at = *at.iter().find(ours).ok_or(Reason::NotAllowed)?;
        // who is let into this site's networks is not let through its gateway to others
        if around.is_door(at) {
            return Err(Reason::NotAllowed);
        }
        let left = around.room.get().checked_sub(1).ok_or(Reason::Full)?;
        around.room.set(left);
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(reason)?;
        match rustix::net::connect(&socket, &at) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(why) => return Err(reason(why)),
        }
        self.add(id, socket, (Phase::Joining, room), Called { ip: Some(at.ip()), port: at.port() }, around);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.behind = stream.near().zip(from);
        }
        Ok(())
    }

    fn add(
        &mut self,
        id: u64,
        socket: OwnedFd,
        (phase, out): (Phase, u64),
        called: Called,
        around: &Around,
    ) -> u64 {
        let scarce = self.held > HELD_MUCH || self.streams.len() > STREAMS.0;
        let room = if scarce { flow::ROOM_SCARCE } else { flow::ROOM };
        let class = classes::class_of(&around.file.classes, &self.other.site, called);
        let token = Token::Stream(self.number, id);
        let stream = Stream::new(socket, token, phase, (out, room), (called, class));
        self.streams.insert(id, stream);
        self.touched.push(id);
        room
    }

    /// A program here wants to be connected with something there. Its socket is given back where that cannot be.
    pub fn call(&mut self, socket: OwnedFd, wish: Wish, around: &Around) -> Result<(), OwnedFd> {
        self.counts.asked += 1;
        if !self.is_up() || self.outbox.len() > WAITING.0 {
            self.counts.refused += 1;
            return Err(socket);
        }
        let id = self.next;
        self.next += 2;
        let called = match &wish.to {
            net::Target::At(at) => Called { ip: Some(at.ip()), port: at.port() },
            net::Target::Named(_, port) => Called { ip: None, port: *port },
        };
        let room = self.add(id, socket, (Phase::Asked, 0), called, around);
        self.send_message(&Message::Open { stream: id, room, wish });
        Ok(())
    }

    pub(super) fn data(
        &mut self,
        id: u64,
        offset: u64,
        piece: Received,
        around: &Around,
    ) -> Result<(), Over> {
        // of one that was reset here: the other side will hear of that
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let held = stream.incoming.held();
        stream.incoming.arrive(offset, piece)?;
        self.held += stream.incoming.held() - held;
        if stream.phase == Phase::Open && !stream.is_stuck() {
            self.write(id, around);
        }
        Ok(())
    }

    /// Gives a program what there is for it.
    pub(super) fn write(&mut self, id: u64, around: &Around) {
        let most = match self.streams.len() {
            _ if self.held > HELD_MUCH => flow::ROOM_SCARCE,
            few if few <= STREAMS.1 => flow::ROOM_MAX,
            _ => flow::ROOM,
        };
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.phase == Phase::Open) else {
            return;
        };
        let window = stream.incoming.window();
        let most = self.wide.most(window, most);
        let spare = &mut self.spare_in;
        let keep = |bytes: Vec<u8>| {
            if bytes.capacity() >= MESSAGE_MAX && spare.len() < SPARE {
                spare.push(bytes);
            }
        };
        match stream.write(keep) {
            Ok(written) => {
                self.counts.received += written as u64;
                self.held = self.held.saturating_sub(written as u64);
                let upto = if written > 0 { stream.incoming.take(written, most) } else { None };
                self.wide.changed(window, stream.incoming.window());
                stream.end_if_over();
                let is_over = stream.is_over();
                self.touched.push(id);
                if let Some(upto) = upto.filter(|_| !is_over) {
                    self.send_message(&Message::Room { stream: id, upto });
                }
                if is_over {
                    self.drop_stream(id, false, around);
                }
            }
            Err(_) => self.reset(id, around),
        }
    }

    /// A program is lost: the other side is told.
    pub(super) fn reset(&mut self, id: u64, around: &Around) {
        self.send_message(&Message::Closed { stream: id, reason: Reason::Reset });
        self.drop_stream(id, true, around);
    }

    /// What a program wanted cannot be.
    pub(super) fn refuse(&mut self, id: u64, reason: Reason, around: &Around) {
        self.counts.refused += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.tell(call::reply(Err(reason)));
            // a few bytes, for which a socket that was only read has room; if not, it is closed all the same
            let _ = stream.write(drop);
        }
        self.drop_stream(id, false, around);
    }

    pub(super) fn drop_stream(&mut self, id: u64, reset: bool, around: &Around) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        self.held = self.held.saturating_sub(stream.incoming.held());
        self.wide.changed(stream.incoming.window(), 0);
        match reset {
            true => self.counts.reset += 1,
            false => stream.close_well(),
        }
        stream.forget(around.poll);
    }

    /// Something happened to a stream's socket.
    pub fn ready(&mut self, id: u64, ready: Ready, around: &Around) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.touched.push(id);
        match stream.phase {
            Phase::Asked if ready.over => self.reset(id, around),
            Phase::Asked => {}
            Phase::Joining => match stream.joined() {
                Ok(()) => {
                    stream.phase = Phase::Open;
                    self.counts.joined += 1;
                    let room = stream.incoming.upto();
                    self.send_message(&Message::Opened { stream: id, room });
                    self.write(id, around);
                }
                Err(reason) => {
                    self.drop_stream(id, false, around);
                    self.not_joined(id, reason);
                }
            },
            Phase::Open => {
                let (reads, writes) = (stream.can_be_read(), stream.is_stuck());
                if (ready.readable || ready.over) && reads && !stream.queued {
                    stream.queued = true;
                    self.shares.push(stream.class, Kind::Little, id);
                }
                if (ready.writable || ready.over) && writes {
                    self.write(id, around);
                } else if ready.over && !reads {
                    self.reset(id, around);
                }
            }
        }
    }

    /// Reads a stream's socket once, and sends what it had.
    pub(super) fn read(&mut self, id: u64, around: &Around) -> Result<(), Over> {
        let mut bytes = self.spare.pop().unwrap_or_else(|| vec![0; MESSAGE_MAX].into());
        let Some(stream) = self.streams.get_mut(&id) else {
            self.keep(bytes);
            return Ok(());
        };
        stream.queued = false;
        self.touched.push(id);
        if !stream.can_be_read() {
            self.keep(bytes);
            return Ok(());
        }
        let Some((head, room)) =
            Arc::get_mut(&mut bytes).and_then(|bytes| bytes.split_first_chunk_mut::<HEAD>())
        else {
            return Ok(());
        };
        let room = &mut room[..READ];
        match stream.read(room) {
            Got::Bytes(got) => {
                wire::data_head(head, id, stream.out.send(got));
                self.counts.sent += got as u64;
                self.shares.sent(stream.class, HEAD + got);
                if stream.can_be_read() && got == room.len() {
                    // there is probably more
                    stream.queued = true;
                    self.shares.push(stream.class, Kind::Bulk, id);
                } else if stream.can_be_read() && got > LITTLE {
                    stream.queued = true;
                    self.shares.push(stream.class, Kind::Little, id);
                }
                if let Some(bytes) = self.give(bytes, HEAD + got)? {
                    // not its whole length: as a message of its own length
                    self.outbox.push_back(Arc::from(&bytes[..HEAD + got]));
                    self.keep(bytes);
                }
            }
            Got::Nothing => self.keep(bytes),
            Got::End => {
                let total = stream.out.end();
                let is_over = stream.is_over();
                self.keep(bytes);
                self.send_message(&Message::End { stream: id, total });
                if is_over {
                    self.drop_stream(id, false, around);
                }
            }
            Got::Lost => {
                self.keep(bytes);
                self.reset(id, around);
            }
        }
        Ok(())
    }

    /// The file was read anew: classes may be others, and streams of others.
    pub fn renew(&mut self, around: &Around) {
        let waiting = self.shares.take_all();
        let new = shares(around.file, &self.other.site, around.now);
        let before = std::mem::replace(&mut self.shares, Shares::new(&[], None, around.now));
        self.shares = new.after(before);
        if self.shares.limit().is_some() {
            self.warm.0 = 0;
        }
        for stream in self.streams.values_mut() {
            stream.class = classes::class_of(&around.file.classes, &self.other.site, stream.called);
        }
        for (kind, id) in waiting {
            let class = self.streams.get(&id).map_or(0, |stream| stream.class);
            self.shares.push(class, kind, id);
        }
    }

    /// Has the loop wait for what streams need now.
    pub(super) fn settle(&mut self, around: &Around) {
        for id in std::mem::take(&mut self.touched) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.watch(around.poll);
            }
        }
    }
}

/// How the streams of a site share the session to it.
pub(super) fn shares(file: &File, site: &str, now: Instant) -> Shares {
    Shares::new(&file.classes, file.other(site).limit, now)
}
