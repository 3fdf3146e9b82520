//! Datagrams of the UDP transport: what is read can be printed, and is written as the same bytes; nothing is read behind an error.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::wire::codec::Writer;
use polyrail_core::wire::datagram::{
    ACK_RANGES, AckHead, Chunk, Chunks, HEADER, Header, TAG, is_opening_tag, write, write_ack, write_stream,
    write_value,
};
use polyrail_fuzz::key;

/// A chunk as bytes, of which there are no more than so many.
fn written(chunk: &Chunk<'_>, most: usize) -> Vec<u8> {
    let mut room = vec![0; most];
    let mut to = Writer::new(&mut room);
    match *chunk {
        Chunk::Ack(ack) => {
            let head =
                AckHead { delay: ack.delay, largest: ack.largest, below: ack.below, marked: ack.marked };
            let ranges: Vec<_> = ack.ranges().collect();
            assert!(ranges.len() <= ACK_RANGES);
            write_ack(&mut to, &head, ranges.iter().copied());
        }
        Chunk::Stream { rescued, pos, bytes } => {
            assert!(pos.checked_add(bytes.len() as u64).is_some());
            write_stream(&mut to, rescued, pos, bytes.len() as u16);
            to.bytes(bytes);
        }
        Chunk::Value(value) => write_value(&mut to, &value),
        _ => write(&mut to, chunk),
    }
    let len = to.finish().expect("as long as it was");
    room.truncate(len);
    room
}

fuzz_target!(|data: &[u8]| {
    match Header::parse(data) {
        Ok(header) => {
            assert_eq!(header.to_bytes(), data[..HEADER]);
            let _ = format!("{header:?}");
        }
        Err(error) => {
            let _ = format!("{error} {error:?}");
        }
    }
    if let Some((said, tag)) = data.split_last_chunk::<TAG>() {
        assert!(!is_opening_tag(&key(1), &[], said, tag), "nobody guesses that");
    }
    let content = data.get(HEADER..).unwrap_or(data);
    let (mut chunks, mut again) = (Chunks::new(content), Vec::new());
    for chunk in &mut chunks {
        match chunk {
            Ok(chunk) => {
                let _ = format!("{chunk:?}");
                let bytes = written(&chunk, content.len());
                assert_eq!(Chunks::new(&bytes).collect::<Vec<_>>(), [Ok(chunk)]);
                again.push(bytes);
            }
            Err(error) => {
                let _ = format!("{error} {error:?}");
                break;
            }
        }
    }
    assert_eq!(chunks.next(), None, "there is nothing behind the end, or an error");
    // but for padding it is what was there
    let mut rest = content;
    for bytes in again {
        let padding = rest.iter().take_while(|byte| **byte == 0).count();
        rest = rest[padding..].strip_prefix(&bytes[..]).expect("the same bytes");
    }
});
