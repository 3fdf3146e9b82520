//! What programs give to MPI's functions, and which operations on it are carried out here.

use std::sync::OnceLock;

use polyrail_pmpi::{Flavour, abi};

use crate::area::PAYLOAD;
use crate::combine::{Combine, Terms};
use crate::data::{Data, Kind};
use crate::group::Casts;
use crate::library::Failed;
use crate::reach::MOST_RANKS;
use crate::team::{Call, Team};
use crate::ways::Way;
use crate::what;
use crate::within::{DOUBLED, SHORT};

/// Bytes of all ranks up to which what is gathered or scattered is carried out here where ranks do not all share a host: they are once more in
/// rooms of ours.
const BLOCKS: usize = 64 << 20;
/// The same of what is reduced and scattered.
const SCATTERED: usize = 16 << 20;
/// The same of what each sends to all: what is longer goes from rank to rank as well.
const EXCHANGED: usize = 64 << 10;
/// Bytes of a part up to which what all exchange with all goes through slots, where each can copy from each.
const PART: usize = 128 << 10;

/// Hosts of one rank each among which what is long goes along a line, or from each to each: among more, the MPI's own algorithms take fewer steps.
const SINGLES: usize = 8;

/// What becomes of a call: nothing if it is the MPI's.
pub type Carried = Option<Result<(), Failed>>;

/// `count` elements of a type at a place of the program's.
#[derive(Clone, Copy)]
pub struct Given {
    /// Where.
    pub at: usize,
    /// How many.
    pub count: i64,
    /// Of what.
    pub datatype: usize,
}

impl Given {
    /// Nothing that could be: the MPI says what it is.
    pub fn is_wrong(&self) -> bool {
        // an address of 0 is where types with addresses of their own begin
        let nowhere = || self.at == 0 && self.count > 0 && self.kind().is_some_and(|kind| kind.named);
        self.count < 0 || abi().handle(self.datatype) == abi().datatype_null || nowhere()
    }

    /// Whether it is where the result goes.
    pub fn is_in_place(&self) -> bool {
        self.at == abi().in_place
    }

    /// The same somewhere else.
    fn at(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// Whether it is the `n`th part of what is received, or sent, where it must not be, as MPICH sees it. Open MPI takes that for an operation
    /// in place.
    fn is_part(&self, n: usize, of: &Self) -> bool {
        let is_same = self.count == of.count && abi().handle(self.datatype) == abi().handle(of.datatype);
        is_same
            && of.count > 0
            && refuses_aliases()
            && of.data().is_some_and(|all| all.part(n).at as usize == self.at)
    }

    fn kind(&self) -> Option<Kind> {
        Kind::of(self.datatype)
    }

    fn data(&self) -> Option<Data> {
        Some(Data { at: self.at as *mut u8, count: usize::try_from(self.count).ok()?, kind: self.kind()? })
    }
}

/// Numbers of the program's, one for each rank: of `int`, or of 64 bits in functions for large counts.
#[derive(Clone, Copy)]
pub struct Array {
    /// Where.
    pub at: usize,
    /// Whether they have 64 bits.
    pub wide: bool,
}

impl Array {
    fn get(&self, n: usize) -> i64 {
        // SAFETY: the program says that there is one for each rank
        unsafe {
            match self.wide {
                true => (self.at as *const i64).add(n).read_unaligned(),
                false => (self.at as *const i32).add(n).read_unaligned().into(),
            }
        }
    }

    /// As lengths, if all are.
    fn lengths(&self, n: usize) -> Option<Vec<usize>> {
        (0..n).map(|n| usize::try_from(self.get(n)).ok()).collect()
    }

    /// None, or one of them that is no length.
    pub fn is_wrong(&self, n: usize) -> bool {
        self.at == 0 || (0..n).any(|n| self.get(n) < 0)
    }

    /// As many of `int`, if all fit.
    pub fn narrow(&self, n: usize) -> Option<Vec<i32>> {
        (0..n).map(|n| i32::try_from(self.get(n)).ok()).collect()
    }
}

/// The types of what goes to all ranks, or comes from all.
#[derive(Clone, Copy)]
pub enum Types {
    /// One for all; displacements count its extents.
    One(usize),
    /// An array; displacements are bytes.
    Each(usize),
}

/// A part of the program's for each rank, of lengths of their own.
#[derive(Clone, Copy)]
pub struct Several {
    /// Where displacements begin.
    pub at: usize,
    /// Elements of each part.
    pub counts: Array,
    /// Where each part is.
    pub places: Array,
    /// Of what.
    pub types: Types,
}

impl Several {
    fn is_in_place(&self) -> bool {
        self.at == abi().in_place
    }

