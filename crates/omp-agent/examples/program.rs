//! A program that speaks with its agent as the runtime does, and checks what comes back. `tests/agent.rs` runs it; by hand:
//! `mpiexec -n 2 polyrail-omp-agent -- target/release/examples/program latency 10000`, with POLYRAIL_OMP_RT naming any library.
use std::env::args;
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use polyrail_omp::area::{
    Area, DONE, FD, FREE, HEADER, Header, INLINE, Kind, MAGIC, Places, REQUEST, SERVER, VERSION, flag,
};
use polyrail_omp::layout::AREA;

fn wait(word: &AtomicU32, unwanted: u32) {
    for _ in 0..200 {
        if word.load(Ordering::Acquire) != unwanted {
            return;
        }
        std::hint::spin_loop();
    }
    while word.load(Ordering::Acquire) == unwanted {
        // SAFETY: inside the mapping, as both sides lay it out; this side's turn
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, unwanted, std::ptr::null::<u8>())
        };
    }
}

#[derive(Clone, Copy)]
struct Program {
    area: &'static Area,
    base: *mut u8,
    places: Places,
}

// SAFETY: it is addresses of a mapping that stays
unsafe impl Send for Program {}

impl Program {
    fn new() -> Self {
        // SAFETY: inside the mapping, as both sides lay it out; this side's turn
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(FD, &raw mut stat), 0, "no descriptor {FD}");
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            let base = libc::mmap(AREA as *mut _, stat.st_size as usize, protection, flags, FD, 0);
            assert_eq!(base as usize, AREA);
            let area = &*base.cast::<Area>();
            assert_eq!((area.magic, area.version), (MAGIC, VERSION));
            let places = Places::new(area.size as usize, area.blob as usize);
            assert_eq!(places.bytes(), stat.st_size as usize);
            Self { area, base: base.cast(), places }
        }
    }

    fn rank(&self) -> usize {
        self.area.rank as usize
    }
    fn size(&self) -> usize {
        self.area.size as usize
    }

    fn ring(&self) {
        self.area.doorbell.fetch_add(1, Ordering::SeqCst);
        if self.area.asleep.load(Ordering::SeqCst) == 1 {
            // SAFETY: system calls on words of the mapping, or on this process
            unsafe { libc::syscall(libc::SYS_futex, self.area.doorbell.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }

    fn ask(&self, slot: usize, kind: Kind, args: &[u64], data: &[u8]) -> ([u64; 4], Vec<u8>) {
        let it = &self.area.slots[slot];
        // SAFETY: inside the mapping, as both sides lay it out; this side's turn
        unsafe {
            it.kind.get().write(kind as u32);
            let mut all = [0; 6];
            all[..args.len()].copy_from_slice(args);
            it.args.get().write(all);
            it.bytes.get().write(data.len() as u64);
            self.base.add(self.places.data(slot)).copy_from(data.as_ptr(), data.len());
            it.state.store(REQUEST, Ordering::SeqCst);
            self.area.asking.fetch_or(1 << slot, Ordering::SeqCst);
            self.ring();
            wait(&it.state, REQUEST);
            assert_eq!(it.state.load(Ordering::Acquire), DONE);
            let bytes = it.bytes.get().read() as usize;
            let data = std::slice::from_raw_parts(self.base.add(self.places.data(slot)), bytes).to_vec();
            let result = it.result.get().read();
            it.state.store(FREE, Ordering::Release);
            (result, data)
        }
    }

    fn submit(&self, number: u64, bytes: usize, flags: u32) {
        let exchange = &self.area.exchange[(number % 2) as usize];
        // SAFETY: inside the mapping, as both sides lay it out; this side's turn
        unsafe {
            let header = exchange.header.get();
            (*header).number = number;
            (*header).bytes = bytes as u64;
            (*header).flags = flags;
            (*header).words[0] = 7 * number + self.rank() as u64;
        }
        exchange.state.store(REQUEST, Ordering::SeqCst);
        self.ring();
    }

    fn finish(&self, number: u64) {
        let state = &self.area.exchange[(number % 2) as usize].state;
        wait(state, REQUEST);
        state.store(FREE, Ordering::Release);
    }

    fn byte(number: u64, rank: usize, at: usize) -> u8 {
        (at / 3 + at % 253 + 17 * rank) as u8 ^ number as u8
    }

    fn fill(&self, number: u64, bytes: usize) {
        let out = self.places.out((number % 2) as usize);
        for at in 0..bytes {
            // SAFETY: inside the mapping, as both sides lay it out; this side's turn
            unsafe { self.base.add(out + at).write(Self::byte(number, self.rank(), at)) };
        }
    }

    fn check(&self, number: u64, sizes: &dyn Fn(usize) -> usize) {
        let b = (number % 2) as usize;
        for rank in 0..self.size() {
            // SAFETY: inside the mapping, as both sides lay it out; this side's turn
            let header = unsafe { &*self.base.add(self.places.header(b, rank)).cast::<Header>() };
            assert_eq!((header.number, header.rank as usize), (number, rank));
            assert_eq!((header.bytes as usize, header.words[0]), (sizes(rank), 7 * number + rank as u64));
            if rank != self.rank() {
                // SAFETY: inside the mapping, as both sides lay it out; this side's turn
                let at = unsafe { self.base.add(self.places.blob(b, rank)) };
                // SAFETY: inside the mapping, as both sides lay it out; this side's turn
                let blob = unsafe { std::slice::from_raw_parts(at, sizes(rank)) };
                let wrong =
                    blob.iter().enumerate().find(|(at, byte)| **byte != Self::byte(number, rank, *at));
                assert!(wrong.is_none(), "exchange {number}: byte {wrong:?} of rank {rank} is wrong");
            }
        }
    }

    /// Exchanges of many sizes, two at a time.
    fn exchanges(&self) {
        let limit = self.area.blob as usize;
        let some = [0, 1, INLINE - 1, INLINE, INLINE + 1, 1 << 20, limit, HEADER, 300_001];
        let size = |number: u64, rank: usize| match number {
            n if n < 10 => some[n as usize % some.len()],
            n if n < 20 && rank > 0 => 0,
            n => some[(n as usize + rank) % some.len()],
        };
        let last = 30;
        for number in 1..=last + 1 {
            if number <= last {
                self.fill(number, size(number, self.rank()));
                self.submit(number, size(number, self.rank()), 0);
            }
            if number > 1 {
                self.finish(number - 1);
                self.check(number - 1, &|rank| size(number - 1, rank));
            }
        }
    }

    fn serve(self) {
        std::thread::spawn(move || {
            let it = &self.area.slots[SERVER];
            loop {
                let state = it.state.load(Ordering::Acquire);
                if state != REQUEST {
                    wait(&it.state, state);
                    continue;
                }
                // SAFETY: inside the mapping, as both sides lay it out; this side's turn
                unsafe {
                    let args = it.args.get().read();
                    let bytes = it.bytes.get().read() as usize;
                    std::slice::from_raw_parts_mut(self.base.add(self.places.data(SERVER)), bytes).reverse();
                    it.result.get().write([args[0] + 1, 0, 0, 0]);
                }
                it.state.store(DONE, Ordering::Release);
                self.ring();
            }
        });
    }

    fn services(&self) {
        if self.rank() == 0 {
            self.serve();
        }
        let (rank, size) = (self.rank() as u64, self.size() as u64);
        let (result, data) = self.ask(0, Kind::Same, &[1], b"all\nalike\n");
        assert_eq!((result[0], data.len()), (1, 0));
        let (result, data) = self.ask(0, Kind::Same, &[2], format!("rank {rank}").as_bytes());
        assert!(result[0] == u64::from(size == 1) && (size == 1 || !data.is_empty()));

        // threads of all ranks take a loop's iterations, each once
        let threads: Vec<_> = (0..3)
            .map(|slot| {
                let me = *self;
                std::thread::spawn(move || {
                    let me = me;
                    let mut sum = [0; 2];
                    loop {
                        let ([count, first, ..], _) = me.ask(slot, Kind::Take, &[9, 1000, 7, 0], b"");
                        if count == 0 {
                            return sum;
                        }
                        sum[0] += count;
                        sum[1] += (first..first + count).sum::<u64>();
                    }
                })
            })
            .collect();
        let sums: Vec<[u64; 2]> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let own: Vec<u8> =
            [0, 1].iter().flat_map(|at| sums.iter().map(|sum| sum[*at]).sum::<u64>().to_le_bytes()).collect();
        if rank > 0 {
            self.ask(0, Kind::Give, &[5], &own);
        } else {
            let mut all = vec![own];
            for which in 0..size - 1 {
                let (result, data) = self.ask(0, Kind::Collect, &[5, size - 1, which], b"");
                assert_eq!(result[0], which + 1);
                all.push(data);
            }
            let word =
                |data: &[u8], at: usize| u64::from_le_bytes(data[8 * at..8 * at + 8].try_into().unwrap());
            assert_eq!(all.iter().map(|data| word(data, 0)).sum::<u64>(), 1000);
            assert_eq!(all.iter().map(|data| word(data, 1)).sum::<u64>(), 499_500);
        }

        // a counter that only who holds the token may change, and that travels by the log
        let (mut counter, mut position) = (0u64, 0);
        let apply = |counter: &mut u64, mut data: &[u8]| {
            while !data.is_empty() {
                *counter = u64::from_le_bytes(data[8..16].try_into().unwrap());
                data = &data[16..];
            }
        };
        for _ in 0..50 {
            let (result, data) = self.ask(0, Kind::Lock, &[3, position, 0], b"");
            assert_eq!((result[0], result[2]), (1, 0));
            apply(&mut counter, &data);
            counter += 1;
            position = self.ask(0, Kind::Publish, &[1], &counter.to_le_bytes()).0[0];
            self.ask(0, Kind::Unlock, &[3, u64::MAX], b"");
        }
        self.submit(1, 0, flag::LOG);
        self.finish(1);
        let (result, data) = self.ask(0, Kind::Log, &[position], b"");
        apply(&mut counter, &data);
        assert_eq!(counter, 50 * size);

        for turn in 0..20 {
            let mine = turn * size + rank;
            assert_eq!(self.ask(0, Kind::Lock, &[4, result[1], 2, mine], b"").0[0], 1);
            self.ask(0, Kind::Unlock, &[4, mine + 1], b"");
        }
        let (result, data) = self.ask(1, Kind::Serve, &[rank], b"abc");
        assert_eq!((result[0], &data[..]), (rank + 1, &b"cba"[..]));
        self.submit(2, 0, 0);
        self.finish(2);
    }

    fn latency(&self, count: u64, bytes: usize) {
        let begun = Instant::now();
        for number in 1..=count {
            self.submit(number, if self.rank() == 0 { bytes } else { 0 }, 0);
            self.finish(number);
        }
        if self.rank() == 0 {
            println!("{:.1} us per exchange", begun.elapsed().as_secs_f64() * 1e6 / count as f64);
        }
    }

    fn locks(&self, count: u64) {
        let begun = Instant::now();
        for _ in 0..count {
            self.ask(0, Kind::Take, &[1, u64::MAX, 1, 0], b"");
        }
        let each = begun.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("rank {}: {each:.1} us per request", self.rank());
        self.submit(1, 0, 0);
        self.finish(1);
    }
}

fn main() {
    let words: Vec<String> = args().skip(1).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let number = |at: usize| word(at).parse::<u64>().unwrap_or_default();
    let program = Program::new();
    let rank = program.rank() as u64;
    match word(0) {
        "exchanges" => program.exchanges(),
        "services" => program.services(),
        "latency" => program.latency(number(1), number(2) as usize),
        "locks" => program.locks(number(1)),
        // `end RANK HOW`: that rank ends so, the others wait
        "end" if rank == number(1) => match word(2) {
            // SAFETY: inside the mapping, as both sides lay it out; this side's turn
            "signal" => unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                libc::raise(libc::SIGSEGV);
            },
            "fail" => {
                program.ask(0, Kind::Fail, &[], b"no memory left");
            }
            "exit" => {
                program.ask(0, Kind::Exit, &[number(3)], b"");
            }
            "spin" => {
                let flag = AtomicU32::new(0);
                // a loop of a few bytes, as compilers make it of `while (!flag);`, however this is built
                // SAFETY: only reads what is there
                unsafe {
                    std::arch::asm!("2:", "cmp dword ptr [{}], 0", "je 2b", in(reg) flag.as_ptr());
                }
            }
            "compute" => {
                let begun = Instant::now();
                let mut sum = 0u64;
                while begun.elapsed() < Duration::from_secs(number(3)) {
                    for at in 0..1_000_000_000u64 {
                        sum = std::hint::black_box(sum ^ at);
                    }
                }
                std::hint::black_box(sum);
                program.submit(1, 0, 0);
                program.finish(1);
                exit(0);
            }
            // SAFETY: inside the mapping, as both sides lay it out; this side's turn
            "agent" => unsafe {
                libc::kill(libc::getppid(), libc::SIGKILL);
            },
            _ => exit(number(3) as i32),
        },
        "end" => {
            program.submit(1, 0, 0);
            program.finish(1);
            assert_eq!(word(2), "compute", "one rank never came");
        }
        // addresses and contents that must be alike
        "same" => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let places: Vec<&str> = maps
                .lines()
                .filter(|line| !line.contains("[heap]"))
                .map(|line| line.split(' ').next().unwrap())
                .collect();
            let (word, stack) = (&raw const words as usize, program.area as *const Area as usize);
            let mut text = format!("{word:x} {stack:x}\n{}\n", places.join("\n"));
            for (name, value) in std::env::vars_os() {
                text += &format!("{name:?}={value:?}\n");
            }
            let (result, data) = program.ask(0, Kind::Same, &[1], text.as_bytes());
            assert_eq!(result[0], 1, "{}", String::from_utf8_lossy(&data));
            if rank == 0 {
                print!("{text}");
            }
        }
        "sleep" => std::thread::sleep(Duration::from_secs(number(1))),
        other => panic!("{other}: no such test"),
    }
    if rank > 0 {
        // as the runtime does: rank 0 ends the run
        std::thread::sleep(Duration::from_secs(60));
    }
}
