//! Receiving on an encrypted link: records into the stream that they carry, which is taken apart as any other.

use super::super::link::{Link, Shared};
use super::super::seal::{Broken, Opener, PLAIN};
use super::super::sys;
use super::{Rx, SEALED, STAGING, Step, Stop, Turn, count};
use crate::rail::reader::copy;
use crate::rail::{LinkId, RawIov, Sink, Span};

/// Receives sealed records, and gives on what was in them.
pub(super) fn receive<S: Sink + ?Sized>(
    id: LinkId,
    link: &mut Link,
    sh: &mut Shared,
    sink: &mut S,
    turn: &mut Turn,
) -> Result<Step, Stop> {
    let fd = link.fd();
    let Link { rx, .. } = link;
    // put back below, unless the link ends
    let Some(mut opener) = rx.opener.take() else { return Ok(Step::Short) };
    let have = opener.partial.len();
    sh.sealed[..have].copy_from_slice(&opener.partial);
    let (mut end, mut step) = (have, Step::Whole);
    if !std::mem::take(&mut rx.leftover) {
        sh.stats.recvs += 1;
        match sys::recv(fd, &mut sh.sealed[have..]) {
            Ok(n) => {
                count(n, turn)?;
                end += n;
                step = Step::new(end, SEALED);
            }
            Err(e) => {
                rx.opener = Some(opener);
                return Err(e.into());
            }
        }
    }
    let records = std::mem::take(&mut sh.sealed);
    let opened = open(id, rx, &mut opener, &records[..end], sh, sink, turn);
    sh.sealed = records;
    let rest = &sh.sealed[opened?..end];
    if rest.is_empty() {
        opener.partial = Vec::new();
    } else {
        opener.partial.clear();
        opener.partial.extend_from_slice(rest);
    }
    rx.opener = Some(opener);
    Ok(step)
}

/// Opens the records that are whole, each to where it belongs: how many bytes they had.
fn open<S: Sink + ?Sized>(
    id: LinkId,
    rx: &mut Rx,
    opener: &mut Opener,
    bytes: &[u8],
    sh: &mut Shared,
    sink: &mut S,
    turn: &mut Turn,
) -> Result<usize, Stop> {
    let mut at = 0;
    while let Some((len, plain)) = Opener::peek(&bytes[at..])? {
        if let Some(rest) = rx.reader.body.filter(|rest| rest.len >= plain)
            && open_in_place(opener, &bytes[at..at + len], Span { len: plain, ..rest }, &mut sh.iov, sink)?
        {
            rx.advance(id, rest, plain, sink, turn);
            at += len;
            continue;
        }
        // what is there of a frame, and as many records as there is room for behind it
        let have = rx.reader.partial.len();
        sh.staging[..have].copy_from_slice(&rx.reader.partial);
        let (mut end, mut opened) = (have, Ok(None));
        while end + PLAIN <= STAGING && (end == have || rx.reader.body.is_none()) {
            opened = opener.open_first(&bytes[at..], &mut sh.staging[end..]);
            let Ok(Some((len, plain))) = opened else { break };
            (at, end) = (at + len, end + plain);
        }
        let here = rx.reader.body.map_or(0, |rest| rest.len.min(end));
        if let Some(rest) = rx.reader.body {
            let place = copy(Span { len: here, ..rest }, &sh.staging[..here], &mut sh.iov, sink);
            rx.advance(id, Span { place, ..rest }, here, sink, turn);
        }
        rx.parse(id, &sh.staging[here..end], &mut sh.iov, sink, turn)?;
        // what came before a record that does not open is as good as ever
        opened?;
    }
    Ok(at)
}

/// Opens a record to the memory of a span of exactly its length, if that is in one piece.
fn open_in_place<S: Sink + ?Sized>(
    opener: &mut Opener,
    record: &[u8],
    span: Span,
    iov: &mut Vec<RawIov>,
    sink: &mut S,
) -> Result<bool, Broken> {
    iov.clear();
    if !sink.resolve(span, iov) {
        return Ok(false);
    }
    let &[RawIov { base, len }] = &iov[..] else { return Ok(false) };
    // SAFETY: the sink just named the address as the span's memory, writable for `len` bytes; nobody here refers to it meanwhile.
    let to = unsafe { std::slice::from_raw_parts_mut(base, len) };
    opener.open(record, to).map(|()| true)
}
