//! Which ranks of a communicator share a host.

use alloc::vec::Vec;

/// The ranks of a communicator by hosts. Hosts are numbered in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    host_of: Vec<u32>,
    place_of: Vec<u32>,
    members: Vec<Vec<u32>>,
}

impl Layout {
    /// From each rank's host, which may be called by any name.
    pub fn new<Name: PartialEq>(hosts: &[Name]) -> Self {
        let mut layout = Self { host_of: Vec::new(), place_of: Vec::new(), members: Vec::new() };
        let mut first: Vec<usize> = Vec::new();
        for (rank, name) in hosts.iter().enumerate() {
            let host = first.iter().position(|other| hosts[*other] == *name).unwrap_or_else(|| {
                first.push(rank);
                layout.members.push(Vec::new());
                first.len() - 1
            });
            layout.host_of.push(host as u32);
            layout.place_of.push(layout.members[host].len() as u32);
            layout.members[host].push(rank as u32);
        }
        layout
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.members.len()
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.host_of.len()
    }

    /// The host of a rank.
    pub fn host_of(&self, rank: usize) -> usize {
        self.host_of[rank] as usize
    }

    /// Which of its host's ranks this is.
    pub fn place_of(&self, rank: usize) -> usize {
        self.place_of[rank] as usize
    }

    /// The ranks of a host, in order.
    pub fn members(&self, host: usize) -> &[u32] {
        &self.members[host]
    }

    /// The most ranks that share a host.
    pub fn most(&self) -> usize {
        self.members.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Who speaks for a host where `root` has to be one of those who speak: it does for its own.
    pub fn speaker(&self, host: usize, root: Option<usize>) -> usize {
        match root {
            Some(root) if self.host_of(root) == host => root,
            _ => self.members[host][0] as usize,
        }
    }

    /// Whether each host has consecutive ranks, so that what is combined by hosts is combined in the order of ranks.
    pub fn in_order(&self) -> bool {
        self.host_of.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let layout = Layout::new(&["b", "a", "b", "c", "a"]);
        assert_eq!((layout.hosts(), layout.ranks(), layout.most()), (3, 5, 2));
        assert_eq!([0, 1, 2, 3, 4].map(|rank| layout.host_of(rank)), [0, 1, 0, 2, 1]);
        assert_eq!([0, 1, 2, 3, 4].map(|rank| layout.place_of(rank)), [0, 0, 1, 0, 1]);
        assert_eq!(layout.members(1), [1, 4]);
        assert!(!layout.in_order());
        assert!(Layout::new(&[7, 7, 3, 3, 3, 9]).in_order());
    }

    #[test]
    fn a_root_speaks_for_its_own_host() {
        let layout = Layout::new(&[0, 1, 0, 1]);
        assert_eq!([0, 1].map(|host| layout.speaker(host, None)), [0, 1]);
        assert_eq!([0, 1].map(|host| layout.speaker(host, Some(3))), [0, 3]);
    }
}