    fn datatype(&self, n: usize) -> usize {
        match self.types {
            Types::One(datatype) => datatype,
            // SAFETY: the program says that there is one for each rank; MPICH's are of 32 bits
            Types::Each(all) => unsafe {
                match abi().flavour {
                    Flavour::Mpich => (all as *const u32).add(n).read() as usize,
                    _ => (all as *const usize).add(n).read(),
                }
            },
        }
    }

    /// A part, unless its type is odd. What is none may be of no type.
    fn part(&self, n: usize) -> Option<Data> {
        let count = usize::try_from(self.counts.get(n)).ok()?;
        let is_none = || Kind { handle: 0, size: 0, extent: 0, named: false };
        let datatype = abi().handle(self.datatype(n));
        let kind =
            if count == 0 && datatype == abi().datatype_null { is_none() } else { Kind::of(datatype)? };
        kind.size.checked_mul(count)?;
        let step = if matches!(self.types, Types::One(_)) { kind.extent } else { 1 };
        let at = (self.at as *mut u8).wrapping_offset(self.places.get(n) as isize * step);
        Some(Data { at, count, kind })
    }

    fn parts(&self, n: usize) -> Option<Vec<Data>> {
        (0..n).map(|n| self.part(n)).collect()
    }

    /// Nothing that could be: the MPI says what it is.
    pub fn is_wrong(&self, n: usize) -> bool {
        let wrong = |n: usize| {
            let (none, datatype) = (self.counts.get(n) == 0, abi().handle(self.datatype(n)));
            let untyped = datatype == abi().datatype_null && !(none && matches!(self.types, Types::Each(_)));
            let nowhere = || self.at == 0 && !none && Kind::of(datatype).is_some_and(|kind| kind.named);
            untyped || nowhere()
        };
        let types = !matches!(self.types, Types::Each(0));
        self.counts.is_wrong(n) || self.places.at == 0 || !types || (0..n).any(wrong)
    }

    /// Whether the `n`th part is what is given, where it must not be.
    fn has(&self, n: usize, given: &Given) -> bool {
        let part = || self.part(n).is_some_and(|part| part.count > 0 && part.at as usize == given.at);
        refuses_aliases() && given.count > 0 && part()
    }
}

fn refuses_aliases() -> bool {
    static REFUSES: OnceLock<bool> = OnceLock::new();
    *REFUSES.get_or_init(|| {
        let set = std::env::var("MPIR_CVAR_COLL_ALIAS_CHECK");
        abi().flavour != Flavour::OpenMpi
            && !set.is_ok_and(|set| ["0", "no", "false", "off"].contains(&set.trim()))
    })
}

/// The rank of a root, if it is one.
pub fn root_of(root: usize, size: usize) -> Option<usize> {
    usize::try_from(root as u32 as i32).ok().filter(|root| *root < size)
}

/// What is to be reduced, and how.
#[derive(Clone, Copy)]
pub struct Reduction {
    /// What is combined.
    pub from: Given,
    into: usize,
    operation: usize,
}

impl Reduction {
    /// So many elements, by an operation.
    pub fn new(from: usize, into: usize, count: i64, datatype: usize, operation: usize) -> Self {
        Self { from: Given { at: from, count, datatype }, into, operation }
    }

    /// Nothing that could be, at a rank that gets the result or does not.
    pub fn is_wrong(&self, receives: bool) -> bool {
        let from = if self.from.is_in_place() && receives { self.from.at(self.into) } else { self.from };
        let into = self.from.at(self.into);
        let same = receives && self.from.is_part(0, &into);
        let nothing = self.from.is_in_place() && !receives;
        abi().handle(self.operation) == abi().op_null
            || from.is_wrong()
            || receives && into.is_wrong()
            || same
            || nothing
    }

    /// The same where each rank gets a part of the result, which may be none and nowhere.
    pub fn is_scattered_wrong(&self, counts: &Array, rank: usize, size: usize) -> bool {
        if counts.is_wrong(size) || abi().handle(self.operation) == abi().op_null {
            return true;
        }
        let in_place = self.from.is_in_place();
        let of = |at: usize, count: i64| Given { at, count, ..self.from };
        let all = (0..size).map(|n| counts.get(n)).fold(0, i64::saturating_add);
        let from = of(if in_place { self.into } else { self.from.at }, all);
        let same = !in_place && all > 0 && self.from.at == self.into && refuses_aliases();
        from.is_wrong() || of(self.into, counts.get(rank)).is_wrong() || same
    }

