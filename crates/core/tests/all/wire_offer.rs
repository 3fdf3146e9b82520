//! Offers: golden bytes, bounds, refusals, and that parsers never panic.

use std::net::IpAddr;

use crate::wire_support::{hex, interface, net, offer};
use polyrail_core::wire::codec::{Reader, Short, Writer};
use polyrail_core::wire::handshake::MAX_OFFER;
use polyrail_core::wire::offer::{
    Field, Interface, InterfaceFlags, InterfaceName, Limits, MAX_INTERFACES, MAX_REACHED_BY, MAX_TRANSPORTS,
    MemoryProbe, Net, Process,
};
use polyrail_core::wire::{HostId, Offer, OfferError, OfferView, Transport};
use proptest::{collection::vec, option, prelude::*};

const BYTES: &str = "0100100092100000e8030000efcdab89674523010200100078563412ff7f0000a8a7a6a5a4a3a2a1040008000000010000001000050027000200000010270000000004657468300418c00002010640fe800000000000000000000000000001060003000101000600010002070020007777777777777777777777777777777777777777777777777777777777777777";

#[test]
fn golden() {
    assert_eq!(hex(&offer().to_bytes()), BYTES);
    assert_eq!(Offer::parse(&offer().to_bytes()), Ok(offer()));
}

#[test]
fn the_view_prints_what_is_there() {
    let mut bytes = offer().to_bytes();
    bytes.extend([0xff, 0xff, 1, 0, 7]);
    let view = OfferView::parse(&bytes).unwrap();
    assert_eq!(view.fields().count(), 8);
    assert!(matches!(view.fields().last(), Some(Field::Unknown(0xffff))));
    let text = format!("{view:?}");
    assert!(
        text.contains("name: eth0")
            && text.contains("Transport(shm, [1, 0])")
            && text.contains("192.0.2.1/24")
            && text.contains("Unknown(65535)"),
        "{text}"
    );
    assert_eq!(Offer::parse(&bytes), Ok(offer()), "what is unknown is passed over");
}

fn field(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
}

fn least() -> Vec<u8> {
    [field(1, &[1; 16]), field(4, &[0, 4, 0, 0, 0, 0, 0, 0])].concat()
}

#[test]
fn every_malformation_has_its_name() {
    let parse = |more: &[Vec<u8>]| OfferView::parse(&[least(), more.concat()].concat()).err();
    assert_eq!(parse(&[]), None);
    assert_eq!(OfferView::parse(b"").err(), Some(OfferError::Missing(1)));
    assert_eq!(OfferView::parse(&field(1, &[1; 16])).err(), Some(OfferError::Missing(4)));
    assert_eq!(OfferView::parse(&vec![0; MAX_OFFER + 1]).err(), Some(OfferError::Long));
    assert_eq!(parse(&[vec![9]]), Some(OfferError::Short));
    assert_eq!(parse(&[vec![9, 0, 2, 0, 1]]), Some(OfferError::Short));
    assert_eq!(parse(&[field(1, &[1; 16])]), Some(OfferError::TooMany(1)));
    assert_eq!(parse(&[field(2, &[1; 15])]), Some(OfferError::Short));
    assert_eq!(parse(&[field(2, &[1; 17])]), Some(OfferError::Malformed(2)));
    assert_eq!(parse(&[field(3, &[1, 0]), field(3, &[1, 0])]), None, "nothing that this version knows");
    assert_eq!(
        OfferView::parse(&field(4, &[0; 8])).err(),
        Some(OfferError::Malformed(4)),
        "no room in a frame"
    );
    assert_eq!(parse(&[field(6, &[])]), Some(OfferError::Short));
    assert_eq!(parse(&[field(6, &[0])]), Some(OfferError::Malformed(6)), "no transport");
    assert_eq!(parse(&[field(6, &[250; 1 + MAX_REACHED_BY])]), None, "one that nobody has");
    assert_eq!(parse(&[field(6, &[2; 2 + MAX_REACHED_BY])]), Some(OfferError::Malformed(6)));
    assert_eq!(parse(&[field(6, &[2]), field(6, &[2, 1])]), Some(OfferError::TooMany(6)), "the same twice");
    assert_eq!(parse(&[field(7, &[1; 32])]), None);
    assert_eq!(parse(&[field(7, &[1; 32]), field(7, &[2; 32])]), Some(OfferError::TooMany(7)));
    assert_eq!(parse(&[field(7, &[1; 31])]), Some(OfferError::Short));
    assert_eq!(parse(&[field(7, &[1; 33])]), Some(OfferError::Malformed(7)));
    let interface =
        |name: &[u8], nets: &[u8]| field(5, &[&[0; 10], &[name.len() as u8][..], name, nets].concat());
    assert_eq!(parse(&[interface(b"eth0", &[4, 32, 10, 0, 0, 1])]), None);
    for (name, nets) in [
        (&b""[..], &b""[..]),
        (b"a name of sixtee", b""),
        (b"sixteen-visible-", b""),
        (b"sl/ash", b""),
        (b"new\nline", b""),
        (&[0xff], b""),
        (b"eth0", &[4, 33, 10, 0, 0, 1]),
        (b"eth0", &[5, 1, 10, 0, 0, 1]),
    ] {
        assert_eq!(parse(&[interface(name, nets)]), Some(OfferError::Malformed(5)), "{name:?}");
    }
    assert_eq!(parse(&[interface(b"eth0", &[4, 32, 10, 0, 0])]), Some(OfferError::Short));
    let many: Vec<_> = (0..=MAX_INTERFACES).map(|_| interface(b"e", b"")).collect();
    assert_eq!((parse(&many[1..]), parse(&many)), (None, Some(OfferError::TooMany(5))));
    let many: Vec<_> = (0..=MAX_TRANSPORTS).map(|n| field(6, &[n as u8 + 1])).collect();
    assert_eq!((parse(&many[1..]), parse(&many)), (None, Some(OfferError::TooMany(6))));
}

