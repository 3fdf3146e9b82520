use super::*;
use polyrail_core::sim::Rng;

const SEND: OpId = OpId { slot: 5, generation: 9 };

fn ends() -> (Reader, Helper, Arc<DeskMemory>) {
    // SAFETY: atomics, of which all zeros are a value.
    let memory: Arc<DeskMemory> = Arc::new(unsafe { std::mem::zeroed() });
    let at = NonNull::from(&*memory);
    // SAFETY: it is empty, and lives as long as either end.
    unsafe { (reader(at, memory.clone()), helper(at, memory.clone()), memory) }
}

/// How often each byte of a task was copied.
struct Copied(Vec<u8>);

impl Copied {
    fn bytes(&mut self, bytes: Range<usize>) {
        self.0[bytes].iter_mut().for_each(|count| *count += 1);
    }

    fn help(&mut self, helper: &mut Helper, to: u64) -> Option<usize> {
        helper.help(|part| {
            assert_eq!((part.send, part.to - part.offset), (SEND, to));
            self.bytes(part.offset as usize..part.offset as usize + part.len);
            true
        })
    }
}

#[test]
fn each_byte_is_copied_once_whoever_comes_when() {
    let mut noise = Rng::new(3);
    let (mut reader, mut helper, _memory) = ends();
    for round in 0..300 {
        let len = LEAST + noise.below(if round % 3 == 0 { 4 << 20 } else { 100_000 }) as usize;
        let (mut copied, to) = (Copied(vec![0; len]), noise.below(1 << 40));
        assert!(reader.takes() && !helper.is_asked());
        reader.lay(SEND, to as *mut u8, len);
        assert!(!reader.takes() && reader.is_whole() && helper.is_whole());
        let helpful = noise.below(5);
        loop {
            if noise.below(5) < helpful {
                copied.help(&mut helper, to);
            }
            match reader.next(noise.below(2) == 0) {
                Next::Read(bytes) => copied.bytes(bytes),
                Next::Wait => unreachable!("the helper is done with what it took"),
                Next::Gone => unreachable!("it was not withdrawn"),
                Next::Over => break,
            }
        }
        assert!(copied.0.iter().all(|count| *count == 1), "{len} bytes");
    }
}

#[test]
fn it_is_over_when_the_helper_has_copied_what_it_took() {
    let (mut reader, mut helper, _memory) = ends();
    reader.lay(SEND, std::ptr::null_mut(), 64 << 10);
    assert_eq!(reader.next(false), Next::Read(0..32 << 10));
    assert!(!helper.is_whole() && helper.is_asked());
    let helped = helper.help(|part| {
        assert_eq!((part.offset, part.len), (32 << 10, 32 << 10));
        assert!(reader.waits());
        assert_eq!(reader.next(false), Next::Wait);
        assert!(!reader.withdraw(), "it is written to");
        true
    });
    assert_eq!(helped, Some(32 << 10));
    assert!(!reader.waits() && !helper.is_asked() && helper.help(|_| unreachable!()).is_none());
    assert_eq!((reader.next(false), reader.next(false)), (Next::Over, Next::Gone));
}

#[test]
fn what_the_helper_cannot_copy_the_reader_does() {
    let (mut reader, mut helper, _memory) = ends();
    for _ in 0..2 {
        let mut copied = Copied(vec![0; 1 << 20]);
        reader.lay(SEND, std::ptr::null_mut(), 1 << 20);
        assert!(copied.help(&mut helper, 0).is_some());
        assert_eq!(helper.help(|_| false), None);
        assert!(!helper.is_asked(), "it does not try this one again");
        let mut read = 0;
        let end = loop {
            match reader.next(true) {
                Next::Read(bytes) => read += bytes.len(),
                end => break end,
            }
        };
        assert_eq!((read, end), (1 << 20, Next::Over), "with what it had copied");
    }
}

#[test]
fn nothing_can_be_taken_of_a_task_that_is_withdrawn() {
    let (mut reader, mut helper, _memory) = ends();
    assert!(reader.withdraw(), "there is none");
    reader.lay(SEND, std::ptr::null_mut(), 1 << 20);
    assert!(matches!(reader.next(false), Next::Read(_)));
    assert!(reader.withdraw() && reader.takes() && !helper.is_asked());
    assert_eq!(reader.next(false), Next::Gone, "nobody has copied the rest");
    assert_eq!(helper.help(|_| unreachable!()), None);
    // what a helper of the old one says is not of the new one
    reader.lay(SEND, std::ptr::null_mut(), 1 << 20);
    helper.help(|_| reader.withdraw());
    assert!(reader.withdraw());
    reader.lay(SEND, std::ptr::null_mut(), 64 << 10);
    let mut read = 0;
    while let Next::Read(bytes) = reader.next(true) {
        read += bytes.len();
    }
    assert_eq!(read, 64 << 10);
}