    /// Where this rank's contribution is, and where the result goes.
    fn places(&self) -> (*const u8, *mut u8) {
        let from = if self.from.is_in_place() { self.into } else { self.from.at };
        (from as *const u8, self.into as *mut u8)
    }
}

impl Team {
    fn is_together(&self) -> bool {
        self.between.is_none()
    }

    /// Whether so many bytes, which are equal on all ranks, are moved here.
    fn fits(&self, bytes: Option<usize>, between: usize) -> Option<()> {
        let most = if self.is_together() { usize::MAX } else { between };
        self.moves(bytes.unwrap_or(0));
        self.goes(Way::Length);
        bytes.is_some_and(|bytes| bytes > 0 && bytes <= most).then_some(())
    }

    /// The same of what takes a step for each host where it is longer than `short`. What is combined does not ask for sites: who does it decides its bits.
    fn fits_line(&self, bytes: Option<usize>, short: usize) -> Option<()> {
        self.fits(bytes, usize::MAX)?;
        let many = self.layout.most() < 2 && self.layout.hosts() > SINGLES;
        if many {
            self.goes(Way::Singles);
        }
        (!many || bytes.is_some_and(|bytes| bytes <= short)).then_some(())
    }

    /// The same of what all get of all, between hosts if it travels together there.
    fn fits_together(&self, bytes: Option<usize>, between: usize, travels: bool) -> Option<()> {
        let fits = self.fits(bytes, if travels { between } else { 0 });
        if !travels {
            self.goes(Way::Singles);
        }
        fits
    }

    /// Whether parts of a host's or of a site's ranks are many.
    fn has_company(&self) -> bool {
        self.layout.most() > 1 || self.sites.is_some()
    }

    /// The same of so many bytes for each rank.
    fn fits_each(&self, bytes: Option<usize>, between: usize) -> Option<()> {
        self.fits(bytes, between / self.layout.ranks())
    }

    /// Nothing where ranks cannot all copy from each other.
    fn reaching(&self) -> Option<()> {
        self.goes(if self.is_together() { Way::Unreached } else { Way::Lengths });
        (self.is_together() && self.reaches() && self.layout.ranks() <= MOST_RANKS).then_some(())
    }

    /// What is reduced, if it is reduced here: all that decides is equal on all ranks.
    fn terms(&self, reduction: &Reduction) -> Option<Terms> {
        let kind = reduction.from.kind().filter(Kind::is_plain)?;
        let count = usize::try_from(reduction.from.count).ok()?;
        kind.size.checked_mul(count)?;
        let combine = Combine::new(reduction.operation, kind);
        (combine.is_commutative().ok()? || self.layout.in_order()).then_some(())?;
        Some(Terms { count, extent: kind.size, combine })
    }

    /// `MPI_Bcast`, or nothing, as all of these.
    pub fn try_bcast(&mut self, data: Given, root: usize) -> Carried {
        let (data, root) = (data.data()?, root_of(root, self.layout.ranks())?);
        // what is sent once takes one
        let short =
            if matches!(self.casts, Casts::None) && self.sites.is_none() { SHORT } else { usize::MAX };
        self.fits_line(data.checked_bytes(), short)?;
        Some(self.bcast(data, root))
    }

    /// `MPI_Reduce`.
    pub fn try_reduce(&mut self, reduction: Reduction, root: usize) -> Carried {
        let (terms, root) = (self.terms(&reduction)?, root_of(root, self.layout.ranks())?);
        self.fits_line(Some(terms.bytes()), SHORT)?;
        let (from, into) = reduction.places();
        Some(self.reduce(from, into, &terms, root))
    }

    /// `MPI_Allreduce`.
    pub fn try_allreduce(&mut self, reduction: Reduction) -> Carried {
        let terms = self.terms(&reduction)?;
        self.fits(Some(terms.bytes()), usize::MAX)?;
        let (from, into) = reduction.places();
        Some(self.allreduce(from, into, &terms))
    }

    /// `MPI_Reduce_scatter_block`.
    pub fn try_reduce_scatter_block(&mut self, reduction: Reduction) -> Carried {
        let counts = vec![usize::try_from(reduction.from.count).ok()?; self.layout.ranks()];
        self.scatter_reduced(what::REDUCE_SCATTER_BLOCK, reduction, &counts)
    }

