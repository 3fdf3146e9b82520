//! What the environment says.

use crate::pmi::{Pmi, is_socket};
use crate::pmix::Pmix;
use crate::{Error, check};

/// Where all meet: `host:port` of the first; empty: what launchers say is not looked at.
pub const MEET: &str = "POLYRAIL_MEET";
/// Which of the processes this is, from 0 on, where nothing else says so.
pub const RANK: &str = "POLYRAIL_RANK";
/// How many there are.
pub const SIZE: &str = "POLYRAIL_SIZE";

/// Ports of Slurm steps whose tasks are not told of each other: below those that systems give away by themselves.
const PORTS: std::ops::Range<u32> = 20_000..30_000;

/// This process among those that were started together.
#[derive(Debug)]
pub struct Place {
    /// Which: from 0 on. The first tells the others.
    pub rank: u32,
    /// How many there are: at least 2.
    pub size: u32,
    /// How they hear of each other.
    pub way: Way,
}

/// How processes that were started together hear of each other.
#[derive(Debug)]
pub enum Way {
    /// By their launcher.
    Told(Board),
    /// The first listens there.
    At {
        /// A name or an address.
        host: String,
        /// A port.
        port: u16,
        /// What this run has that no other at that place has: the first answers to those only that say the same.
        run: String,
    },
}

/// What a launcher has for what processes tell each other.
#[derive(Debug)]
pub enum Board {
    /// Over a descriptor.
    Pmi(Pmi),
    /// By a library.
    Pmix(Box<Pmix>),
}

impl Board {
    /// Tells the word of the first, which alone gives one, to all; the word. All processes have to call it, once in their lives.
    ///
    /// # Errors
    /// The launcher is gone, or refuses; a word that not all launchers take.
    pub fn share(self, word: Option<&str>) -> Result<String, Error> {
        word.map_or(Ok(()), check)?;
        let told = match self {
            Self::Pmi(pmi) => pmi.share(word),
            Self::Pmix(pmix) => pmix.share(word),
        }?;
        check(&told)?;
        Ok(told)
    }
}

/// What is found in the environment, before anybody is asked.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Alone,
    At { rank: u32, size: u32, host: String, port: u16, run: String },
    Pmi { rank: u32, size: u32, fd: i32 },
    Pmix,
}

/// The place of this process; none: it was started alone, or by what tells nothing.
///
/// # Errors
/// Variables that cannot be; a launcher that does not answer.
pub fn find() -> Result<Option<Place>, Error> {
    let place = match look(|name| std::env::var(name).ok(), is_socket)? {
        Found::Alone => return Ok(None),
        Found::At { rank, size, host, port, run } => Place { rank, size, way: Way::At { host, port, run } },
        Found::Pmi { rank, size, fd } => {
            Place { rank, size, way: Way::Told(Board::Pmi(Pmi::inherited(fd)?)) }
        }
        Found::Pmix => {
            let (pmix, rank, size) = Pmix::begin()?;
            Place { rank, size, way: Way::Told(Board::Pmix(Box::new(pmix))) }
        }
    };
    Ok((place.size > 1).then_some(place))
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number(variable: Variable<'_>, name: &'static str) -> Result<Option<u32>, Error> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(Error::Variable { name, value, why: "it is a number, from 0 on" }),
    }
}

fn look(variable: impl Fn(&str) -> Option<String>, is_socket: impl Fn(i32) -> bool) -> Result<Found, Error> {
    let variable: Variable<'_> = &variable;
    if let Some(meet) = variable(MEET) {
        return if meet.is_empty() { Ok(Found::Alone) } else { meet_at(variable, meet) };
    }
    let pmi = (number(variable, "PMI_FD")?, number(variable, "PMI_RANK")?, number(variable, "PMI_SIZE")?);
    // variables are inherited by all that a process starts, a descriptor by those that its launcher itself has started
    let is_open = pmi.0.is_some_and(|fd| i32::try_from(fd).is_ok_and(&is_socket));
    if !is_open && variable("PMIX_NAMESPACE").is_some() && variable("PMIX_RANK").is_some() {
        return Ok(Found::Pmix);
    }
    if let (Some(fd), Some(rank), Some(size)) = pmi {
        let (name, value) = ("PMI_FD", fd.to_string());
        let fd = i32::try_from(fd).map_err(|_| Error::Variable { name, value, why: "it is a descriptor" })?;
        return within(rank, size, Found::Pmi { rank, size, fd });
    }
    match (number(variable, "SLURM_STEP_NUM_TASKS")?, number(variable, "SLURM_PROCID")?) {
        (Some(size), Some(rank)) if size > 1 => within(rank, size, of_slurm(variable, rank, size)?),
        _ => Ok(Found::Alone),
    }
}

