//! What collecting takes of a processor, for each record: `collect_cost RECORDER PROGRAM [ARGUMENT...]`, where RECORDER is
//! `libpolyrail_preload.so`.

use std::process::Command;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use polyrail_trace::collect::Collector;
use polyrail_trace::options::Options;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let place = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let run = tempfile::tempdir().expect("a directory");
    let session = place.path().join("session");
    let options = Options { no_kernel: true, ..Options::default() };
    let mut collector = Collector::begin(&session, run.path(), options).expect("a session");
    let mut child = Command::new(&words[1])
        .args(&words[2..])
        .env("LD_PRELOAD", &words[0])
        .env("POLYRAIL_TRACE", &session)
        .spawn()
        .expect("a program");
    let taken = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock"));
    let (begun, mut rounds) = (taken(), 0u64);
    while child.try_wait().expect("a child").is_none() {
        collector.round();
        rounds += 1;
        collector.rest();
    }
    collector.round();
    let took = taken() - begun;
    let records = collector.end().records;
    let each = took.as_nanos() as f64 / records as f64;
    println!("{records} records, {rounds} rounds, {:.1} ms: {each:.1} ns a record", took.as_secs_f64() * 1e3);
}
