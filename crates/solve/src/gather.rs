//! What the one who looks on makes of a run: how far all are, and in the end the whole solution.

use crate::block::Block;
use crate::certify::{Certificate, certificate, trajectory};
use crate::divide::Division;
use crate::run::{Error, LOOKS_ON, Outcome, Progress, Share, Task};
use crate::sweep::distance;
use polyrail_p2p::wire::Wire;
use polyrail_p2p::{Member, Peers, Verdict, View};
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
    /// The same of all time steps.
    norms: Vec<u64>,
    parts: Vec<u32>,
}

/// How one process did.
#[derive(Debug, Clone, Serialize)]
pub struct Did {
    /// Its number in the run.
    pub member: usize,
    /// Who it is: numbers change with who takes part.
    #[serde(skip)]
    pub who: Member,
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
    /// The enclosure that the members' verdict means: the last of `steps`.
    pub certificate: Certificate,
    /// Those of all time steps, one after the other.
    pub steps: Vec<Certificate>,
    /// The same, computed anew from the whole solution here: of the last time step alone.
    pub again: Certificate,
    /// The largest difference from the solution of the problem between the points, where that is known.
    pub error: Option<f64>,
    /// How the processes did.
    pub shares: Vec<Did>,
}

/// Computes this member's share, hands it in, and waits until the one who looks on has all. Where a member is lost before that, all go on.
///
/// # Errors
/// As [`Share::compute`].
pub fn take_part<W: Wire>(peers: &mut Peers<W>) -> Result<(), Error> {
    take_part_in_each(peers, |_, _| {})
}

/// The same, and each time step, by its number, is given what this member's parts have come to, as [`Share::compute_each`] has it.
///
/// # Errors
/// As [`Share::compute`].
pub fn take_part_in_each<W: Wire>(
    peers: &mut Peers<W>,
    mut each: impl FnMut(usize, &Outcome),
) -> Result<(), Error> {
    let mut share = Share::new(peers)?;
    loop {
        let Some(outcome) = share.compute_each(peers, &mut each)? else { return Ok(()) };
        if peers.view().members[LOOKS_ON].weight > 0 {
            return Err(Error::NobodyLooks);
        }
        match hand_in(peers, &outcome).and_then(|()| wait_for_end(peers)) {
            Err(Error::Peers(polyrail_p2p::Error::Changed)) => share.change(peers)?,
            done => return done,
        }
    }
}

fn wait_for_end<W: Wire>(peers: &mut Peers<W>) -> Result<(), Error> {
    loop {
        if peers.posted(LOOK)?.is_some() || peers.is_gone(LOOKS_ON).is_some() {
            return Ok(());
        }
    }
}

fn hand_in<W: Wire>(peers: &mut Peers<W>, outcome: &Outcome) -> Result<(), Error> {
    let Verdict { round, iteration, norm } = outcome.verdict;
    let parts = outcome.parts.iter().map(|(number, _)| *number).collect();
    let norms = outcome.norms.iter().map(|norm| norm.to_bits()).collect();
    let summary =
        Summary { progress: outcome.progress, round, iteration, norm: norm.to_bits(), norms, parts };
    let summary = serde_json::to_vec(&summary).expect("numbers");
    let mut bytes = (summary.len() as u32).to_le_bytes().to_vec();
    bytes.extend(summary);
    let values = outcome.parts.iter().map(|(_, values)| values).chain(&outcome.loads);
    bytes.extend(values.flatten().flat_map(|value| value.to_le_bytes()));
    Ok(peers.post_to(LOOKS_ON, &bytes)?)
}

