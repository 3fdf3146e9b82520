//! Who sends what to whom, so that every rank gets every other rank's block. A pure function of what all ranks know: all choose alike.

/// How blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Nobody has anything.
    Nothing,
    /// Everyone sends its block to everyone.
    Direct,
    /// Everyone passes on to its successor what comes from its predecessor, by segments: no link between hosts carries a block twice.
    Ring,
    /// Everyone sends its block to the ranks of its host and to one rank of each other host, which pass it on to those beside them, by segments.
    Trees,
    /// In round `k`, to the rank `2^k` before: all that one has, up to `2^k` blocks. Few messages, more copies.
    Doubling,
}

/// Bytes of a ring's segment: small enough that a ring fills quickly, large enough that messages cost little.
pub const SEGMENT: usize = 256 << 10;

/// Rough costs, nanoseconds. Only their proportions decide, and those differ by powers of ten where it matters.
mod cost {
    /// Processor time of one message, at either end.
    pub const MESSAGE: u64 = 700;
    /// Until the other process has seen a message on the same host: it shares processors with a program.
    pub const NEAR: u64 = 5_000;
    /// The same between hosts.
    pub const FAR: u64 = 15_000;
    /// A thousand bytes between hosts, on a 10 Gbit/s link.
    pub const FAR_KILOBYTE: u64 = 800;
    /// A thousand bytes within a host.
    pub const NEAR_KILOBYTE: u64 = 100;
    /// A thousand bytes copied aside and back.
    pub const COPY_KILOBYTE: u64 = 100;
}

fn bytes(count: u64, kilobyte: u64) -> u64 {
    (count / 1000).saturating_mul(kilobyte)
}

/// Chooses for `sizes[rank]` bytes of each rank; ranks with equal numbers in `hosts` share a host.
pub fn choose(sizes: &[u64], hosts: &[u32]) -> Pattern {
    let total: u64 = sizes.iter().sum();
    if sizes.len() < 2 || total == 0 {
        return Pattern::Nothing;
    }
    let [direct, trees, ring, doubling] = costs(sizes, hosts);
    let patterns = [Pattern::Direct, Pattern::Trees, Pattern::Ring, Pattern::Doubling];
    let least = patterns.into_iter().zip([direct, trees, ring, doubling]).min_by_key(|(_, cost)| *cost);
    least.map_or(Pattern::Direct, |(pattern, _)| pattern)
}

fn costs(sizes: &[u64], hosts: &[u32]) -> [u64; 4] {
    let ranks = sizes.len() as u64;
    let total: u64 = sizes.iter().sum();
    let senders = sizes.iter().filter(|size| **size > 0).count() as u64;
    let last = hosts.iter().max().copied().unwrap_or_default() as usize;
    let (mut members, mut own) = (vec![0u64; last + 1], vec![0u64; last + 1]);
    for (size, host) in sizes.iter().zip(hosts) {
        members[*host as usize] += 1;
        own[*host as usize] += size;
    }
    let several = members.iter().filter(|members| **members > 0).count() > 1;
    let latency = if several { cost::FAR } else { cost::NEAR };
    // what every host has to read or write for the ranks that it holds
    let near = bytes(members.iter().max().copied().unwrap_or(1) * total, cost::NEAR_KILOBYTE);
    let most = |of: &dyn Fn(u64, u64) -> u64| {
        let busiest = members.iter().zip(&own).map(|(members, own)| of(*members, *own)).max().unwrap_or(0);
        if several { bytes(busiest, cost::FAR_KILOBYTE) } else { 0 }
    };

    let links = most(&|members, own| (own * (ranks - members)).max((total - own) * members));
    let direct = latency + cost::MESSAGE * (ranks - 1 + senders.saturating_sub(1)) + links + near;

    let segments = total.div_ceil(SEGMENT as u64).max(senders);
    let segment = (total / senders.max(1)).min(SEGMENT as u64);
    let link = if several { cost::FAR_KILOBYTE } else { cost::NEAR_KILOBYTE };
    let hop = latency + 2 * cost::MESSAGE + bytes(segment, link);
    // a link carries all but the block of the rank behind it
    let carried = total - sizes.iter().min().copied().unwrap_or(0);
    let once = if several { bytes(carried, cost::FAR_KILOBYTE) } else { 0 };
    let ring = (ranks - 1) * hop + 2 * cost::MESSAGE * segments + once + near;

    let present = members.iter().filter(|members| **members > 0).count() as u64;
    let entering = if several { most(&|_, own| (own * (present - 1)).max(total - own)) } else { 0 };
    // one message more for each segment that is passed on
    let trees = 2 * latency + bytes(segment, link) + cost::MESSAGE * (2 * segments + ranks) + entering + near;

    let rounds = u64::from(usize::BITS - (sizes.len() - 1).leading_zeros());
    let copies = bytes(2 * total, cost::COPY_KILOBYTE);
    let doubling = rounds * (latency + 2 * cost::MESSAGE)
        + most(&|members, own| (total - own).max(own) * members)
        + near
        + copies;
    [direct, trees, ring, doubling]
}