#[test]
fn a_full_offer_still_fits() {
    let mut full = Offer::new(Process { pid: 1, uid: 2, host: HostId(3) }, Limits::new(512, 0).unwrap());
    let wide = Interface { nets: vec![net("2001:db8::1", 64); 40], ..interface() };
    while full.push_interface(wide.clone()).is_ok() {}
    let narrow = Interface { nets: vec![], ..interface() };
    while full.push_interface(narrow.clone()).is_ok() {}
    assert_eq!(full.push_interface(narrow.clone()), Err(narrow));
    let transport = |n: usize| Transport::from_wire(n as u8 + 1).unwrap();
    assert!((0..MAX_TRANSPORTS).all(|n| full.push_transport(transport(n), &[n as u8; MAX_REACHED_BY])));
    assert!(!full.push_transport(transport(MAX_TRANSPORTS), &[]), "one more");
    assert_eq!(full.reached_by(transport(3)), Some(&[3; MAX_REACHED_BY][..]));
    assert_eq!(full.reached_by(transport(MAX_TRANSPORTS)), None);
    full.seal = Some([7; 32]);
    full.probe = Some(MemoryProbe { address: 1, nonce: 2 });
    let bytes = full.to_bytes();
    assert!(bytes.len() <= MAX_OFFER && bytes.len() > MAX_OFFER - 20, "{}", bytes.len());
    assert_eq!(Offer::parse(&bytes), Ok(full.clone()));
    let mut one = Offer::new(full.process, full.limits);
    assert!(!one.push_transport(Transport::UDP, &[0; 1 + MAX_REACHED_BY]));
    assert!(one.push_transport(Transport::UDP, b"a") && !one.push_transport(Transport::UDP, b"b"));
    let mut many = Offer::new(full.process, full.limits);
    let small = Interface { nets: vec![], ..interface() };
    assert_eq!((0..40).filter(|_| many.push_interface(small.clone()).is_ok()).count(), MAX_INTERFACES);
}

