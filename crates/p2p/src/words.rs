//! What members say to each other, as bytes (`docs/wire-peers.md`): little-endian, bounded, and checked before anything depends on it.

use crate::Scheme;
use crate::members;
use crate::rounds::Word;
use crate::view::{Job, MEMBERS, Member, NOBODY, PARTS, Stamp, TASK, View};
use polyrail_rails::PeerIdx;
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

/// The number of the active messages that words are.
pub(crate) const ACTIVE: u16 = 1;
/// Bytes of a word, at most. With states that are kept of each, that is a view of fewer parts than there can be.
pub(crate) const LONGEST: usize = 1 << 20;
/// The version that this code speaks.
pub const VERSION: u8 = 2;
/// States that a member says that it keeps, at most.
const STATES: usize = 8 * PARTS;
const _: () = assert!(members::LISTED * 16 <= LONGEST / 2);
/// Bytes of a reason, at most.
const REASON: usize = 1 << 10;
/// Bytes before a word's own.
pub(crate) const HEAD: usize = 8;

/// Words that have come: from whom, and their bytes.
pub(crate) type Heard = Receiver<(PeerIdx, Vec<u8>)>;

/// One thing that one member says to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// It wants to take part.
    Join(Member),
    /// It may not, and why.
    Refuse(String),
    /// Who takes part from now on.
    View(Box<View>),
    /// Of a round.
    Round(Word),
    /// Of who takes part.
    Members(members::Word),
    /// To whose part it is: this state is kept here, whole.
    Kept(u32, Stamp),
}

/// Bytes that are no word, and what about them is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed("a word is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(*self.bytes(N)?.first_chunk().expect("it was asked for so many"))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number, and zeros where others have a second one.
    fn alone(&mut self) -> Result<u64, Malformed> {
        let number = self.u64()?;
        if self.u64()? == 0 { Ok(number) } else { Err(Malformed("what is kept free is used")) }
    }

    fn one_of_two(&mut self, why: &'static str) -> Result<bool, Malformed> {
        match self.u64()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed(why)),
        }
    }

    /// A number of things that there may be so many of.
    fn count(&mut self, most: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > most { Err(Malformed("a word has too many of something")) } else { Ok(count) }
    }

    fn norm(&mut self) -> Result<f64, Malformed> {
        let norm = f64::from_bits(self.u64()?);
        if norm >= 0.0 { Ok(norm) } else { Err(Malformed("a norm is no number, or negative")) }
    }

    fn member(&mut self) -> Result<Member, Malformed> {
        Ok(Member { address: self.array()?, site: self.u32()?, weight: self.u16()? })
    }

    fn job(&mut self) -> Result<Job, Malformed> {
        let parts = self.count(PARTS)? as u32;
        let (kind, bound) = (self.u16()?, self.u64()?);
        let scheme = match (kind, bound) {
            (0, 0) => Scheme::Synchronous,
            (1, 0) => Scheme::Asynchronous,
            (2, 1..) => Scheme::Bounded(bound),
            (3, 0) => Scheme::Hybrid,
            _ => return Err(Malformed("a scheme is none of those that there are")),
        };
        let (tolerance, every, keep) = (self.norm()?, self.u64()?, self.u64()?);
        if every == 0 || parts == 0 {
            return Err(Malformed("a job has no parts, or no rounds"));
        }
        let len = self.count(TASK)?;
        Ok(Job { parts, scheme, tolerance, every, keep, task: self.bytes(len)?.to_vec() })
    }

    fn kept(&mut self) -> Result<(u32, Stamp), Malformed> {
        Ok((self.u32()?, Stamp { stage: self.u32()?, number: self.u64()? }))
    }

    fn members(&mut self) -> Result<Vec<Member>, Malformed> {
        (0..self.count(MEMBERS)?).map(|_| self.member()).collect()
    }

    fn view(&mut self) -> Result<View, Malformed> {
        let job = self.job()?;
        let members = self.members()?;
        let owners: Vec<_> = (0..job.parts).map(|_| self.u16()).collect::<Result<_, _>>()?;
        let stage = self.u32()?;
        let holders: Vec<_> =
            (0..job.parts).map(|_| Ok((self.u16()?, self.u64()?))).collect::<Result<_, _>>()?;
        let is_one = |one: &u16| usize::from(*one) < members.len();
        if members.is_empty()
            || !owners.iter().all(|owner| is_one(owner) && members[usize::from(*owner)].weight > 0)
            || !holders.iter().all(|(holder, _)| is_one(holder) || *holder == NOBODY)
        {
            return Err(Malformed("a part is held by nobody"));
        }
        let from: Vec<(u32, u64)> =
            (0..self.count(MEMBERS)?).map(|_| Ok((self.u32()?, self.u64()?))).collect::<Result<_, _>>()?;
        let in_order: BTreeMap<u32, u64> = from.iter().copied().collect();
        if !in_order.iter().map(|(site, iteration)| (*site, *iteration)).eq(from) {
            return Err(Malformed("sites are twice, or in no order"));
        }
        Ok(View { job, members, owners, stage, holders, from: in_order })
    }
}

