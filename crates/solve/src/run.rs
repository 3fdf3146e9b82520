//! A process's share of a run: its blocks, iteration by iteration.

use crate::block::{Block, Face};
use crate::divide::{Division, Indivisible};
use crate::multigrid::{COARSEST, Exchange, Multigrid, halves, whole};
use crate::problem::{Instance, Problem};
use crate::sweep::{Method, distance, psor, richardson_many};
use crate::values::Values;
use polyrail_p2p::wire::Wire;
use polyrail_p2p::{Link, Peers, Received, Scheme, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Points in each direction, at most: a solution of 64 GiB.
pub const POINTS: usize = 2047;
/// Points in each direction of a grid of multigrid that each process solves whole, at most.
const WHOLE: usize = 127;
/// Time steps of a run, at most.
pub const STEPS: u32 = 4096;
/// Sweeps of an iteration, at most.
pub const INNER: u32 = 1000;
/// Time between two words of how far one is.
const TELL: Duration = Duration::from_millis(200);
/// Between two looks of a member that has nothing to do.
const IDLE: Duration = Duration::from_millis(100);
/// Who looks on.
pub const LOOKS_ON: usize = 0;

/// What is to be solved, and how: the task of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What.
    pub problem: Problem,
    /// How a block is brought closer.
    pub method: Method,
    /// Slabs, and not boxes.
    pub slabs: bool,
    /// How often that is done between two exchanges.
    pub inner: u32,
    /// How many time steps, where the problem has one.
    #[serde(default = "one")]
    pub steps: u32,
}

fn one() -> u32 {
    1
}

/// How far a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Seconds since it began.
    pub seconds: f64,
    /// Iterations, those too that had to be done again.
    pub iterations: u64,
    /// How far its blocks are from a solution, by what they last got of the others.
    pub distance: f64,
    /// How old the oldest of what it computes with is, in seconds: since it came here.
    pub age: f64,
    /// Seconds of waiting for others.
    pub waited: f64,
    /// How often who takes part has changed.
    pub changes: u32,
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Of the peers.
    #[error(transparent)]
    Peers(#[from] polyrail_p2p::Error),
    /// The cube cannot be divided so.
    #[error(transparent)]
    Indivisible(#[from] Indivisible),
    /// The task is none.
    #[error("the task that came with the run is none: {0}")]
    Task(String),
    /// The method cannot be had so; what to do.
    #[error("{0}")]
    Method(String),
    /// The one who began the run, and looked on, is gone.
    #[error("the command that began the run is gone: there is nobody to hand the answer to")]
    NobodyLooks,
    /// Nobody is left.
    #[error("all processes that computed are gone")]
    Alone,
    /// The result that came is none.
    #[error("member {0} sent a result that is none: {1}")]
    Result(usize, String),
}

impl Task {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and names")
    }

    /// The task that these bytes are.
    ///
    /// # Errors
    /// They are none, or ask for more than there can be.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let task: Self = serde_json::from_slice(bytes).map_err(|why| Error::Task(why.to_string()))?;
        if !(1..=POINTS).contains(&task.problem.n) || !(1..=INNER).contains(&task.inner) {
            return Err(Error::Task(format!("{} points, {} sweeps", task.problem.n, task.inner)));
        }
        let is_step = |dt: f64| dt > 0.0 && task.problem.mass().is_normal();
        let fits = task.problem.dt.map_or(task.steps == 1, is_step);
        if !fits || !(1..=STEPS).contains(&task.steps) {
            return Err(Error::Task(format!("{} time steps of {:?}", task.steps, task.problem.dt)));
        }
        Ok(task)
    }

    /// Whether the method can be had for so many points, in this scheme.
    ///
    /// # Errors
    /// It cannot; what can.
    pub fn check(&self, scheme: Scheme, division: &Division) -> Result<(), Error> {
        let no = |why: String| Err(Error::Method(why));
        if self.problem.instance == Instance::D && self.problem.dt.is_none() {
            return no("problem d is of how something cools down: it needs time steps".into());
        }
        if self.method == Method::Multigrid && self.problem.dt.is_some() {
            return no("multigrid has no time steps yet: richardson or psor, which take few sweeps where a step is short".into());
        }
        if self.method != Method::Multigrid {
            return Ok(());
        }
        if let Err(next) = halves(self.problem.n) {
            let n = self.problem.n;
            return no(format!(
                "multigrid halves n + 1 until n is odd no more, and {n} points do not come down to {COARSEST} so: the next that do are {next}; best are 63, 127, 255 ..."
            ));
        }
        if scheme != Scheme::Synchronous {
            return no(
                "multigrid is of all parts in step: for peers that are not, richardson or psor converge"
                    .into(),
            );
        }
        let points = whole(self.problem.n, division);
        if points > WHOLE {
            return no(format!(
                "parts are so thin that each process would solve a grid of {points} points in each direction whole, and {WHOLE} are the most: \
                 fewer parts, or boxes in place of slabs"
            ));
        }
        if self.inner != 1 {
            return no(
                "multigrid has one cycle between two exchanges of an iteration: no inner sweeps".into()
            );
        }
        Ok(())
    }

    /// The boxes of so many parts.
    ///
    /// # Errors
    /// There are too many.
    pub fn divide(&self, parts: u32) -> Result<Division, Error> {
        let divided = if self.slabs { Division::slabs } else { Division::boxes };
        Ok(divided(self.problem.n, parts as usize)?)
    }
}

