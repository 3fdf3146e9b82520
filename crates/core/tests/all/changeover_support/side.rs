//! One side of a link: the real change-over and courier, and the model's data channel. It is the driver, as a rail would be.

use super::channel::{Channel, In, Out, Sent, TAGS, WINDOW};
use super::count::{add, count, counts};
use super::net::{Body, Datagram, Happens, MS, Net, Way};
use super::plan::{PATHS, Spec};
use polyrail_core::control::courier::Patience;
use polyrail_core::control::phase::State;
use polyrail_core::control::word::parse;
use polyrail_core::control::{
    Action, Admit, Changeover, Config, Courier, Epoch, Lost, Refusal, Side as End, Time, Word,
};

/// What is not confirmed for so long is sent again.
const RTO: Time = 5 * MS;
/// So often in vain, and the path counts as dead.
const DEAD: u32 = 6;
const CONFIG: Config = Config { prepare: 40 * MS, finish: 20_000 * MS, hold_down: 30 * MS };

pub struct Side {
    pub at: usize,
    pub incarnation: u32,
    tries: u32,
    pub cannot: u8,
    pub changeover: Changeover<Spec>,
    courier: Courier,
    control_failed: bool,
    /// The incarnation in which the control channel failed last, and in which it was closed since the peer took too long.
    pub failed_in: Option<u32>,
    pub gave_up_in: Option<u32>,
    /// A proposal was not answered in time, ever.
    pub timed_out: bool,
    /// The peer may know of its proposal.
    said: bool,
    /// What was refused, when.
    refused: Vec<(Spec, Time)>,
    pub channels: Vec<Channel>,
    sending: Epoch,
    pub out: Out,
    pub inn: In,
    /// It dies when so many more actions are carried out.
    pub crash_in: Option<u8>,
    nonce: u32,
}

fn first(incarnation: u32) -> Spec {
    Spec { path: 0, sync: true, nonce: incarnation << 20 }
}

impl Side {
    pub fn new(at: usize, tries: u8, cannot: u8) -> Self {
        let tries = u32::from(tries);
        let (changeover, courier, channel) = fresh(at, 0, tries);
        Self {
            at,
            incarnation: 0,
            tries,
            cannot,
            changeover,
            courier,
            control_failed: false,
            failed_in: None,
            gave_up_in: None,
            timed_out: false,
            said: false,
            refused: Vec::new(),
            channels: vec![channel],
            sending: Epoch::FIRST,
            out: Out::default(),
            inn: In::default(),
            crash_in: None,
            nonce: 0,
        }
    }

    /// Nothing more is known of the link before; what was sent without confirmation is sent again.
    pub fn reset(&mut self, net: &mut Net, incarnation: u32) {
        self.incarnation = incarnation;
        (self.changeover, self.courier, self.channels) = {
            let (changeover, courier, channel) = fresh(self.at, incarnation, self.tries);
            (changeover, courier, vec![channel])
        };
        self.control_failed = false;
        self.refused.clear();
        self.sending = Epoch::FIRST;
        self.crash_in = None;
        self.nonce = 0;
        self.inn.reset(first(incarnation).nonce);
        self.out.unacked.iter_mut().for_each(|sent| sent.epoch = Epoch::FIRST);
        self.changeover.handle_received(self.inn.stream.next());
        self.changeover.handle_acked(self.out.acked);
        self.resend(net, Epoch::FIRST);
        self.run(net);
    }

    /// The link is made anew; the other side hears of it by the handshake.
    pub fn remake(&mut self, net: &mut Net) {
        let incarnation = self.incarnation + 1;
        net.after(MS, Happens::Hello { to: 1 - self.at, incarnation });
        self.reset(net, incarnation);
    }

    pub fn send(&mut self, net: &mut Net, pieces: u8) {
        if self.spec_in_use().sync {
            self.out.backlog += u32::from(pieces);
        } else {
            for _ in 0..pieces {
                self.send_value(net);
            }
        }
        self.run(net);
    }

    fn spec_in_use(&self) -> Spec {
        self.channel(self.sending).map_or(first(0), |channel| channel.spec)
    }

    fn send_value(&mut self, net: &mut Net) {
        let (spec, epoch) = (self.spec_in_use(), self.sending.0);
        let tag = net.rng.below(TAGS as u64) as u32;
        let iteration = &mut self.out.iterations[tag as usize];
        *iteration += 1;
        let body = Body::Value { epoch, nonce: spec.nonce, tag, iteration: *iteration };
        self.transmit(net, Way::Data(spec.path), body);
    }