/// The order of a ring: ranks of one host are neighbours, so that each link between hosts carries each block once.
pub fn ring(hosts: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hosts.len()).collect();
    order.sort_by_key(|rank| (hosts[*rank], *rank));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn on_hosts(hosts: u32, each: u32) -> Vec<u32> {
        (0..hosts * each).map(|rank| rank / each).collect()
    }

    #[track_caller]
    fn chosen(sizes: &[u64], hosts: &[u32], pattern: Pattern) {
        assert_eq!(choose(sizes, hosts), pattern, "{:?}", costs(sizes, hosts));
    }

    #[test]
    fn nothing_to_send() {
        chosen(&[], &[], Pattern::Nothing);
        chosen(&[MIB], &[0], Pattern::Nothing);
        chosen(&[0; 9], &on_hosts(3, 3), Pattern::Nothing);
    }

    #[test]
    fn few_ranks_and_one_host_go_direct() {
        for size in [1, KIB, MIB, 100 * MIB] {
            chosen(&[size; 2], &on_hosts(1, 2), Pattern::Direct);
            chosen(&[size; 2], &on_hosts(2, 1), Pattern::Direct);
            chosen(&[size, 0], &on_hosts(2, 1), Pattern::Direct);
            chosen(&[size; 4], &on_hosts(1, 4), Pattern::Direct);
        }
        chosen(&[512; 4], &on_hosts(2, 2), Pattern::Direct);
        chosen(&[512; 8], &on_hosts(8, 1), Pattern::Direct);
    }

    #[test]
    fn much_data_between_hosts_goes_round() {
        chosen(&[100 * MIB; 8], &on_hosts(8, 1), Pattern::Direct);
        // a region's begin: only rank 0 has changes
        let mut sizes = [0; 8];
        sizes[0] = 16 * MIB;
        chosen(&sizes, &on_hosts(8, 1), Pattern::Ring);
        chosen(&sizes, &on_hosts(4, 2), Pattern::Ring);
    }

    #[test]
    fn much_data_enters_a_host_of_several_ranks_once() {
        chosen(&[4 * MIB; 8], &on_hosts(2, 4), Pattern::Trees);
        chosen(&[100 * MIB; 4], &on_hosts(2, 2), Pattern::Trees);
        chosen(&[4 * MIB; 16], &on_hosts(4, 4), Pattern::Trees);
        let mut sizes = [0; 8];
        sizes[0] = 16 * MIB;
        chosen(&sizes, &on_hosts(2, 4), Pattern::Trees);
    }

    #[test]
    fn little_data_of_many_ranks_doubles() {
        chosen(&[512; 256], &on_hosts(1, 256), Pattern::Doubling);
        chosen(&[512; 256], &on_hosts(256, 1), Pattern::Doubling);
        // where each host's link would carry each block for every rank of the host
        chosen(&[512; 128], &on_hosts(16, 8), Pattern::Trees);
    }

    #[test]
    fn each_host_is_one_piece_of_the_ring() {
        assert_eq!(ring(&[0, 1, 0, 1, 2]), [0, 2, 1, 3, 4]);
        assert_eq!(ring(&[0, 0]), [0, 1]);
    }
}
