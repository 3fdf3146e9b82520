//! Carries out a schedule, lets the network heal, and sees that all came and both sides agree.

use super::count::{add, count, counts};
use super::net::{Happens, MS, Net, US};
use super::plan::{PATHS, Plan, Spec, Step};
use super::side::Side;
use polyrail_core::control::phase::State;
use polyrail_core::control::{Epoch, Refusal, Time};

/// No schedule takes more events than this.
const EVENTS: u64 = 100_000;
/// What has to be done by hand at the end, done so often, is enough.
const ROUNDS: usize = 20;

pub struct World<'a> {
    plan: &'a Plan,
    net: Net,
    sides: [Side; 2],
    events: u64,
    /// No word can be lost.
    perfect: bool,
}

/// Carries out a schedule.
pub fn carry_out(plan: &Plan) {
    let sides = [0, 1].map(|at| Side::new(at, plan.tries, plan.cannot));
    let perfect = plan.loss == 0 && !plan.steps.iter().any(|(_, it)| matches!(it, Step::Cut { .. }));
    let mut world = World { plan, net: Net::new(plan), sides, events: 0, perfect };
    let mut time = 0;
    for (at, (gap, _)) in plan.steps.iter().enumerate() {
        time += Time::from(*gap) * US;
        world.net.at(time, Happens::Step(at));
    }
    world.run_until(time);
    world.heal();
    world.settle();
    world.probe();
    count(&counts().schedules);
    add(&counts().events, world.events);
    add(&counts().values, world.sides.iter().map(|side| side.inn.values).sum());
}