/// Waits for what all hand in. `look` is told who takes part and how far they are, several times each second; an error of it ends the wait.
///
/// # Errors
/// A member is gone, or hands in what is none.
pub fn gather<W: Wire>(
    peers: &mut Peers<W>,
    mut look: impl FnMut(&View, &[Option<Progress>]) -> Result<(), Error>,
) -> Result<Solution, Error> {
    let task = Task::parse(&peers.view().job.task)?;
    let division = task.divide(peers.view().job.parts)?;
    let handed = loop {
        match collect(peers, (&task, &division), &mut look) {
            // all go on, and hand in anew
            Err(Error::Peers(polyrail_p2p::Error::Changed)) => _ = peers.change(),
            done => break done?,
        }
    };
    // as soon as all have heard that they are done, others may take part
    let members = peers.view().members.clone();
    for member in 1..members.len() {
        // who does not hear it sees that the one who looks on is gone
        let _ = peers.post_to(member, b"done");
    }
    let n = task.problem.n;
    let mut whole = Block::new(&task.problem, [1..n + 1, 1..n + 1, 1..n + 1]);
    let mut shares = Vec::new();
    let mut norms: Option<Vec<u64>> = None;
    for Handed { member, summary, bytes } in handed {
        let values = values_of(&task, &division, &summary.parts);
        let mut bytes = bytes[bytes.len() - values..].chunks_exact(8);
        let mut next = || {
            let value = bytes.next().and_then(|bytes| bytes.first_chunk()).expect("it was counted");
            f64::from_le_bytes(*value)
        };
        for what in [Some(What::Values), task.problem.dt.map(|_| What::Loads)].into_iter().flatten() {
            for part in &summary.parts {
                let [x, y, z] = division.points(*part as usize);
                for z in z {
                    for y in y.clone() {
                        let row = whole.row(y - 1, z - 1);
                        for at in x.clone() {
                            match what {
                                What::Values => whole.u[row + at - 1] = next(),
                                What::Loads => whole.loads[row + at - 1] = next(),
                            }
                        }
                    }
                }
            }
        }
        let known = norms.get_or_insert_with(|| summary.norms.clone());
        if *known != summary.norms
            || known.last() != Some(&summary.norm)
            || known.len() != task.steps as usize
        {
            return Err(Error::Result(member, "its time steps ended otherwise than those of others".into()));
        }
        let (round, iteration, norm) = (summary.round, summary.iteration, f64::from_bits(summary.norm));
        let verdict = Verdict { round, iteration, norm };
        let who = members[member].clone();
        shares.push(Did { member, who, progress: summary.progress, verdict });
    }
    let verdict = shares[0].verdict;
    if let Some(other) =
        shares.iter().find(|share| (share.verdict.round, share.verdict.norm) != (verdict.round, verdict.norm))
    {
        return Err(Error::Result(other.member, "it stopped by another verdict than the others".into()));
    }
    let is_possible = |(u, phi): (&f64, &f64)| u.is_finite() && u >= phi;
    let again = certificate(&task.problem, distance(&whole));
    if !whole.u.iter().zip(&whole.phi).all(is_possible) || again.distance > verdict.norm {
        return Err(Error::Result(
            shares[0].member,
            "the values that came are not those that were judged".into(),
        ));
    }
    let norms: Vec<f64> = norms.into_iter().flatten().map(f64::from_bits).collect();
    let steps = match task.problem.dt {
        Some(_) => trajectory(&task.problem, &norms),
        None => vec![certificate(&task.problem, verdict.norm)],
    };
    Ok(Solution {
        certificate: *steps.last().expect("one at least"),
        steps,
        again,
        error: error(&task, &whole),
        task,
        whole,
        shares,
    })
}

/// What was handed in of points.
#[derive(Clone, Copy)]
enum What {
    Values,
    Loads,
}

/// What a member has handed in, whole.
struct Handed {
    member: usize,
    summary: Summary,
    bytes: Vec<u8>,
}

/// What has come of it, and once its beginning is there, that, and how long it is.
#[derive(Default)]
struct Coming {
    bytes: Vec<u8>,
    known: Option<(Summary, usize)>,
}

impl Coming {
    fn is_whole(&self) -> bool {
        self.known.as_ref().is_some_and(|(_, whole)| self.bytes.len() == *whole)
    }
}

