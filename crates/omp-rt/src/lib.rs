//! The OpenMP runtime of `polyrail omp`: a library that the loader puts before all others, in place of the compilers' own runtimes. The design, with its
//! reasons, is docs/decisions/0006-openmp-on-distributed-memory.md.
//!
//! | module | does |
//! |---|---|
//! | `start` | begins in a process: before `main`, which ranks above 0 never run |
//! | `kmpc`, `gomp`, `api` | entry points of LLVM's and of GCC's runtime, and `omp_*` |
//! | `icv` | internal control variables, and the environment's `OMP_*` |
//! | `output` | what the program has written and not yet handed to the system |
//! | `generic` | atomics of any size, which are libatomic's elsewhere |
//! | `refused` | entry points that are there to say that they cannot be right |
//! | `team` | threads of this process, their stacks, barriers, worksharing within the process |
//! | `remote` | what a team needs of other ranks: `polyrail_omp::coherence` in this process, around which regions begin and end |
//! | `agent` | requests to the agent through the shared mapping |
//! | `track` | which memory is shared, what of it changed, and its twins |
//! | `alloc` | `malloc` and its family, at the same addresses on all ranks |
//! | `trap` | `lock`-prefixed instructions that rank 0 carries out |
//! | `calls` | system calls that rank 0 carries out |
//! | `serial` | serial code on every rank |
//! | `checkpoint` | what is kept of a run, to go on from there |
//! | `signals` | signals that the runtime lives by, which programs may not take |
//! | `modules` | what is loaded: the program, its own libraries, the system's |
//! | `stats` | what is counted of regions |
//! | `stacks` | where threads have their stacks and scratch memory |
//! | `heap` | one heap, with its state inside |
//! | `raw` | a lock that `malloc` can use, and memory |
//! | `sys` | system calls of our own, futexes, ending the run with a reason |
//!
//! Invariants:
//! - Nothing here allocates by `malloc`: it *is* `malloc`. Our own memory is not tracked.
//! - Program code runs on threads of the team or on rank 0's main thread, nowhere else.
//! - Every wait is for the agent, for a thread of this process, or, where ranks share memory, for another rank's word; the agent's end ends the process
//!   (`PR_SET_PDEATHSIG`), and agents end one another.
#![cfg_attr(test, allow(dead_code, reason = "exported functions and what only they use are not in tests"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "exported functions are the compilers' and the C library's, with their contracts"
)]

mod agent;
mod alloc;
mod api;
mod calls;
mod checkpoint;
mod generic;
mod gomp;
mod heap;
mod icv;
mod input;
mod kmpc;
mod library;
mod modules;
mod output;
mod pthread;
mod raw;
mod refused;
mod remote;
mod serial;
mod signals;
mod stacks;
mod start;
mod stats;
mod sys;
mod team;
mod track;
mod trap;
