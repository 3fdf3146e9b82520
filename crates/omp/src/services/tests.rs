use super::*;

fn at(rank: usize) -> Asker {
    Asker { rank, slot: 0 }
}

fn server(ranks: usize) -> Server {
    Server::new((0..ranks).map(|rank| format!("h{rank}")).collect())
}

/// Asks, and gives all answers: who, result, data.
fn ask(
    server: &mut Server,
    from: Asker,
    kind: Kind,
    args: &[u64],
    data: &[u8],
) -> Vec<(usize, [u64; 4], Vec<u8>)> {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    server.handle(from, kind as u32, all, data.to_vec());
    let mut answers = Vec::new();
    while let Some(action) = server.poll_action() {
        match action {
            Action::Answer { to, result, data } => answers.push((to.rank, result, data)),
            other => panic!("{other:?}"),
        }
    }
    answers
}

fn entry(rank: u32, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], &rank.to_le_bytes(), bytes].concat()
}

#[test]
fn a_token_has_one_holder_and_goes_to_the_first_who_waits() {
    let s = &mut server(3);
    assert_eq!(ask(s, at(0), Kind::Lock, &[5, 0, 0], b""), [(0, [1, 0, 0, 0], vec![])]);
    assert_eq!(ask(s, at(2), Kind::Lock, &[5, 0, 0], b""), []);
    assert_eq!(ask(s, at(1), Kind::Lock, &[5, 0, 0], b""), []);
    assert_eq!(ask(s, at(1), Kind::Lock, &[6, 0, 1], b"")[0].1[0], 1, "another token");
    assert_eq!(ask(s, Asker { rank: 2, slot: 1 }, Kind::Lock, &[5, 0, 1], b"")[0].1[0], 0, "only tried");
    let answers = ask(s, at(0), Kind::Unlock, &[5, u64::MAX], b"");
    assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(ask(s, at(2), Kind::Unlock, &[5, u64::MAX], b"")[0].0, 1);
}

#[test]
fn turns_are_kept() {
    let s = &mut server(3);
    assert_eq!(ask(s, at(2), Kind::Lock, &[1, 0, 2, 2], b""), []);
    assert_eq!(ask(s, at(1), Kind::Lock, &[1, 0, 2, 1], b""), []);
    assert_eq!(ask(s, at(0), Kind::Lock, &[1, 0, 2, 0], b"")[0].0, 0);
    assert_eq!(ask(s, at(0), Kind::Unlock, &[1, 1], b"")[0].0, 1);
    assert_eq!(ask(s, at(1), Kind::Unlock, &[1, 2], b"")[0].0, 2);
}

#[test]
fn who_acquires_gets_what_others_published_and_nothing_twice() {
    let s = &mut server(3);
    ask(s, at(1), Kind::Lock, &[5, 0, 0], b"");
    assert_eq!(ask(s, at(1), Kind::Publish, &[0], b"one"), [(1, [0, 0, 0, 0], vec![])], "not complete");
    assert_eq!(ask(s, at(2), Kind::Log, &[0], b""), [(2, [0, 0, 0, 0], vec![])], "so nobody sees it");
    assert_eq!(ask(s, at(1), Kind::Publish, &[1], b"two")[0].1[0], 2);
    ask(s, at(1), Kind::Unlock, &[5, u64::MAX], b"");
    let both = [entry(1, b"one"), entry(1, b"two")].concat();
    assert_eq!(ask(s, at(2), Kind::Lock, &[5, 0, 0], b""), [(2, [1, 2, 0, 0], both)]);
    ask(s, at(2), Kind::Publish, &[1], b"three");
    ask(s, at(2), Kind::Unlock, &[5, u64::MAX], b"");
    assert_eq!(ask(s, at(1), Kind::Lock, &[5, 2, 0], b""), [(1, [1, 3, 0, 0], entry(2, b"three"))]);
    assert_eq!(ask(s, at(1), Kind::Log, &[3], b""), [(1, [0, 3, 0, 0], vec![])]);
    assert_eq!(ask(s, at(1), Kind::Publish, &[1], b""), [(1, [3, 0, 0, 0], vec![])], "nothing changed");
}

