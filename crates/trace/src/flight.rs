//! A flight recorder: the last seconds of a recording, in memory, to be written when somebody asks for them.
//!
//! What is left out takes with it what later records do not need. What they need stays: which processes and threads there are, and what their sockets
//! are, as far as [`NOTES`] go. It is written first, as told [before](BEFORE) what is kept.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::path::Path;

use polyrail_core::trace::{Call, RECORD, Record, note};

use crate::blocks::{BEFORE, LONGEST, PACKED, ThreadBlock, encode, kind, write_header};
use crate::notes::u32_at;
use crate::pack::Packer;
use crate::records::Records;
use crate::whole::Whole;

/// Notes that are remembered beyond what is kept of the calls that they explain: those that were needed last.
const NOTES: usize = 40_000;

/// What is kept, of a file's blocks.
#[derive(Debug)]
pub(crate) struct Flight {
    /// How long, in nanoseconds.
    last: u64,
    /// Of blocks' bytes, at most.
    most: u64,
    bytes: u64,
    blocks: VecDeque<Kept>,
    /// Blocks about the recording as a whole.
    always: Vec<u8>,
    /// The newest of its kind.
    totals: Vec<u8>,
    /// The first clock block that was left out, and the last.
    clocks: [Vec<u8>; 2],
    threads: BTreeMap<u32, Thread>,
    processes: HashMap<u64, Process>,
    /// Of all processes together.
    notes: usize,
    /// Counts notes, and what they are needed for.
    count: u64,
    packer: Packer,
    unpacked: Vec<u8>,
    /// Records that were left out, and when the last of them was written.
    left_out: (u64, u64),
    /// Whether the last of them was for want of room.
    short: bool,
    /// Recording has ended: nothing grows old any more.
    frozen: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    kind: u32,
    stream: u32,
    at: u64,
    payload: Box<[u8]>,
}

#[derive(Debug)]
struct Thread {
    block: Vec<u8>,
    process: u64,
    /// Blocks with records of it that are kept.
    blocks: usize,
    ended: bool,
}

#[derive(Debug, Default)]
struct Process {
    /// Its first thread's, which stays as long as anything of the process does.
    home: u32,
    /// Threads that have not ended, or of which something is kept.
    threads: usize,
    /// Notes that blocks held which are gone: by their kind, and by the number of the socket or address.
    notes: HashMap<(u8, u64), Told>,
}

#[derive(Debug)]
struct Told {
    /// When it was told first: readers rely on the order.
    first: u64,
    /// When it was needed last; 0 of a socket that was closed.
    needed: u64,
    stream: u32,
    kind: u32,
    /// The note with its payload, in whole records.
    rows: Vec<u8>,
}

impl Flight {
    /// `last`: nanoseconds; `most`: bytes.
    pub fn new(last: u64, most: u64) -> Flight {
        Flight {
            last,
            most,
            bytes: 0,
            blocks: VecDeque::new(),
            always: Vec::new(),
            totals: Vec::new(),
            clocks: Default::default(),
            threads: BTreeMap::new(),
            processes: HashMap::new(),
            notes: 0,
            count: 0,
            packer: Packer::default(),
            unpacked: Vec::new(),
            left_out: (0, 0),
            short: false,
            frozen: None,
        }
    }

    /// Takes a block; leaves out what is too old then, or too much.
    pub fn take(&mut self, kind: u32, stream: u32, at: u64, payload: &[u8]) {
        match kind & !PACKED {
            kind::HOST | kind::COMMAND | kind::WARNING => encode(&mut self.always, kind, stream, at, payload),
            kind::THREAD => self.thread(kind, stream, at, payload),
            kind::TOTALS => {
                self.totals.clear();
                encode(&mut self.totals, kind, stream, at, payload);
            }
            // written where it belongs, at the end
            kind::IDLE => {}
            _ => {
                if let Some(thread) = self.of_thread(kind, stream) {
                    thread.blocks += 1;
                }
                self.bytes += payload.len() as u64;
                self.blocks.push_back(Kept { kind, stream, at, payload: payload.into() });
            }
        }
        while let Some(oldest) = self.blocks.front() {
            let old = self.frozen.is_none() && oldest.at.saturating_add(self.last) < at;
            if !old && self.bytes <= self.most {
                break;
            }
            self.short = !old;
            if let Some(oldest) = self.blocks.pop_front() {
                self.leave_out(&oldest);
            }
        }
    }

