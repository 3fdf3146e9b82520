//! What is in a domain: plain data, under that domain's lock. Nothing here knows the lock, or C's objects.
//!
//! | file | is about |
//! |---|---|
//! | `slab` | things by key or number |
//! | `completion` | what is told of an operation that is over |
//! | `cq`, `room`, `cntr`, `av`, `regions` | completion queues, the memory of who reads one, counters, address vectors, memory regions |
//! | `endpoint`, `peers` | an endpoint's tables and sizes, its peers by the application's numbers |
//! | `eq` | event queues, which have a lock of their own |

#[forbid(unsafe_code)]
pub mod av;
#[forbid(unsafe_code)]
pub mod cntr;
#[forbid(unsafe_code)]
pub mod completion;
pub mod cq;
#[forbid(unsafe_code)]
pub mod endpoint;
#[forbid(unsafe_code)]
pub mod eq;
#[forbid(unsafe_code)]
mod peers;
#[forbid(unsafe_code)]
pub mod regions;
pub mod room;
pub mod slab;
#[cfg(all(test, not(loom)))]
mod tests;

use polyrail_core::proto::PeerIdx;
use polyrail_rails::Idle;

use crate::ffi::{FI_ADDR_NOTAVAIL, fi_addr_t};
use crate::wait::Awaited;
use av::Av;
use cntr::Cntr;
use completion::Entry;
use cq::Cq;
use endpoint::Endpoint;
use regions::Regions;
use slab::{Key, Slab};

/// All that is in one domain. Objects are known by their keys.
#[derive(Default)]
pub struct State {
    pub endpoints: Slab<Endpoint>,
    pub cqs: Slab<Cq>,
    pub cntrs: Slab<Cntr>,
    pub avs: Slab<Av>,
    pub regions: Regions,
    pub awaited: Awaited,
    /// What reading empty queues does.
    pub idle: Idle,
}

/// Where an endpoint's completions go: a domain's objects apart from the endpoint itself.
pub struct Sinks<'a> {
    pub cqs: &'a mut Slab<Cq>,
    pub cntrs: &'a mut Slab<Cntr>,
    pub avs: &'a mut Slab<Av>,
    pub regions: &'a Regions,
    pub awaited: &'a Awaited,
}

impl State {
    /// Whether nothing is open any more.
    pub fn is_empty(&self) -> bool {
        let bound =
            [self.cqs.is_empty(), self.cntrs.is_empty(), self.avs.is_empty(), self.regions.is_empty()];
        self.endpoints.is_empty() && bound == [true; 4]
    }

    /// Whether something is to go on while the application computes: it is long, or peers reach this process's memory.
    pub fn is_owed_progress(&mut self) -> bool {
        self.regions.are_reached() || self.endpoints.values_mut().any(|endpoint| endpoint.long > 0)
    }

    /// An endpoint, and where its completions go.
    #[inline]
    pub fn split(&mut self, endpoint: Key<Endpoint>) -> (&mut Endpoint, Sinks<'_>) {
        let sinks = Sinks {
            cqs: &mut self.cqs,
            cntrs: &mut self.cntrs,
            avs: &mut self.avs,
            regions: &self.regions,
            awaited: &self.awaited,
        };
        (&mut self.endpoints[endpoint], sinks)
    }

    /// The sender in [`Entry::source`], as the application knows it.
    pub fn source_of(&mut self, source: u64) -> fi_addr_t {
        let Some((endpoint, peer)) = Entry::sender(source) else { return FI_ADDR_NOTAVAIL };
        let (endpoint, sinks) = self.split(self.endpoints.key(endpoint));
        endpoint.source_of(PeerIdx(peer), sinks.avs)
    }
}

impl Sinks<'_> {
    /// Counters of what peers do to regions: any endpoint may be the one that notices.
    pub fn region_counters(&mut self) -> impl Iterator<Item = &mut Cntr> {
        self.cntrs.values_mut().filter(|cntr| cntr.regions > 0)
    }
}
