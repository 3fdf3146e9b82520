//! What travels: each format as bytes, and as a value that can only be valid. `docs/wire.md` has the tables and the
//! golden examples.
//!
//! | file | what |
//! |---|---|
//! | `codec.rs` | bounded little-endian reading and writing, used by all the others |
//! | `key.rs` | the secret key of an endpoint, its public identity, and every keyed hash |
//! | `address.rs` | the 64 bytes by which an endpoint is reached, and their text form |
//! | `handshake.rs` | the fixed records that prove the key on a new connection |
//! | `terms.rs` | what those records speak of: versions, features, reasons, errors |
//! | `offer.rs` | what the two ends tell each other about themselves once the key is proven |
//! | `transport.rs` | which transport a connection, an offer or a key is of |
//! | `repair.rs` | how values are cut that have repairs |
//! | `interface.rs` | the part of an offer that is about network interfaces |
//!
//! Rules: every integer is little-endian; a parser returns an error and never panics, whatever the bytes; bytes that mean
//! nothing are zero and checked to be; nothing that prints shows a key.

pub mod address;
pub mod codec;
pub mod datagram;
pub mod handshake;
mod interface;
pub mod key;
pub mod offer;
pub mod repair;
mod terms;
mod transport;

pub use address::{Address, AddressError, Ip};
pub use key::{HostId, Key, PeerId};
pub use offer::{Offer, OfferError, OfferView};
pub use terms::{Features, HandshakeError, Kind, Nonce, Reject, SessionId, Versions};
pub use transport::Transport;