    pub fn propose(&mut self, net: &mut Net, path: u8, sync: bool) -> Result<Epoch, Refusal> {
        self.nonce += 1;
        let nonce = self.incarnation << 20 | self.nonce << 1 | self.at as u32;
        let outcome = self.changeover.propose(net.now, Spec { path, sync, nonce });
        count(if outcome.is_ok() { &counts().proposals } else { &counts().refused });
        self.said &= outcome.is_err();
        let early = |(spec, at): &(Spec, Time)| {
            (spec.path, spec.sync) == (path, sync) && net.now < at + CONFIG.hold_down
        };
        assert!(
            outcome.is_err() || !self.refused.iter().any(early),
            "what was just refused is proposed again"
        );
        self.run(net);
        outcome
    }

    pub fn due(&self) -> Option<Time> {
        let timers = self.channels.iter().filter_map(|channel| channel.timer);
        timers.chain(self.courier.due()).chain(self.changeover.due()).min()
    }

    pub fn timeout(&mut self, net: &mut Net) {
        self.courier.handle_timeout(net.now);
        self.changeover.handle_timeout(net.now);
        for epoch in self.channels.iter().map(|channel| channel.epoch).collect::<Vec<_>>() {
            if self.channel(epoch).and_then(|channel| channel.timer).is_some_and(|timer| timer <= net.now) {
                self.channel_timeout(net, epoch);
            }
        }
        self.run(net);
    }

    fn channel_timeout(&mut self, net: &mut Net, epoch: Epoch) {
        let Some(channel) = self.channel_mut(epoch) else { return };
        channel.tries += 1;
        channel.timer = None;
        let (tries, rescued) = (channel.tries, channel.rescued);
        self.resend(net, epoch);
        if tries < DEAD {
            return;
        }
        self.changeover.handle_dead(if rescued { self.sending } else { epoch });
        match self.changeover.state() {
            State::Run if tries.is_multiple_of(DEAD) => {
                let path = net.rng.below(PATHS.into()) as u8;
                _ = self.propose(net, path, true);
            }
            State::Alone | State::InDoubt | State::Finishing if tries >= 2 * DEAD => {
                count(&counts().remade_alone);
                self.remake(net);
            }
            _ => {}
        }
    }

    pub fn arrives(&mut self, net: &mut Net, datagram: Datagram) {
        if datagram.incarnation != self.incarnation || !net.arrives(self.at, &datagram) {
            return count(&counts().dropped);
        }
        let way = datagram.way;
        match datagram.body {
            Body::Word { number, bytes } => {
                self.courier.handle_word(number, &bytes);
                while let Some(word) = self.courier.poll_word() {
                    let word = parse(&word).expect("a word is a word");
                    self.hear(net, word);
                }
            }
            Body::WordAck { next } => self.courier.handle_ack(net.now, next),
            Body::Data { epoch, nonce, at, len } => self.data(net, way, Epoch(epoch), nonce, (at, len)),
            Body::Value { epoch, nonce, tag, iteration } => match self.admits(Epoch(epoch), nonce) {
                Admit::Deliver => self.inn.value(tag, iteration),
                Admit::Hold => self.inn.hold_value(tag, iteration),
                Admit::Drop => count(&counts().dropped),
            },
            Body::Ack { epoch, nonce, upto } => self.acked(net, Epoch(epoch), nonce, upto),
        }
        self.run(net);
    }

    /// A word may end the link in the middle of several.
    fn hear(&mut self, net: &mut Net, word: Word) {
        let aborts = matches!(word, Word::Abort { epoch } if self.changeover.is_alive(epoch));
        if let Err(breach) = self.changeover.handle_word(net.now, word) {
            panic!("side {} takes an honest peer for a liar: {breach}", self.at);
        }
        if aborts {
            count(&counts().aborted);
        }
        self.run(net);
    }

    /// What is to be done with data, and whether that mixes compositions.
    fn admits(&self, epoch: Epoch, nonce: u32) -> Admit {
        let admit = self.changeover.admit(epoch);
        if admit != Admit::Drop {
            let channel = self.channel(epoch).expect("data of a composition that is none was taken");
            assert_eq!(channel.spec.nonce, nonce, "data of another composition was taken");
            let delivered = self.inn.delivered == nonce;
            assert_eq!(delivered, admit == Admit::Deliver, "data of a composition was taken out of turn");
            assert!(!self.inn.is_over(nonce), "data of a composition that is over was taken");
        }
        admit
    }