    fn thread(&mut self, kind: u32, stream: u32, at: u64, payload: &[u8]) {
        // a stream has one
        if self.threads.contains_key(&stream) {
            return;
        }
        let about: ThreadBlock = serde_json::from_slice(payload).unwrap_or_default();
        let mut block = Vec::new();
        encode(&mut block, kind, stream, at, payload);
        self.threads.insert(stream, Thread { block, process: about.process, blocks: 0, ended: false });
        let process = self
            .processes
            .entry(about.process)
            .or_insert_with(|| Process { home: stream, ..Process::default() });
        process.threads += 1;
    }

    /// Recording has ended: what is there stays.
    pub fn freeze(&mut self, at: u64) {
        self.frozen.get_or_insert(at);
    }

    /// Nothing more comes of this stream.
    pub fn ended(&mut self, stream: u32) {
        if let Some(thread) = self.threads.get_mut(&stream)
            && !std::mem::replace(&mut thread.ended, true)
            && thread.blocks == 0
        {
            self.forget(stream);
        }
    }

    fn of_thread(&mut self, kind: u32, stream: u32) -> Option<&mut Thread> {
        let records = matches!(kind & !PACKED, kind::RECORDS | kind::SYSCALLS);
        self.threads.get_mut(&stream).filter(|_| records)
    }

    fn leave_out(&mut self, block: &Kept) {
        self.bytes -= block.payload.len() as u64;
        if block.kind == kind::CLOCK {
            let [first, last] = &mut self.clocks;
            let place = if first.is_empty() { first } else { last };
            place.clear();
            encode(place, block.kind, block.stream, block.at, &block.payload);
        }
        let Some(thread) = self.of_thread(block.kind, block.stream).filter(|thread| thread.blocks > 0) else {
            return;
        };
        thread.blocks -= 1;
        let (process, over) = (thread.process, thread.ended && thread.blocks == 0);
        let mut rows = std::mem::take(&mut self.unpacked);
        if block.kind & PACKED == 0 {
            rows.clear();
            rows.extend(&block.payload);
        } else if !self.packer.unpack(&block.payload, LONGEST, &mut rows) {
            rows.clear();
        }
        let mut used = 0;
        for (record, payload) in Records::new(&rows) {
            self.left_out.0 += 1;
            if record.call == 0 {
                self.keep(process, block, &record, payload);
            } else {
                self.need(process, &record, &mut used);
            }
        }
        self.left_out.1 = block.at;
        self.unpacked = rows;
        if self.notes > 2 * NOTES {
            self.forget_notes();
        }
        if over {
            self.forget(block.stream);
        }
    }

    /// A call is left out: what explains its socket may be needed again. `used`: the socket of the call before.
    fn need(&mut self, process: u64, record: &Record, used: &mut u32) {
        let number = record.socket_fields().socket;
        let closes = record.call == Call::Close as u8;
        if number == *used && !closes || record.call >= Call::MpiInit as u8 {
            return;
        }
        *used = number;
        self.count += 1;
        let needed = if closes { 0 } else { self.count };
        if let Some(process) = self.processes.get_mut(&process) {
            for kind in [note::SOCKET, note::UNIX, note::LINK] {
                if let Some(told) = process.notes.get_mut(&(kind, number.into())) {
                    told.needed = needed;
                }
            }
        }
    }

