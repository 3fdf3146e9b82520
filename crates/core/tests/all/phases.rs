//! The phases of sends and receives, whole: a changed protocol is a changed cell.

use crate::snapshot;
use polyrail_core::proto::machines::{RECV, SEND};

#[test]
fn send_is_as_pinned() {
    snapshot::machine(&SEND);
}

#[test]
fn recv_is_as_pinned() {
    snapshot::machine(&RECV);
}
