//! The companion of `polyrail run`: a library that the loader puts before MPI (`LD_PRELOAD`), and that carries out collective operations
//! of unmodified programs: within a host by memory that its ranks share, between hosts by the MPI's own messages.
//!
//! | module | does |
//! |---|---|
//! | `entry` | MPI's functions as programs call them: whether they are carried out here, else the MPI does |
//! | `asks` | those that ask whether something has come |
//! | `given` | what programs give, and which operations on it are carried out here |
//! | `comm` | what is known of each communicator |
//! | `team` | a communicator whose operations are carried out here: who has which place, and its numbers |
//! | `within` | the operations, by the memory of a host |
//! | `here` | how bytes come from some ranks of a host to others |
//! | `reach` | those whose parts have lengths that not all ranks know, and long alltoalls, by copies from rank to rank |
//! | `blocks` | gather and scatter; between hosts, allgather and alltoall, whose parts travel together |
//! | `differing` | between hosts: reductions of which each rank gets something else |
//! | `between` | what is short between hosts: the tables of `core::coll`, carried out by the MPI's own messages |
//! | `long` | what is long between hosts, in pieces |
//! | `crossing` | what is long and combined, between sites |
//! | `cast` | what is long and sent to all hosts at once, by multicast; `group` is who hears it, `agree` how hosts agree on that, `choice` whether it is worth it |
//! | `letters` | messages whose lengths their senders alone know |
//! | `messages` | messages between hosts that are under way |
//! | `data` | what a count of a type is in memory |
//! | `what` | the operations, as numbers |
//! | `combine` | what is to be reduced, and one operation of a reduction on two buffers |
//! | `room` | the memory that the ranks of a host share, found once as MPI starts |
//! | `sites` | which hosts are near each other, found then, too |
//! | `area` | how that memory looks |
//! | `window` | windows, and who has the lock of a target |
//! | `locks` | locks of a window's ranks, for which these have nothing to do |
//! | `far` | those between hosts |
//! | `ways` | which way operations went, for `polyrail top` |
//! | `wait` | waiting for another rank, and keeping MPI going meanwhile |
//! | `library` | the MPI's functions behind ours |
//!
//! Invariants:
//! - Whether an operation is carried out here depends only on what is equal on all ranks: the communicator, the bytes of each rank, the
//!   root, and for reductions type and operation, which MPI requires to be equal. Never on how a type lies in memory, on `MPI_IN_PLACE`, or on what one
//!   rank alone was given.
//! - Contributions are combined in the order of ranks, so that all ranks get the same bits, in each run.
//! - Who waits keeps the MPI going, and ends with an error when a rank of its host is gone.
//! - What differs between the calls of a host's ranks (operation, root, length), or in length between hosts, is an error, never a wrong result.
//! - Whatever is odd is left to the MPI, which reports errors as its users know them.
#![allow(clippy::missing_safety_doc, reason = "all exported functions are MPI's, with its contracts")]

mod agree;
mod area;
mod asks;
mod between;
mod blocks;
mod cast;
mod choice;
mod combine;
mod comm;
mod crossing;
mod data;
mod differing;
mod entry;
mod far;
mod given;
mod group;
mod here;
mod letters;
mod library;
mod locks;
mod long;
mod messages;
mod reach;
mod room;
mod sites;
mod team;
mod wait;
mod ways;
mod what;
mod window;
mod within;