    fn data(&mut self, net: &mut Net, way: Way, epoch: Epoch, nonce: u32, (at, len): (u64, u64)) {
        match self.admits(epoch, nonce) {
            Admit::Deliver => self.inn.data(at, len),
            Admit::Hold => {
                count(&counts().held);
                self.inn.hold(at, len);
            }
            Admit::Drop => return count(&counts().dropped),
        }
        let upto = self.inn.stream.next();
        self.transmit(net, way, Body::Ack { epoch: epoch.0, nonce, upto });
        self.changeover.handle_received(upto);
    }

    fn acked(&mut self, net: &mut Net, epoch: Epoch, nonce: u32, upto: u64) {
        if !self.changeover.is_alive(epoch) {
            return;
        }
        let sending = self.sending;
        let channel =
            self.channel_mut(epoch).expect("a confirmation by a composition that is none was taken");
        assert_eq!(channel.spec.nonce, nonce, "a confirmation by another composition was taken");
        channel.tries = 0;
        channel.timer = None;
        let by = if channel.rescued { sending } else { epoch };
        self.out.confirm(upto);
        self.changeover.handle_alive(by);
        self.changeover.handle_acked(self.out.acked);
        self.arm(net, epoch);
    }

    /// Carries out what is to be done, and sends what can be.
    pub fn run(&mut self, net: &mut Net) {
        let incarnation = self.incarnation;
        loop {
            if self.courier.has_failed() && !self.control_failed {
                self.control_failed = true;
                self.changeover.handle_control_failed();
            }
            let Some(action) = self.changeover.poll_action() else { break };
            if let Some(left) = &mut self.crash_in {
                if *left == 0 {
                    count(&counts().crashes);
                    return self.remake(net);
                }
                *left -= 1;
            }
            self.carry_out(net, action);
            if self.incarnation != incarnation {
                return;
            }
        }
        self.pump(net);
        self.speak(net);
    }

    fn carry_out(&mut self, net: &mut Net, action: Action<Spec>) {
        match action {
            Action::Say(word) => {
                self.said |= matches!(word, Word::Prepare { .. });
                _ = self.courier.say(word.to_bytes());
            }
            Action::Build { epoch, spec: Spec { path, sync, nonce } } => {
                let works = !net.rng.chance(self.cannot);
                let (side, incarnation, takes) = (self.at, self.incarnation, net.rng.below(2 * MS));
                net.after(
                    takes,
                    Happens::Built { side, incarnation, epoch: epoch.0, nonce, path, sync, works },
                );
            }
            Action::Flip { epoch } => {
                self.sending = epoch;
                self.changeover.handle_flipped(self.out.next);
            }
            Action::Resume { epoch } => self.resume(net, epoch),
            Action::Rescue { old } => self.rescue(net, old),
            Action::Destroy { epoch } => self.destroy(epoch),
            Action::Changed { to, .. } => {
                count(&counts().changes);
                assert_eq!(self.sending, to, "what is in force is not what is sent by");
            }
            Action::Refused { spec, reason } => self.refused(net, spec, reason),
            Action::CloseControl => {
                count(&counts().control_failures);
                if !self.control_failed {
                    self.gave_up_in = Some(self.incarnation);
                }
                self.failed_in = Some(self.incarnation);
                self.control_failed = true;
                self.courier.close();
            }
            Action::Remake { why } => {
                count(match why {
                    Lost::Control => &counts().remade_for_control,
                    Lost::Paths => &counts().remade_for_paths,
                });
                self.remake(net);
            }
        }
    }

    fn refused(&mut self, net: &Net, spec: Spec, reason: Refusal) {
        self.timed_out |= reason == Refusal::TimedOut;
        let wins = self.at == 0 && self.said;
        assert!(!wins || reason != Refusal::Crossed, "the side that wins where proposals cross gives in");
        if matches!(reason, Refusal::Cannot | Refusal::HoldDown) {
            self.refused.push((spec, net.now));
        }
        count(match reason {
            Refusal::Crossed => &counts().crossed,
            Refusal::Cannot => &counts().unable,
            Refusal::HoldDown => &counts().held_down,
            Refusal::TimedOut => &counts().timed_out,
            Refusal::NoControl => &counts().no_control,
            Refusal::Busy | Refusal::InForce => panic!("an honest peer says {reason}"),
        });
    }

    pub fn built(&mut self, net: &mut Net, epoch: Epoch, spec: Spec, works: bool) {
        if self.changeover.is_alive(epoch) {
            if works {
                self.channels.push(Channel::new(epoch, spec));
                assert!(self.channels.len() <= 2, "more than two compositions are alive");
                self.changeover.handle_built(net.now, epoch);
            } else {
                self.changeover.handle_unable(net.now, epoch);
            }
            self.run(net);
        }
    }