#[test]
fn a_long_log_comes_in_parts() {
    let s = &mut server(2);
    let part = vec![9; SLOT_DATA / 2];
    for last in [0, 0, 1] {
        ask(s, at(1), Kind::Publish, &[last], &part);
    }
    let mut position = 0;
    for more in [1, 1, 0] {
        let (_, result, data) = ask(s, at(0), Kind::Log, &[position], b"").remove(0);
        assert_eq!((result[2], data), (more, entry(1, &part)));
        position = result[1];
    }
    assert_eq!(position, 3);
    s.handle(at(0), Kind::Publish as u32, [1, 0, 0, 0, 0, 0], vec![0; SLOT_DATA - 7]);
    assert!(matches!(s.poll_action(), Some(Action::Fail(_))), "could not be delivered");
}

#[test]
fn the_log_forgets_what_all_others_say_they_have() {
    let s = &mut server(3);
    ask(s, at(1), Kind::Publish, &[1], b"x");
    ask(s, at(0), Kind::Log, &[0], b"");
    ask(s, at(2), Kind::Log, &[0], b"");
    assert_eq!(s.log.entries.len(), 1, "delivered is not applied");
    ask(s, at(0), Kind::Log, &[1], b"");
    assert_eq!(s.log.entries.len(), 1);
    ask(s, at(2), Kind::Lock, &[5, 1, 0], b"");
    assert_eq!((s.log.entries.len(), s.log.forgotten, s.log.bytes), (0, 1, 0), "its own rank is not asked");
    ask(s, at(0), Kind::Publish, &[1], b"y");
    assert_eq!(ask(s, at(2), Kind::Log, &[0], b""), [(2, [0, 2, 0, 0], entry(0, b"y"))], "from before");
    ask(s, at(1), Kind::Log, &[99], b"");
    assert_eq!(s.log.applied, [1, 2, 1], "nobody can have applied what is not there");
}

#[test]
fn the_log_forgets_what_all_applied_at_a_barrier() {
    let s = &mut server(2);
    ask(s, at(1), Kind::Publish, &[1], b"x");
    s.handle_exchange(1, false);
    s.handle_exchange(2, true);
    assert_eq!(s.log.entries.len(), 1, "rank 0 applies it only now");
    assert_eq!(ask(s, at(0), Kind::Log, &[0], b""), [(0, [0, 1, 0, 0], entry(1, b"x"))]);
    ask(s, at(1), Kind::Publish, &[1], b"y");
    s.handle_exchange(3, false);
    assert_eq!((s.log.entries.len(), s.log.forgotten), (1, 1), "what came later stays");
    assert_eq!(ask(s, at(0), Kind::Log, &[1], b""), [(0, [0, 2, 0, 0], entry(1, b"y"))]);
}

#[test]
fn loops_are_shared_out_completely() {
    let s = &mut server(2);
    let mut taken = Vec::new();
    for turn in 0.. {
        let [count, first, ..] = ask(s, at(turn % 2), Kind::Take, &[1, 10, 4, 0], b"")[0].1;
        taken.push((first, count));
        if count == 0 {
            break;
        }
    }
    assert_eq!(taken, [(0, 4), (4, 4), (8, 2), (10, 0)]);
    let mut guided = Vec::new();
    while guided.last() != Some(&0) {
        guided.push(ask(s, at(0), Kind::Take, &[2, 100, 7, 1, 4], b"")[0].1[0]);
    }
    assert_eq!(guided, [25, 19, 14, 11, 8, 7, 7, 7, 2, 0]);
    assert_eq!(ask(s, at(0), Kind::Take, &[3, 5, 0, 0], b"")[0].1[0], 1, "no chunk is empty");
    assert_eq!(ask(s, at(0), Kind::Take, &[4, u64::MAX, u64::MAX, 0], b"")[0].1[0], u64::MAX);
}