    /// A note is left out, and told again with what is kept.
    fn keep(&mut self, process: u64, block: &Kept, record: &Record, payload: &[u8]) {
        self.count += 1;
        let number = match record.flags {
            note::SOCKET | note::UNIX | note::LINK | note::ADDRESS => u32_at(payload, 0).into(),
            note::PROCESS | note::EXIT | note::MPI => 0,
            note::UNSEEN | note::EVENT => self.count,
            _ => return,
        };
        let mut rows = record.to_bytes().to_vec();
        rows.extend(payload);
        rows.resize(rows.len().next_multiple_of(RECORD), 0);
        let told = Told {
            first: self.count,
            needed: self.count,
            stream: block.stream,
            kind: block.kind & !PACKED,
            rows,
        };
        let notes = &mut self.processes.entry(process).or_default().notes;
        match notes.entry((record.flags, number)) {
            Entry::Occupied(mut before) => {
                let first = before.get().first;
                before.insert(Told { first, ..told });
            }
            Entry::Vacant(place) => {
                place.insert(told);
                self.notes += 1;
            }
        }
    }

    /// Leaves the notes that were needed last, and those of processes.
    fn forget_notes(&mut self) {
        let every = |process: &Process| process.notes.values().map(|told| told.needed).collect::<Vec<u64>>();
        let mut needed: Vec<u64> = self.processes.values().flat_map(every).collect();
        let (_, bound, _) = needed.select_nth_unstable(self.notes - NOTES);
        let bound = *bound;
        for process in self.processes.values_mut() {
            let lasting = |kind: u8| [note::PROCESS, note::EXIT, note::MPI].contains(&kind);
            process.notes.retain(|(kind, _), told| told.needed > bound || lasting(*kind));
        }
        self.notes = self.processes.values().map(|process| process.notes.len()).sum();
    }

    /// Forgets a thread that has ended and of which nothing is kept, and its process, if it is the last.
    fn forget(&mut self, stream: u32) {
        let Some(number) = self.threads.get(&stream).map(|thread| thread.process) else { return };
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.threads = process.threads.saturating_sub(1);
        if process.threads == 0 {
            self.threads.remove(&process.home);
            self.notes -= process.notes.len();
            self.processes.remove(&number);
            self.threads.remove(&stream);
        } else if stream != process.home {
            self.threads.remove(&stream);
        }
    }

    /// Writes what is kept into a file, whole or not at all; `at`: now.
    pub fn write(&self, path: &Path, at: u64, idle: bool) -> io::Result<()> {
        let mut file = Whole::create(path)?;
        let mut buffer = Vec::new();
        write_header(&mut buffer);
        buffer.extend(&self.always);
        self.threads.values().for_each(|thread| buffer.extend(&thread.block));
        let mut notes: Vec<(&Told, u32)> = self
            .processes
            .values()
            .flat_map(|process| process.notes.values().map(|told| (told, process.home)))
            .collect();
        notes.sort_unstable_by_key(|(told, _)| told.first);
        for (told, home) in notes {
            let stream = if self.threads.contains_key(&told.stream) { told.stream } else { home };
            encode(&mut buffer, told.kind, stream, BEFORE, &told.rows);
        }
        if let Some(warning) = self.warning(at) {
            encode(&mut buffer, kind::WARNING, 0, at, warning.as_bytes());
        }
        self.clocks.iter().for_each(|clock| buffer.extend(clock));
        for Kept { kind, stream, at, payload } in &self.blocks {
            encode(&mut buffer, *kind, *stream, *at, payload);
            if buffer.len() > 1 << 20 {
                file.write_all(&buffer)?;
                buffer.clear();
            }
        }
        buffer.extend(&self.totals);
        if idle {
            encode(&mut buffer, kind::IDLE, 0, at, &[]);
        }
        file.write_all(&buffer)?;
        file.finish()
    }