impl World<'_> {
    /// To the next event that is not later than `end`, and the next, until there is none.
    fn run_until(&mut self, end: Time) {
        loop {
            let timers = [0, 1].map(|at| self.sides[at].due());
            let next = self.net.next_at().into_iter().chain(timers.into_iter().flatten()).min();
            let Some(next) = next.filter(|next| *next <= end) else { return };
            self.events += 1;
            assert!(self.events < EVENTS, "this goes on for ever: {}", self.shown());
            self.net.now = next.max(self.net.now);
            if let Some(at) = (0..2).find(|at| timers[*at].is_some_and(|timer| timer <= next)) {
                self.sides[at].timeout(&mut self.net);
            } else if let Some(happens) = self.net.pop() {
                self.happens(happens);
            }
            self.assert_patient();
        }
    }

    /// Nobody waits for a peer in vain, unless that has a reason not to answer.
    fn assert_patient(&mut self) {
        for at in 0..2 {
            if let Some(incarnation) = self.sides[at].gave_up_in.take() {
                let peer = &self.sides[1 - at];
                let silent = peer.incarnation > incarnation || peer.failed_in == Some(incarnation);
                assert!(silent, "side {at} waits in vain: {}", self.shown());
            }
        }
        let waited = |side: &Side| side.timed_out || side.failed_in.is_some();
        let waited = self.perfect && self.sides.iter().any(waited);
        assert!(!waited, "nothing is lost, but not all is answered: {}", self.shown());
    }

    fn happens(&mut self, happens: Happens) {
        let (net, sides) = (&mut self.net, &mut self.sides);
        match happens {
            Happens::Step(at) => self.step(self.plan.steps[at].1),
            Happens::Arrives { to, datagram } => sides[to].arrives(net, datagram),
            Happens::Built { side, incarnation, epoch, nonce, path, sync, works } => {
                if sides[side].incarnation == incarnation {
                    sides[side].built(net, Epoch(epoch), Spec { path, sync, nonce }, works);
                }
            }
            Happens::Hello { to, incarnation } => {
                if sides[to].incarnation < incarnation {
                    sides[to].reset(net, incarnation);
                }
            }
            Happens::Retry => {}
        }
    }

    fn step(&mut self, step: Step) {
        let (net, sides) = (&mut self.net, &mut self.sides);
        match step {
            Step::Send { side, count } => sides[side].send(net, count),
            Step::Propose { side, path, sync } => _ = sides[side].propose(net, path, sync),
            Step::Cross { paths, sync } => {
                for at in 0..2 {
                    _ = sides[at].propose(net, paths[at], sync);
                }
            }
            Step::Path { path, ways, alive } => net.set_path(path, ways, alive),
            Step::Cut { ways, ms } => {
                let until = ms.map_or(Time::MAX, |ms| net.now + Time::from(ms) * MS);
                net.cut(ways, until);
            }
            Step::Crash { side, actions: 0 } => {
                count(&counts().crashes);
                sides[side].remake(net);
            }
            Step::Crash { side, actions } => sides[side].crash_in = Some(actions),
        }
    }

    /// The network loses and doubles nothing any more, and the first path works.
    fn heal(&mut self) {
        (self.net.loss, self.net.doubled) = (0, 0);
        for path in 0..PATHS {
            if path == 0 || !self.plan.stay_dead {
                self.net.set_path(path, 3, true);
            }
        }
        for side in &mut self.sides {
            (side.crash_in, side.cannot) = (None, 0);
        }
    }

    /// Until nothing happens any more, and both sides agree on a composition that works.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            self.run_until(Time::MAX - 1);
            if self.agrees() {
                return;
            }
            self.help();
        }
        panic!("both sides do not come to an agreement: {}", self.shown());
    }

    fn agrees(&self) -> bool {
        let [a, b] = &self.sides;
        assert_eq!(a.incarnation, b.incarnation, "both have heard of the link's being made anew");
        let run = a.changeover.state() == State::Run && b.changeover.state() == State::Run;
        if !run {
            return false;
        }
        assert_eq!(a.changeover.epoch(), b.changeover.epoch(), "both sides run, by different compositions");
        let specs = [a, b].map(|side| *side.changeover.composition());
        assert_eq!(specs[0].nonce, specs[1].nonce, "one number stands for two compositions");
        assert!(a.channels.len() == 1 && b.channels.len() == 1, "a composition is left over");
        let works = self.net.works(specs[0].path) && (specs[0].sync || a.out.backlog + b.out.backlog == 0);
        if works {
            self.assert_delivered();
        }
        works
    }

    fn assert_delivered(&self) {
        for at in 0..2 {
            let (out, got) = (&self.sides[at].out, self.sides[1 - at].inn.got);
            assert!(out.backlog == 0 && out.next == got, "data is lost: {}", self.shown());
            assert!(out.unacked.is_empty(), "data that came is kept: {}", self.shown());
        }
    }

    /// What is up to those who use a link: to make it anew where the control channel has failed, and to leave a path that is dead.
    fn help(&mut self) {
        let failed = |state| matches!(state, State::Alone | State::InDoubt | State::Finishing);
        let states = [0, 1].map(|at| self.sides[at].changeover.state());
        if let Some(at) = (0..2).find(|at| failed(states[*at])) {
            self.assert_goes_on();
            self.assert_both_notice(at);
            return self.sides[at].remake(&mut self.net);
        }
        assert_eq!(states, [State::Run; 2], "a change hangs: {}", self.shown());
        match self.sides[0].propose(&mut self.net, 0, true) {
            Ok(_) => {}
            Err(Refusal::HoldDown) => self.net.after(100 * MS, Happens::Retry),
            Err(why) => panic!("the first path is refused: {why}: {}", self.shown()),
        }
    }

    /// A control channel that has failed does not stop data.
    fn assert_goes_on(&self) {
        for at in 0..2 {
            let (side, peer) = (&self.sides[at], &self.sides[1 - at]);
            let works = |spec: &Spec| self.net.works(spec.path) && spec.sync;
            if side.channels.iter().all(|channel| works(&channel.spec)) {
                assert!(
                    side.out.backlog == 0 && side.out.next == peer.inn.got,
                    "data stops: {}",
                    self.shown()
                );
            }
        }
    }

    /// Where the control channel has failed for one side, the other notices when it has something to say.
    fn assert_both_notice(&mut self, at: usize) {
        let incarnation = self.sides[at].incarnation;
        let other = &mut self.sides[1 - at];
        let sync = !other.changeover.composition().sync;
        if other.changeover.state() == State::Run && other.propose(&mut self.net, 0, sync).is_ok() {
            self.run_until(Time::MAX - 1);
            let other = &self.sides[1 - at];
            let noticed = other.incarnation > incarnation || other.changeover.state() == State::Alone;
            assert!(noticed, "a side speaks to one that does not answer: {}", self.shown());
        }
    }

    /// Something more is sent, and comes.
    fn probe(&mut self) {
        for at in 0..2 {
            self.sides[at].send(&mut self.net, 4);
        }
        self.run_until(Time::MAX - 1);
        self.assert_delivered();
        for at in 0..2 {
            if !self.sides[at].changeover.composition().sync {
                let [sent, newest] = [self.sides[at].out.iterations, self.sides[1 - at].inn.newest];
                assert!((0..2).any(|tag| sent[tag] == newest[tag]), "no value came of {sent:?}: {newest:?}");
            }
        }
    }

    fn shown(&self) -> String {
        let sides = self.sides.iter().map(|side| {
            let (epoch, state) = (side.changeover.epoch(), side.changeover.state());
            let out = &side.out;
            let channels: Vec<_> =
                side.channels.iter().map(|it| (it.epoch, it.spec, it.timer, it.tries, it.rescued)).collect();
            format!(
                "{} of {}: {state:?} {epoch:?}, sent {} + {} pieces, confirmed {}, got {}, {channels:?}",
                side.at, side.incarnation, out.next, out.backlog, out.acked, side.inn.got
            )
        });
        format!("at {} us: {}", self.net.now / US, sides.collect::<Vec<_>>().join("; "))
    }
}
