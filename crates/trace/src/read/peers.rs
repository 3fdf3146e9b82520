//! Which sockets are the ends of one connection.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Opening;
use crate::model::{Kind, Socket};

impl Opening {
    /// Two sockets are the ends of one connection when each is connected to the other's name, at the same time.
    pub(super) fn find_peers(&mut self) {
        let mut by_names: HashMap<(SocketAddr, SocketAddr, Kind), Vec<u32>> = HashMap::new();
        let named = |socket: &Socket| Some((socket.local?, socket.remote?, socket.kind));
        for (index, socket) in self.run.sockets.iter().enumerate() {
            if let (Some(names), false) = (named(socket), socket.listening) {
                by_names.entry(names).or_default().push(index as u32);
            }
        }
        // the n-th use of a pair of names on one side is the n-th on the other
        for ((local, remote, transport), ours) in &by_names {
            let Some(theirs) = by_names.get(&(*remote, *local, *transport)) else { continue };
            for (a, b) in ours.iter().zip(theirs) {
                if a != b {
                    self.run.sockets[*a as usize].peer = Some(*b);
                }
            }
        }
    }

    /// The two ends of a link know both names.
    pub(super) fn find_link_peers(&mut self) {
        for &(link, far) in self.links.values() {
            if let Some(&(peer, _)) = self.links.get(&far).filter(|(peer, _)| *peer != link) {
                self.run.sockets[link as usize].peer = Some(peer);
            }
        }
    }

    /// Unix sockets have no names that both ends know: one of them tells which the other is.
    pub(super) fn find_unix_peers(&mut self) {
        for (socket, boot, told) in std::mem::take(&mut self.unix_peers) {
            let Some(&peer) = self.unix.get(&(boot, told.peer)).filter(|&&peer| peer != socket) else {
                continue;
            };
            self.run.sockets[socket as usize].peer = Some(peer);
            if told.connects {
                self.run.sockets[peer as usize].peer.get_or_insert(socket);
            }
        }
    }
}
