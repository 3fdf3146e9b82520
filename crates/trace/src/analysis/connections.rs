//! Both ends of each connection side by side.

use super::Analysis;
use super::messages::Flow;
use super::tcp::TcpHistory;
use crate::model::{Kind, Run};

/// What limited a sender, in ns of the connection's life. The kernel tells all but the first two apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// There was nothing to send.
    pub application: f64,
    /// There was, and neither the receiver nor the buffer was in the way: the congestion window, pacing, or the path itself.
    pub network: f64,
    /// The receiver's window was full.
    pub receiver: f64,
    /// The send buffer was full, and more would have fitted into the windows.
    pub buffer: f64,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Direction<'a> {
    /// The sender's node, where known.
    pub from: Option<u32>,
    /// What went.
    pub flow: &'a Flow,
    /// The sender's TCP.
    pub tcp: Option<&'a TcpHistory>,
    /// The sender's socket, where traced.
    pub socket: Option<u32>,
    /// What limited it.
    pub limits: Option<Limits>,
}

impl Direction<'_> {
    /// Bytes sent again as a share of all; of segments where no sample told the bytes.
    pub fn loss(&self) -> Option<f64> {
        let tcp = self.tcp?;
        match tcp.last {
            Some(last) if last.bytes_sent > 0 => Some(last.bytes_retrans as f64 / last.bytes_sent as f64),
            _ if self.flow.bytes > 0 => {
                Some(tcp.retransmissions() as f64 * f64::from(tcp.mss()) / self.flow.bytes as f64)
            }
            _ => None,
        }
        .map(|share| share.min(1.0))
    }

    /// Bytes a second while there was something to send; `None` where the kernel did not say how long that was.
    pub fn busy_rate(&self) -> Option<f64> {
        let last = self.tcp?.last?;
        (last.busy_time > 0).then(|| last.bytes_acked.max(1) as f64 / (last.busy_time as f64 / 1e6))
    }
}

/// A connection, or a socket whose other end was not traced.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// Indices of its sockets.
    pub sockets: (u32, Option<u32>),
    /// Transport.
    pub kind: Kind,
    /// Nodes at both ends.
    pub nodes: (u32, Option<u32>),
    /// From the first end to the second.
    pub there: Direction<'a>,
    /// And back.
    pub back: Direction<'a>,
    /// First and last moment.
    pub span: (u64, u64),
}

impl Connection<'_> {
    /// Bytes both ways.
    pub fn bytes(&self) -> u64 {
        self.there.flow.bytes.saturating_add(self.back.flow.bytes)
    }

    /// Segments sent again, both ways.
    pub fn retransmissions(&self) -> u64 {
        [self.there.tcp, self.back.tcp].into_iter().flatten().map(TcpHistory::retransmissions).sum()
    }

    /// How many of them were sent for nothing, both ways.
    pub fn spurious(&self) -> u64 {
        [self.there.tcp, self.back.tcp].into_iter().flatten().map(TcpHistory::spurious).sum()
    }

    /// Retransmission timeouts, both ways.
    pub fn timeouts(&self) -> u64 {
        [self.there.tcp, self.back.tcp].into_iter().flatten().map(TcpHistory::timeouts).sum()
    }

    /// Lowest round-trip time seen by either end, in us.
    pub fn min_rtt(&self) -> Option<u32> {
        [self.there.tcp, self.back.tcp].into_iter().flatten().filter_map(|tcp| tcp.min_rtt).min()
    }
}

fn limits(tcp: Option<&TcpHistory>, span: (u64, u64)) -> Option<Limits> {
    let last = tcp?.last?;
    let life = span.1.saturating_sub(span.0) as f64;
    let ns = |us: u64| us as f64 * 1000.0;
    let busy = ns(last.busy_time).min(life);
    let (receiver, buffer) = (ns(last.rwnd_limited).min(busy), ns(last.sndbuf_limited).min(busy));
    (last.busy_time > 0 && life > 0.0).then_some(Limits {
        application: life - busy,
        network: (busy - receiver - buffer).max(0.0),
        receiver,
        buffer,
    })
}

impl Analysis {
    /// Whether a socket of a stream has ever been connected, also where nothing was said by it.
    fn was_connected(&self, run: &Run, index: usize) -> bool {
        // linux/tcp_states.h: not SYN_SENT, SYN_RECV, CLOSE, LISTEN, NEW_SYN_RECV
        const CONNECTED: [u8; 7] = [1, 4, 5, 6, 8, 9, 11];
        let (about, mine) = (&run.sockets[index], &self.sockets[index]);
        let state = mine.tcp.as_ref().and_then(|tcp| tcp.last).map(|last| last.state);
        about.peer.is_some()
            || about.accepted
            || mine.sent.bytes.saturating_add(mine.received.bytes) > 0
            || about.remote.is_some() && state.is_some_and(|state| CONNECTED.contains(&state))
    }

    /// TCP sockets that were neither connected nor listened: made to ask the kernel something, or refused.
    pub fn never_connected(&self, run: &Run) -> usize {
        (0..run.sockets.len()).filter(|&index| self.is_unconnected(run, index)).count()
    }

    /// Whether a socket is one of these.
    pub(super) fn is_unconnected(&self, run: &Run, index: usize) -> bool {
        let socket = &run.sockets[index];
        socket.kind == Kind::Tcp && !socket.listening && !self.was_connected(run, index)
    }

    /// All connections that were made, those by which most bytes went first; of datagrams, all pairs by which some did.
    pub fn connections<'a>(&'a self, run: &Run) -> Vec<Connection<'a>> {
        let mut connections = Vec::new();
        for (index, about) in run.sockets.iter().enumerate() {
            let mine = &self.sockets[index];
            // the other end tells of it
            let told = about.peer.is_some_and(|peer| (peer as usize) < index);
            if about.listening || about.kind == Kind::Other || told {
                continue;
            }
            let theirs = about.peer.and_then(|peer| self.sockets.get(peer as usize));
            let from = mine.pairs.0.map(|pair| pair.0).or(mine.pairs.1.map(|pair| pair.1));
            let to = mine.pairs.0.map(|pair| pair.1).or(mine.pairs.1.map(|pair| pair.0));
            let span = about.peer.map_or(about.span, |peer| {
                let other = run.sockets[peer as usize].span;
                (about.span.0.min(other.0), about.span.1.max(other.1))
            });
            let tcp = mine.tcp.as_deref();
            let there = Direction {
                from,
                flow: &mine.sent,
                tcp,
                socket: Some(index as u32),
                limits: limits(tcp, span),
            };
            let back = match theirs {
                Some(theirs) => {
                    let tcp = theirs.tcp.as_deref();
                    Direction {
                        from: to,
                        flow: &theirs.sent,
                        tcp,
                        socket: about.peer,
                        limits: limits(tcp, span),
                    }
                }
                None => Direction { from: to, flow: &mine.received, tcp: None, socket: None, limits: None },
            };
            let connection = Connection {
                sockets: (index as u32, about.peer),
                kind: about.kind,
                nodes: (from.unwrap_or(about.process), to),
                there,
                back,
                span,
            };
            if connection.bytes() > 0 || about.kind == Kind::Tcp && self.was_connected(run, index) {
                connections.push(connection);
            }
        }
        connections.sort_by_key(|connection| (std::cmp::Reverse(connection.bytes()), connection.sockets.0));
        connections
    }
}
