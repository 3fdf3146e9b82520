//! What threads of any rank ask of rank 0's agent: requests of any kind, with any arguments, in any order. Each is answered at most once, within bounds, or the run ends with a reason.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use polyrail_omp::services::{Action, Asker, Server};

const RANKS: usize = 3;
const ROOM: usize = 96;

fuzz_target!(|bytes: &[u8]| {
    let mut server = Server::with_room((0..RANKS).map(|rank| format!("n{rank}")).collect(), ROOM);
    let mut asked: HashMap<Asker, usize> = HashMap::new();
    let mut rest = bytes;
    let mut exchanges = 0;
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        rest = behind;
        let from = Asker { rank: usize::from(head[0] % 4), slot: usize::from(head[0] >> 4) };
        // small numbers meet; large ones overflow
        let arg = |byte: u8| if byte > 250 { u64::MAX - u64::from(255 - byte) } else { u64::from(byte % 16) };
        let args = [head[2], head[3], head[4], head[5], head[6], head[7]].map(arg);
        let (data, behind) = rest.split_at(rest.len().min(usize::from(head[8] % 100)));
        rest = behind;
        match head[1] % 32 {
            30 => {
                exchanges += 1;
                server.handle_submitted(exchanges);
            }
            31 => server.handle_exchange(exchanges, head[2] % 2 == 1),
            kind => {
                *asked.entry(from).or_default() += 1;
                server.handle(from, u32::from(kind), args, data.to_vec());
            }
        }
        while let Some(action) = server.poll_action() {
            match action {
                Action::Answer { to, data, .. } => {
                    let waits = asked.get_mut(&to).filter(|count| **count > 0).expect("it has asked");
                    *waits -= 1;
                    // texts that differ, and what is between them, are longer
                    assert!(data.len() <= 10 * ROOM, "an answer of {} bytes", data.len());
                }
                // it ends here
                Action::Fail(why) => {
                    assert!(!why.is_empty());
                    return;
                }
                Action::Exit(_) => return,
                Action::Keep { from, .. } => assert_eq!(from.rank, 0, "only rank 0 has checkpoints"),
                Action::Serve { .. } | Action::Want(_) => {}
            }
        }
    }
});
