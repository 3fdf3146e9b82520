//! One side of a change, word by word, and what no peer can make of it.

use crate::snapshot;
use polyrail_core::control::phase::{CHANGEOVER, State};
use polyrail_core::control::word::NackReason;
use polyrail_core::control::{
    Action, Admit, Breach, Changeover, Config, Epoch, Lost, Proposable, Refusal, Side, SpecBytes, Time, Word,
};
use proptest::prelude::*;

#[test]
fn the_machine_is_as_pinned() {
    snapshot::machine(&CHANGEOVER);
}

/// A composition by a letter; capital ones deliver all, and there is no z.
#[derive(Clone, PartialEq, Debug)]
struct Letter(u8);

impl Proposable for Letter {
    fn to_spec(&self) -> SpecBytes {
        SpecBytes::new(&[self.0]).unwrap()
    }
    fn from_spec(spec: &SpecBytes) -> Option<Self> {
        spec.as_bytes().first().filter(|letter| **letter != b'z').copied().map(Self)
    }
    fn delivers_all(&self) -> bool {
        self.0.is_ascii_uppercase()
    }
}

type Machine = Changeover<Letter>;

const CONFIG: Config = Config { prepare: 10, finish: 100, hold_down: 1000 };
const A: Letter = Letter(b'A');
const B: Letter = Letter(b'B');

fn side(side: Side) -> Machine {
    Changeover::new(side, CONFIG, A)
}

fn actions(machine: &mut Machine) -> Vec<Action<Letter>> {
    std::iter::from_fn(|| machine.poll_action()).collect()
}

fn spec(letter: u8) -> SpecBytes {
    SpecBytes::new(&[letter]).unwrap()
}

/// The opener has proposed B, which is built.
fn proposed() -> Machine {
    let mut machine = side(Side::Opener);
    assert_eq!(machine.propose(0, B), Ok(Epoch(2)));
    machine.handle_built(0, Epoch(2));
    let said = Action::Say(Word::Prepare { epoch: Epoch(2), spec: spec(b'B') });
    assert_eq!(actions(&mut machine), [Action::Build { epoch: Epoch(2), spec: B }, said]);
    machine
}

/// The accepter has B ready, which the opener proposed, and has sent 7 bytes and received 5.
fn ready() -> Machine {
    let mut machine = side(Side::Accepter);
    machine.handle_word(0, Word::Prepare { epoch: Epoch(2), spec: spec(b'B') }).unwrap();
    machine.handle_built(0, Epoch(2));
    machine.handle_received(5);
    let said = Action::Say(Word::Prepared { epoch: Epoch(2) });
    assert_eq!(actions(&mut machine), [Action::Build { epoch: Epoch(2), spec: B }, said]);
    machine
}

/// Then it has heard SWITCH, behind 9 bytes, and said its own.
fn switching() -> Machine {
    let mut machine = ready();
    machine.handle_word(1, Word::Switch { epoch: Epoch(2), old: Epoch(0), last: 9 }).unwrap();
    machine.handle_flipped(7);
    let said = Action::Say(Word::Switch { epoch: Epoch(2), old: Epoch(0), last: 7 });
    assert_eq!(actions(&mut machine), [Action::Flip { epoch: Epoch(2) }, said]);
    machine
}

#[test]
fn the_new_waits_for_the_old_and_the_old_for_both() {
    let mut machine = switching();
    assert_eq!([0, 2, 1].map(|n| machine.admit(Epoch(n))), [Admit::Deliver, Admit::Hold, Admit::Drop]);
    machine.handle_received(8);
    assert_eq!(actions(&mut machine), []);
    machine.handle_received(9);
    let said = Action::Say(Word::Drained { old: Epoch(0) });
    assert_eq!(actions(&mut machine), [Action::Resume { epoch: Epoch(2) }, said]);
    assert_eq!([0, 2].map(|n| machine.admit(Epoch(n))), [Admit::Drop, Admit::Deliver]);
    assert!(machine.is_alive(Epoch(0)), "what it sent may be confirmed yet");
    machine.handle_word(2, Word::Drained { old: Epoch(0) }).unwrap();
    let changed = Action::Changed { from: Epoch(0), to: Epoch(2) };
    assert_eq!(actions(&mut machine), [Action::Destroy { epoch: Epoch(0) }, changed]);
    assert_eq!((machine.state(), machine.due(), machine.is_alive(Epoch(0))), (State::Run, None, false));
}

