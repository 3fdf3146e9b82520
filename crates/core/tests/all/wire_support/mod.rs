//! The examples of `docs/wire.md` and `docs/wire-datagrams.md`. Their bytes were computed by `wire_golden.py`, not by this crate.

use polyrail_core::wire::handshake::{Challenge, HELLO_LEN, Hello, Transcript};
use polyrail_core::wire::offer::{
    Interface, InterfaceFlags, InterfaceName, Limits, MemoryProbe, Net, Process,
};
use polyrail_core::wire::{Address, Features, HostId, Ip, Key, Kind, Nonce, Offer, Transport, Versions};

pub const HOST: HostId = HostId(0x0123_4567_89ab_cdef);

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn server() -> Key {
    Key::new(std::array::from_fn(|n| n as u8)).unwrap()
}

pub fn client() -> Key {
    Key::new(std::array::from_fn(|n| n as u8 + 16)).unwrap()
}

pub fn ip(text: &str, scope: u32) -> Ip {
    Ip::new(text.parse().unwrap(), scope).unwrap()
}

pub fn address() -> Address {
    Address::new(&server(), HOST, true, 4711, [ip("192.0.2.1", 0), ip("fe80::1", 2), ip("192.0.2.2", 0)])
        .unwrap()
}

pub fn hello() -> Hello {
    Hello {
        versions: Versions::new(1, 3).unwrap(),
        features: Features(0b1011),
        kind: Kind::Session,
        transport: Transport::TCP,
        nonce: Nonce([0x11; 16]),
        from: client().id(),
        to: server().id(),
    }
}

pub fn challenge() -> Challenge {
    Challenge { version: 2, features: Features(0b1001), nonce: Nonce([0x22; 16]) }
}

pub fn transcript() -> Transcript {
    let hello: [u8; HELLO_LEN] = hello().to_bytes();
    Transcript { hello, challenge: challenge().seal(&server(), &hello) }
}

pub fn net(ip: &str, prefix: u8) -> Net {
    Net::new(ip.parse().unwrap(), prefix).unwrap()
}

pub fn interface() -> Interface {
    Interface {
        name: InterfaceName::new("eth0").unwrap(),
        index: 2,
        speed: 10_000,
        flags: InterfaceFlags(0),
        nets: vec![net("192.0.2.1", 24), net("fe80::1", 64)],
    }
}

pub fn offer() -> Offer {
    let process = Process { pid: 4242, uid: 1000, host: HOST };
    let mut offer = Offer::new(process, Limits::new(65536, 1 << 20).unwrap());
    offer.probe = Some(MemoryProbe { address: 0x7fff_1234_5678, nonce: 0xa1a2_a3a4_a5a6_a7a8 });
    offer.seal = Some([0x77; 32]);
    offer.push_interface(interface()).unwrap();
    assert!(offer.push_transport(Transport::SHM, &[1, 0]) && offer.push_transport(Transport::TCP, &[]));
    offer
}
