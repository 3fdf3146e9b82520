//! What a program needs to be started by a launcher: `mpiexec -n 4 started`, `srun -n 4 started`, or with `POLYRAIL_MEET`. Each process says what it heard of
//! the others' parts.

use polyrail_p2p::{Error, Job, Link, Peers, Scheme, Settings};
use std::time::Duration;

fn main() -> Result<(), Error> {
    let parts = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(4);
    let job = Job { parts, scheme: Scheme::Synchronous, tolerance: 0.0, every: 1, keep: 0, task: Vec::new() };
    let mut peers = Peers::start(Settings::from_env()?, job)?;
    let mine = peers.parts().to_vec();
    let others: Vec<u32> = (0..parts).filter(|part| !mine.contains(part)).collect();
    let mut heard = Vec::new();
    for part in &mine {
        for other in &others {
            peers.send(Link::new(*part, *other), &part.to_le_bytes())?;
        }
    }
    for part in &mine {
        for other in &others {
            let mut bytes = [0; 4];
            peers.receive(Link::new(*other, *part), &mut bytes)?;
            heard.push(u32::from_le_bytes(bytes));
        }
    }
    while peers.converged(0.0)?.is_none() {}
    println!("parts {mine:?} of {} heard of {heard:?}", peers.view().job.parts);
    peers.leave(Duration::from_secs(5));
    Ok(())
}
