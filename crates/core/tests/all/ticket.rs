//! [`polyrail_core::ticket`] among threads, where what is only added arrives later, in the order of who adds but in no other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyrail_core::ticket::{Home, Kind, TAKE, have_all, leave, take};

/// What a rank has asked for and has not arrived.
enum Asked {
    Add(u64),
    Register(usize, u64),
}

/// A lock that is lost ends the test.
const PATIENCE: Duration = Duration::from_secs(120);

struct Shared {
    begun: Instant,
    word: AtomicU64,
    slots: Vec<AtomicU64>,
    /// What each was told.
    told: Vec<AtomicU64>,
    under_way: Vec<Mutex<VecDeque<Asked>>>,
    over: AtomicBool,
}

impl Shared {
    /// Of so many ranks, after so many tickets that came and went; all were told this before.
    fn new(ranks: usize, after: u64, told: u64) -> Arc<Self> {
        let counts = after & ((1 << 21) - 1);
        let all = |of| (0..ranks).map(|_| AtomicU64::new(of)).collect();
        Arc::new(Self {
            begun: Instant::now(),
            word: AtomicU64::new(counts | counts << 22 | counts << 43),
            slots: all(0),
            told: all(told),
            under_way: (0..ranks).map(|_| Mutex::default()).collect(),
            over: AtomicBool::new(false),
        })
    }

    /// Until somebody waits in a slot.
    fn wait_for(&self, slot: usize) {
        while self.slots[slot].load(Ordering::SeqCst) == 0 {
            assert!(self.begun.elapsed() < PATIENCE, "nobody waits");
            std::thread::yield_now();
        }
    }

    fn arrive(&self, rank: usize) -> bool {
        // one at a time, under the lock: in order
        let mut under_way = self.under_way[rank].lock().unwrap();
        match under_way.pop_front() {
            Some(Asked::Add(adds)) => _ = self.word.fetch_add(adds, Ordering::SeqCst),
            Some(Asked::Register(slot, waiting)) => self.slots[slot].store(waiting, Ordering::SeqCst),
            None => return false,
        }
        true
    }
}

struct Rank {
    rank: usize,
    shared: Arc<Shared>,
    random: u64,
    /// Nobody is told: looking alone has to do.
    deaf: bool,
    /// It looks when it was not told for some time.
    looks: bool,
    asked: Option<u64>,
}

impl Rank {
    fn random(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn settle(&self) {
        while self.shared.arrive(self.rank) {}
    }
}

impl Home for Rank {
    type Error = String;

    fn fetch(&mut self, adds: &'static u64) -> Result<u64, String> {
        self.settle();
        Ok(self.shared.word.fetch_add(*adds, Ordering::SeqCst))
    }

    fn add(&mut self, adds: &'static u64) -> Result<(), String> {
        self.shared.under_way[self.rank].lock().unwrap().push_back(Asked::Add(*adds));
        Ok(())
    }

    fn register(&mut self, slot: usize, waiting: u64) -> Result<(), String> {
        self.shared.told[self.rank].store(0, Ordering::SeqCst);
        self.shared.under_way[self.rank].lock().unwrap().push_back(Asked::Register(slot, waiting));
        Ok(())
    }

    fn ask(&mut self, slot: usize) -> Result<(), String> {
        self.asked = Some(self.peek(slot, None)?);
        Ok(())
    }

    fn answer(&mut self) -> Result<u64, String> {
        self.asked.take().ok_or_else(|| "nothing was asked".into())
    }

    fn peek(&mut self, slot: usize, adds: Option<&'static u64>) -> Result<u64, String> {
        self.settle();
        let waiting = self.shared.slots[slot].load(Ordering::SeqCst);
        if let Some(adds) = adds {
            self.add(adds)?;
        }
        Ok(waiting)
    }

    fn wait(&mut self, told: u64, _ahead: u64) -> Result<Option<u64>, String> {
        let start = Instant::now();
        let patience = Duration::from_micros(self.random(200));
        while start.elapsed() < patience || !self.looks && start.elapsed() < PATIENCE {
            if self.shared.told[self.rank].load(Ordering::SeqCst) == told {
                return Ok(None);
            }
            let any = self.random(self.shared.told.len() as u64);
            self.shared.arrive(any as usize);
            std::thread::yield_now();
        }
        if self.shared.over.load(Ordering::SeqCst) || self.shared.begun.elapsed() > PATIENCE {
            return Err("another has failed, or the lock is lost".into());
        }
        self.fetch(&0).map(Some)
    }