    fn resume(&mut self, net: &mut Net, epoch: Epoch) {
        let old = self.channels.iter().find(|channel| channel.epoch != epoch).expect("there is an old one");
        let old = old.spec.nonce;
        let Spec { path, sync, nonce } = self.channel(epoch).expect("the new one is built").spec;
        self.inn.resume(old, nonce);
        let upto = self.inn.stream.next();
        if sync {
            self.transmit(net, Way::Data(path), Body::Ack { epoch: epoch.0, nonce, upto });
        }
        self.changeover.handle_received(upto);
    }

    fn rescue(&mut self, net: &mut Net, old: Epoch) {
        count(&counts().rescues);
        add(
            &counts().rescued_pieces,
            self.out.unacked.iter().filter(|sent| sent.epoch == old).count() as u64,
        );
        let channel = self.channel_mut(old).expect("the old one is alive");
        (channel.rescued, channel.tries, channel.timer) = (true, 0, None);
        self.resend(net, old);
    }

    /// The peer has all of it, or it was never in use.
    fn destroy(&mut self, epoch: Epoch) {
        self.channels.retain(|channel| channel.epoch != epoch);
        while self.out.unacked.front().is_some_and(|sent| sent.epoch == epoch) {
            let sent = self.out.unacked.pop_front().unwrap();
            self.out.acked = sent.at + sent.len;
        }
        self.changeover.handle_acked(self.out.acked);
    }

    /// Gives the new composition what the program sends, as far as there is room.
    fn pump(&mut self, net: &mut Net) {
        let (epoch, spec) = (self.sending, self.spec_in_use());
        while spec.sync && self.out.backlog > 0 && self.out.unacked.len() < WINDOW {
            self.out.backlog -= 1;
            let sent = Sent { at: self.out.next, len: 1 + net.rng.below(4), epoch };
            self.out.next += sent.len;
            self.out.unacked.push_back(sent);
            count(&counts().pieces);
            self.transmit(net, Way::Data(spec.path), data(&sent, spec));
        }
        self.arm(net, epoch);
    }

    fn resend(&mut self, net: &mut Net, epoch: Epoch) {
        let Some(channel) = self.channel(epoch) else { return };
        let (spec, rescued) = (channel.spec, channel.rescued);
        let path = if rescued { self.spec_in_use().path } else { spec.path };
        let again: Vec<Sent> = self.out.unacked.iter().filter(|sent| sent.epoch == epoch).copied().collect();
        for sent in again {
            self.transmit(net, Way::Data(path), data(&sent, spec));
        }
        self.arm(net, epoch);
    }

    /// There is a timer if something is not confirmed.
    fn arm(&mut self, net: &Net, epoch: Epoch) {
        let waits = self.out.unacked.iter().any(|sent| sent.epoch == epoch);
        let Some(channel) = self.channel_mut(epoch) else { return };
        match (waits, channel.timer) {
            (true, None) => channel.timer = Some(net.now + (RTO << channel.tries.min(3))),
            (false, _) => (channel.timer, channel.tries) = (None, 0),
            _ => {}
        }
    }

    fn speak(&mut self, net: &mut Net) {
        let incarnation = self.incarnation;
        while let Some((number, word)) = self.courier.poll_transmit(net.now) {
            let body = Body::Word { number, bytes: word.to_vec() };
            net.send(self.at, Datagram { incarnation, way: Way::Control, body });
        }
        if let Some(next) = self.courier.poll_ack() {
            self.transmit(net, Way::Control, Body::WordAck { next });
        }
    }

    fn transmit(&self, net: &mut Net, way: Way, body: Body) {
        net.send(self.at, Datagram { incarnation: self.incarnation, way, body });
    }

    pub fn channel(&self, epoch: Epoch) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.epoch == epoch)
    }

    fn channel_mut(&mut self, epoch: Epoch) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|channel| channel.epoch == epoch)
    }
}

fn fresh(at: usize, incarnation: u32, tries: u32) -> (Changeover<Spec>, Courier, Channel) {
    let (spec, end) = (first(incarnation), if at == 0 { End::Opener } else { End::Accepter });
    let patience = Patience { tries, time: 60_000 * MS };
    (Changeover::new(end, CONFIG, spec), Courier::new(patience, 4 * MS), Channel::new(Epoch::FIRST, spec))
}

fn data(sent: &Sent, spec: Spec) -> Body {
    Body::Data { epoch: sent.epoch.0, nonce: spec.nonce, at: sent.at, len: sent.len }
}