    /// What the user must know.
    fn warning(&self, now: u64) -> Option<String> {
        let (records, until) = self.left_out;
        (records > 0).then(|| {
            let seconds = self.frozen.unwrap_or(now).saturating_sub(until) as f64 / 1e9;
            let why = match self.short {
                true => format!("no more fits in {} MB", self.most >> 20),
                false => "as --last says".into(),
            };
            format!(
                "these are the last {seconds:.1} s of a longer run ({why}): {records} records before them were left out"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Block, Next, Reader};
    use polyrail_core::trace::{SocketFields, Span};
    use proptest::prelude::*;
    use std::fs;

    fn call(call: Call, start: u64, socket: u32) -> Vec<u8> {
        let fields = SocketFields { socket, result: 8, arg: 8, arg2: 0, extra: 0 };
        Record::socket(start, Span::from_ticks(1), call, 0, fields).to_bytes().to_vec()
    }

    fn socket(number: u32) -> Vec<u8> {
        let mut rows = Record::note(0, note::SOCKET, 32).to_bytes().to_vec();
        rows.extend([number.to_le_bytes(), [7; 4]].concat().repeat(4));
        rows
    }

    fn thread(process: u64) -> Vec<u8> {
        serde_json::to_vec(&ThreadBlock { process, ..ThreadBlock::default() }).unwrap()
    }

    fn written(flight: &Flight, at: u64) -> Vec<Block> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.trace");
        flight.write(&path, at, true).unwrap();
        assert!(crate::file::is_idle(&path));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let bytes = fs::read(path).unwrap();
        let mut reader = Reader::new(&bytes[..], bytes.len() as u64).unwrap();
        let (mut block, mut blocks) = (Block::default(), Vec::new());
        while reader.next(&mut block).unwrap() == Next::Block {
            blocks.push(block.clone());
        }
        assert_eq!(reader.left(), 0);
        blocks
    }

    /// Records of all blocks of one stream, as (call, socket or note's kind).
    fn records(blocks: &[Block], stream: u32) -> Vec<(u8, u32)> {
        let blocks = blocks.iter().filter(|block| (block.kind, block.stream) == (kind::RECORDS, stream));
        blocks
            .flat_map(|block| {
                let of = |(record, payload): (Record, &[u8])| match record.call {
                    0 => (0, u32_at(payload, 0)),
                    call => (call, record.socket_fields().socket),
                };
                Records::new(&block.payload).map(of).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn the_last_seconds_stay_and_what_explains_them() {
        let mut flight = Flight::new(100, 1 << 20);
        flight.take(kind::HOST, 0, 0, b"{}");
        flight.take(kind::THREAD, 1, 0, &thread(5));
        flight.take(
            kind::RECORDS,
            1,
            10,
            &[socket(3), call(Call::Send, 1, 3), call(Call::Send, 2, 3)].concat(),
        );
        flight.take(kind::TCP, 0, 20, &[0; 184]);
        flight.take(kind::RECORDS, 1, 50, &call(Call::Send, 3, 3));
        assert_eq!(flight.warning(60), None);
        flight.take(kind::RECORDS, 1, 130, &call(Call::Recv, 4, 3));
        let blocks = written(&flight, 140);
        let kinds: Vec<u32> = blocks.iter().map(|block| block.kind).collect();
        use kind::{HOST, IDLE, RECORDS, THREAD, WARNING};
        assert_eq!(kinds, [HOST, THREAD, RECORDS, WARNING, RECORDS, RECORDS, IDLE]);
        assert_eq!(records(&blocks, 1), [(0, 3), (Call::Send as u8, 3), (Call::Recv as u8, 3)]);
        let text = String::from_utf8(blocks[3].payload.clone()).unwrap();
        assert!(text.contains("(as --last says): 3 records before"), "{text}");
        assert_eq!(
            flight.write(Path::new("/nowhere/a.trace"), 0, true).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn room_is_a_bound_too_and_what_ended_is_forgotten() {
        let mut flight = Flight::new(u64::MAX, 3 * 32);
        for process in 1..50u32 {
            flight.take(kind::THREAD, process, 0, &thread(process.into()));
            flight.take(kind::RECORDS, process, 1, &socket(process)[..]);
            flight.take(kind::RECORDS, process, 1, &call(Call::Send, 1, process));
            flight.ended(process);
        }
        assert!(flight.bytes <= 3 * 32 && flight.blocks.len() == 2, "{flight:?}");
        assert_eq!((flight.threads.len(), flight.processes.len(), flight.notes), (1, 1, 0));
        assert!(flight.warning(9).unwrap().contains("no more fits in 0 MB"));
    }

    #[test]
    fn what_is_not_needed_for_long_is_forgotten() {
        let mut flight = Flight::new(0, 1 << 30);
        flight.take(kind::THREAD, 1, 0, &thread(1));
        flight.take(kind::RECORDS, 1, 0, &Record::note(0, note::PROCESS, 0).to_bytes());
        for number in 1..3 * NOTES as u32 {
            // one is used all the time, some are closed
            let end = if number % 3 == 0 { Call::Close } else { Call::Send };
            let rows = [socket(number), call(end, 1, number), call(Call::Send, 1, 7)].concat();
            flight.take(kind::RECORDS, 1, number.into(), &rows);
        }
        flight.take(kind::RECORDS, 1, u64::MAX, &call(Call::Send, 1, 1));
        assert!(flight.notes <= 2 * NOTES + 1 && flight.notes > NOTES / 2, "{}", flight.notes);
        let notes = &flight.processes[&1].notes;
        assert_eq!(notes.len(), flight.notes);
        assert!(notes.contains_key(&(note::SOCKET, 7)) && notes.contains_key(&(note::PROCESS, 0)));
        assert!(!notes.contains_key(&(note::SOCKET, 8)));
    }

    #[test]
    fn threads_that_ended_are_forgotten_though_their_process_lives() {
        let mut flight = Flight::new(0, 1 << 30);
        for stream in 1..100 {
            flight.take(kind::THREAD, stream, 0, &thread(1));
            flight.take(kind::RECORDS, stream, stream.into(), &socket(stream));
            flight.ended(stream);
        }
        flight.take(kind::THREAD, 100, 0, &thread(1));
        flight.take(kind::RECORDS, 100, u64::MAX, &call(Call::Send, 1, 5));
        assert_eq!(flight.threads.keys().copied().collect::<Vec<_>>(), [1, 100]);
        // what they told is told by the first, in the order in which it was
        let told: Vec<u32> = records(&written(&flight, 1), 1).into_iter().map(|(_, number)| number).collect();
        assert_eq!(told, (1..100).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_grows_old_when_recording_has_ended() {
        let mut flight = Flight::new(100, 1 << 20);
        flight.take(kind::THREAD, 1, 0, &thread(5));
        flight.take(kind::CLOCK, 0, 1, &[1; 24]);
        flight.take(kind::CLOCK, 0, 5, &[2; 24]);
        flight.take(kind::RECORDS, 1, 10, &call(Call::Send, 1, 3));
        flight.take(kind::CLOCK, 0, 50, &[3; 24]);
        flight.take(kind::RECORDS, 1, 120, &call(Call::Recv, 2, 3));
        flight.freeze(130);
        flight.take(kind::COMMAND, 0, 1_000_000, b"{}");
        flight.take(kind::CLOCK, 0, 2_000_000, &[4; 24]);
        let blocks = written(&flight, 2_000_000);
        assert_eq!(records(&blocks, 1), [(Call::Recv as u8, 3)]);
        let clocks: Vec<u8> =
            blocks.iter().filter(|block| block.kind == kind::CLOCK).map(|block| block.payload[0]).collect();
        assert_eq!(clocks, [1, 2, 3, 4], "times need those around them");
    }

    proptest! {
        #[test]
        fn any_blocks_are_survived(
            blocks in prop::collection::vec((1u32..12, any::<bool>(), 0u32..3, 0u64..1000, prop::collection::vec(0u8..12, 0..200)), 0..40),
            last in 0u64..500, most in 0u64..600,
        ) {
            let mut flight = Flight::new(last, most);
            for (kind, packed, stream, at, payload) in &blocks {
                if *kind == kind::IDLE {
                    flight.ended(*stream);
                }
                flight.take(kind | if *packed { PACKED } else { 0 }, *stream, *at, payload);
            }
            prop_assert!(flight.bytes <= most);
            let directory = tempfile::tempdir().unwrap();
            flight.write(&directory.path().join("a.trace"), 1000, true).unwrap();
        }
    }
}
