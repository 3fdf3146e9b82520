//! Addresses: golden bytes, both text forms, every refusal, and that no key is ever printed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire_support::{HOST, address, hex, ip, server};
use polyrail_core::wire::{Address, AddressError, HostId, Ip, Key};
use proptest::prelude::*;

const BYTES: &str = "5052010167121d00efcdab8967452301000102030405060708090a0b0c0d0e0fc0000201fe80000000000000000000000000\
                     000102000000c000020200000000";
const TEXT: &str = "polyrail:kbjacalhcioqb36nvoeworjdaeaacaqdaqcqmbyibefawdanbyh4aaacah7iaaaaaaaaaaaaaaaaaaaaaaaqeaaaadaaaaqc\
                    aaaaaaa";

#[test]
fn golden() {
    let address = address();
    assert_eq!(hex(&address.to_bytes()), BYTES);
    assert_eq!(address.expose(), TEXT);
    assert_eq!(address.id().to_string(), "919901a11a7a9157990486135d2edc29");
    assert_eq!(
        address.to_string(),
        "919901a11a7a9157990486135d2edc29 on host 0123456789abcdef, 192.0.2.1:4711, [fe80::1%2]:4711, 192.0.2.2:4711, local"
    );
    let key = Key::derive(b"secret of this user", b"node1:render");
    assert_eq!(key.id().to_string(), "81d19cab6ef7981a7347859042ccf2b3");
}

#[test]
fn the_users_secret_changes_what_is_proved_and_not_who_it_is() {
    let secret = address().needing_secret();
    assert_eq!(hex(&secret.to_bytes()), BYTES.replacen("50520101", "50520111", 1));
    assert!(secret.needs_secret() && !address().needs_secret());
    assert_eq!(Address::parse(&secret.to_bytes()), Ok(secret));
    assert_eq!((secret.key(), secret.id()), (address().key(), address().id()));
    let both = server().with_secret(b"secret of this user");
    assert_eq!(both.id(), server().id());
    let alike = server().with_secret(b"secret of this user");
    let other = server().with_secret(b"secret of that user");
    assert!(both == alike && both != other && both != server());
    // what the address shows is the key alone
    assert_eq!(Address::new(&both, HOST, true, 0, []).unwrap().key(), server());
}

#[test]
fn both_texts_are_read_in_either_case() {
    for text in [TEXT.to_string(), format!("polyrail:{BYTES}")] {
        assert_eq!(text.parse(), Ok(address()));
        let (prefix, digits) = text.split_at("polyrail:".len());
        assert_eq!(format!("{prefix}{}", digits.to_uppercase()).parse(), Ok(address()));
        assert_eq!(text[1..].parse::<Address>(), Err(AddressError::Text));
        assert_eq!(text[..text.len() - 1].parse::<Address>(), Err(AddressError::Text));
        let odd = format!("{}!", &text[..text.len() - 1]);
        assert_eq!(odd.parse::<Address>(), Err(AddressError::Text));
    }
    // The last three bits of base32 stand for nothing.
    let twice = format!("{}b", &TEXT[..TEXT.len() - 1]);
    assert_eq!(twice.parse::<Address>(), Err(AddressError::Text));
}

#[test]
fn nothing_prints_the_key() {
    let address = address();
    let key = "00010203";
    for text in [
        format!("{address:?}"),
        format!("{address}"),
        format!("{:?}", address.key()),
        format!("{:?}", server()),
    ] {
        assert!(!text.contains(key) && text.contains(&address.id().to_string()), "{text}");
    }
}

#[test]
fn what_fits_is_taken_in_order_of_preference() {
    let v4 = |n| Ip::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), 0).unwrap();
    let taken = |ips: &[Ip]| {
        Address::new(&server(), HOST, false, 1, ips.iter().copied()).unwrap().ips().collect::<Vec<_>>()
    };
    let nine: Vec<Ip> = (1..10).map(v4).collect();
    assert_eq!(taken(&nine), nine[..8]);
    let (local, global) = (ip("fe80::1", 9), ip("2001:db8::1", 0));
    assert_eq!(taken(&[global, global, v4(1)]), [global, global]);
    // 20 of 32 bytes are taken: no room for an IPv6, but for what comes after it.
    assert_eq!(taken(&[local, global, v4(1), v4(2), v4(3), v4(4)]), [local, v4(1), v4(2), v4(3)]);
}

#[test]
fn an_ip_is_one_that_can_be_connected_to() {
    for bad in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1", "fe80::1"] {
        assert_eq!(Ip::new(bad.parse().unwrap(), 0), None, "{bad}");
    }
    assert_eq!(ip("2001:db8::1", 3).scope(), 0, "a scope is for link-local IPs");
    assert_eq!(ip("fe80::1", 3).scope(), 3);
    assert_eq!(ip("127.0.0.1", 0).addr(), IpAddr::V4(Ipv4Addr::LOCALHOST));
}

