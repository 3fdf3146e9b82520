//! The OpenMP runtime of `polyrail omp`: a library that the loader puts before all others, in place of the compilers' own runtimes. The design, with its
//! reasons, is docs/decisions/0006-openmp-on-distributed-memory.md.
//!
//! A module uses those below it alone, and `scripts/promises` refuses circles. What is below tells what is above by functions that are handed down (`sys::tell_of_the_end`,
//! `syscalls::made_by`, `team::tell`).
//!
//! | floor | module | does |
//! |---|---|---|
//! | doors | `start` | begins in a process: before `main`, which ranks above 0 never run |
//! | | `kmpc`, `gomp`, `api` | entry points of LLVM's and of GCC's runtime, and `omp_*` |
//! | | `generic` | atomics of any size, which are libatomic's elsewhere |
//! | | `refused` | entry points that are there to say that they cannot be right |
//! | | `calls` | system calls that rank 0 carries out |
//! | | `trap` | `lock`-prefixed instructions that rank 0 carries out |
//! | | `checkpoint` | what is kept of a run, to go on from there |
//! | | `pthread` | what threads wait by other than OpenMP's own |
//! | team | `team` | threads of this process, barriers, worksharing, tasks |
//! | region | `serial` | serial code on every rank |
//! | | `remote` | what begins and ends around regions of several ranks, and is handed over where threads wait for other ranks |
//! | streams | `output` | what the program has written and not yet handed to the system |
//! | | `library` | what the C, C++ and Fortran libraries have of their own, which regions must find alike |
//! | | `input` | standard input |
//! | coherence | `coherence` | `polyrail_omp::coherence` in this process |
//! | memory | `track` | which memory is shared, what of it changed, and its twins |
//! | | `thread` | what belongs to a thread, whatever it does |
//! | | `symbols` | functions and objects of libraries, by name |
//! | | `sync` | waiting for threads of this process |
//! | | `icv` | internal control variables, and the environment's `OMP_*` |
//! | | `alloc`, `heap` | `malloc` and its family, at the same addresses on all ranks; one heap, with its state inside |
//! | | `stacks` | where threads have their stacks and scratch memory |
//! | ground | `region`, `floating` | how a region is begun, and its function called; how a thread computes with floating point |
//! | | `run` | what the run is and does: ranks, who runs serial code, whether a region is being run |
//! | | `ask` | what other ranks ask of rank 0 |
//! | | `agent`, `exchange` | requests to the agent; exchanges of all ranks, over either of two links |
//! | | `stats` | what is counted of regions |
//! | | `mapping` | what is shared with the agent, and with other ranks of the same host |
//! | | `instruction` | one `lock`-prefixed instruction |
//! | | `modules` | what is loaded |
//! | | `signals` | signals that the runtime lives by, which programs may not take |
//! | | `syscalls` | the table of system calls |
//! | | `sys`, `raw` | futexes, files, ending the run with a reason; system calls past the C library, and a lock that `malloc` can use |
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
mod ask;
mod calls;
mod checkpoint;
mod coherence;
mod exchange;
mod floating;
mod generic;
mod gomp;
mod heap;
mod icv;
mod input;
mod instruction;
mod kmpc;
mod library;
mod mapping;
mod modules;
mod output;
mod pthread;
mod raw;
mod refused;
mod region;
mod remote;
mod run;
mod serial;
mod signals;
mod stacks;
mod start;
mod stats;
mod symbols;
mod sync;
mod sys;
mod syscalls;
mod team;
mod thread;
mod track;
mod trap;
