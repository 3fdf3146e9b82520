//! Reductions of which each rank gets something else, between hosts: reduce_scatter, and scans.

use std::ptr;

use polyrail_core::coll::between::{self, Node, Order};

use crate::combine::Terms;
use crate::here::{begins, copy};
use crate::library::Failed;
use crate::team::{Call, Team};
use crate::ways::Way;
use crate::what;
use crate::within::SHORT;

impl Team {
    /// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block` among several hosts: see [`reduce_scatter`](Self::reduce_scatter). What is short all hosts get
    /// whole, of what is longer each its ranks' part.
    ///
    /// # Errors
    /// As all operations here: see [`Failed`].
    pub fn reduce_scatter_by_hosts(
        &mut self,
        call: Call,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        counts: &[usize],
    ) -> Result<(), Failed> {
        let lengths: Vec<usize> = counts.iter().map(|count| count * terms.extent).collect();
        let first = begins(&lengths);
        let parts = |team: &Self, host: usize| -> Vec<(usize, usize)> {
            team.layout
                .members(host)
                .iter()
                .map(|rank| (first[*rank as usize], lengths[*rank as usize]))
                .collect()
        };
        let is_short = terms.bytes() <= SHORT;
        self.goes(if is_short { self.short(Way::Doubling) } else { Way::HostParts });
        self.with_rooms(|team, scratch, room| {
            let (speaks, hosts, own) = (team.place == 0, team.layout.hosts(), team.host);
            // what this host has; the same by hosts, or this host's part of what all have; and of that what each has
            let sizes: Vec<usize> =
                (0..hosts).map(|host| parts(team, host).iter().map(|(_, bytes)| bytes).sum()).collect();
            let all = terms.bytes();
            let theirs = if is_short { 0 } else { hosts * sizes[own] };
            room.resize(if speaks { 2 * all + theirs } else { 0 }, 0);
            let at = room.as_mut_ptr();
            let [by_hosts, theirs] = [at.wrapping_add(all), at.wrapping_add(2 * all)];
            team.combine_here(0, call, from, at, terms, scratch)?;
            let mut result = by_hosts;
            if speaks {
                if is_short {
                    team.allreduce_between(call.what(), at, terms)?;
                }
                let wanted = if is_short { own..own + 1 } else { 0..hosts };
                let mut filled = 0;
                for (begin, bytes) in wanted.flat_map(|host| parts(team, host)) {
                    // SAFETY: a rank's part of the first room, and its place in the second, which is as long
                    unsafe { copy(at.wrapping_add(begin), by_hosts.wrapping_add(filled), bytes) };
                    filled += bytes;
                }
                if !is_short {
                    result = team.combine_blocks(call, terms, &sizes, by_hosts, theirs)?;
                }
            }
            let lengths: Vec<usize> = parts(team, own).iter().map(|(_, bytes)| *bytes).collect();
            team.scatter_here(0, call, result, &lengths, Some(into))
        })
    }

    /// Of what all hosts have of this host's block the combination; where that is. What this one has of all blocks is at `ours`, one behind the
    /// other, and there is room for one of each host at `theirs`.
    fn combine_blocks(
        &self,
        call: Call,
        terms: &Terms,
        sizes: &[usize],
        ours: *mut u8,
        theirs: *mut u8,
    ) -> Result<*mut u8, Failed> {
        let (begin, bytes) = (begins(sizes), sizes[self.host]);
        // where what a node has is, once combined: at its last host's place
        let of = |node: &Node| match node.end - 1 {
            host if host == self.host => ours.wrapping_add(begin[host]),
            host => theirs.wrapping_add(host * bytes),
        };
        let Some(mut messages) = self.messages(call.what()) else { return Ok(ours) };
        for host in self.others() {
            messages.receive(self.layout.speaker(host, None), of(&(host..host + 1)), bytes)?;
        }
        for host in self.others() {
            messages.send(self.layout.speaker(host, None), ours.wrapping_add(begin[host]), sizes[host])?;
        }
        messages.wait_for_all()?;
        for [first, second] in Order::Doubled.of_all(sizes.len()) {
            // SAFETY: as many elements at both places
            unsafe { terms.combine.apply(of(&first), of(&second), bytes / terms.extent)? };
        }
        Ok(of(&(0..sizes.len())))
    }

    /// `MPI_Scan` and `MPI_Exscan` among several hosts with consecutive ranks: see [`scan`](Self::scan).
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn scan_by_hosts(
        &mut self,
        from: *const u8,
        into: *mut u8,
        terms: &Terms,
        inclusive: bool,
    ) -> Result<(), Failed> {
        let call = Call::new(if inclusive { what::SCAN } else { what::EXSCAN }, 0);
        let bytes = terms.bytes();
        self.goes(Way::Rounds);
        self.with_rooms(|team, scratch, room| {
            // what the hosts before this one have; what those up to this one have; what comes
            room.resize(if team.place == 0 { 3 * bytes } else { bytes }, 0);
            let before = room.as_mut_ptr();
            let [up_to, comes] = [before.wrapping_add(bytes), before.wrapping_add(2 * bytes)];
            team.combine_here(0, call, from, up_to, terms, scratch)?;
            if team.place == 0 {
                team.scan_between(call, [before, up_to, comes], terms)?;
            }
            let is_first = team.host == 0;
            if !is_first {
                team.spread(0, call, before, bytes)?;
            }
            if !team.is_alone() {
                team.scan(from, into, terms, inclusive)?;
                team.goes(Way::Rounds);
            } else if inclusive && !ptr::eq(from, into) {
                // SAFETY: the program's places
                unsafe { copy(from, into, bytes) };
            }
            match is_first {
                true => Ok(()),
                // SAFETY: the program's place for as many elements; nobody of this host is before its first rank
                false if !inclusive && team.place == 0 => unsafe {
                    copy(before, into, bytes);
                    Ok(())
                },
                // SAFETY: the same
                false => unsafe { terms.combine.apply(before, into, terms.count) },
            }
        })
    }

    /// What the hosts before this one have, combined, from what each has.
    fn scan_between(
        &self,
        call: Call,
        [before, up_to, comes]: [*mut u8; 3],
        terms: &Terms,
    ) -> Result<(), Failed> {
        let bytes = terms.bytes();
        let mut is_empty = true;
        for step in between::scan(self.layout.hosts(), self.host) {
            let Some(mut messages) = self.messages(call.what()) else { return Ok(()) };
            let rank = |host| self.layout.speaker(host, None);
            if let Some((from, _)) = step.from {
                messages.receive(rank(from), comes, bytes)?;
            }
            if let Some(to) = step.to {
                messages.send(rank(to), up_to, bytes)?;
            }
            messages.wait_for_all()?;
            if step.from.is_none() {
                continue;
            }
            // SAFETY: elements of the reduction at all three places
            unsafe {
                terms.combine.apply(comes, up_to, terms.count)?;
                match std::mem::take(&mut is_empty) {
                    true => copy(comes, before, bytes),
                    false => terms.combine.apply(comes, before, terms.count)?,
                }
            }
        }
        Ok(())
    }
}