#[test]
fn what_cannot_be_reached_is_no_address() {
    let new = |local, port, ips: &[Ip]| Address::new(&server(), HOST, local, port, ips.iter().copied());
    assert_eq!(new(false, 0, &[]), Err(AddressError::Unreachable));
    assert_eq!(new(true, 1, &[]), Err(AddressError::Port));
    assert_eq!(new(true, 0, &[ip("10.0.0.1", 0)]), Err(AddressError::Port));
    assert_eq!(new(true, 0, &[]).unwrap().sockets().count(), 0);
    assert_eq!(Key::new([0; 16]), None);
}

#[test]
fn every_malformation_has_its_name() {
    let broken = |change: &dyn Fn(&mut [u8; 64])| {
        let mut bytes = address().to_bytes();
        change(&mut bytes);
        Address::parse(&bytes).err()
    };
    assert_eq!(broken(&|_| {}), None);
    assert_eq!(broken(&|b| b[1] = b'Q'), Some(AddressError::Magic));
    assert_eq!(broken(&|b| b[2] = 2), Some(AddressError::Version(2)));
    assert_eq!(broken(&|b| b[3] |= 0x20), Some(AddressError::Flags(0x20)));
    assert_eq!(broken(&|b| b[3] |= 0x0e), None, "flags that need not be understood");
    assert_eq!(broken(&|b| b[4..6].fill(0)), Some(AddressError::Port));
    assert_eq!(broken(&|b| b[7] = 1), Some(AddressError::Ips), "a gap");
    assert_eq!(broken(&|b| b[7] = 0xff), Some(AddressError::Ips));
    assert_eq!(broken(&|b| b[6] = 0xff), Some(AddressError::Ips), "too many");
    assert_eq!(broken(&|b| b[6] = 0x0d), Some(AddressError::Padding), "one IP fewer");
    assert_eq!(broken(&|b| b[16..32].fill(0)), Some(AddressError::NoKey));
    assert_eq!(broken(&|b| b[32..36].fill(0)), Some(AddressError::Ips), "0.0.0.0");
    assert_eq!(broken(&|b| b[52..56].fill(0)), Some(AddressError::Ips), "no scope");
    assert_eq!(broken(&|b| b[63] = 1), Some(AddressError::Padding));
    assert_eq!(Address::parse(&[0; 63]), Err(AddressError::Length(63)));
    assert_eq!(Address::parse(&[0; 65]), Err(AddressError::Length(65)));
}

fn any_ip() -> impl Strategy<Value = Ip> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    let local = any::<u64>().prop_map(|n| IpAddr::V6(Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(n))));
    (prop_oneof![v4, v6, local], 1..9_u32).prop_filter_map("unicast", |(addr, scope)| Ip::new(addr, scope))
}

proptest! {
    #[test]
    fn roundtrip(
        key: [u8; 16],
        host: u64,
        local: bool,
        port in 1..=u16::MAX,
        ips in proptest::collection::vec(any_ip(), 1..10),
    ) {
        let Some(key) = Key::new(key) else { return Ok(()) };
        let address = Address::new(&key, HostId(host), local, port, ips.iter().copied()).unwrap();
        prop_assert_eq!(Address::parse(&address.to_bytes()), Ok(address));
        prop_assert_eq!(address.expose().parse(), Ok(address));
        prop_assert_eq!((address.key(), address.host(), address.is_local(), address.port()), (key, HostId(host), local, port));
        prop_assert_eq!(address.ips().next(), ips.first().copied());
        prop_assert!(address.ips().all(|ip| ips.contains(&ip)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: [u8; 64], valid_head: bool, len in 0..80_usize) {
        if valid_head {
            bytes[..4].copy_from_slice(b"PR\x01\x01");
        }
        if let Ok(address) = Address::parse(&bytes) {
            prop_assert_eq!(address.to_bytes(), bytes);
            let _ = format!("{address} {address:?} {:?}", address.sockets().collect::<Vec<_>>());
        }
        let long: Vec<u8> = bytes.iter().copied().cycle().take(len).collect();
        prop_assert!(len == 64 || Address::parse(&long) == Err(AddressError::Length(len)));
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,140}", digits in "[a-z2-7]{103}|[0-9a-f]{128}") {
        let _ = text.parse::<Address>();
        let _ = format!("polyrail:{text}").parse::<Address>();
        let _ = format!("polyrail:{digits}").parse::<Address>();
    }
}