#[test]
fn an_old_composition_that_need_not_deliver_all_holds_nothing_up() {
    let mut machine = Changeover::new(Side::Opener, CONFIG, Letter(b'a'));
    machine.propose(0, B).unwrap();
    machine.handle_built(0, Epoch(2));
    machine.handle_word(0, Word::Prepared { epoch: Epoch(2) }).unwrap();
    machine.handle_flipped(0);
    actions(&mut machine);
    machine.handle_word(0, Word::Switch { epoch: Epoch(2), old: Epoch(0), last: 100 }).unwrap();
    assert_eq!(actions(&mut machine)[0], Action::Resume { epoch: Epoch(2) });
}

#[test]
fn the_loser_of_two_that_cross_withdraws_and_the_winner_does_not_notice() {
    let mut loser = side(Side::Accepter);
    loser.propose(0, B).unwrap();
    loser.handle_built(0, Epoch(1));
    actions(&mut loser);
    loser.handle_word(0, Word::Prepare { epoch: Epoch(2), spec: spec(b'C') }).unwrap();
    let expected = [
        Action::Say(Word::Abort { epoch: Epoch(1) }),
        Action::Destroy { epoch: Epoch(1) },
        Action::Refused { spec: B, reason: Refusal::Crossed },
        Action::Build { epoch: Epoch(2), spec: Letter(b'C') },
    ];
    assert_eq!(actions(&mut loser), expected);

    let mut winner = proposed();
    winner.handle_word(0, Word::Prepare { epoch: Epoch(1), spec: spec(b'C') }).unwrap();
    winner.handle_word(0, Word::Abort { epoch: Epoch(1) }).unwrap();
    assert_eq!((actions(&mut winner), winner.state()), (vec![], State::Proposed));
}

#[test]
fn a_proposal_without_an_answer_is_withdrawn_and_its_number_is_burnt() {
    let mut machine = proposed();
    machine.handle_timeout(9);
    assert_eq!(actions(&mut machine), []);
    machine.handle_timeout(10);
    let abort = || Action::Say(Word::Abort { epoch: Epoch(2) });
    let refused = Action::Refused { spec: B, reason: Refusal::TimedOut };
    assert_eq!(actions(&mut machine), [abort(), Action::Destroy { epoch: Epoch(2) }, refused]);
    machine.handle_word(11, Word::Prepared { epoch: Epoch(2) }).unwrap();
    assert_eq!(actions(&mut machine), [abort()]);
    assert_eq!(machine.propose(11, B), Ok(Epoch(4)));
}

#[test]
fn what_was_refused_is_held_down_by_both() {
    let mut machine = proposed();
    machine.handle_word(1, Word::Nack { epoch: Epoch(2), reason: NackReason::Cannot }).unwrap();
    assert_eq!(actions(&mut machine)[1], Action::Refused { spec: B, reason: Refusal::Cannot });
    assert_eq!(machine.propose(1000, B), Err(Refusal::HoldDown));
    assert_eq!(machine.propose(1001, B), Ok(Epoch(4)));

    let mut peer = side(Side::Accepter);
    let prepare = |epoch, letter| Word::Prepare { epoch: Epoch(epoch), spec: spec(letter) };
    let nack = |epoch, reason| Action::Say(Word::Nack { epoch: Epoch(epoch), reason });
    peer.handle_word(0, prepare(2, b'B')).unwrap();
    peer.handle_unable(0, Epoch(2));
    assert_eq!(actions(&mut peer)[1..], [nack(2, NackReason::Cannot), Action::Destroy { epoch: Epoch(2) }]);
    peer.handle_word(1, prepare(4, b'B')).unwrap();
    peer.handle_word(1, prepare(6, b'z')).unwrap();
    assert_eq!(actions(&mut peer), [nack(4, NackReason::HoldDown), nack(6, NackReason::Cannot)]);
}

