//! Several ranks in one process, over a network that delivers in an order of its own as far as it may.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use spread::{Block, Spread};

type Message = (usize, Tag, Vec<u8>);

#[derive(Default)]
struct Wire {
    /// To each rank.
    queues: Vec<VecDeque<Message>>,
    sent: Vec<usize>,
    turn: usize,
}

struct Rank {
    wire: Rc<RefCell<Wire>>,
    rank: usize,
    /// Receives in the order in which they were posted, by number.
    posted: Vec<(usize, usize, Tag)>,
    next: usize,
}

enum Request {
    Sent,
    Receive { number: usize, to: *mut u8, bytes: usize },
    Received,
}

impl Net for Rank {
    type Request = Request;
    type Error = String;

    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.wire.borrow().queues.len()
    }
    unsafe fn send(&mut self, from: *const u8, bytes: usize, to: usize, tag: Tag) -> Result<Request, String> {
        // SAFETY: memory of this test, which stays and which nobody else uses
        let data = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
        let mut wire = self.wire.borrow_mut();
        wire.sent[self.rank] += bytes;
        wire.queues[to].push_back((self.rank, tag, data));
        Ok(Request::Sent)
    }
    fn come(&mut self, _: Tag) -> Result<Option<usize>, String> {
        unreachable!("exchanges name the sender")
    }
    unsafe fn receive(
        &mut self,
        to: *mut u8,
        bytes: usize,
        from: usize,
        tag: Tag,
    ) -> Result<Request, String> {
        self.next += 1;
        self.posted.push((self.next, from, tag));
        Ok(Request::Receive { number: self.next, to, bytes })
    }
    fn done(&mut self, request: &mut Request) -> Result<bool, String> {
        let Request::Receive { number, to, bytes } = *request else { return Ok(true) };
        let mut wire = self.wire.borrow_mut();
        // now and then nothing has come yet
        wire.turn = wire.turn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        if wire.turn >> 62 == 0 {
            return Ok(false);
        }
        let (_, from, tag) = *self.posted.iter().find(|posted| posted.0 == number).unwrap();
        if self.posted.iter().any(|posted| posted.0 < number && (posted.1, posted.2) == (from, tag)) {
            return Ok(false);
        }
        let Some(at) =
            wire.queues[self.rank].iter().position(|message| (message.0, message.1) == (from, tag))
        else {
            return Ok(false);
        };
        let (_, _, data) = wire.queues[self.rank].remove(at).unwrap();
        assert!(data.len() <= bytes, "{} bytes for a receive of {bytes}", data.len());
        // SAFETY: memory of this test, which stays and which nobody else uses
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        self.posted.retain(|posted| posted.0 != number);
        *request = Request::Received;
        Ok(true)
    }
}

fn wire(ranks: usize) -> (Rc<RefCell<Wire>>, Vec<Rank>) {
    let wire =
        Rc::new(RefCell::new(Wire { queues: vec![VecDeque::new(); ranks], sent: vec![0; ranks], turn: 1 }));
    let nets =
        (0..ranks).map(|rank| Rank { wire: Rc::clone(&wire), rank, posted: Vec::new(), next: 0 }).collect();
    (wire, nets)
}

/// A rank's bytes: a pattern whose length is prime, so that no two segments are alike.
fn content(rank: usize, bytes: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..65_521).map(|at| (at / 7 + at % 251 + 31 * rank) as u8).collect();
    let mut content = pattern.repeat(bytes.div_ceil(pattern.len()));
    content.truncate(bytes);
    content
}

/// Memory of one exchange on one rank.
struct Memory {
    header: Box<Header>,
    out: Vec<u8>,
    headers: Vec<u8>,
    blobs: Vec<Vec<u8>>,
}