fn within(rank: u32, size: u32, found: Found) -> Result<Found, Error> {
    let why = "the processes' numbers are less than how many there are";
    if rank < size {
        Ok(found)
    } else {
        Err(Error::Variable { name: "a rank", value: format!("{rank} of {size}"), why })
    }
}

fn meet_at(variable: Variable<'_>, meet: String) -> Result<Found, Error> {
    let bad = |why| Error::Variable { name: MEET, value: meet.clone(), why };
    let at = meet.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port @ 1..)) = at.filter(|(host, _)| !host.is_empty()) else {
        return Err(bad("it is host:port of the first process"));
    };
    // an address of IPv6 stands in brackets
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
    // by the innermost of those that may have started each other
    let ways = [
        (RANK, SIZE),
        ("JOB_COMPLETION_INDEX", SIZE),
        ("PMI_RANK", "PMI_SIZE"),
        ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ];
    for (rank, size) in ways {
        if let (Some(rank), Some(size)) = (number(variable, rank)?, number(variable, size)?) {
            let run = format!("{meet} of {size}");
            return within(rank, size, Found::At { rank, size, host, port, run });
        }
    }
    Err(bad(
        "POLYRAIL_RANK has to say which of the processes this is, from 0 on, and POLYRAIL_SIZE how many there are",
    ))
}

/// Tasks of a step meet at the first one's host.
fn of_slurm(variable: Variable<'_>, rank: u32, size: u32) -> Result<Found, Error> {
    let list = "SLURM_STEP_NODELIST";
    let value = variable(list).unwrap_or_default();
    let host = first_of_nodes(&value).ok_or(Error::Variable {
        name: list,
        value,
        why: "it names no host; POLYRAIL_MEET=host:port does instead",
    })?;
    let job = number(variable, "SLURM_JOB_ID")?.unwrap_or(0);
    let step = number(variable, "SLURM_STEP_ID")?.unwrap_or(0);
    let port = PORTS.start + (job.wrapping_mul(31).wrapping_add(step)) % (PORTS.end - PORTS.start);
    let run = format!("step {job}.{step} of {size}");
    Ok(Found::At { rank, size, host, port: port as u16, run })
}

