//! Gateways: any message of another gateway, any call of a program, any token is read or refused; what is read is written as what reads the same; and a
//! stream that hears any message gives on each byte once, in order, and holds no more than there is room for.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_gateway::call::{self, Step};
use polyrail_gateway::flow::{Incoming, Piece, ROOM_MAX};
use polyrail_gateway::site::Token;
use polyrail_gateway::wire::Message;

struct Bytes(Vec<u8>);

impl Piece for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Message::parse(data) {
        let bytes = message.to_bytes();
        assert_eq!(Message::parse(&bytes).as_ref(), Ok(&message));
    }
    for greeted in [false, true] {
        match call::read(data, greeted) {
            Step::Answer(_, used) | Step::Wants(_, used) => assert!(used <= data.len() && used > 0),
            Step::More => assert!(data.len() < call::CALL_MAX),
            Step::Bad(..) => {}
        }
    }
    if let Some(token) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Token>().ok()) {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
    // a stream, with offsets of a byte or two so that they meet
    let Some((&room, mut rest)) = data.split_first() else { return };
    let mut incoming = Incoming::new(u64::from(room) + 1);
    let mut given = 0_u64;
    while let [kind, offset, len, more @ ..] = rest {
        rest = more;
        let (offset, len) = (u64::from(*offset), usize::from(*len % 32));
        match kind % 3 {
            0 => _ = incoming.arrive(offset, Bytes((offset..).take(len).map(|at| at as u8).collect())),
            1 => _ = incoming.finish(offset),
            _ => {
                if let Some(piece) = incoming.ready().pop_front() {
                    for byte in &piece.0 {
                        assert_eq!(*byte, given as u8);
                        given += 1;
                    }
                    incoming.take(piece.len(), ROOM_MAX);
                }
            }
        }
        assert!(incoming.taken() == given && incoming.held() <= ROOM_MAX);
        assert!(!incoming.is_over() || incoming.held() == 0);
    }
});