impl Memory {
    fn new(ranks: usize, limit: usize) -> Self {
        let header =
            Header { number: 0, bytes: 0, place: 0, flags: 0, rank: 0, words: [0; 4], inline: [0; INLINE] };
        Self {
            header: Box::new(header),
            out: vec![0; limit],
            headers: vec![0; ranks * HEADER],
            blobs: vec![vec![0; limit]; ranks],
        }
    }
    fn buffers(&mut self) -> Buffers {
        Buffers {
            header: &raw mut *self.header,
            out: self.out.as_mut_ptr(),
            headers: self.headers.as_mut_ptr(),
            blobs: self.blobs.iter_mut().map(|blob| blob.as_mut_ptr()).collect(),
            limit: self.out.len(),
        }
    }
    fn submit(&mut self, number: u64, blob: &[u8]) {
        self.out[..blob.len()].copy_from_slice(blob);
        (self.header.number, self.header.bytes) = (number, blob.len() as u64);
    }
}

/// One exchange among ranks with blobs of `sizes`; the bytes that each rank sent.
fn exchange(sizes: &[usize], hosts: &[u32]) -> Vec<usize> {
    let ranks = sizes.len();
    let limit = sizes.iter().copied().max().unwrap_or(0).max(INLINE + 1);
    let (wire, mut nets) = wire(ranks);
    let common = Ranks::new(hosts.to_vec());
    let mut memories: Vec<Memory> = (0..ranks).map(|_| Memory::new(ranks, limit)).collect();
    let mut exchanges: Vec<Exchange<Request>> = memories
        .iter_mut()
        .enumerate()
        .map(|(rank, memory)| Exchange::new(rank % 2, memory.buffers()))
        .collect();
    for exchange in &mut exchanges {
        exchange.tags = (Tag::Headers0, Tag::Blobs0);
    }
    // ranks come one after the other
    let mut done = vec![false; ranks];
    for turn in 0.. {
        assert!(turn < 100_000, "{sizes:?} on {hosts:?} comes to no end");
        for rank in 0..ranks {
            let net = &mut nets[rank];
            if turn == 3 * rank {
                memories[rank].submit(1, &content(rank, sizes[rank]));
                memories[rank].header.flags = 1 << rank;
                // SAFETY: memory of this test, which stays and which nobody else uses
                unsafe { exchanges[rank].submit(net, &common).unwrap() };
            }
            if let Some(outcome) = exchanges[rank].poll(net, &common).unwrap() {
                assert_eq!(outcome, Outcome { number: 1, flags: (1 << ranks) - 1 });
                done[rank] = true;
            }
        }
        if done.iter().all(|done| *done) {
            break;
        }
    }
    for (me, memory) in memories.iter().enumerate() {
        for (rank, size) in sizes.iter().enumerate() {
            let blob = if rank == me { &memory.out } else { &memory.blobs[rank] };
            assert!(blob[..*size] == content(rank, *size), "rank {me} has other bytes than rank {rank} sent");
            let told = &memory.headers[rank * HEADER + 8..rank * HEADER + 16];
            assert_eq!(told, (*size as u64).to_le_bytes());
        }
    }
    let wire = wire.borrow();
    assert!(wire.queues.iter().all(VecDeque::is_empty), "messages are left over");
    wire.sent.clone()
}

#[test]
fn every_rank_gets_every_ranks_bytes() {
    for ranks in 1..=8 {
        for size in [0, 1, INLINE - 1, INLINE, INLINE + 1, 100_000, 1 << 20] {
            for hosts in [1, 2, ranks as u32] {
                let on: Vec<u32> = (0..ranks as u32).map(|rank| rank % hosts).collect();
                exchange(&vec![size; ranks], &on);
            }
        }
    }
}

#[test]
fn a_hundred_mebibytes() {
    exchange(&[100 << 20; 2], &[0, 1]);
    exchange(&[100 << 20, 0, 3 << 20], &[0, 1, 2]);
}

