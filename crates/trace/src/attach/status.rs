//! What `/proc` says of a process or a thread.

use std::fs;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub state: char,
    /// Its process.
    pub process: u32,
    pub parent: u32,
    /// Whoever follows it; 0: nobody.
    pub tracer: u32,
    pub user: u32,
    /// How many its process has.
    pub threads: u32,
    /// Whether it is a part of the kernel.
    pub kernel: bool,
}

impl Status {
    /// Of one that is there.
    pub fn of(tid: u32) -> Option<Status> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{tid}/{file}")).ok();
        Status::parse(&read("status")?, &read("stat")?)
    }

    /// Of the files `status` and `stat`.
    fn parse(status: &str, stat: &str) -> Option<Status> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let number = |name: &str| line(name)?.split_whitespace().next()?.parse().ok();
        // behind the name, which may hold anything: state, parent, group, session, terminal, its group, flags
        let flags = stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse::<u32>().ok()?;
        const PF_KTHREAD: u32 = 0x0020_0000;
        Some(Status {
            name: line("Name:")?.into(),
            state: line("State:")?.chars().next()?,
            process: number("Tgid:")?,
            parent: number("PPid:")?,
            tracer: number("TracerPid:")?,
            user: number("Uid:")?,
            threads: number("Threads:").unwrap_or(1),
            kernel: flags & PF_KTHREAD != 0,
        })
    }

    /// Whether this thread has ended.
    pub fn has_ended(&self) -> bool {
        "ZX".contains(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_kernel_is_known_by_its_flags_whatever_its_name() {
        let status = "Name:\tk) 1 (x\nState:\tS (sleeping)\nTgid:\t7\nPPid:\t2\nTracerPid:\t9\nUid:\t5\t6\t6\t6\nThreads:\t3\n";
        let about = Status::parse(status, "7 (k) 1 (x) S 2 0 0 0 -1 2129984 0 0").unwrap();
        assert!(about.kernel);
        assert_eq!((about.process, about.parent, about.tracer, about.user, about.threads), (7, 2, 9, 5, 3));
        assert!(!Status::parse(status, "7 (k) 1 (x) S 2 0 0 0 -1 4194304 0 0").unwrap().kernel);
        assert_eq!(Status::parse(status, ""), None);
    }
}