/// A block, and whom it exchanges with.
struct Part {
    number: u32,
    block: Block,
    /// The vector that is judged.
    kept: Values,
    /// By face: the part beyond, and what it sent.
    beyond: Vec<(Face, u32, Vec<u8>)>,
}

/// What a process has in the end.
pub struct Outcome {
    /// The verdict by which all stopped.
    pub verdict: Verdict,
    /// How it went.
    pub progress: Progress,
    /// Its parts, and the values of their points, as judged.
    pub parts: Vec<(u32, Vec<f64>)>,
    /// The norms of all time steps, the verdict's the last.
    pub norms: Vec<f64>,
    /// By part, what the last time step's points were loaded with; empty where there is none.
    pub loads: Vec<Vec<f64>>,
}

/// A process's share of a run.
pub struct Share {
    task: Task,
    division: Division,
    /// Whether blocks exchange between the colours of over-relaxation.
    whole: bool,
    parts: Vec<Part>,
    /// The coarser grids of the parts, where the method has some; made when they are needed.
    multigrid: Option<Multigrid>,
    /// Of the time steps that are over.
    norms: Vec<f64>,
    begin: Duration,
    told: Option<Duration>,
    progress: Progress,
}

impl Share {
    /// The share of this member, as it is at the beginning.
    ///
    /// # Errors
    /// The task is none.
    pub fn new<W: Wire>(peers: &Peers<W>) -> Result<Self, Error> {
        let job = &peers.view().job;
        let task = Task::parse(&job.task)?;
        let division = task.divide(job.parts)?;
        task.check(job.scheme, &division)?;
        let parts = peers.parts().iter().map(|number| part(&task, &division, *number)).collect();
        Ok(Self {
            whole: job.scheme == Scheme::Synchronous && task.inner == 1 && task.method == Method::Psor,
            multigrid: None,
            norms: Vec::new(),
            task,
            division,
            parts,
            begin: peers.now(),
            told: None,
            progress: Progress::default(),
        })
    }

    /// Computes until all stop (none: this member held nothing then), all time steps. Where members are lost or join it goes on, from a state that all have.
    ///
    /// # Errors
    /// A member is gone that may not be; the others have gone on without this one.
    pub fn compute<W: Wire>(&mut self, peers: &mut Peers<W>) -> Result<Option<Outcome>, Error> {
        self.compute_each(peers, |_, _| {})
    }

    /// The same, and each time step, by its number, is given what this member's parts have come to: anew where a step is, as somebody was lost.
    ///
    /// # Errors
    /// As [`Share::compute`].
    pub fn compute_each<W: Wire>(
        &mut self,
        peers: &mut Peers<W>,
        mut each: impl FnMut(usize, &Outcome),
    ) -> Result<Option<Outcome>, Error> {
        loop {
            if self.parts.is_empty() && is_over(peers)? {
                return Ok(None);
            }
            let verdict = match self.iterate(peers) {
                Err(Error::Peers(polyrail_p2p::Error::Changed)) => {
                    self.change(peers)?;
                    continue;
                }
                done => done?,
            };
            if let Some(verdict) = verdict {
                self.norms.push(verdict.norm);
                let outcome = self.outcome(verdict);
                each(self.norms.len() - 1, &outcome);
                if self.norms.len() >= self.task.steps as usize {
                    return Ok(Some(outcome));
                }
                match peers.next_stage() {
                    Ok(_) => self.parts.iter_mut().for_each(|part| part.block.begin_step(&part.kept)),
                    Err(polyrail_p2p::Error::Changed) => self.change(peers)?,
                    Err(why) => return Err(why.into()),
                }
            }
        }
    }

