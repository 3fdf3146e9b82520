//! Who takes part, in what, and who holds which part.

use crate::Scheme;
use crate::error::Error;
use std::collections::BTreeMap;

/// Bytes of an endpoint's address.
pub const ADDRESS: usize = 64;
/// Members of a view, at most.
pub const MEMBERS: usize = 1 << 12;
/// In place of a member's number.
pub const NOBODY: u16 = u16::MAX;
/// Parts of a job, at most.
pub const PARTS: usize = 1 << 17;
/// Bytes of a job's task, at most.
pub const TASK: usize = 1 << 16;
/// One member, as all know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where its endpoint is reached, and the key to it.
    pub address: [u8; ADDRESS],
    /// Which of the sites it is at: members of one are in step where the scheme is hybrid.
    pub site: u32,
    /// How much it is given to do, as a share.
    pub weight: u16,
}

/// What is computed, and how: the same for all members.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Into how many parts it is divided.
    pub parts: u32,
    /// Who waits for whom.
    pub scheme: Scheme,
    /// The norm at which all stop.
    pub tolerance: f64,
    /// Where all are in step: iterations between two rounds.
    pub every: u64,
    /// Iterations between two of which states are kept, so that members may be lost, and join; 0: none are, and a member that is lost ends the run.
    pub keep: u64,
    /// What the program's members have to know besides: any bytes.
    pub task: Vec<u8>,
}

/// Names a state of a part: a later one is higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Of which stage of the run.
    pub stage: u32,
    /// In step the iteration, else a number that counts on.
    pub number: u64,
}

/// Who takes part, and who holds which part.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What they compute.
    pub job: Job,
    /// The members, by number.
    pub members: Vec<Member>,
    /// The member that holds each part.
    pub owners: Vec<u16>,
    /// The stage that all go on in.
    pub stage: u32,
    /// The member that has the state that each part goes on from, and the number of that, in this stage; [`NOBODY`]: it begins anew, or goes on as it is.
    pub holders: Vec<(u16, u64)>,
    /// The iteration that those who are in step go on from: by site, or for all as site 0.
    pub from: BTreeMap<u32, u64>,
}

impl View {
    /// The view that a run begins with: parts in a row for each member, by their weights' shares.
    ///
    /// # Errors
    /// There are too few parts.
    pub fn first(job: Job, members: Vec<Member>) -> Result<Self, Error> {
        let holders = vec![(NOBODY, 0); job.parts as usize];
        let groups = members.iter().filter_map(|member| job.scheme.in_step_at(member.site));
        let from = groups.map(|group| (group, 0)).collect();
        Ok(Self { owners: owners(&job, &members)?, job, members, stage: 0, holders, from })
    }

    /// The state that a part goes on from, where somebody has one.
    pub fn state_of(&self, part: u32) -> Option<Stamp> {
        let (holder, number) = self.holders[part as usize];
        (holder != NOBODY).then_some(Stamp { stage: self.stage, number })
    }

    /// The iteration that this member goes on from; none where it is not in step with others.
    pub fn from_of(&self, member: usize) -> Option<u64> {
        let group = self.job.scheme.in_step_at(self.members[member].site)?;
        Some(self.from.get(&group).copied().unwrap_or(0))
    }
}

/// Parts in a row for each member, as many as its weight's share.
fn owners(job: &Job, members: &[Member]) -> Result<Vec<u16>, Error> {
    let all: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let workers = members.iter().filter(|member| member.weight > 0).count();
    if all == 0 || (job.parts as usize) < workers {
        return Err(Error::Use(format!("{} parts are too few for {workers} members", job.parts)));
    }
    // each who works has one, and the rest by weight
    let rest = u64::from(job.parts) - workers as u64;
    let (mut owners, mut before) = (Vec::new(), 0);
    for (number, member) in members.iter().enumerate().filter(|(_, member)| member.weight > 0) {
        let until = before + u64::from(member.weight);
        let share = 1 + rest * until / all - rest * before / all;
        owners.extend(std::iter::repeat_n(number as u16, share as usize));
        before = until;
    }
    Ok(owners)
}