    /// `MPI_Reduce_scatter`.
    pub fn try_reduce_scatter(&mut self, reduction: Reduction, counts: Array) -> Carried {
        let counts = counts.lengths(self.layout.ranks())?;
        self.scatter_reduced(what::REDUCE_SCATTER, reduction, &counts)
    }

    fn scatter_reduced(&mut self, operation: u8, reduction: Reduction, counts: &[usize]) -> Carried {
        let count = counts.iter().try_fold(0usize, |all, count| all.checked_add(*count))?;
        let mut all = reduction;
        all.from.count = i64::try_from(count).ok()?;
        let terms = self.terms(&all)?;
        let (from, into) = reduction.places();
        let call = Call::new(operation, 0);
        if !self.is_together() {
            // nothing of what is longer travels together where each host has one rank; and of the longest block each host's is there
            let block =
                |host| self.layout.members(host).iter().map(|rank| counts[*rank as usize]).sum::<usize>();
            let longest = (0..self.layout.hosts()).map(block).max().unwrap_or(0);
            let room = longest.saturating_mul(self.layout.hosts()).saturating_mul(terms.extent);
            let travels = self.layout.most() > 1 && room <= 2 * SCATTERED;
            self.fits(Some(terms.bytes()), if travels { SCATTERED } else { SHORT })?;
            return Some(self.reduce_scatter_by_hosts(call, from, into, &terms, counts));
        }
        self.fits(Some(terms.bytes()), 0)?;
        // one element for each rank in a slot at least
        (self.layout.ranks() * terms.extent <= PAYLOAD).then_some(())?;
        Some(self.reduce_scatter(call, from, into, &terms, counts))
    }

    /// `MPI_Scan` and `MPI_Exscan`.
    pub fn try_scan(&mut self, reduction: Reduction, inclusive: bool) -> Carried {
        let terms = self.terms(&reduction)?;
        self.fits(Some(terms.bytes()), DOUBLED)?;
        let (from, into) = reduction.places();
        if self.is_together() {
            return Some(self.scan(from, into, &terms, inclusive));
        }
        // those before a rank are those of hosts before its own
        self.goes(Way::Kind);
        self.layout.in_order().then_some(())?;
        Some(self.scan_by_hosts(from, into, &terms, inclusive))
    }

    /// `MPI_Gather`.
    pub fn try_gather(&mut self, own: Given, into: Given, root: usize) -> Carried {
        let ranks = self.layout.ranks();
        let root = root_of(root, ranks)?;
        let all = if self.rank == root { Some(into.data()?) } else { None };
        let own = match all {
            Some(all) if own.is_in_place() => all.part(root),
            _ => own.data()?,
        };
        self.fits_each(own.checked_bytes(), BLOCKS)?;
        if let Some(unequal) = all.and_then(|all| unequal(&own, &all)) {
            return Some(Err(unequal));
        }
        Some(self.gather(own, all.map(|all| all.times(ranks)), root))
    }

    /// `MPI_Gatherv`.
    pub fn try_gatherv(&mut self, own: Given, into: Several, root: usize) -> Carried {
        self.reaching()?;
        let root = root_of(root, self.layout.ranks())?;
        let all = if self.rank == root { Some(into.parts(self.layout.ranks())?) } else { None };
        let in_place = all.is_some() && own.is_in_place();
        let own = if in_place { None } else { Some(own.data()?) };
        Some(self.gatherv(Call::new(what::GATHERV, root).of_any(), own, all.as_deref()))
    }

    /// `MPI_Scatter`.
    pub fn try_scatter(&mut self, all: Given, own: Given, root: usize) -> Carried {
        let ranks = self.layout.ranks();
        let root = root_of(root, ranks)?;
        let from = if self.rank == root { Some(all.data()?) } else { None };
        let in_place = from.is_some() && own.is_in_place();
        let own = if in_place { None } else { Some(own.data()?) };
        let one = from.or(own)?;
        self.fits_each(one.checked_bytes(), BLOCKS)?;
        if let Some(unequal) = from.zip(own).and_then(|(from, own)| unequal(&from, &own)) {
            return Some(Err(unequal));
        }
        Some(self.scatter(from.map(|from| from.times(ranks)), own, one.bytes(), root))
    }

    /// `MPI_Scatterv`.
    pub fn try_scatterv(&mut self, all: Several, own: Given, root: usize) -> Carried {
        self.reaching()?;
        let root = root_of(root, self.layout.ranks())?;
        let from = if self.rank == root { Some(all.parts(self.layout.ranks())?) } else { None };
        let in_place = from.is_some() && own.is_in_place();
        let own = if in_place { None } else { Some(own.data()?) };
        Some(self.scatterv(Call::new(what::SCATTERV, root).of_any(), from.as_deref(), own))
    }

