//! Finds programs that wait by looking at memory again and again (`while (!flag);`), which no other rank will ever change for them.
//!
//! Others have waited for this rank in an exchange for long; its program has asked nothing all that time. For two seconds its threads that use processor time are
//! stopped for some microseconds, a hundred times. It is busy waiting if **each** of them
//! - was always within 64 bytes of code,
//! - and whenever it was at the same instruction, *everything* was the same: all registers, flags and vector registers, the stack around its pointer, and the
//!   pages that registers point to,
//!
//! and if then the program's own variables (what is writable of the executable) do not change during a tenth of a second. A computation, however long and
//! however small its loop, counts, adds or moves on: something of this changes. What is not found is a wait that itself changes something, by counting its turns.
mod ptrace;

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use ptrace::Sample;

/// Bytes of code that a waiting loop has at most.
const LOOP: u64 = 64;
const SAMPLES: usize = 100;
const INTERVAL: Duration = Duration::from_millis(20);
/// Between two looks at the program's variables.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// What a thread was seen doing.
#[derive(Default, Debug)]
struct Seen {
    states: HashMap<u64, u64>,
    samples: usize,
    moves_on: bool,
}

impl Seen {
    fn add(&mut self, sample: Sample) {
        self.samples += 1;
        let before = *self.states.entry(sample.at).or_insert(sample.state);
        let least = self.states.keys().min().copied().unwrap_or_default();
        let most = self.states.keys().max().copied().unwrap_or_default();
        self.moves_on |= before != sample.state || most - least >= LOOP;
    }

    /// Whether it was seen often enough, and always the same. A thread that was rarely running says nothing.
    fn waits(&self) -> bool {
        !self.moves_on && self.samples >= SAMPLES / 2 && self.states.len() <= self.samples / 3
    }
}

/// What has been found out.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Looking,
    /// It computes, or nothing can be said.
    Innocent,
    /// It waits, at this address.
    Waits(u64),
}

/// A look at a program.
pub struct Watch {
    process: u32,
    threads: HashMap<u32, Seen>,
    taken: usize,
    next: Instant,
    variables: Option<u64>,
}

impl Watch {
    /// Begins.
    pub fn new(process: u32, now: Instant) -> Self {
        Self { process, threads: HashMap::new(), taken: 0, next: now, variables: None }
    }

    /// Goes on, if it is time to.
    pub fn poll(&mut self, now: Instant) -> Verdict {
        if now < self.next {
            return Verdict::Looking;
        }
        self.next = now + INTERVAL;
        if self.taken < SAMPLES {
            self.taken += 1;
            for thread in running(self.process) {
                let process = self.process;
                // a tracer that ends lets go of whom it could not stop in time
                let sampler = std::thread::spawn(move || ptrace::sample(process, thread));
                if let Ok(Some(sample)) = sampler.join() {
                    self.threads.entry(thread).or_default().add(sample);
                }
            }
            return Verdict::Looking;
        }
        let Some(at) = judge(self.threads.values()) else { return Verdict::Innocent };
        let variables = ptrace::variables(self.process);
        match (self.variables, variables) {
            (_, None) => Verdict::Innocent,
            (None, first) => {
                self.variables = first;
                self.next = now + LAST_LOOK;
                Verdict::Looking
            }
            (before, after) if before == after => Verdict::Waits(at),
            _ => Verdict::Innocent,
        }
    }
}

/// Where threads wait, if each that was seen running more than now and then does.
fn judge<'a>(threads: impl Iterator<Item = &'a Seen>) -> Option<u64> {
    let mut found = None;
    for seen in threads.filter(|seen| seen.samples > SAMPLES / 10) {
        if !seen.waits() {
            return None;
        }
        found = seen.states.keys().min().copied();
    }
    found
}

