//! What Polyrail's rails tell of themselves, where they run in this process: the table that they look for.

use polyrail_core::trace::rails::{Recorder, VERSION};
use polyrail_core::trace::{Call, SocketFields, note};

use crate::{filter, recorder, sockets};

/// Longest line of an event that is recorded, in bytes.
const LINE: usize = 4096;

/// The table.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of C")]
pub static polyrail_recorder: Recorder = Recorder { version: VERSION, now, link, moved, event };

extern "C" fn now() -> u64 {
    recorder::now()
}

/// Connections that are chosen by their ports are of the network.
extern "C" fn link(near: u64, far: u64) -> u32 {
    if !recorder::on() || filter::by_port() {
        return 0;
    }
    recorder::follow_fork();
    let number = sockets::new_number();
    let mut payload = [0; note::LINK_BYTES];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload[8..16].copy_from_slice(&near.to_le_bytes());
    payload[16..].copy_from_slice(&far.to_le_bytes());
    if recorder::tell(note::LINK, &payload) { number } else { 0 }
}

extern "C" fn moved(call: u8, link: u32, start: u64, bytes: u64) {
    let Some(call) = Call::SHARED.into_iter().find(|shared| *shared as u8 == call) else { return };
    if recorder::on() {
        let bytes = bytes.min(i32::MAX as u64) as i32;
        let fields = SocketFields { socket: link, result: bytes, arg: bytes as u32, arg2: 0, extra: 0 };
        recorder::call(call, start, false, fields);
    }
}

unsafe extern "C" fn event(line: *const u8, length: usize) {
    if !recorder::on() || length > LINE {
        return;
    }
    let mut payload = [0; 8 + LINE];
    // SAFETY: readable, as our caller says
    payload[8..8 + length].copy_from_slice(unsafe { std::slice::from_raw_parts(line, length) });
    recorder::tell(note::EVENT, &payload[..8 + length]);
}
