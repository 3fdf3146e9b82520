//! A recording: blocks of the files that `polyrail report` reads, made of the input. Blocks are what a collector could have
//! written or not; the file around them is whole, because what is cut or has another checksum is not looked into.
//!
//! Input: blocks of kind u8, stream u8, length u16 and payload. A kind of 255 begins the file of another host; 64 added to one says that it is
//! packed.
#![no_main]
use std::fs;

use libfuzzer_sys::fuzz_target;
use polyrail_fuzz::Input;
use polyrail_trace::Error;
use polyrail_trace::blocks::{PACKED};
use polyrail_trace::file::{Writer};
use polyrail_trace::model::{Event, Events};

fuzz_target!(|data: &[u8]| {
    let run = std::env::temp_dir().join(format!("polyrail-fuzz-trace-{}", std::process::id()));
    let _ = fs::remove_dir_all(&run);
    fs::create_dir(&run).expect("a directory");
    let mut input = Input(data);
    let mut files = 0;
    let mut writer = Writer::create(&run.join("0.trace")).expect("a file");
    let mut at = 0;
    while !input.0.is_empty() {
        let (kind, stream) = (input.byte(), input.byte());
        let length = usize::from(u16::from_le_bytes(input.array()));
        let payload = input.bytes(length);
        if kind == 255 && files < 3 {
            files += 1;
            writer.flush();
            writer = Writer::create(&run.join(format!("{files}.trace"))).expect("a file");
        } else {
            at += 1_000_000;
            let packed = if kind & 64 != 0 { PACKED } else { 0 };
            writer.block(u32::from(kind & !64) | packed, u32::from(stream), at, payload);
        }
    }
    writer.flush();
    let recorded = match polyrail_trace::open(&[run.clone()]) {
        Ok(recorded) => recorded,
        // two files that each name a command are of two runs
        Err(Error::Several(..)) => {
            let _ = fs::remove_dir_all(&run);
            return;
        }
        Err(why) => panic!("whole files: {why}"),
    };
    let about = recorded.run();
    let (threads, sockets) = (about.threads.len(), about.sockets.len());
    assert!(about.threads.iter().all(|thread| (thread.process as usize) < about.processes.len()));
    assert!(about.processes.iter().all(|process| (process.host as usize) < about.hosts.len()));
    assert!(about.sockets.iter().all(|socket| socket.peer.is_none_or(|peer| (peer as usize) < sockets)));
    recorded
        .for_each(&mut |event| match event {
            Event::Call(call) => {
                assert!((call.thread as usize) < threads);
                assert!(call.socket.is_none_or(|socket| (socket as usize) < sockets));
            }
            Event::Mpi(call) => assert!((call.thread as usize) < threads),
            Event::Tcp(sample) => assert!((sample.socket as usize) < sockets),
            Event::Kernel(event) => assert!((event.socket as usize) < sockets),
        })
        .expect("what was read before");
    let _ = fs::remove_dir_all(&run);
});