fn put_member(out: &mut Vec<u8>, member: &Member) {
    out.extend(member.address);
    out.extend(member.site.to_le_bytes());
    out.extend(member.weight.to_le_bytes());
}

fn put_view(out: &mut Vec<u8>, view: &View) {
    let job = &view.job;
    let (kind, bound) = match job.scheme {
        Scheme::Synchronous => (0_u16, 0),
        Scheme::Asynchronous => (1, 0),
        Scheme::Bounded(bound) => (2, bound),
        Scheme::Hybrid => (3, 0),
    };
    out.extend(job.parts.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(bound.to_le_bytes());
    out.extend(job.tolerance.to_bits().to_le_bytes());
    out.extend(job.every.to_le_bytes());
    out.extend(job.keep.to_le_bytes());
    out.extend((job.task.len() as u32).to_le_bytes());
    out.extend(&job.task);
    out.extend((view.members.len() as u32).to_le_bytes());
    view.members.iter().for_each(|member| put_member(out, member));
    view.owners.iter().for_each(|owner| out.extend(owner.to_le_bytes()));
    out.extend(view.stage.to_le_bytes());
    for (holder, number) in &view.holders {
        out.extend(holder.to_le_bytes());
        out.extend(number.to_le_bytes());
    }
    out.extend((view.from.len() as u32).to_le_bytes());
    for (site, iteration) in &view.from {
        out.extend(site.to_le_bytes());
        out.extend(iteration.to_le_bytes());
    }
}

fn put_kept(out: &mut Vec<u8>, part: u32, stamp: Stamp) {
    out.extend(part.to_le_bytes());
    out.extend(stamp.stage.to_le_bytes());
    out.extend(stamp.number.to_le_bytes());
}

fn put_members(out: &mut Vec<u8>, word: &members::Word) -> u8 {
    use members::Word::{Accept, Beat, Prepare, Promise, Propose, Want};
    match word {
        Beat { busy } => {
            out.extend(busy.to_le_bytes());
            9
        }
        Want { suspects, joining } => {
            out.extend((suspects.len() as u32).to_le_bytes());
            suspects.iter().for_each(|one| out.extend(one.to_le_bytes()));
            out.extend((joining.len() as u32).to_le_bytes());
            joining.iter().for_each(|member| put_member(out, member));
            10
        }
        Prepare { ballot } => {
            out.extend(ballot.to_le_bytes());
            11
        }
        Promise { ballot, accepted, kept } => {
            out.extend(ballot.to_le_bytes());
            out.extend((kept.len() as u32).to_le_bytes());
            kept.iter().for_each(|(part, stamp)| put_kept(out, *part, *stamp));
            if let Some((of, view)) = accepted {
                out.extend(of.to_le_bytes());
                put_view(out, view);
            }
            12
        }
        Propose { ballot, view } => {
            out.extend(ballot.to_le_bytes());
            put_view(out, view);
            13
        }
        Accept { ballot } => {
            out.extend(ballot.to_le_bytes());
            14
        }
    }
}

/// A word's bytes; `epoch` is the number of the view that it is said in.
pub fn encode(epoch: u32, said: &Said) -> Vec<u8> {
    let mut out = vec![VERSION, 0, 0, 0];
    out.extend(epoch.to_le_bytes());
    let numbers = |out: &mut Vec<u8>, kind, a: u64, b: u64| {
        out.extend(a.to_le_bytes());
        out.extend(b.to_le_bytes());
        kind
    };
    out[1] = match said {
        Said::Join(member) => {
            put_member(&mut out, member);
            1
        }
        Said::Refuse(why) => {
            out.extend(why.bytes().take(REASON));
            2
        }
        Said::View(view) => {
            put_view(&mut out, view);
            3
        }
        Said::Round(Word::Status { after, below }) => numbers(&mut out, 4, *after, u64::from(*below)),
        Said::Round(Word::Ask { round }) => numbers(&mut out, 5, *round, 0),
        Said::Round(Word::Mark { round, at }) => numbers(&mut out, 6, *round, *at),
        Said::Round(Word::Share { round, norm }) => numbers(&mut out, 7, *round, norm.to_bits()),
        Said::Round(Word::Verdict { round, norm, keep }) => {
            let kind = numbers(&mut out, 8, *round, norm.to_bits());
            out.extend(u64::from(*keep).to_le_bytes());
            kind
        }
        Said::Round(Word::Pace { iteration }) => numbers(&mut out, 15, *iteration, 0),
        Said::Members(word) => put_members(&mut out, word),
        Said::Kept(part, stamp) => {
            put_kept(&mut out, *part, *stamp);
            16
        }
    };
    out
}

/// The word that these bytes are, and the number of the view that it was said in.
///
/// # Errors
/// They are none.
pub fn decode(bytes: &[u8]) -> Result<(u32, Said), Malformed> {
    let mut reader = Reader(bytes);
    let [version, kind, reserved @ ..] = reader.array::<{ HEAD / 2 }>()?;
    if version != VERSION || reserved != [0, 0] {
        return Err(Malformed("a word is of another version; have the same version on all machines"));
    }
    let epoch = reader.u32()?;
    let said = match kind {
        1 => Said::Join(reader.member()?),
        2 => {
            let len = reader.0.len();
            if len > REASON {
                return Err(Malformed("a reason is too long"));
            }
            let why = String::from_utf8(reader.bytes(len)?.to_vec());
            Said::Refuse(why.map_err(|_| Malformed("a reason is no text"))?)
        }
        3 => Said::View(Box::new(reader.view()?)),
        4 => Said::Round(Word::Status {
            after: reader.u64()?,
            below: reader.one_of_two("a status is neither one nor the other")?,
        }),
        5 => Said::Round(Word::Ask { round: reader.alone()? }),
        6 => Said::Round(Word::Mark { round: reader.u64()?, at: reader.u64()? }),
        7 => Said::Round(Word::Share { round: reader.u64()?, norm: reader.norm()? }),
        8 => Said::Round(Word::Verdict {
            round: reader.u64()?,
            norm: reader.norm()?,
            keep: reader.one_of_two("a verdict has states kept or not")?,
        }),
        9 => Said::Members(members::Word::Beat { busy: reader.u32()? }),
        10 => {
            let suspects = (0..reader.count(MEMBERS)?).map(|_| reader.u16()).collect::<Result<_, _>>()?;
            Said::Members(members::Word::Want { suspects, joining: reader.members()? })
        }
        11 => Said::Members(members::Word::Prepare { ballot: reader.u64()? }),
        12 => {
            let ballot = reader.u64()?;
            let kept = (0..reader.count(STATES)?).map(|_| reader.kept()).collect::<Result<_, _>>()?;
            let accepted =
                if reader.0.is_empty() { None } else { Some((reader.u64()?, Box::new(reader.view()?))) };
            Said::Members(members::Word::Promise { ballot, accepted, kept })
        }
        13 => Said::Members(members::Word::Propose { ballot: reader.u64()?, view: Box::new(reader.view()?) }),
        14 => Said::Members(members::Word::Accept { ballot: reader.u64()? }),
        15 => Said::Round(Word::Pace { iteration: reader.alone()? }),
        16 => {
            let (part, stamp) = reader.kept()?;
            Said::Kept(part, stamp)
        }
        _ => return Err(Malformed("a word is of a kind that there is not")),
    };
    if !reader.0.is_empty() {
        return Err(Malformed("a word has more bytes than it should"));
    }
    Ok((epoch, said))
}
