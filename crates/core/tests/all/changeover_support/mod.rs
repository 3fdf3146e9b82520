//! Two sides of a link that change its composition while they use it, over a network that does its worst.

pub mod channel;
pub mod count;
pub mod net;
pub mod plan;
pub mod side;
pub mod world;