#[test]
fn networks_contain_their_own() {
    let has = |net: Net, ip: &str| net.contains(ip.parse::<IpAddr>().unwrap());
    assert!(has(net("10.1.2.3", 8), "10.9.9.9") && !has(net("10.1.2.3", 8), "11.1.2.3"));
    assert!(has(net("10.1.2.3", 32), "10.1.2.3") && !has(net("10.1.2.3", 32), "10.1.2.2"));
    assert!(has(net("10.1.2.3", 0), "1.1.1.1") && !has(net("10.1.2.3", 0), "::1"));
    assert!(has(net("2001:db8::1", 64), "2001:db8::2") && !has(net("2001:db8::1", 64), "2001:db8:0:1::1"));
    assert!(has(net("2001:db8::1", 128), "2001:db8::1") && !has(net("2001:db8::1", 127), "2001:db8::2"));
    assert_eq!((Net::new([0; 4].into(), 33), Net::new([0; 16].into(), 129)), (None, None));
}

#[test]
fn fields_are_bounded() {
    let mut reader = Reader::new(&[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((reader.u16(), reader.u32(), reader.u16()), (Ok(0x0201), Ok(0x0605_0403), Err(Short)));
    assert_eq!(
        (reader.len(), reader.bytes(2), reader.rest(), reader.is_empty()),
        (1, Err(Short), &[7][..], true)
    );
    let mut room = [0; 7];
    let mut writer = Writer::new(&mut room);
    assert_eq!(writer.u16(0x0201).u32(0x0605_0403).finish(), Ok(6));
    assert_eq!(writer.u16(0xffff).u8(7).finish(), Err(Short));
    assert_eq!(room, [1, 2, 3, 4, 5, 6, 0], "nothing after what did not fit");
}

fn any_net() -> impl Strategy<Value = Net> {
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(ip, prefix)| Net::new(ip.into(), prefix).unwrap());
    let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(ip, prefix)| Net::new(ip.into(), prefix).unwrap());
    prop_oneof![v4, v6]
}

prop_compose! {
    fn any_interface()(
        name in "[!-.0-~]{1,15}", (index, speed, flags) in any::<(u32, u32, u16)>(), nets in vec(any_net(), 0..5),
    ) -> Interface {
        Interface { name: InterfaceName::new(&name).unwrap(), index, speed, flags: InterfaceFlags(flags), nets }
    }
}

prop_compose! {
    fn any_offer()(
        (pid, uid, host) in any::<(u32, u32, u64)>(), (max_frame, window) in (Limits::MIN_FRAME.., any::<u32>()),
        probe in option::of(any::<(u64, u64)>()), seal in option::of(any::<[u8; 32]>()),
        interfaces in vec(any_interface(), 0..=MAX_INTERFACES),
        transports in vec((1..=u8::MAX, vec(any::<u8>(), 0..=MAX_REACHED_BY)), 0..=MAX_TRANSPORTS),
    ) -> Offer {
        let process = Process { pid, uid, host: HostId(host) };
        let mut offer = Offer::new(process, Limits::new(max_frame, window).unwrap());
        offer.probe = probe.map(|(address, nonce)| MemoryProbe { address, nonce });
        offer.seal = seal;
        for interface in interfaces {
            // Whatever fits.
            let _ = offer.push_interface(interface);
        }
        for (number, by) in transports {
            // The first of each.
            let _ = offer.push_transport(Transport::from_wire(number).unwrap(), &by);
        }
        offer
    }
}

proptest! {
    #[test]
    fn roundtrip(offer in any_offer()) {
        let bytes = offer.to_bytes();
        prop_assert!(bytes.len() <= MAX_OFFER);
        prop_assert_eq!(Offer::parse(&bytes), Ok(offer));
    }

    #[test]
    fn changed_bytes_never_panic(offer in any_offer(), changes in vec((any::<u16>(), any::<u8>()), 1..4), cut: u16) {
        let mut bytes = offer.to_bytes();
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - usize::from(cut) % 8);
        if let Ok(view) = OfferView::parse(&bytes) {
            let _ = format!("{view:?}");
        }
        if let Ok(offer) = Offer::parse(&bytes) {
            prop_assert_eq!(Offer::parse(&offer.to_bytes()), Ok(offer));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = OfferView::parse(&bytes).map(|view| format!("{view:?}"));
        let _ = Offer::parse(&[least(), bytes].concat());
    }
}