#[test]
fn tasks_of_any_length_have_units_enough() {
    let (mut reader, mut helper, _memory) = ends();
    for len in [LEAST, UNIT * 65535, UNIT * 65535 + 1, 1 << 40] {
        reader.lay(SEND, std::ptr::null_mut(), len);
        let Next::Read(first) = reader.next(false) else { panic!("{len}") };
        let mut last = None;
        helper.help(|part| {
            last = Some(part.offset + part.len as u64);
            true
        });
        assert!(first.start == 0 && !first.is_empty() && last == Some(len as u64), "{len}: {first:?}");
        assert!(reader.withdraw());
    }
}

#[test]
fn who_never_comes_by_is_asked_less_and_less_and_who_comes_always() {
    // SAFETY: atomics, of which all zeros are a value.
    let memory: Arc<[DeskMemory; DESKS]> = Arc::new(unsafe { std::mem::zeroed() });
    let at = memory.each_ref().map(NonNull::from);
    // SAFETY: they are empty, and live as long as either end.
    let ends = at.map(|at| unsafe { (reader(at, memory.clone()), helper(at, memory.clone())) });
    let (desks, mut helpers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut readers = Readers::new(desks.try_into().ok().expect("as many"));
    let mut asked = |helps: Option<bool>| {
        let mut asked = 0;
        for _ in 0..500 {
            let Some(desk) = readers.lay(SEND, std::ptr::null_mut(), 1 << 20) else { continue };
            asked += 1;
            assert!(readers.next(desk, false) == Next::Read(0..256 << 10));
            if let Some(can) = helps {
                assert_eq!(helpers[desk].help(|_| can).is_some(), can);
            } else {
                assert!(readers.next(desk, false) == Next::Read(256 << 10..1 << 20), "it does not come");
            }
            while readers.next(desk, false) != Next::Over {}
        }
        asked
    };
    for seldom in [asked(None), asked(Some(false))] {
        assert!((500 / LONGEST_PAUSE / 2..100).contains(&seldom), "{seldom}");
    }
    // up to one pause more
    assert!(asked(Some(true)) >= 500 - LONGEST_PAUSE);
    assert_eq!(asked(Some(true)), 500);
    assert_eq!(readers.lay(SEND, std::ptr::null_mut(), LEAST - 1), None);
    let all: Vec<_> = (0..DESKS).filter_map(|_| readers.lay(SEND, std::ptr::null_mut(), LEAST)).collect();
    assert_eq!(all, (0..DESKS).collect::<Vec<_>>());
    assert!(!readers.take() && readers.lay(SEND, std::ptr::null_mut(), LEAST).is_none());
    assert!(readers.withdraw(0..DESKS) && readers.take());
}

/// Or its transfer would be picked for ever.
#[test]
fn a_helper_that_counts_more_than_it_took_is_not_believed() {
    let (mut reader, mut helper, memory) = ends();
    reader.lay(SEND, std::ptr::null_mut(), 64 << 10);
    assert_eq!(reader.next(false), Next::Read(0..32 << 10));
    assert!(helper.help(|_| true).is_some());
    memory.done.0.store(1 << 32 | 9, Relaxed);
    assert!(!reader.waits());
    assert_eq!(reader.next(false), Next::Read(32 << 10..64 << 10));
    assert!(reader.next(false) == Next::Over && !reader.takes(), "nor asked again");
}

/// What the other side writes by mistake or on purpose: it costs the reader the help, and has nobody copy what is not the task's.
#[test]
fn a_peer_that_writes_anything_keeps_nobody_from_ending() {
    let mut noise = Rng::new(11);
    for round in 0..2000 {
        let (mut reader, mut helper, memory) = ends();
        let len = LEAST + noise.below(1 << 20) as usize;
        reader.lay(SEND, std::ptr::null_mut(), len);
        let scribble = |noise: &mut Rng| {
            let word = match noise.below(3) {
                0 => noise.below(u64::MAX),
                1 => 1 << 32 | noise.below(1 << 32),
                _ => Claims { task: 1, front: noise.below(30) as u16, back: noise.below(300) as u16 }.into(),
            };
            match noise.below(6) {
                0 => memory.done.0.store(word, Relaxed),
                1 | 2 => memory.claims.0.store(word, Relaxed),
                at => memory.task.0[at as usize - 2].store(word, Relaxed),
            }
        };
        let mut end = None;
        for turn in 0..10_000 {
            if noise.below(3) == 0 && turn < 100 {
                scribble(&mut noise);
            }
            if noise.below(2) == 0 {
                helper.help(|part| part.len <= 1 << 62 && noise.below(2) == 0);
            }
            match reader.next(false) {
                Next::Read(bytes) => assert!(bytes.end <= len && !bytes.is_empty()),
                Next::Wait if turn >= 200 => {
                    // it says that it is at it, and never that it is done: so might a process that stands still
                    end = Some(false);
                    break;
                }
                Next::Wait => {}
                Next::Gone => unreachable!("it was not withdrawn"),
                Next::Over => {
                    end = Some(true);
                    break;
                }
            }
        }
        assert!(end.is_some(), "round {round}");
    }
}
