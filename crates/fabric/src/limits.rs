//! What this provider is called, and the sizes that it promises.

use crate::ffi::FI_VERSION;

/// The provider's name, and that of its one fabric and one domain.
pub const NAME: &str = "polyrail";
/// The provider's own version; of two of one name libfabric keeps the newer.
pub const VERSION: u32 = FI_VERSION(0, 1);

/// Most pieces of local memory in one operation: what MPICH asks for at most; derived types of more pieces it packs before the first byte leaves.
pub const IOV_LIMIT: usize = 32;
/// Most pieces of remote memory in one operation.
pub const RMA_IOV_LIMIT: usize = 8;
/// Most bytes of operands, and of comparands, in one atomic operation.
pub const ATOMIC_MAX: usize = 8 << 10;
/// Most bytes that an error's `err_data` takes.
pub const ERR_DATA_MAX: usize = 256;
/// Longest message, in bytes.
pub const MSG_MAX: usize = usize::MAX >> 1;
/// Operations that may be posted without ever being told to come again; more may.
pub const QUEUE: usize = 1024;
/// Bytes beyond which an operation is long: a thread goes on with it while the application computes.
pub const LONG: usize = 64 << 10;
