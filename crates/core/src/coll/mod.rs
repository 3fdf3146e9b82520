//! Collective operations: where ranks stand, and who exchanges what with whom, in which order.
//!
//! | module | decides |
//! |---|---|
//! | [`layout`] | which ranks of a communicator share a host, and who speaks for it |
//! | [`between`] | the exchanges between hosts, as tables |
//! | [`sites`] | the same where hosts are of several sites |
//! | [`cast`] | a broadcast that is sent once, and what of it is sent again |
//!
//! Invariants:
//! - Each rank computes the same from what all ranks know: nothing that one rank alone knows, and no time, goes in.
//! - The order in which contributions are combined depends on the number of hosts and on nothing else: not on who comes first, and not on
//!   the root, nor on sites. So each rank gets the same bits, and each run.

pub mod between;
pub mod cast;
pub mod layout;
pub mod sites;
