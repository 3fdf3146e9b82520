//! libfabric's provider ABI, written by hand.
//!
//! The sources are the headers `rdma/*.h` and `rdma/providers/*.h` and the manual pages `fi_*(3)`,
//! `fi_provider(7)`. The definitions are those of 2.5.1, which 2.6.0 left as they were. Four structs were
//! smaller in 1.17 (sizes in bytes on a 64-bit machine) and have grown only at their end since:
//!
//! | struct | 1.17 | 2.5 | what came, and when |
//! |---|---|---|---|
//! | [`fi_domain_attr`] | 192 | 224 | 1.20 `max_ep_auth_key`; 2.0 `max_group_id`; 2.5 `max_cntr_value`, `max_err_cntr_value` |
//! | [`fi_ops_av`] | 64 | 88 | 1.20 `insert_auth_key`, `lookup_auth_key`, `set_user_id` |
//! | [`fi_cq_err_entry`] | 80 | 88 | 1.20 `src_addr` |
//! | [`fi_mr_attr`] | 80 | 112 | 1.19 `hmem_data`; 1.22 `page_size`; 2.0 `base_mr`, `sub_mr_cnt` (so [`fi_mr_modify`], which ends in one: 88, 120) |
//!
//! Memory that an older host or application allocated ends where its version of the struct ended. So:
//! touch the late fields of a `fi_domain_attr` only when [`host::Host::version`] has them (it allocates them
//! in `fi_dupinfo`), those of a `fi_cq_err_entry` or `fi_mr_attr` only when the `api_version` that the
//! application asked for has them, and never form a Rust reference to the whole of such a struct: a
//! reference promises all its bytes. Field access through the raw pointer is fine.
//!
//! Conventions:
//! - Names are C's. C enums are integers here ([`fi_op`] = `u32`), as values from C are not to be trusted.
//! - An operation that applications call unchecked is a plain function pointer, so that a table without it
//!   does not compile; one that libfabric tests first (`FI_CHECK_OP`) is an `Option`.
//! - Operation tables hold nothing but their size and functions: they may be `static`. The pointers to them
//!   are `*const` here and not `const` in C; nobody writes through them.
//! - Every `fid_*` starts with its [`fid`], so a pointer to one is a pointer to the other.
#![allow(missing_docs, reason = "fields and constants are documented in the manual pages fi_*(3)")]
#![allow(non_camel_case_types, non_snake_case, reason = "C's names")]
#![allow(clippy::type_complexity, reason = "C's signatures, spelled out")]

mod atomic;
mod base;
mod caps;
mod collective;
mod domain;
mod endpoint;
mod eq;
mod errno;
pub mod host;
mod info;
mod mr;
mod provider;

pub use atomic::*;
pub use base::*;
pub use caps::*;
pub use collective::*;
pub use domain::*;
pub use endpoint::*;
pub use eq::*;
pub use errno::*;
pub use info::*;
pub use mr::*;
pub use provider::*;
