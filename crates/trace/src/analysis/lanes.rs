//! Which sockets are lanes of Polyrail's, and what happened to these: its own events beside what was seen of sockets.

use crate::model::{Kind, RailEnd, RailEvent, Run};
use std::collections::HashMap;
use std::net::SocketAddr;

/// A socket as one end of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number: the same at both ends, and used once between two endpoints.
    pub number: u16,
    /// The interface at this end, where it is known.
    pub interface: Option<String>,
    /// Whether it is encrypted.
    pub encrypted: bool,
}

/// The lanes of a run, by socket; and processes by the names of their endpoints.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    by_socket: HashMap<u32, Lane>,
    endpoints: HashMap<String, u32>,
}

/// The two names of a lane's socket.
fn names(event: &RailEvent) -> Option<(SocketAddr, SocketAddr)> {
    let parse = |end: &Option<RailEnd>| end.as_ref()?.address.parse().ok();
    Some((parse(&event.near)?, parse(&event.far)?))
}

impl Lanes {
    /// Of a run.
    pub fn new(run: &Run) -> Lanes {
        let mut up = HashMap::new();
        let mut lanes = Lanes::default();
        for event in &run.rails {
            lanes.endpoints.insert(event.endpoint.clone(), event.process);
            if let ("lane_up", Some(number), Some(names)) = (&*event.event, event.lane, names(event)) {
                let interface = event.near.as_ref().and_then(|near| near.interface.clone());
                up.insert(names, Lane { number, interface, encrypted: event.encrypted == Some(true) });
            }
        }
        for (socket, about) in (0..).zip(&run.sockets).filter(|(_, about)| about.kind == Kind::Tcp) {
            let names = about.local.zip(about.remote);
            if let Some(lane) = names.and_then(|names| up.get(&names)) {
                lanes.by_socket.insert(socket, lane.clone());
            }
        }
        lanes
    }

    /// The lane that a socket is an end of.
    pub fn of(&self, socket: u32) -> Option<&Lane> {
        self.by_socket.get(&socket)
    }

    /// The process of an endpoint, where it told anything.
    pub fn process(&self, endpoint: &str) -> Option<u32> {
        self.endpoints.get(endpoint).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Socket;

    #[test]
    fn a_socket_is_the_lane_that_has_its_names() {
        let line = |near: &str, far: &str, lane: u16| {
            let end =
                |address: &str| Some(RailEnd { interface: Some("eth1".into()), address: address.into() });
            RailEvent {
                event: "lane_up".into(),
                endpoint: "0a0b".into(),
                process: 3,
                lane: Some(lane),
                near: end(near),
                far: end(far),
                ..RailEvent::default()
            }
        };
        let socket = |local: &str, remote: &str, kind| Socket {
            kind,
            local: local.parse().ok(),
            remote: remote.parse().ok(),
            ..Socket::default()
        };
        let run = Run {
            rails: vec![line("10.0.0.1:5", "10.0.0.2:6", 0), line("[fe80::1]:7", "no address", 1)],
            sockets: vec![
                socket("10.0.0.2:6", "10.0.0.1:5", Kind::Tcp),
                socket("10.0.0.1:5", "10.0.0.2:6", Kind::Udp),
                socket("10.0.0.1:5", "10.0.0.2:6", Kind::Tcp),
            ],
            ..Run::default()
        };
        let lanes = Lanes::new(&run);
        let expected = Lane { number: 0, interface: Some("eth1".into()), encrypted: false };
        assert_eq!((lanes.of(0), lanes.of(1), lanes.of(2)), (None, None, Some(&expected)));
        assert_eq!((lanes.process("0a0b"), lanes.process("ffff")), (Some(3), None));
    }
}
