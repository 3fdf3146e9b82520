//! A verdict need not be the end: all go on with another stage of the run.

use polyrail_p2p::{Error, Founding, Job, Link, Peers, Scheme, Settings, Verdict};
use std::time::Duration;

fn job(scheme: Scheme, keep: u64) -> Job {
    Job { parts: 2, scheme, tolerance: 1.0, every: 1, keep, task: Vec::new() }
}

fn settings() -> Settings {
    Settings::from_env().expect("settings")
}

/// Iterations of a member whose norm is small from the third one on, until all may stop.
fn iterate(peers: &mut Peers) -> Verdict {
    let me = peers.parts()[0];
    let (to, from, mut into) = (Link::new(me, 1 - me), Link::new(1 - me, me), [0; 1]);
    for iteration in 0.. {
        peers.send(to, &[peers.stage() as u8]).expect("it is sent");
        peers.receive(from, &mut into).expect("it comes");
        if let Some(verdict) =
            peers.converged(if iteration < 2 { 2.0 } else { 0.5 }).expect("the other is there")
        {
            return verdict;
        }
    }
    unreachable!("it ends")
}

/// Three stages.
fn go_on(peers: &mut Peers) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for stage in 0..3 {
        assert_eq!(peers.stage(), stage);
        let why = peers.next_stage().expect_err("there is no verdict");
        assert!(matches!(why, Error::Use(_)) && why.to_string().contains("no verdict"), "{why}");
        let verdict = iterate(peers);
        // who does not go on has stopped
        assert_eq!(peers.converged(9.0).expect("it is known"), Some(verdict));
        verdicts.push(verdict);
        if stage < 2 {
            assert_eq!(peers.next_stage().expect("all go on"), stage + 1);
        }
    }
    verdicts
}

fn two<T: Send + 'static>(job: Job, run: fn(&mut Peers) -> T) -> [T; 2] {
    let founding = Founding::new(settings()).expect("an endpoint");
    let address = founding.address();
    let member = move |mut peers: Peers| {
        let verdicts = run(&mut peers);
        peers.leave(Duration::from_secs(5));
        verdicts
    };
    let other = std::thread::spawn(move || member(Peers::join(settings(), &address).expect("it joins")));
    let one = member(founding.gather(job, 1, |_| Ok(())).expect("it begins"));
    [one, other.join().expect("it ends")]
}

#[test]
fn all_go_on_from_the_same_verdicts() {
    for scheme in [Scheme::Synchronous, Scheme::Asynchronous, Scheme::Bounded(2)] {
        let [one, other] = two(job(scheme, 0), go_on);
        let told =
            |verdicts: &[Verdict]| verdicts.iter().map(|one| (one.round, one.norm)).collect::<Vec<_>>();
        assert_eq!(told(&one), told(&other), "{scheme:?}");
        assert!(one.windows(2).all(|two| two[0].round < two[1].round), "{scheme:?}: {one:?}");
        assert!(one.iter().all(|verdict| verdict.norm == 0.5), "{scheme:?}: {one:?}");
    }
}

/// Three stages of some iterations each, with states that are kept when it is time to: of which stage and iteration.
fn go_on_and_keep(peers: &mut Peers) -> (Vec<Verdict>, Vec<(u32, u64)>) {
    let (me, mut kept) = (peers.parts()[0], Vec::new());
    let (to, from, mut into) = (Link::new(me, 1 - me), Link::new(1 - me, me), [0; 1]);
    let (mut verdicts, mut begin) = (Vec::new(), 0);
    while verdicts.len() < 3 {
        if peers.keeps() {
            peers.keep(me, vec![me as u8; 100]).expect("it is kept");
            kept.push((peers.stage(), peers.iteration()));
        }
        let is_small = peers.iteration() > begin + 30;
        peers.send(to, &[0]).expect("it is sent");
        peers.receive(from, &mut into).expect("it comes");
        let verdict = peers.converged(if is_small { 0.5 } else { 2.0 }).expect("the other is there");
        let Some(verdict) = verdict else { continue };
        verdicts.push(verdict);
        begin = peers.iteration();
        if verdicts.len() < 3 {
            peers.next_stage().expect("all go on");
        }
    }
    (verdicts, kept)
}

#[test]
fn states_are_kept_now_and_then_and_out_of_step_in_stages_of_which_all_have_some() {
    for (keep, with_stages) in [(20, true), (1 << 40, false)] {
        for scheme in [Scheme::Synchronous, Scheme::Asynchronous] {
            let [(verdicts, kept), (_, other)] = two(job(scheme, keep), go_on_and_keep);
            let is_far_enough = |two: &[(u32, u64)]| two[1].0 > two[0].0 || two[1].1 >= two[0].1 + keep;
            assert!(kept.windows(2).all(is_far_enough), "{scheme:?} {keep}: {kept:?}");
            if scheme == Scheme::Synchronous {
                assert_eq!(kept, other);
                continue;
            }
            let first_of = |kept: &[(u32, u64)], stage: u32| kept.iter().find(|one| one.0 == stage).copied();
            for (stage, verdict) in (1..3).zip(&verdicts) {
                let first = first_of(&kept, stage);
                let begins = (stage, verdict.iteration + 1);
                assert_eq!(first, with_stages.then_some(begins), "{keep}: {kept:?} {verdicts:?}");
                assert_eq!(first_of(&other, stage).is_some(), with_stages, "{keep}: {other:?}");
            }
        }
    }
}
