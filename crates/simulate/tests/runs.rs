//! Members that iterate on a simulated network: how long it takes is what can be reckoned by hand, and it is the same each time.

use polyrail_p2p::wire::Wire;
use polyrail_p2p::{Job, Link, Peers, Received, Scheme};
use polyrail_simulate::{Line, Model, Simulated, run};
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(100);

fn line(rate: f64) -> Line {
    Line { rate, latency: LATENCY, loss: 0.0 }
}

fn job(scheme: Scheme, parts: u32) -> Job {
    Job { parts, scheme, tolerance: 1e-6, every: 10, keep: 0, task: Vec::new() }
}

/// Each has half of the mean of its neighbours in a ring, and all end near zero; iterations, and the largest value in the end.
fn shrink(mut peers: Peers<Simulated>, bytes: usize) -> (u64, f64) {
    let part = peers.parts()[0];
    let count = peers.view().job.parts;
    let others = [(part + 1) % count, (part + count - 1) % count];
    let mut values = [1.0_f64; 2];
    let mut mine = 1.0_f64;
    let mut message = vec![0; bytes];
    loop {
        message[..8].copy_from_slice(&mine.to_le_bytes());
        for (tag, other) in others.iter().enumerate() {
            peers.send(Link::new(part, *other).tagged(tag as u16), &message).unwrap();
        }
        for (tag, other) in others.iter().enumerate() {
            let link = Link::new(*other, part).tagged(1 - tag as u16);
            if let Received::New { .. } = peers.receive(link, &mut message).unwrap() {
                values[tag] = f64::from_le_bytes(*message.first_chunk().unwrap());
            }
        }
        let before = mine;
        mine = (values[0] + values[1]) / 4.0;
        peers.wire().worked(1.0);
        if let Some(verdict) = peers.converged((before - mine).abs()).unwrap() {
            let iterations = verdict.iteration;
            peers.leave(Duration::from_secs(1));
            return (iterations, before);
        }
    }
}

#[test]
fn in_step_it_takes_what_the_network_and_the_processors_take() {
    let members = 6;
    // a millisecond of computing, two messages of 10 kB at 10 MB/s each way
    let model = Model { overhead: Duration::ZERO, ..Model::alike(members, line(1e7), 1e-3) };
    let job = job(Scheme::Synchronous, members as u32);
    let ended = run(&model, &job, |peers| shrink(peers.unwrap(), 10_000)).unwrap();
    let iterations = ended[0].1.0;
    assert!(iterations > 15 && ended.iter().all(|(_, (same, _))| *same == iterations), "{ended:?}");
    let each = ended[0].0.as_secs_f64() / (iterations + 1) as f64;
    // the second message is there when both have left, the first hop's latency and the card of the receiver later
    let least = 1e-3 + 2.0 * 10_000.0 / 1e7;
    assert!(each > least && each < least + 1.5e-3, "{each} {least}");
}

/// Seconds of an iteration in step.
fn each(model: &Model, bytes: usize) -> f64 {
    let members = model.sites.len() as u32;
    let ended =
        run(model, &job(Scheme::Synchronous, members), |peers| shrink(peers.unwrap(), bytes)).unwrap();
    ended[0].0.as_secs_f64() / (ended[0].1.0 + 1) as f64
}

#[test]
fn hosts_of_a_site_share_the_line_to_another() {
    let mut model = Model { overhead: Duration::ZERO, ..Model::alike(4, line(1e9), 20e-3) };
    model.sites = vec![0, 0, 1, 1];
    model.far = Line { rate: 1e6, latency: Duration::ZERO, loss: 0.0 };
    // two messages of 10 kB at the same time, of which none is there before both are; one after the other, the first's host would be ahead of the second's and its next
    // message travel while that computes
    let took = each(&model, 10_000);
    assert!((0.04..0.043).contains(&took), "{took}");
}

#[test]
fn a_host_has_a_line_to_each_site() {
    let mut model = Model { overhead: Duration::ZERO, ..Model::alike(3, line(1e9), 20e-3) };
    model.sites = vec![0, 1, 2];
    model.far = Line { rate: 1e6, latency: Duration::ZERO, loss: 0.0 };
    // one message of 10 kB on each of six lines
    let took = each(&model, 10_000);
    assert!((0.03..0.033).contains(&took), "{took}");
}

#[test]
fn what_takes_long_on_its_way_is_waited_for() {
    let mut model = Model { overhead: Duration::ZERO, ..Model::alike(2, line(1e9), 1e-3) };
    model.sites = vec![0, 1];
    model.far = Line { rate: 10.0, latency: Duration::from_secs(1), loss: 0.0 };
    // a thousand seconds each
    assert!(each(&model, 10_000) > 1000.0);
}

#[test]
fn what_stands_for_more_travels_as_more_however_short_and_words_do_not() {
    let mut model = Model { overhead: Duration::ZERO, ..Model::alike(2, line(1e6), 1e-3) };
    let plain = each(&model, 100);
    model.scale = 100.0;
    let took = each(&model, 100);
    let more = 2.0 * 100.0 * 99.0 / 1e6;
    assert!((more - 1e-6..more + 2e-4).contains(&(took - plain)), "{plain} {took}");
}

#[test]
fn the_same_model_gives_the_same() {
    for scheme in [Scheme::Synchronous, Scheme::Asynchronous, Scheme::Bounded(2), Scheme::Hybrid] {
        let mut model = Model::alike(8, line(1e8), 1e-4);
        model.sites = vec![0, 0, 0, 0, 1, 1, 1, 1];
        model.far = Line { rate: 1e7, latency: Duration::from_millis(5), loss: 0.1 };
        model.jitter = 0.3;
        let job = job(scheme, 8);
        let [one, other] = [0, 1].map(|_| run(&model, &job, |peers| shrink(peers.unwrap(), 1000)).unwrap());
        assert_eq!(one, other);
        assert!(one.iter().all(|(_, (_, value))| *value < 1e-4), "{one:?}");
        let another = run(&Model { seed: 2, ..model }, &job, |peers| shrink(peers.unwrap(), 1000)).unwrap();
        assert_ne!(one, another, "chance is the seed's");
    }
}

#[test]
fn out_of_step_a_slow_one_does_not_hold_the_others_up() {
    let mut model = Model::alike(8, line(1e8), 1e-3);
    model.speeds[3] = 0.1;
    let [step, free] = [Scheme::Synchronous, Scheme::Asynchronous].map(|scheme| {
        let ended = run(&model, &job(scheme, 8), |peers| shrink(peers.unwrap(), 1000)).unwrap();
        ended.iter().map(|(when, _)| *when).max().unwrap()
    });
    assert!(free < step, "{free:?} {step:?}");
}

#[test]
fn who_waits_for_ever_is_told_of() {
    let model = Model::alike(2, line(1e8), 1e-3);
    let waits = |peers: Result<Peers<Simulated>, _>| {
        let mut peers: Peers<Simulated> = peers.unwrap();
        let part = peers.parts()[0];
        peers.receive(Link::new(1 - part, part), &mut [0; 8]).map(|_| ())
    };
    let stuck = run(&model, &job(Scheme::Synchronous, 2), waits).map(|_| ());
    assert_eq!(stuck.expect_err("nobody sends").left, 2);
}