#[test]
fn unequal_sizes() {
    for ranks in 2..=8 {
        let some: Vec<usize> =
            (0..ranks).map(|rank| [0, 3 << 20, 17, INLINE, 600_000][rank * 3 % 5]).collect();
        let mut first = vec![0; ranks];
        first[0] = 5 << 20;
        for sizes in [some, first] {
            exchange(&sizes, &vec![0; ranks]);
            exchange(&sizes, &(0..ranks as u32).collect::<Vec<_>>());
            exchange(&sizes, &(0..ranks as u32).map(|rank| rank % 2).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_ring_carries_each_block_once_per_link() {
    let mut sizes = [0; 6];
    sizes[0] = 16 << 20;
    let sent = exchange(&sizes, &[0, 1, 2, 3, 4, 5]);
    let most = sent.into_iter().max().unwrap();
    assert!(most < (16 << 20) + 10 * HEADER, "{most}");
}

/// Each pattern by itself, whether anybody would choose it or not.
#[test]
fn all_patterns_bring_all_blocks() {
    for pattern in [Pattern::Direct, Pattern::Ring, Pattern::Doubling, Pattern::Trees] {
        for ranks in 2..=9 {
            for odd in [0, 1, 300_000] {
                let sizes: Vec<usize> =
                    (0..ranks).map(|rank| if rank % 2 == 1 { odd } else { 10 * rank }).collect();
                let (wire, mut nets) = wire(ranks);
                let mut memory: Vec<Vec<Vec<u8>>> = (0..ranks)
                    .map(|me| {
                        let block =
                            |rank| if rank == me { content(rank, sizes[rank]) } else { vec![0; sizes[rank]] };
                        (0..ranks).map(block).collect()
                    })
                    .collect();
                let mut among = Ranks::new((0..ranks as u32).map(|rank| rank % 3).collect());
                among.order.reverse();
                let mut spreads: Vec<Spread<Request>> = (0..ranks)
                    .map(|me| {
                        let blocks: Vec<Block> = memory[me]
                            .iter_mut()
                            .map(|block| Block { at: block.as_mut_ptr(), bytes: block.len() })
                            .collect();
                        // SAFETY: memory of this test, which stays and which nobody else uses
                        unsafe {
                            Spread::start(&mut nets[me], pattern, &blocks, &among, Tag::Blobs0).unwrap()
                        }
                    })
                    .collect();
                let mut turns = 0;
                while (0..ranks).filter(|me| spreads[*me].poll(&mut nets[*me]).unwrap()).count() < ranks {
                    turns += 1;
                    assert!(turns < 10_000, "{pattern:?} of {ranks}");
                }
                for (me, blocks) in memory.iter().enumerate() {
                    for (rank, block) in blocks.iter().enumerate() {
                        assert!(*block == content(rank, sizes[rank]), "{pattern:?} {me} {rank}");
                    }
                }
                assert!(wire.borrow().queues.iter().all(VecDeque::is_empty));
            }
        }
    }
}

#[test]
fn a_rank_somewhere_else_in_the_program_is_found_out() {
    let (_, mut nets) = wire(2);
    let common = Ranks::new(vec![0, 0]);
    let mut memories = [Memory::new(2, 4096), Memory::new(2, 4096)];
    let [mut a, mut b] = memories.each_mut().map(|memory| Exchange::new(0, memory.buffers()));
    memories[0].submit(7, b"x");
    memories[1].submit(9, b"y");
    // SAFETY: memory of this test, which stays and which nobody else uses
    unsafe {
        a.submit(&mut nets[0], &common).unwrap();
        b.submit(&mut nets[1], &common).unwrap();
    }
    assert!(a.waits_for_others());
    let error = (0..100).find_map(|_| a.poll(&mut nets[0], &common).err()).unwrap();
    let Error::Header(text) = error else { panic!("{error:?}") };
    assert!(text.contains("rank 1 is at exchange 9"), "{text}");
    memories[0].header.bytes = 4097;
    // SAFETY: memory of this test, which stays and which nobody else uses
    assert!(matches!(unsafe { a.submit(&mut nets[0], &common) }, Err(Error::Header(_))), "too large");
}
