//! Peers for programs in C, C++ and Fortran: `libpolyrail_p2p`, whose header `include/polyrail/p2p.h` says what each call does.
//!
//! | module | |
//! |---|---|
//! | `begin` | calls by which a run begins and ends |
//! | `iterate` | calls of an iteration, and of runs that members are lost from |
//! | `handle` | what a program holds; how a call enters it and comes back |
//! | `memory` | the program's memory: bytes, text, places for answers, structs that grow |
//! | `layout` | the header's structs and constants; a test compares them by a C compiler |
//! | `failure` | a failure's number, and its text for the thread |
//!
//! Invariants:
//! - No panic leaves a call: it becomes `P2P_E_INTERNAL`, and the handle is good for nothing but `P2Pleave`.
//! - The program's memory is looked at during a call only; of what is given to it, the handle is the owner.
//! - A handle that two threads use at once is refused to the second one; it is never used by both.

mod begin;
mod failure;
mod handle;
mod iterate;
mod layout;
mod memory;