/// Waits until all members of the view have handed in.
fn collect<W: Wire>(
    peers: &mut Peers<W>,
    (task, division): (&Task, &Division),
    look: &mut impl FnMut(&View, &[Option<Progress>]) -> Result<(), Error>,
) -> Result<Vec<Handed>, Error> {
    let members = peers.view().members.len();
    let holds = |member: usize| peers.view().owners.contains(&(member as u16));
    let holders: Vec<usize> = (0..members).filter(|member| holds(*member)).collect();
    let may_be_lost = peers.view().job.keep > 0;
    let mut far: Vec<Option<Progress>> = vec![None; members];
    let mut coming: Vec<Coming> = (0..members).map(|_| Coming::default()).collect();
    while !holders.iter().all(|member| coming[*member].is_whole()) {
        if let Some((member, piece)) = peers.posted(LOOK)? {
            let Coming { bytes, known } = &mut coming[member];
            bytes.extend(piece);
            if known.is_none() {
                *known = summary(bytes, member, peers, (task, division))?;
            }
            if known.as_ref().is_some_and(|(_, whole)| bytes.len() > *whole) {
                return Err(Error::Result(member, "it has more values than points".into()));
            }
            continue;
        }
        for member in &holders {
            if let Some(told) = peers.told(*member).and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                far[*member] = Some(told);
            }
            if let (false, false, Some(why)) =
                (may_be_lost, coming[*member].is_whole(), peers.is_gone(*member))
            {
                return Err(polyrail_p2p::Error::Gone { member: *member, why }.into());
            }
        }
        if peers.is_alone() {
            return Err(Error::Alone);
        }
        look(peers.view(), &far)?;
    }
    let handed = coming
        .into_iter()
        .enumerate()
        .filter_map(|(member, Coming { bytes, known })| Some(Handed { member, summary: known?.0, bytes }));
    Ok(handed.collect())
}

fn points(division: &Division, part: u32) -> usize {
    division.points(part as usize).iter().map(ExactSizeIterator::len).product()
}

/// The summary that these bytes begin with, once it is whole, and how many bytes there are with the values.
fn summary<W: Wire>(
    bytes: &[u8],
    member: usize,
    peers: &Peers<W>,
    (task, division): (&Task, &Division),
) -> Result<Option<(Summary, usize)>, Error> {
    let Some(len) = bytes.first_chunk().map(|len| u32::from_le_bytes(*len) as usize) else { return Ok(None) };
    let bad = |why: String| Error::Result(member, why);
    if len > SUMMARY + 12 * division.parts() + 21 * task.steps as usize {
        return Err(bad(format!("a summary of {len} bytes")));
    }
    let Some(text) = bytes.get(4..4 + len) else { return Ok(None) };
    let summary: Summary = serde_json::from_slice(text).map_err(|why| bad(why.to_string()))?;
    let owners = &peers.view().owners;
    let held = (0..owners.len() as u32).filter(|part| usize::from(owners[*part as usize]) == member);
    if !held.eq(summary.parts.iter().copied()) {
        return Err(bad("it has other parts than it holds".into()));
    }
    let values = values_of(task, division, &summary.parts);
    Ok(Some((summary, 4 + len + values)))
}

/// Bytes of the values of these parts, and of their loads where there are time steps.
fn values_of(task: &Task, division: &Division, parts: &[u32]) -> usize {
    let each = if task.problem.dt.is_some() { 16 } else { 8 };
    parts.iter().map(|part| points(division, *part) * each).sum()
}

fn error(task: &Task, whole: &Block) -> Option<f64> {
    let mut most = 0.0_f64;
    for z in 0..task.problem.n {
        for y in 0..task.problem.n {
            let row = whole.row(y, z);
            for x in 0..task.problem.n {
                let at = [x + 1, y + 1, z + 1].map(|i| task.problem.place(i));
                most = most.max((whole.u[row + x] - task.problem.exact_after(task.steps, at)?).abs());
            }
        }
    }
    Some(most)
}
