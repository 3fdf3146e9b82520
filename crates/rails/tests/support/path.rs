//! A path for datagrams between two workers: it takes its time and loses some.

use super::proxy::by_way_of;
use polyrail_core::wire::Address;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The path. It ends when it is dropped.
pub struct Path {
    port: u16,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// Both directions of it.
struct Way {
    front: UdpSocket,
    back: UdpSocket,
    /// Who is in front.
    client: Option<SocketAddr>,
    /// When it arrives, whether it is the client's, and what.
    under_way: VecDeque<(Instant, bool, Vec<u8>)>,
    came: u64,
}

impl Way {
    /// Takes what came, and gives what is due. False: there was nothing.
    fn carry(&mut self, delay: Duration, loses: u64) -> bool {
        let (mut buffer, mut busy) = ([0; 1 << 14], false);
        for of_client in [true, false] {
            let from = if of_client { &self.front } else { &self.back };
            while let Ok((n, at)) = from.recv_from(&mut buffer) {
                busy = true;
                if of_client {
                    self.client = Some(at);
                }
                self.came += 1;
                if !self.came.is_multiple_of(loses) {
                    self.under_way.push_back((Instant::now() + delay, of_client, buffer[..n].to_vec()));
                }
            }
        }
        while self.under_way.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let Some((_, of_client, bytes)) = self.under_way.pop_front() else { break };
            busy = true;
            let _ = match (of_client, self.client) {
                (true, _) => self.back.send(&bytes),
                (false, Some(client)) => self.front.send_to(&bytes, client),
                (false, None) => Ok(0),
            };
        }
        busy
    }
}

impl Path {
    /// To the worker of this address: so long under way each way, and one in `loses` is lost.
    pub fn start(address: &[u8], delay: Duration, loses: u64) -> Self {
        let (front, back) = (socket(), socket());
        let to = Address::parse(address).expect("an address").port();
        back.connect((Ipv4Addr::LOCALHOST, to)).expect("a port");
        let port = front.local_addr().expect("it is bound").port();
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let thread = std::thread::spawn(move || {
            let mut way = Way { front, back, client: None, under_way: VecDeque::new(), came: 0 };
            while !over.load(Ordering::Relaxed) {
                if !way.carry(delay, loses) {
                    sleep(Duration::from_micros(100));
                }
            }
        });
        Self { port, ends, thread: Some(thread) }
    }

    /// The worker's address by way of this.
    pub fn address(&self, address: &[u8]) -> Vec<u8> {
        by_way_of(address, self.port, &["127.0.0.1"])
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
