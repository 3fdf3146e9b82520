//! Which descriptors of a process are sockets, as far as system calls and `/proc` tell.
//!
//! `/proc` shows what a descriptor is now, and events tell of what was: what a look finds counts once all events up to the look were
//! heard and the descriptor was still the same.

use std::collections::{HashMap, VecDeque};
use std::fs;

use super::names::Names;

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Descriptor {
    /// With our number, and whether it outlives an `exec`, where that is known.
    Socket(u32, Option<bool>),
    Other,
    /// It was something that is no more.
    Closed,
}

/// Descriptors that are remembered.
const MOST: usize = 65_536;
/// Looks at `/proc` that are to be made, or to be believed.
const LOOKS: usize = 1024;

/// How `/proc` is asked for the inode of a descriptor that is a socket.
pub type Look<'a> = &'a dyn Fn(u32, i32) -> Option<u64>;

/// The descriptors of all processes that are looked at.
#[derive(Debug, Default)]
pub struct Descriptors {
    known: HashMap<u32, HashMap<i32, Descriptor>>,
    count: usize,
    /// To be looked at: process, descriptor, and our number for what it is.
    wanted: VecDeque<(u32, i32, u32)>,
    /// Were looked at, and showed an inode at that moment.
    looked: Vec<(u32, i32, u32, u64, u64)>,
}

impl Descriptors {
    /// The number of the socket that this descriptor is, if that is known.
    pub fn known(&self, pid: u32, fd: i32) -> Option<u32> {
        match self.known.get(&pid)?.get(&fd) {
            Some(Descriptor::Socket(number, _)) => Some(*number),
            _ => None,
        }
    }

    /// Those of a process's that are sockets, as far as that is known.
    pub fn sockets(&self, pid: u32) -> Vec<i32> {
        let known = self.known.get(&pid).into_iter().flatten();
        known.filter(|(_, what)| matches!(what, Descriptor::Socket(..))).map(|(fd, _)| *fd).collect()
    }

    /// As `/proc` shows it now, where nothing is known. `None`: it is no socket.
    pub fn look(&mut self, pid: u32, fd: i32, at: u64, names: &mut Names, inode: Look<'_>) -> Option<u32> {
        match self.known.get(&pid).and_then(|known| known.get(&fd)) {
            Some(Descriptor::Socket(number, _)) => return Some(*number),
            Some(Descriptor::Other) => return None,
            Some(Descriptor::Closed) | None => {}
        }
        let number = inode(pid, fd).map(|inode| names.of_inode(at, inode));
        self.set(pid, fd, number.map_or(Descriptor::Other, |number| Descriptor::Socket(number, None)));
        number
    }

    /// It is a socket, and nothing is known of it: inherited, if the process has not had another at its place.
    pub fn inherited(&mut self, pid: u32, fd: i32, at: u64, names: &mut Names, inode: Look<'_>) -> u32 {
        let before = self.known.get(&pid).and_then(|known| known.get(&fd));
        let found = if before.is_none() { inode(pid, fd) } else { None };
        let number = match found {
            Some(inode) => names.of_inode(at, inode),
            None => names.open(at, None),
        };
        self.is(pid, fd, number, None);
        number
    }

    /// It is this socket.
    pub fn is(&mut self, pid: u32, fd: i32, number: u32, kept: Option<bool>) {
        self.set(pid, fd, Descriptor::Socket(number, kept));
        self.want(pid, fd, number);
    }

    /// `to` is now what `from` is.
    pub fn copied(&mut self, pid: u32, from: i32, to: i32, kept: bool) {
        match self.known.get(&pid).and_then(|known| known.get(&from)) {
            Some(Descriptor::Socket(number, _)) => self.set(pid, to, Descriptor::Socket(*number, Some(kept))),
            Some(Descriptor::Other) => self.set(pid, to, Descriptor::Other),
            Some(Descriptor::Closed) | None => self.closed(pid, to),
        }
    }

    /// Whether it outlives an `exec`.
    pub fn keeps(&mut self, pid: u32, fd: i32, keeps: bool) {
        if let Some(Descriptor::Socket(_, kept)) =
            self.known.get_mut(&pid).and_then(|known| known.get_mut(&fd))
        {
            *kept = Some(keeps);
        }
    }

    /// This descriptor may become something else.
    pub fn closed(&mut self, pid: u32, fd: i32) {
        self.set(pid, fd, Descriptor::Closed);
    }

    /// A process has another's descriptors, as they are now.
    pub fn forked(&mut self, from: u32, to: u32) {
        let Some(known) = self.known.get(&from) else { return };
        let copies: HashMap<i32, Descriptor> = known
            .iter()
            .filter(|(_, descriptor)| matches!(descriptor, Descriptor::Socket(..)))
            .map(|(fd, descriptor)| (*fd, *descriptor))
            .collect();
        self.forget(to);
        if self.count + copies.len() <= MOST && !copies.is_empty() {
            self.count += copies.len();
            self.known.insert(to, copies);
        }
    }

    /// The process becomes another program.
    pub fn executed(&mut self, pid: u32) {
        let Some(known) = self.known.get_mut(&pid) else { return };
        self.count -= known.len();
        known.retain(|_, descriptor| matches!(descriptor, Descriptor::Socket(_, Some(true))));
        self.count += known.len();
    }

    /// Several descriptors of the process may have been closed, or it is gone.
    pub fn forget(&mut self, pid: u32) {
        self.count -= self.known.remove(&pid).map_or(0, |known| known.len());
    }