    fn tell(&mut self, rank: u32, what: u64) -> Result<(), String> {
        if !self.deaf {
            self.shared.told[rank as usize].store(what, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Who ends, however it ends.
struct Ends<'a>(&'a AtomicU64, Arc<Shared>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.1.over.store(true, Ordering::SeqCst);
        }
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Many take it and give it back; `after` so many that came and went before.
fn run(ranks: usize, rounds: u64, after: u64, writes: u64, deaf: bool, seed: u64) {
    // what was told when numbers were the same the last time
    let shared = Shared::new(ranks, after, (after & ((1 << 21) - 1)) + 2);
    // -1: a writer is inside; else so many readers
    let inside = AtomicI64::new(0);
    let left = AtomicU64::new(ranks as u64);
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (shared, inside, left) = (shared.clone(), &inside, &left);
            scope.spawn(move || {
                let _ends = Ends(left, shared.clone());
                let mut rank =
                    Rank { rank, shared, random: seed * 1000 + rank as u64, deaf, looks: true, asked: None };
                for _ in 0..rounds {
                    let kind = if rank.random(100) < writes { Kind::Writer } else { Kind::Reader };
                    let own = rank.rank as u32;
                    let ticket = take(&mut rank, own, ranks, kind).unwrap();
                    let fits = match kind {
                        Kind::Writer => {
                            inside.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
                        }
                        Kind::Reader => inside.fetch_add(1, Ordering::SeqCst) >= 0,
                    };
                    assert!(fits, "rank {own} is inside beside a writer");
                    if rank.random(4) == 0 {
                        std::thread::yield_now();
                    }
                    match kind {
                        Kind::Writer => inside.store(0, Ordering::SeqCst),
                        Kind::Reader => _ = inside.fetch_sub(1, Ordering::SeqCst),
                    }
                    leave(&mut rank, ticket, ranks).unwrap();
                    assert!(!rank.shared.over.load(Ordering::SeqCst));
                }
            });
        }
        // the network
        let mut random = seed;
        while left.load(Ordering::SeqCst) > 0 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shared.arrive((random >> 33) as usize % ranks);
            if random >> 40 & 7 == 0 {
                std::thread::yield_now();
            }
        }
    });
    while (0..ranks).any(|rank| shared.arrive(rank)) {}
    let counts = (after + ranks as u64 * rounds) & ((1 << 21) - 1);
    assert_eq!(
        shared.word.load(Ordering::SeqCst),
        counts | counts << 22 | counts << 43,
        "all of it has arrived"
    );
}

#[test]
fn a_writer_is_alone_and_nobody_waits_for_ever() {
    for (seed, ranks) in (1..).zip([2, 3, 5, 8]) {
        for writes in [0, 30, 100] {
            // their numbers begin anew meanwhile
            for after in [0, (1 << 21) - 100, (1 << 21) - 7] {
                run(ranks, 60, after, writes, false, seed + after);
            }
        }
    }
}

/// Who waits behind one who had to wait needs no look.
#[test]
fn the_lock_goes_from_one_who_waited_to_the_next() {
    let shared = Shared::new(3, 0, 0);
    let rank =
        |rank, looks| Rank { rank, shared: shared.clone(), random: 1, deaf: false, looks, asked: None };
    let (mut first, mut second, mut third) = (rank(0, true), rank(1, true), rank(2, false));
    let held = take(&mut first, 0, 3, Kind::Writer).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            let held = take(&mut second, 1, 3, Kind::Writer).unwrap();
            (second, held)
        });
        shared.wait_for(1);
        let third = scope.spawn(move || take(&mut third, 2, 3, Kind::Reader).map(drop));
        shared.wait_for(2);
        leave(&mut first, held, 3).unwrap();
        first.settle();
        let (mut second, held) = second.join().unwrap();
        leave(&mut second, held, 3).unwrap();
        second.settle();
        third.join().unwrap().unwrap();
    });
}

/// Who wants all and waits for one is inside the others: who has that one may want these.
#[test]
fn what_is_free_is_entered_while_another_is_waited_for() {
    let homes = [Shared::new(2, 0, 0), Shared::new(2, 0, 0)];
    let rank = |home: usize, rank| Rank {
        rank,
        shared: homes[home].clone(),
        random: 1,
        deaf: false,
        looks: true,
        asked: None,
    };
    let held = take(&mut rank(0, 0), 0, 2, Kind::Writer).unwrap();
    std::thread::scope(|scope| {
        let all = scope.spawn(|| {
            let mut ways = [rank(0, 1), rank(1, 1)];
            let words = ways.iter_mut().map(|way| way.fetch(&TAKE).unwrap()).collect();
            let tickets = have_all(&mut ways, words, 1).unwrap();
            for (way, ticket) in ways.iter_mut().zip(tickets) {
                leave(way, ticket, 2).unwrap();
                way.settle();
            }
        });
        homes[0].wait_for(1);
        let mut other = rank(1, 0);
        let shared = take(&mut other, 0, 2, Kind::Reader).unwrap();
        leave(&mut other, shared, 2).unwrap();
        other.settle();
        let mut way = rank(0, 0);
        leave(&mut way, held, 2).unwrap();
        way.settle();
        all.join().unwrap();
    });
}

#[test]
fn looking_alone_does_as_well() {
    for seed in 0..6 {
        run(4, 60, (1 << 21) - 50, 50, true, seed);
    }
}