#[test]
fn a_loop_lives_until_all_ranks_are_behind_it() {
    let s = &mut server(2);
    s.handle_submitted(1);
    // rank 1 is already behind exchange 1, whose end rank 0 has not seen
    ask(s, at(1), Kind::Take, &[7, 10, 4, 0], b"");
    s.handle_exchange(1, false);
    assert_eq!(ask(s, at(0), Kind::Take, &[7, 10, 4, 0], b"")[0].1[1], 4, "not begun anew");
    s.handle_submitted(2);
    assert_eq!(ask(s, at(1), Kind::Take, &[7, 10, 4, 0], b"")[0].1[1], 8);
    s.handle_exchange(2, false);
    assert!(s.loops.is_empty());
}

#[test]
fn a_gather_gives_each_ranks_data_in_order() {
    let s = &mut server(3);
    assert_eq!(ask(s, at(0), Kind::Collect, &[9, 2, 0], b""), []);
    assert_eq!(ask(s, at(2), Kind::Give, &[9], b"two"), [(2, [0; 4], vec![])]);
    let answers = ask(s, at(1), Kind::Give, &[9], b"one");
    assert_eq!(answers, [(1, [0; 4], vec![]), (0, [1, 0, 0, 0], b"one".to_vec())]);
    assert_eq!(ask(s, at(0), Kind::Collect, &[9, 2, 1], b""), [(0, [2, 0, 0, 0], b"two".to_vec())]);
    assert!(s.gathers.is_empty());
    ask(s, at(1), Kind::Give, &[9], b"again");
    s.handle(at(1), Kind::Give as u32, [9, 0, 0, 0, 0, 0], vec![]);
    assert!(matches!(s.poll_action(), Some(Action::Fail(_))));
}

#[test]
fn texts_that_differ_are_told() {
    let s = &mut server(2);
    assert_eq!(ask(s, at(0), Kind::Same, &[1], b"a\nb\n"), []);
    let answers = ask(s, at(1), Kind::Same, &[1], b"a\nb\n");
    assert!(answers.len() == 2 && answers.iter().all(|answer| answer.1[0] == 1 && answer.2.is_empty()));
    assert_eq!(ask(s, at(1), Kind::Same, &[1], b"a\nc\n"), []);
    let answers = ask(s, at(0), Kind::Same, &[1], b"a\nb\n");
    assert!(answers.iter().all(|answer| answer.1[0] == 0), "{answers:?}");
    let text = String::from_utf8(answers[0].2.clone()).unwrap();
    assert_eq!(text, "rank 0 on h0 has \"b\", rank 1 on h1 has \"c\"");
    assert!(difference("x", b"a", "y", b"a\nb").ends_with("y has \"b\""));
}

#[test]
fn what_the_program_does_and_how_it_ends_is_the_agents_business() {
    let s = &mut server(2);
    s.handle(at(1), Kind::Serve as u32, [1, 2, 3, 4, 5, 6], b"write".to_vec());
    let serve = Action::Serve { from: at(1), args: [1, 2, 3, 4, 5, 6], data: b"write".to_vec() };
    assert_eq!(s.poll_action(), Some(serve));
    s.handle(at(1), Kind::Exit as u32, [3, 0, 0, 0, 0, 0], vec![]);
    assert_eq!(s.poll_action(), Some(Action::Exit(3)));
    s.handle(at(1), Kind::Fail as u32, [0; 6], b"no memory\n".to_vec());
    assert_eq!(s.poll_action(), Some(Action::Fail("rank 1 on h1: no memory".into())));
    s.handle(at(1), 99, [0; 6], vec![]);
    s.handle(at(5), Kind::Log as u32, [0; 6], vec![]);
    assert!(
        matches!(s.poll_action(), Some(Action::Fail(_))) && matches!(s.poll_action(), Some(Action::Fail(_)))
    );
    assert_eq!(s.poll_action(), None);
}
