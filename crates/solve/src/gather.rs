//! What the one who looks on makes of a run: how far all are, and in the end the whole solution.

use crate::block::Block;
use crate::certify::{Certificate, certificate};
use crate::run::{Error, Outcome, Progress, Task};
use crate::sweep::distance;
use polyrail_p2p::{Peers, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a summary, at most.
const SUMMARY: usize = 4096;

/// What comes before a process's values.
#[derive(Serialize, Deserialize)]
struct Summary {
    progress: Progress,
    round: u64,
    iteration: u64,
    /// By its bits, which text does not always bring back.
    norm: u64,
    parts: Vec<u32>,
}

/// How one process did.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Share {
    /// Its number in the run.
    pub member: usize,
    /// How it went.
    pub progress: Progress,
    /// The verdict by which it stopped.
    #[serde(skip)]
    pub verdict: Verdict,
}

/// The whole solution.
pub struct Solution {
    /// What was solved.
    pub task: Task,
    /// All points, with the boundary.
    pub whole: Block,
    /// The enclosure that the members' verdict means.
    pub certificate: Certificate,
    /// The same, computed anew from the whole solution here.
    pub again: Certificate,
    /// The largest difference from the solution of the problem between the points, where that is known.
    pub error: Option<f64>,
    /// How the processes did.
    pub shares: Vec<Share>,
}

/// Sends an outcome to the one who looks on.
///
/// # Errors
/// It is gone.
pub fn hand_in(peers: &mut Peers, outcome: &Outcome) -> Result<(), Error> {
    let Verdict { round, iteration, norm } = outcome.verdict;
    let parts = outcome.parts.iter().map(|(number, _)| *number).collect();
    let summary = Summary { progress: outcome.progress, round, iteration, norm: norm.to_bits(), parts };
    let summary = serde_json::to_vec(&summary).expect("numbers");
    let mut bytes = (summary.len() as u32).to_le_bytes().to_vec();
    bytes.extend(summary);
    bytes.extend(outcome.parts.iter().flat_map(|(_, values)| values).flat_map(|value| value.to_le_bytes()));
    Ok(peers.post_to(crate::run::LOOKS_ON, &bytes)?)
}

/// Waits for what all hand in. `look` is told how far they are, several times each second; an error of it ends the wait.
///
/// # Errors
/// A member is gone, or hands in what is none.
pub fn gather(
    peers: &mut Peers,
    mut look: impl FnMut(&[Option<Progress>]) -> Result<(), Error>,
) -> Result<Solution, Error> {
    let task = Task::parse(&peers.view().job.task)?;
    let division = task.divide(peers.view().job.parts)?;
    let members = peers.view().members.len();
    let holders: Vec<usize> =
        (0..members).filter(|member| peers.view().owners.contains(&(*member as u16))).collect();
    let mut far: Vec<Option<Progress>> = vec![None; members];
    let mut handed: Vec<Vec<u8>> = vec![Vec::new(); members];
    let mut summaries: Vec<Option<(Summary, usize)>> = (0..members).map(|_| None).collect();
    let done = |handed: &[Vec<u8>], summaries: &[Option<(Summary, usize)>]| {
        holders.iter().all(|member| {
            summaries[*member].as_ref().is_some_and(|(_, whole)| handed[*member].len() == *whole)
        })
    };
    while !done(&handed, &summaries) {
        if let Some((member, bytes)) = peers.posted(LOOK)? {
            handed[member].extend(bytes);
            if summaries[member].is_none() {
                summaries[member] = summary(&handed[member], member, peers, &division)?;
            }
            if summaries[member].as_ref().is_some_and(|(_, whole)| handed[member].len() > *whole) {
                return Err(Error::Result(member, "it has more values than points".into()));
            }
            continue;
        }
        for member in &holders {
            if let Some(told) = peers.told(*member).and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                far[*member] = Some(told);
            }
            let whole = summaries[*member].as_ref().is_some_and(|(_, whole)| handed[*member].len() == *whole);
            if let (false, Some(why)) = (whole, peers.is_gone(*member)) {
                return Err(polyrail_p2p::Error::Gone { member: *member, why }.into());
            }
        }
        look(&far)?;
    }
    let n = task.problem.n;
    let mut whole = Block::new(&task.problem, [1..n + 1, 1..n + 1, 1..n + 1]);
    let mut shares = Vec::new();
    for (member, entry) in summaries.into_iter().enumerate() {
        let Some((summary, len)) = entry else { continue };
        let values: usize = summary.parts.iter().map(|part| points(&division, *part) * 8).sum();
        let mut bytes = handed[member][len - values..].chunks_exact(8);
        for part in &summary.parts {
            let [x, y, z] = division.points(*part as usize);
            for z in z {
                for y in y.clone() {
                    let row = whole.row(y - 1, z - 1);
                    for at in x.clone() {
                        let value =
                            bytes.next().and_then(|bytes| bytes.first_chunk()).expect("it was counted");
                        whole.u[row + at - 1] = f64::from_le_bytes(*value);
                    }
                }
            }
        }
        let (round, iteration, norm) = (summary.round, summary.iteration, f64::from_bits(summary.norm));
        let verdict = Verdict { round, iteration, norm };
        shares.push(Share { member, progress: summary.progress, verdict });
    }
    let verdict = shares[0].verdict;
    if let Some(other) =
        shares.iter().find(|share| (share.verdict.round, share.verdict.norm) != (verdict.round, verdict.norm))
    {
        return Err(Error::Result(other.member, "it stopped by another verdict than the others".into()));
    }
    Ok(Solution {
        certificate: certificate(&task.problem, verdict.norm),
        again: certificate(&task.problem, distance(&whole)),
        error: error(&task, &whole),
        task,
        whole,
        shares,
    })
}

fn points(division: &crate::divide::Division, part: u32) -> usize {
    division.points(part as usize).iter().map(ExactSizeIterator::len).product()
}

/// The summary that these bytes begin with, once it is whole, and how many bytes there are with the values.
fn summary(
    bytes: &[u8],
    member: usize,
    peers: &Peers,
    division: &crate::divide::Division,
) -> Result<Option<(Summary, usize)>, Error> {
    let Some(len) = bytes.first_chunk().map(|len| u32::from_le_bytes(*len) as usize) else { return Ok(None) };
    let bad = |why: String| Error::Result(member, why);
    if len > SUMMARY + 12 * division.parts() {
        return Err(bad(format!("a summary of {len} bytes")));
    }
    let Some(text) = bytes.get(4..4 + len) else { return Ok(None) };
    let summary: Summary = serde_json::from_slice(text).map_err(|why| bad(why.to_string()))?;
    let owners = &peers.view().owners;
    let held = (0..owners.len() as u32).filter(|part| usize::from(owners[*part as usize]) == member);
    if !held.eq(summary.parts.iter().copied()) {
        return Err(bad("it has other parts than it holds".into()));
    }
    let values: usize = summary.parts.iter().map(|part| points(division, *part) * 8).sum();
    Ok(Some((summary, 4 + len + values)))
}

fn error(task: &Task, whole: &Block) -> Option<f64> {
    let mut most = 0.0_f64;
    for z in 0..task.problem.n {
        for y in 0..task.problem.n {
            let row = whole.row(y, z);
            for x in 0..task.problem.n {
                let at = [x + 1, y + 1, z + 1].map(|i| task.problem.place(i));
                most = most.max((whole.u[row + x] - task.problem.exact(at)?).abs());
            }
        }
    }
    Some(most)
}