    /// Several descriptors, by number, were closed.
    pub fn closed_range(&mut self, pid: u32, first: u32, last: u32) {
        for (fd, descriptor) in self.known.get_mut(&pid).into_iter().flatten() {
            if u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd)) {
                *descriptor = Descriptor::Closed;
            }
        }
    }

    /// Several descriptors, by number, do not outlive an `exec`.
    pub fn keeps_none(&mut self, pid: u32, first: u32, last: u32) {
        for (fd, descriptor) in self.known.get_mut(&pid).into_iter().flatten() {
            if let Descriptor::Socket(_, kept) = descriptor
                && u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd))
            {
                *kept = Some(false);
            }
        }
    }

    /// Nothing is known any more, of any process.
    pub fn clear(&mut self) {
        self.known.clear();
        self.count = 0;
    }

    fn set(&mut self, pid: u32, fd: i32, descriptor: Descriptor) {
        if self.count >= MOST {
            self.clear();
        }
        self.count += usize::from(self.known.entry(pid).or_default().insert(fd, descriptor).is_none());
    }

    fn want(&mut self, pid: u32, fd: i32, number: u32) {
        if self.wanted.len() < LOOKS {
            self.wanted.push_back((pid, fd, number));
        }
    }

    /// All events up to a moment were heard: believes what looks before it have shown, and looks at what is new. `now` is asked
    /// after each look.
    pub fn settle(&mut self, heard: u64, names: &mut Names, inode: Look<'_>, now: impl Fn() -> u64) {
        for (pid, fd, number, inode, at) in std::mem::take(&mut self.looked) {
            if at >= heard {
                self.looked.push((pid, fd, number, inode, at));
            } else if self.known(pid, fd) == Some(number) {
                names.has_inode(number, inode);
            }
        }
        while let Some((pid, fd, number)) = self.wanted.pop_front() {
            if self.looked.len() < LOOKS
                && names.wants_inode(number)
                && self.known(pid, fd) == Some(number)
                && let Some(inode) = inode(pid, fd)
            {
                self.looked.push((pid, fd, number, inode, now()));
            }
        }
    }
}

/// The inode of a descriptor that is a socket.
pub fn inode(pid: u32, fd: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn proc_is_asked_once_until_a_descriptor_is_closed() {
        let asked = Cell::new(0);
        let look = |_, fd| {
            asked.set(asked.get() + 1);
            (fd == 3).then_some(700)
        };
        let (mut descriptors, mut names) = (Descriptors::default(), Names::default());
        assert_eq!(descriptors.look(1, 3, 0, &mut names, &look), Some(1));
        assert_eq!(descriptors.look(1, 3, 0, &mut names, &look), Some(1));
        assert_eq!(descriptors.look(1, 4, 0, &mut names, &look), None);
        assert_eq!(descriptors.look(1, 4, 0, &mut names, &look), None);
        assert_eq!(asked.get(), 2);
        assert_eq!(descriptors.look(2, 3, 0, &mut names, &look), Some(1), "a child's is the same socket");
        descriptors.copied(1, 3, 9, true);
        assert_eq!(descriptors.look(1, 9, 0, &mut names, &look), Some(1));
        assert_eq!(asked.get(), 3);
        descriptors.closed(1, 3);
        assert_eq!(
            descriptors.inherited(1, 3, 0, &mut names, &look),
            2,
            "not what is there when it is looked at"
        );
        descriptors.forget(1);
        assert_eq!(descriptors.look(1, 9, 0, &mut names, &look), None);
        assert_eq!(descriptors.count, 2);
    }

    #[test]
    fn a_look_counts_once_nothing_has_happened_to_the_descriptor_before_it() {
        let (mut descriptors, mut names) = (Descriptors::default(), Names::default());
        let (same, another) = (names.open(0, None), names.open(0, None));
        descriptors.is(1, 3, same, None);
        descriptors.is(1, 4, another, None);
        let look = |_, fd| Some(700 + fd as u64);
        descriptors.settle(5, &mut names, &look, || 10);
        assert_eq!(names.get(same).unwrap().inode, 0);
        descriptors.settle(10, &mut names, &look, || 11);
        assert_eq!(names.get(same).unwrap().inode, 0, "what happened at that moment is not heard");
        // an event from before the look, heard after it
        descriptors.closed(1, 4);
        descriptors.settle(20, &mut names, &look, || 21);
        assert_eq!((names.get(same).unwrap().inode, names.get(another).unwrap().inode), (703, 0));
    }

    #[test]
    fn a_child_has_its_parents_and_a_program_those_that_outlive_exec() {
        let (mut descriptors, mut names) = (Descriptors::default(), Names::default());
        let number = names.open(0, None);
        descriptors.is(1, 3, number, Some(false));
        descriptors.copied(1, 3, 4, true);
        descriptors.is(1, 5, number, None);
        descriptors.forked(1, 2);
        descriptors.closed(1, 3);
        let known = |descriptors: &Descriptors| [3, 4, 5].map(|fd| descriptors.known(2, fd).is_some());
        assert_eq!(known(&descriptors), [true; 3]);
        descriptors.executed(2);
        assert_eq!(known(&descriptors), [false, true, false]);
        descriptors.closed_range(2, 4, u32::MAX);
        assert_eq!(known(&descriptors), [false; 3]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut descriptors, mut names) = (Descriptors::default(), Names::default());
        for fd in 0..2 * MOST as i32 {
            let number = names.open(0, None);
            descriptors.is(1, fd, number, None);
            if fd % 10_000 == 0 {
                descriptors.forked(1, fd as u32 + 2);
            }
        }
        assert!(descriptors.count <= MOST && descriptors.wanted.len() <= LOOKS);
        descriptors.settle(0, &mut names, &|_, _| Some(1), || 0);
        assert!(descriptors.looked.len() <= LOOKS && descriptors.wanted.is_empty());
    }
}