/// The first of a list as Slurm writes it: `a[01-04,7],b`.
fn first_of_nodes(list: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = list;
    loop {
        let (before, after) = match rest.find(['[', ',']) {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, ""),
        };
        name.push_str(before);
        let Some(inside) = after.strip_prefix('[') else { break };
        let (numbers, after) = inside.split_once(']')?;
        name.push_str(numbers.split(['-', ',']).next()?);
        rest = after;
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &str) -> Result<Found, Error> {
        let variable = |name: &str| {
            let mut words = environment.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        // a launcher's own descriptor is a low one here
        look(variable, |fd| fd < 20)
    }

    fn at(rank: u32, size: u32, host: &str, port: u16, run: &str) -> Found {
        Found::At { rank, size, host: host.into(), port, run: run.into() }
    }

    #[test]
    fn launchers_are_known_by_what_they_set() {
        let hydra = "PMI_FD=11 PMI_RANK=1 PMI_SIZE=2";
        assert_eq!(found(hydra).unwrap(), Found::Pmi { rank: 1, size: 2, fd: 11 });
        let prrte = "PMIX_NAMESPACE=prterun-a-6029@1 PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=2";
        assert_eq!(found(prrte).unwrap(), Found::Pmix);
        let step = "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 SLURM_JOB_ID=7 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=c[03-05,9]";
        assert_eq!(found(step).unwrap(), at(3, 4, "c03", 20_219, "step 7.2 of 4"));
        assert_eq!(found(&format!("{step} {hydra}")).unwrap(), Found::Pmi { rank: 1, size: 2, fd: 11 });
        let pods = "POLYRAIL_MEET=solve-0.peers:7100 POLYRAIL_SIZE=3 JOB_COMPLETION_INDEX=2";
        assert_eq!(found(pods).unwrap(), at(2, 3, "solve-0.peers", 7100, "solve-0.peers:7100 of 3"));
        assert_eq!(
            found("POLYRAIL_MEET=[fe80::1]:7100 POLYRAIL_SIZE=3 POLYRAIL_RANK=0").unwrap(),
            at(0, 3, "fe80::1", 7100, "[fe80::1]:7100 of 3")
        );
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let outer = "PMIX_NAMESPACE=slurm.pmix.3.0 PMIX_RANK=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1";
        let inner = "PMI_RANK=2 PMI_SIZE=4";
        let hydra = Found::Pmi { rank: 2, size: 4, fd: 11 };
        assert_eq!(found(&format!("{outer} {inner} PMI_FD=11")).unwrap(), hydra);
        // a descriptor that this process has not
        assert_eq!(found(&format!("{outer} {inner} PMI_FD=25")).unwrap(), Found::Pmix);
        let met = found(&format!("POLYRAIL_MEET=a:7100 {outer} {inner}")).unwrap();
        assert_eq!(met, at(2, 4, "a", 7100, "a:7100 of 4"));
    }

    #[test]
    fn who_is_alone_is_so() {
        for environment in [
            "",
            "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
            "SLURM_NTASKS=4 SLURM_PROCID=0",
            "POLYRAIL_MEET= PMI_FD=3 PMI_RANK=0 PMI_SIZE=2",
            "PMI_RANK=1",
        ] {
            assert_eq!(found(environment).unwrap(), Found::Alone, "{environment}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (environment, named) in [
            ("POLYRAIL_MEET=a POLYRAIL_RANK=0 POLYRAIL_SIZE=2", "host:port"),
            ("POLYRAIL_MEET=a:0 POLYRAIL_RANK=0 POLYRAIL_SIZE=2", "host:port"),
            ("POLYRAIL_MEET=:7 POLYRAIL_RANK=0 POLYRAIL_SIZE=2", "host:port"),
            ("POLYRAIL_MEET=a:7 POLYRAIL_SIZE=2", "POLYRAIL_RANK"),
            ("POLYRAIL_MEET=a:7 JOB_COMPLETION_INDEX=1", "POLYRAIL_SIZE"),
            ("POLYRAIL_MEET=a:7 POLYRAIL_RANK=x POLYRAIL_SIZE=2", "a number"),
            ("POLYRAIL_MEET=a:7 POLYRAIL_RANK=2 POLYRAIL_SIZE=2", "2 of 2"),
            ("PMI_FD=1 PMI_RANK=9 PMI_SIZE=2", "9 of 2"),
            ("PMI_FD=-1 PMI_RANK=0 PMI_SIZE=2", "PMI_FD"),
            ("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3", "SLURM_STEP_NODELIST"),
        ] {
            let why = found(environment).expect_err(environment).to_string();
            assert!(why.contains(named), "{environment}: {why}");
        }
    }

    #[test]
    fn the_first_of_a_list_of_nodes() {
        for (list, first) in [
            ("a", "a"),
            ("a,b", "a"),
            ("c[1-3]", "c1"),
            ("c[007,9]-x,d", "c007-x"),
            ("r[1-2]n[3-4],q", "r1n3"),
        ] {
            assert_eq!(first_of_nodes(list).as_deref(), Some(first), "{list}");
        }
        for none in ["", "c[1-3", ","] {
            assert_eq!(first_of_nodes(none), None, "{none}");
        }
    }
}
