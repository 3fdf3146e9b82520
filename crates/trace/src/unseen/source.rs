//! Where system calls of programs come from that preloading does not see.

use std::io;

use crate::attach::Attached;
use crate::kernel::{Named, Program, SyscallEvent, Syscalls};

/// One of the ways. What they say is the same.
#[derive(Debug)]
pub enum Source {
    /// The kernel's tracepoints, as root.
    Kernel(Box<Syscalls>),
    /// A process that is followed by ptrace, and what it starts.
    Followed(Attached),
}

impl Source {
    /// Nothing more is to come: what has come is there by now.
    pub fn end(&mut self) {
        match self {
            Source::Kernel(_) => {}
            Source::Followed(attached) => attached.end(),
        }
    }

    /// Hands out the calls that have ended since the last time.
    pub fn drain(&mut self, each: &mut dyn FnMut(SyscallEvent)) -> io::Result<()> {
        match self {
            Source::Kernel(syscalls) => syscalls.drain(each),
            Source::Followed(attached) => {
                attached.drain(each);
                Ok(())
            }
        }
    }

    /// Hands out the programs that have begun since the last time.
    pub fn programs(&mut self) -> Vec<Program> {
        match self {
            Source::Kernel(syscalls) => syscalls.programs(),
            Source::Followed(attached) => attached.programs(),
        }
    }

    /// Hands out what has been found out of sockets since the last time. `last`: nothing more will be.
    pub fn names(&mut self, last: bool, each: &mut dyn FnMut(Named)) {
        match self {
            Source::Kernel(syscalls) if last => syscalls.last_names(each),
            Source::Kernel(syscalls) => syscalls.names(each),
            Source::Followed(attached) => attached.names(last, each),
        }
    }

    /// How the process ended that was asked for, if it has and that is known.
    pub fn status(&self) -> Option<i32> {
        match self {
            Source::Kernel(_) => None,
            Source::Followed(attached) => attached.status(),
        }
    }

    /// What the user must know.
    pub fn warnings(&self) -> Vec<String> {
        let Source::Kernel(syscalls) = self else {
            let Source::Followed(attached) = self else { return Vec::new() };
            return attached.warnings();
        };
        let lost = syscalls.lost();
        let lost = (lost > 0).then(|| {
            format!("the kernel lost {lost} system calls of programs that preloading does not see, because they were not read fast enough")
        });
        let states = syscalls.lost_states();
        let states = (states > 0).then(|| {
            format!(
                "the kernel lost {states} events of sockets (of all of the machine), because they were not read fast enough: of some \
                 connections of programs that preloading does not see the ends may not be known"
            )
        });
        lost.into_iter().chain(states).collect()
    }
}