    fn outcome(&self, verdict: Verdict) -> Outcome {
        let values = |part: &Part| (part.number, part.block.inner(&part.kept).collect());
        let loads = |part: &Part| match part.block.loads.is_empty() {
            true => Vec::new(),
            false => part.block.inner(&part.block.loads).collect(),
        };
        Outcome {
            verdict,
            progress: self.progress,
            parts: self.parts.iter().map(values).collect(),
            norms: self.norms.clone(),
            loads: self.parts.iter().map(loads).collect(),
        }
    }

    /// Takes the part in the run that it has now.
    ///
    /// # Errors
    /// States that are gone on from do not come.
    pub fn change<W: Wire>(&mut self, peers: &mut Peers<W>) -> Result<(), Error> {
        let change = loop {
            match peers.change() {
                Err(polyrail_p2p::Error::Changed) => {}
                done => break done?,
            }
        };
        self.progress.changes += 1;
        // who has handed in, or gone on to a step that others had not come to, ends that step anew
        self.norms.truncate(peers.stage() as usize);
        self.multigrid = None;
        self.parts.retain(|part| !change.lost.contains(&part.number));
        for (number, state) in change.set {
            let mut new = part(&self.task, &self.division, number);
            if let Some(state) = state {
                let bad = |why: String| Error::Task(format!("part {number}: {why}"));
                let (norms, state) = of_state(&state, peers.stage()).map_err(bad)?;
                new.block.restore(state).map_err(bad)?;
                self.norms = norms;
            }
            self.parts.retain(|part| part.number != number);
            self.parts.push(new);
        }
        // what was missed of a change that another followed is as at the beginning
        for number in peers.parts() {
            if !self.parts.iter().any(|part| part.number == *number) {
                self.parts.push(part(&self.task, &self.division, *number));
            }
        }
        self.parts.retain(|part| peers.parts().contains(&part.number));
        self.parts.sort_by_key(|part| part.number);
        Ok(())
    }

    fn iterate<W: Wire>(&mut self, peers: &mut Peers<W>) -> Result<Option<Verdict>, Error> {
        if self.parts.is_empty() {
            // there is nothing to do for this member until others are lost
            peers.wait(&[], Duration::ZERO)?;
            return Ok(None);
        }
        if peers.keeps() {
            for part in &self.parts {
                let norms = self.norms.iter().flat_map(|norm| norm.to_le_bytes());
                peers.keep(part.number, norms.chain(part.block.state()).collect())?;
            }
        }
        let judged = peers.judged();
        let half = self.whole.then(|| (peers.iteration() % 2) as usize);
        let mut bytes = Vec::new();
        for part in &self.parts {
            for (face, beyond, _) in &part.beyond {
                part.block.pack(*face, &mut bytes);
                peers.send(link(part.number, *beyond, *face), &bytes)?;
            }
        }
        let before = peers.now();
        let mut oldest = Duration::ZERO;
        for part in &mut self.parts {
            for (face, beyond, buffer) in &mut part.beyond {
                let received = peers.receive(link(*beyond, part.number, face.across()), buffer)?;
                match received {
                    Received::New { .. } => part.block.unpack(*face, buffer),
                    Received::Unchanged { age, .. } => oldest = oldest.max(age),
                    Received::Nothing => {}
                }
            }
        }
        self.progress.waited += peers.now().saturating_sub(before).as_secs_f64();
        let alone = self.division.parts() == 1;
        let mut norm = 0.0_f64;
        for part in &mut self.parts {
            if judged {
                part.kept.clone_from(&part.block.u);
                // what is no number has no largest change: it is as far as can be
                if !part.kept.iter().all(|value| value.is_finite()) {
                    norm = f64::MAX;
                }
            }
            norm = norm.max(sweep(&self.task, &mut part.block, judged, half, alone));
            let points: usize = part.block.size().iter().product();
            let colours = if half.is_some() { 0.5 } else { 1.0 };
            peers.wire().worked(points as f64 * f64::from(self.task.inner) * colours);
            // others want to hear that it is there
            peers.wait(&[], Duration::ZERO)?;
        }
        if self.task.method == Method::Multigrid {
            self.cycle(peers)?;
        }
        let progress = &mut self.progress;
        progress.seconds = peers.now().saturating_sub(self.begin).as_secs_f64();
        progress.iterations += 1;
        progress.distance = norm;
        progress.age = oldest.as_secs_f64();
        if self.told.is_none_or(|told| peers.now().saturating_sub(told) > TELL) {
            self.told = Some(peers.now());
            peers.tell(LOOKS_ON, &serde_json::to_vec(progress).expect("numbers"))?;
        }
        let before = peers.now();
        let verdict = peers.converged(norm)?;
        self.progress.waited += peers.now().saturating_sub(before).as_secs_f64();
        Ok(verdict)
    }
}

