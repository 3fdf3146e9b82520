//! Broadcasts by multicast: what is read of datagrams and messages is written as the same bytes; and a root and a host that hear anything, in any
//! order, do not panic, and send no more than there is.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::coll::cast::{Announcement, Answer, Head, Receiver, Sender, Window, Word};

fuzz_target!(|data: &[u8]| {
    if let Some(head) = Head::parse(data) {
        assert_eq!(head.to_bytes(), data[..16]);
    }
    if let Some(announced) = Announcement::parse(data) {
        assert_eq!(announced.to_bytes(), data);
    }
    let (chunks, window) = match data {
        [chunks, window, ..] => (u32::from(*chunks) + 1, Window::new((*window).into())),
        _ => return,
    };
    let (mut root, mut host) = (Sender::new(chunks, window, 2), Receiver::new(chunks, window.each(), 3));
    let mut alone = 0;
    // words and answers one after the other, each behind its length
    let mut rest = &data[2..];
    while let Some((len, more)) = rest.split_first() {
        let Some((bytes, more)) = more.split_at_checked((*len).into()) else { break };
        rest = more;
        let may = root.may_send();
        assert!(may.start <= may.end && may.end <= chunks);
        root.sent((may.end - may.start).div_ceil(2));
        if let Some((operation, word)) = Word::parse(bytes) {
            assert_eq!(word.to_bytes(operation), bytes);
            for range in root.heard((operation % 2) as usize, &word).into_iter().flatten() {
                assert!(range.start < range.end && range.end <= chunks);
                alone += range.end - range.start;
            }
        }
        if let Some((operation, answer, behind)) = Answer::parse(bytes) {
            assert_eq!(answer.to_bytes(operation), bytes[..16]);
            match answer {
                Answer::Sent(sent) => host.sent(sent),
                Answer::Chunks(range, last) => {
                    host.came(range);
                    if last {
                        host.answered();
                    }
                }
            }
            let _ = behind;
        }
        if let Some(word) = host.word(bytes.len() % 2 == 0) {
            let told = word.to_bytes(1);
            assert_eq!(Word::parse(&told), Some((1, word)));
        }
    }
    assert!(alone <= 2 * chunks && host.prefix() <= chunks);
});