#[test]
fn a_control_channel_that_fails_leaves_what_is_in_force() {
    let mut machine = proposed();
    machine.handle_control_failed();
    let refused = Action::Refused { spec: B, reason: Refusal::NoControl };
    assert_eq!(actions(&mut machine), [Action::CloseControl, Action::Destroy { epoch: Epoch(2) }, refused]);
    assert_eq!(machine.propose(0, B), Err(Refusal::NoControl));
    assert_eq!(machine.admit(Epoch(0)), Admit::Deliver);

    let mut machine = ready();
    machine.handle_timeout(100);
    assert_eq!((actions(&mut machine), machine.state()), (vec![Action::CloseControl], State::InDoubt));
    assert_eq!(machine.admit(Epoch(0)), Admit::Deliver);
}

#[test]
fn behind_switch_it_makes_the_link_anew_unless_the_peer_has_all() {
    let mut machine = switching();
    machine.handle_control_failed();
    assert_eq!(actions(&mut machine), [Action::CloseControl, Action::Remake { why: Lost::Control }]);

    let mut machine = switching();
    machine.handle_word(2, Word::Drained { old: Epoch(0) }).unwrap();
    machine.handle_control_failed();
    machine.handle_received(9);
    assert_eq!(machine.state(), State::Alone);
    let changed = Action::Changed { from: Epoch(0), to: Epoch(2) };
    let expected = [
        Action::CloseControl,
        Action::Resume { epoch: Epoch(2) },
        Action::Destroy { epoch: Epoch(0) },
        changed,
    ];
    assert_eq!(actions(&mut machine), expected);
}

#[test]
fn what_a_dead_path_kept_is_rescued_once_and_both_dead_is_the_end() {
    let mut machine = switching();
    machine.handle_dead(Epoch(9));
    machine.handle_dead(Epoch(0));
    machine.handle_alive(Epoch(0));
    machine.handle_dead(Epoch(0));
    assert_eq!(actions(&mut machine), [Action::Rescue { old: Epoch(0) }]);
    machine.handle_dead(Epoch(2));
    assert_eq!(actions(&mut machine), [Action::Remake { why: Lost::Paths }]);

    let mut machine = switching();
    machine.handle_acked(7);
    machine.handle_dead(Epoch(0));
    machine.handle_dead(Epoch(2));
    assert_eq!(actions(&mut machine), [], "the peer has all");
}

#[test]
fn a_liar_is_told_from_a_peer() {
    let mut machine = switching();
    let again = Word::Switch { epoch: Epoch(2), old: Epoch(0), last: 9 };
    assert_eq!(machine.handle_word(2, again), Err(Breach::Number(Epoch(2))));
    let mut machine = side(Side::Opener);
    for (epoch, word) in [
        (2, Word::Prepare { epoch: Epoch(2), spec: spec(b'B') }),
        (1, Word::Prepared { epoch: Epoch(1) }),
        (1, Word::Switch { epoch: Epoch(1), old: Epoch(0), last: 0 }),
        (4, Word::Abort { epoch: Epoch(4) }),
    ] {
        assert_eq!(machine.handle_word(0, word), Err(Breach::Number(Epoch(epoch))));
    }
    let drained = machine.handle_word(0, Word::Drained { old: Epoch(0) });
    assert_eq!(drained.unwrap_err().to_string(), "Drained is not expected in state Run");
}