impl Share {
    /// One cycle of all parts.
    fn cycle<W: Wire>(&mut self, peers: &mut Peers<W>) -> Result<(), Error> {
        let Self { task, division, parts, .. } = self;
        let numbers = || parts.iter().map(|part| part.number).collect::<Vec<_>>();
        let multigrid =
            self.multigrid.get_or_insert_with(|| Multigrid::new(&task.problem, division, &numbers()));
        let from_nothing = peers.iteration() == 0;
        let mut others = Others { peers, waited: Duration::ZERO };
        let blocks = parts.iter_mut().map(|part| &mut part.block);
        let done = multigrid.iterate(blocks, from_nothing, &mut others);
        self.progress.waited += others.waited.as_secs_f64();
        done
    }
}

/// The others, for what is exchanged within a cycle.
struct Others<'a, W> {
    peers: &'a mut Peers<W>,
    waited: Duration,
}

impl<W: Wire> Exchange for Others<'_, W> {
    type Error = Error;

    fn send(&mut self, link: Link, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.peers.send(link, bytes)?)
    }

    fn receive(&mut self, link: Link, into: &mut [u8]) -> Result<(), Error> {
        let before = self.peers.now();
        self.peers.receive(link, into)?;
        self.waited += self.peers.now().saturating_sub(before);
        Ok(())
    }

    fn elsewhere(&self) -> Vec<u32> {
        let owners = &self.peers.view().owners;
        let is_first = |part: &usize| !owners[..*part].contains(&owners[*part]);
        let is_here = |part: &usize| usize::from(owners[*part]) == self.peers.me();
        (0..owners.len()).filter(is_first).filter(|part| !is_here(part)).map(|part| part as u32).collect()
    }

    fn breathe(&mut self) -> Result<(), Error> {
        self.peers.wait(&[], Duration::ZERO)?;
        Ok(())
    }
}

/// For who holds nothing: whether the run is over. It waits a little.
fn is_over<W: Wire>(peers: &mut Peers<W>) -> Result<bool, Error> {
    if peers.view().members[LOOKS_ON].weight > 0 {
        return Err(Error::NobodyLooks);
    }
    match peers.posted(IDLE) {
        // the iteration that follows has it again
        Err(polyrail_p2p::Error::Changed) => Ok(false),
        done => Ok(done?.is_some()),
    }
}

/// What a state of a part begins with, the norms of the time steps before its own, and the rest.
fn of_state(state: &[u8], step: u32) -> Result<(Vec<f64>, &[u8]), String> {
    let cut = state.split_at_checked(step as usize * 8);
    let (norms, rest) = cut.ok_or_else(|| format!("a state of {} bytes in time step {step}", state.len()))?;
    let norm = |bytes: &[u8]| f64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    Ok((norms.chunks_exact(8).map(norm).collect(), rest))
}

fn part(task: &Task, division: &Division, number: u32) -> Part {
    let block = Block::new(&task.problem, division.points(number as usize));
    let beyond = Face::ALL
        .into_iter()
        .filter_map(|face| {
            let beyond = division.beyond(number as usize, face)?;
            Some((face, beyond as u32, vec![0; block.face_len(face) * 8]))
        })
        .collect();
    Part { number, kept: Values::default(), block, beyond }
}

/// The link by which a part says what it has at a face.
fn link(from: u32, to: u32, face: Face) -> Link {
    Link::new(from, to).tagged((face.axis * 2 + usize::from(face.high)) as u16)
}

/// One iteration of a block by itself; how far it was from a solution before: exactly where it is judged, else nearly. `half`: which colour's turn it is, where
/// blocks exchange between colours. `alone`: there is no other block, so that the full factor is right for any number of sweeps.
fn sweep(task: &Task, block: &mut Block, judged: bool, half: Option<usize>, alone: bool) -> f64 {
    let exact = (judged && task.method == Method::Psor).then(|| distance(block));
    let first = match (task.method, half) {
        (Method::Richardson, _) => richardson_many(block, task.inner as usize),
        (Method::Psor, Some(colour)) => psor(block, task.problem.omega(), colour..colour + 1),
        (Method::Psor, None) => {
            let omega = if alone { task.problem.omega() } else { 1.0 };
            psor(block, omega, 0..2 * task.inner as usize)
        }
        // its cycle is of all blocks, and follows
        (Method::Multigrid, _) => distance(block),
    };
    exact.unwrap_or(first)
}
