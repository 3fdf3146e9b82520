//! Resize: what is given into pieces that the path takes, and back.

use super::shared::Acknowledged;
use super::{MicroProtocol, Outgoing, Segment, Sent, Shared};
use crate::wire::datagram::{STREAM_HEAD, write_stream};

/// Cuts segments to the room that a datagram has. Putting together is by positions, and needs nothing. (Values are cut, and put together,
/// where their registers are, in `Asynchronous`.)
#[derive(Debug, Default)]
pub struct Resize;

impl MicroProtocol for Resize {
    const NAME: &'static str = "Resize";

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        if !out.takes_data || out.values {
            return;
        }
        let room = out.to.room().saturating_sub(STREAM_HEAD).min(usize::from(u16::MAX)) as u64;
        if out.segment.len == 0 {
            let left = shared.end.min(shared.limit).saturating_sub(shared.fresh);
            out.segment = Segment { pos: shared.fresh, len: left.min(room) as u32 };
        }
        out.segment.len = out.segment.len.min(room as u32);
        if out.segment.pos < shared.start {
            // what is sent for the channel before ends where that does
            let left = shared.start - out.segment.pos;
            out.segment.len = out.segment.len.min(u32::try_from(left).unwrap_or(u32::MAX));
        }
        if out.segment.len > 0 {
            let rescued = out.segment.pos < shared.start;
            write_stream(&mut out.to, rescued, out.segment.pos, out.segment.len as u16);
            out.elicits = true;
        }
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.segment.len > 0 {
            shared.fresh = shared.fresh.max(sent.segment.end());
            if shared.acknowledged == Acknowledged::Nothing {
                // the network below is reliable, and has its own ways to make a sender wait
                shared.had.add(sent.segment.pos..sent.segment.end());
                shared.let_ahead();
            }
        }
    }
}
