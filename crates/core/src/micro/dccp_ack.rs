//! DCCPAck: which datagrams came is said of all of them, and nothing is sent again for that.

use super::acknowledging::{Acknowledging, note_number};
use super::shared::Acknowledged;
use super::{Arrived, MicroProtocol, Outgoing, Shared, Time};
use crate::wire::datagram::Ack;

/// A datagram after which so many came counts as lost (NUMDUPACK: RFC 4341, 5.1).
const LATER: u64 = 3;

/// The acknowledgements of DCCP's CCID 2 (ack vectors: RFC 4340, 11.4; RFC 4341, 6): it numbers what comes, says which of it came as
/// ranges, in the chunk that the synchronous channels have, too, and reads what the other side says. From that follows what was
/// acknowledged, and what is lost, which is all that window controllers need; a value that is lost is no matter of this. Every second
/// datagram is answered for (an ack ratio of 2), and one that leaves a gap at once.
#[derive(Debug, Default)]
pub struct DCCPAck {
    acks: Acknowledging,
    floor: u64,
}

impl MicroProtocol for DCCPAck {
    const NAME: &'static str = "DCCPAck";

    fn open(&mut self, shared: &mut Shared) {
        shared.acknowledged = Acknowledged::All;
    }

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        let fresh = note_number(shared, &mut self.floor, arrived.number);
        if fresh {
            self.acks.note(shared, arrived);
        }
        fresh
    }

    fn urges(&self, shared: &Shared) -> bool {
        self.acks.urges(shared)
    }

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        self.acks.write(shared, out);
    }

    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        self.acks.read(shared, ack);
    }

    fn detect(&mut self, shared: &mut Shared) {
        let Some(largest) = shared.largest_acked else { return };
        shared.lose(|sent| sent.number + LATER <= largest);
    }

    fn due(&self, _shared: &Shared) -> Time {
        self.acks.due()
    }
}

#[cfg(test)]
mod tests {
    use super::super::delivery::Mark;
    use super::super::{Fate, Segment, Sent};
    use super::*;
    use crate::wire::codec::Writer;
    use crate::wire::datagram::{Chunk, Chunks};
    use alloc::vec::Vec;

    fn side() -> (DCCPAck, Shared) {
        let (mut one, mut shared) = (DCCPAck::default(), Shared::new(0, 1000, 0, 1 << 30, 0));
        one.open(&mut shared);
        (one, shared)
    }

    fn acknowledgement(one: &mut DCCPAck, shared: &mut Shared) -> Vec<u8> {
        let mut room = [0; 100];
        let to = Writer::new(&mut room);
        let segment = Segment::default();
        let mut out =
            Outgoing { to, segment, takes_data: false, values: false, elicits: false, probes_path: false };
        one.to_net(shared, &mut out);
        let len = out.to.finish().expect("it fits");
        room[..len].to_vec()
    }

    #[test]
    fn all_that_came_is_said_and_what_three_have_overtaken_is_lost() {
        let (mut sender, mut shared) = side();
        for number in 0..8 {
            let (segment, mark) = (Segment::default(), Mark::default());
            let sent =
                Sent { number, at: 0, size: 1000, segment, probes_path: false, fate: Fate::Flying, mark };
            shared.flight.push(sent);
        }
        let (mut receiver, mut theirs) = side();
        for number in [0, 1, 3, 3, 6] {
            let arrived = Arrived { number, size: 1000, elicits: true, marked: false };
            let before = theirs.came.has(number);
            assert_eq!(receiver.from_net(&mut theirs, &arrived), !before);
        }
        assert!(receiver.urges(&theirs));
        let said = acknowledgement(&mut receiver, &mut theirs);
        assert!(!receiver.urges(&theirs) && acknowledgement(&mut receiver, &mut theirs).is_empty());
        let Some(Ok(Chunk::Ack(ack))) = Chunks::new(&said).next() else { panic!("no acknowledgement") };
        sender.ack_from_net(&mut shared, &ack);
        sender.detect(&mut shared);
        let numbers = |list: &[Sent]| list.iter().map(|sent| sent.number).collect::<Vec<_>>();
        let mut acked = numbers(&shared.newly_acked);
        acked.sort_unstable();
        assert_eq!((acked, numbers(&shared.newly_lost)), ([0, 1, 3, 6].to_vec(), [2].to_vec()));
        assert!(!shared.has_data(), "nothing is sent again");
    }
}