    /// `MPI_Allgather`.
    pub fn try_allgather(&mut self, own: Given, into: Given) -> Carried {
        let all = into.data()?;
        let own = if own.is_in_place() { all.part(self.rank) } else { own.data()? };
        self.fits_together(own.checked_bytes(), BLOCKS / self.layout.ranks(), self.has_company())?;
        if let Some(unequal) = unequal(&own, &all) {
            return Some(Err(unequal));
        }
        Some(self.allgather(own, all.times(self.layout.ranks())))
    }

    /// `MPI_Allgatherv`.
    pub fn try_allgatherv(&mut self, own: Given, into: Several) -> Carried {
        let all = into.parts(self.layout.ranks())?;
        let own = if own.is_in_place() { all[self.rank] } else { own.data()? };
        self.fits_together(
            all.iter().try_fold(0usize, |sum, one| sum.checked_add(one.bytes())),
            BLOCKS,
            self.has_company(),
        )?;
        if let Some(unequal) = unequal(&own, &all[self.rank]) {
            return Some(Err(unequal));
        }
        Some(self.allgatherv(own, &all))
    }

    /// `MPI_Alltoall`.
    pub fn try_alltoall(&mut self, from: Given, into: Given) -> Carried {
        let all = into.data()?;
        let in_place = from.is_in_place();
        let from = if in_place { all } else { from.data()? };
        self.fits_together(from.checked_bytes(), EXCHANGED / self.layout.ranks(), self.layout.most() > 1)?;
        if let Some(unequal) = unequal(&from, &all) {
            return Some(Err(unequal));
        }
        let ranks = self.layout.ranks();
        if from.bytes() <= PART || self.reaching().is_none() {
            return Some(self.alltoall(from.times(ranks), all.times(ranks)));
        }
        let call = Call::new(what::ALLTOALL, 0).of(from.bytes());
        let parts = |one: Data| (0..ranks).map(|n| one.part(n)).collect::<Vec<_>>();
        Some(self.alltoallv(call, &parts(from), &parts(all), in_place))
    }

    /// `MPI_Alltoallv` and `MPI_Alltoallw`.
    pub fn try_alltoallv(&mut self, operation: u8, from: Several, into: Several) -> Carried {
        self.reaching()?;
        let ranks = self.layout.ranks();
        let all = into.parts(ranks)?;
        let in_place = from.is_in_place();
        let from = if in_place { all.clone() } else { from.parts(ranks)? };
        Some(self.alltoallv(Call::new(operation, 0).of_any(), &from, &all, in_place))
    }
}

/// Whether something is wrong with what goes to one rank from all, or from one to all: `part` is each rank's, `whole` the root's.
pub fn is_rooted_wrong(part: &Given, whole: &Given, root: usize, rank: usize, size: usize) -> bool {
    let Some(root) = root_of(root, size) else { return true };
    if rank != root {
        return part.is_in_place() || part.is_wrong();
    }
    is_exchange_wrong(part, whole, root)
}

/// The same where all ranks have a whole.
pub fn is_exchange_wrong(own: &Given, whole: &Given, part: usize) -> bool {
    whole.is_wrong() || !own.is_in_place() && (own.is_wrong() || own.is_part(part, whole))
}

/// The same where parts have lengths of their own.
pub fn is_rooted_several_wrong(part: &Given, whole: &Several, root: usize, rank: usize, size: usize) -> bool {
    let Some(root) = root_of(root, size) else { return true };
    if rank != root {
        return part.is_in_place() || part.is_wrong();
    }
    is_gathered_wrong(part, whole, root, size)
}

/// The same where all ranks have a whole, and one part is theirs.
pub fn is_gathered_wrong(own: &Given, whole: &Several, rank: usize, size: usize) -> bool {
    whole.is_wrong(size) || !own.is_in_place() && (own.is_wrong() || whole.has(rank, own))
}

/// The same where all exchange with all.
pub fn is_exchanged_wrong(from: &Several, into: &Several, size: usize) -> bool {
    into.is_wrong(size)
        || !from.is_in_place() && (from.is_wrong(size) || from.at == into.at && refuses_aliases())
}

/// What a rank sends to itself is as long as what it receives from itself.
fn unequal(sent: &Data, received: &Data) -> Option<Failed> {
    let (sent, received) = (sent.bytes(), received.bytes());
    (sent != received).then_some(Failed::Unequal { sent, received })
}