/// Threads that have a processor or could use one.
fn running(process: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let runs = |thread: &u32| {
        fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"))
            .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" R")))
    };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).filter(runs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn seen(samples: impl Iterator<Item = (u64, u64)>) -> Seen {
        let mut seen = Seen::default();
        samples.for_each(|(at, state)| seen.add(Sample { at, state }));
        seen
    }

    #[test]
    fn only_what_never_changes_waits() {
        let waits = seen((0..100).map(|turn| (0x1000 + turn % 5, turn % 5)));
        assert_eq!(judge([&waits].into_iter()), Some(0x1000));
        let counts = seen((0..100).map(|turn| (0x1000 + turn % 5, turn)));
        assert_eq!(judge([&counts].into_iter()), None, "registers change");
        let once = seen((0..100).map(|turn| (0x1000, u64::from(turn == 50))));
        assert_eq!(judge([&once].into_iter()), None, "even once");
        let long = seen((0..100).map(|turn| (0x1000 + 64 * (turn % 2), 0)));
        assert_eq!(judge([&long].into_iter()), None, "a large loop");
        let straight = seen((0..60).map(|turn| (0x1000 + turn, turn)));
        assert_eq!(judge([&straight].into_iter()), None, "nothing was seen twice");
        assert_eq!(judge([&waits, &counts].into_iter()), None, "another thread computes");
        let rare = seen((0..5).map(|turn| (turn, turn)));
        assert_eq!(judge([&waits, &rare].into_iter()), Some(0x1000), "another thread hardly runs");
        assert_eq!(judge([].into_iter()), None);
    }

    /// A C program that is being watched, ended with the test.
    struct Program(Child, #[expect(dead_code, reason = "held for its end")] tempfile::TempDir);

    impl Program {
        fn new(body: &str, options: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
            fs::write(&source, body).unwrap();
            let built =
                Command::new("cc").args(options).arg(&source).arg("-o").arg(&program).status().unwrap();
            assert!(built.success());
            let program = Self(Command::new(program).spawn().unwrap(), dir);
            // the loader's work is not the program's
            std::thread::sleep(Duration::from_millis(300));
            program
        }
        fn verdict(&self) -> Verdict {
            let mut watch = Watch::new(self.0.id(), Instant::now());
            loop {
                match watch.poll(Instant::now()) {
                    Verdict::Looking => std::thread::sleep(Duration::from_millis(1)),
                    found => return found,
                }
            }
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_program_that_waits_for_a_variable_is_found_and_named() {
        for options in [&["-O2"][..], &["-O0"], &["-O2", "-static"]] {
            let body = "volatile int flag; void wait_for_flag(void) { while (!flag); } int main(void) { wait_for_flag(); }";
            let program = Program::new(body, &[options, &["-fno-inline"]].concat());
            let Verdict::Waits(at) = program.verdict() else { panic!("{options:?}: not found") };
            let place = crate::symbols::Symbols::of(program.0.id()).name(at).unwrap();
            assert!(place.starts_with("wait_for_flag") || place.starts_with("main"), "{place}");
        }
    }

    #[test]
    fn loops_that_compute_are_not_taken_for_it() {
        for body in [
            "int main(void) { volatile long n = 0; for (;;) n++; }",
            "volatile long n; int main(void) { for (;;) n++; }",
            "volatile long n; int main(void) { for (;;) __asm__ volatile(\"incq %0\" : \"+m\"(n)); }",
            "int main(void) { for (double x = 1;; x *= 1.0000001) __asm__ volatile(\"\" : \"+x\"(x)); }",
            "#include <stdlib.h>\nint main(void) { long *p = calloc(1, 8); for (;;) __asm__ volatile(\"incq %0\" : \"+m\"(*p)); }",
        ] {
            let program = Program::new(body, &["-O2"]);
            assert_eq!(program.verdict(), Verdict::Innocent, "{body}");
        }
        let sleeps = Program::new("#include <unistd.h>\nint main(void) { pause(); }", &[]);
        assert_eq!(sleeps.verdict(), Verdict::Innocent);
    }
}