/// Anything at all that a driver, or a peer, could do.
#[derive(Clone, Debug)]
enum Anything {
    Says(Word),
    Propose(u8),
    Built(u8),
    Unable(u8),
    Flipped(u64),
    Acked(u64),
    Received(u64),
    Dead(u8),
    Alive(u8),
    Fails,
    Time(u64),
}

fn anything() -> impl Strategy<Value = Anything> {
    let n = || prop_oneof![0..5_u8, any::<u8>()];
    let at = || prop_oneof![0..10_u64, any::<u64>()];
    let letter = || prop_oneof![Just(b'A'), Just(b'B'), Just(b'c'), Just(b'z')];
    let reason = prop_oneof![Just(NackReason::Busy), Just(NackReason::Cannot), Just(NackReason::HoldDown)];
    let epoch = move || n().prop_map(Epoch);
    let word = prop_oneof![
        (epoch(), letter()).prop_map(|(epoch, letter)| Word::Prepare { epoch, spec: spec(letter) }),
        epoch().prop_map(|epoch| Word::Prepared { epoch }),
        (epoch(), reason).prop_map(|(epoch, reason)| Word::Nack { epoch, reason }),
        (epoch(), epoch(), at()).prop_map(|(epoch, old, last)| Word::Switch { epoch, old, last }),
        epoch().prop_map(|old| Word::Drained { old }),
        epoch().prop_map(|epoch| Word::Abort { epoch }),
    ];
    prop_oneof![
        8 => word.prop_map(Anything::Says),
        2 => letter().prop_map(Anything::Propose),
        3 => n().prop_map(Anything::Built),
        1 => n().prop_map(Anything::Unable),
        3 => at().prop_map(Anything::Flipped),
        1 => at().prop_map(Anything::Acked),
        2 => at().prop_map(Anything::Received),
        1 => n().prop_map(Anything::Dead),
        1 => n().prop_map(Anything::Alive),
        1 => Just(Anything::Fails),
        1 => (0..20_u64).prop_map(Anything::Time),
    ]
}

fn happens(machine: &mut Machine, now: &mut Time, what: Anything) {
    match what {
        Anything::Says(word) => _ = machine.handle_word(*now, word),
        Anything::Propose(letter) => _ = machine.propose(*now, Letter(letter)),
        Anything::Built(n) => machine.handle_built(*now, Epoch(n)),
        Anything::Unable(n) => machine.handle_unable(*now, Epoch(n)),
        Anything::Flipped(last) => machine.handle_flipped(last),
        Anything::Acked(upto) => machine.handle_acked(upto),
        Anything::Received(upto) => machine.handle_received(upto),
        Anything::Dead(n) => machine.handle_dead(Epoch(n)),
        Anything::Alive(n) => machine.handle_alive(Epoch(n)),
        Anything::Fails => machine.handle_control_failed(),
        Anything::Time(passed) => {
            *now += passed;
            machine.handle_timeout(*now);
        }
    }
}

proptest! {
    /// Nothing panics; little comes of each thing; what is built is destroyed before a third is.
    #[test]
    fn no_peer_and_no_driver_makes_it_panic_or_grow(
        accepts in any::<bool>(), things in prop::collection::vec(anything(), 1..200)
    ) {
        let mut machine = side(if accepts { Side::Accepter } else { Side::Opener });
        let (mut now, mut alive) = (0, vec![Epoch(0)]);
        for thing in things {
            happens(&mut machine, &mut now, thing);
            let actions = actions(&mut machine);
            prop_assert!(actions.len() <= 6, "{actions:?}");
            for action in actions {
                match action {
                    Action::Build { epoch, .. } => alive.push(epoch),
                    Action::Destroy { epoch } => alive.retain(|other| *other != epoch),
                    _ => {}
                }
                prop_assert!(alive.len() <= 2);
            }
            prop_assert!(machine.is_alive(machine.epoch()) && alive.contains(&machine.epoch()));
        }
    }
}
