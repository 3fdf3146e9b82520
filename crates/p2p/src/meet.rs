//! How members meet: one founds a run, and others join it.

use crate::Scheme;
use crate::board::Board;
use crate::error::{Error, breach, gone};
use crate::exchange::SLEEP;
use crate::link::Class;
use crate::pause::Pause;
use crate::peers::{Peers, Settings};
use crate::view::{ADDRESS, Job, MEMBERS, Member, PARTS, TASK, View};
use crate::words::{self, Heard, Said};
use polyrail_rails::mailbox::{Done, Mailbox};
use polyrail_rails::worker::Refused;
use std::sync::Arc;
use std::sync::mpsc::{TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Words that have come and were not looked at, at most.
const HEARD: usize = 1 << 14;
/// Between two times that a run is asked to be joined.
const AGAIN: Duration = Duration::from_secs(1);

/// A run that is about to begin: it waits for its members.
pub struct Founding {
    settings: Settings,
    mailbox: Mailbox,
    heard: Heard,
    board: Option<Board>,
}

fn open(settings: &Settings) -> Result<(Mailbox, Heard), Error> {
    let mut mailbox = Mailbox::open(settings.rails.clone())?;
    let (said, heard) = sync_channel(HEARD);
    mailbox.on_active(
        words::ACTIVE,
        Box::new(move |from, _, bytes| match said.try_send((from, bytes.to_vec())) {
            // who says more than is looked at has it forgotten, and waits in vain
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }),
    );
    Ok((mailbox, heard))
}

impl Founding {
    /// Opens an endpoint for a run that others are to join.
    ///
    /// # Errors
    /// No endpoint can be opened.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let (mailbox, heard) = open(&settings)?;
        Ok(Self { settings, mailbox, heard, board: None })
    }

    /// Its address is told at a place that others know.
    pub(crate) fn is_asked(&mut self, board: Board) {
        self.board = Some(board);
    }

    /// What others need to join. It is the key to the run: give it to those only who may.
    pub fn address(&self) -> [u8; ADDRESS] {
        self.mailbox.worker().address()
    }

    /// Waits until there are so many others, and begins. `pause` is called a few times each second; an error of it ends the wait.
    ///
    /// # Errors
    /// That of `pause`; a job that cannot be.
    pub fn gather(
        mut self,
        job: Job,
        others: usize,
        mut pause: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<Peers, Error> {
        check(&job, others)?;
        let me = Member { address: self.address(), site: self.settings.site, weight: self.settings.weight };
        let own = me.address;
        let mut members = vec![me];
        let mut paused = Instant::now();
        while members.len() <= others {
            Pause::ask(&self.settings.pause, &mut paused)?;
            pause(members.len() - 1)?;
            // who has ended is no member, and may come again as another
            members.retain(|member: &Member| {
                let peer = self.mailbox.peer(&member.address);
                member.address == own || peer.is_ok_and(|peer| self.mailbox.worker().why(peer).is_none())
            });
            if self.mailbox.progress() == 0 {
                self.mailbox.sleep(SLEEP);
            }
            // more of them are as those who come later
            while members.len() <= others
                && let Ok((from, bytes)) = self.heard.try_recv()
            {
                let Ok((_, Said::Join(member))) = words::decode(&bytes) else { continue };
                let known = members.iter().any(|one| one.address == member.address);
                // who speaks for another is not listened to
                if !known && self.mailbox.peer(&member.address).is_ok_and(|peer| peer == from) {
                    members.push(member);
                }
            }
        }
        let view = View::first(job, members)?;
        let bytes: Arc<[u8]> = words::encode(1, &Said::View(Box::new(view.clone()))).into();
        if bytes.len() > words::LONGEST {
            return Err(Error::Use(format!(
                "a view of {} bytes is too long: fewer members, parts, or a shorter task",
                bytes.len()
            )));
        }
        let mut peers = Peers::new(self.settings, self.mailbox, self.heard, view, 1)?;
        // who is started again asks again
        peers.is_asked(self.board);
        for member in 1..peers.view().members.len() {
            peers.send_message(member, Class::View.tag(0), &bytes)?;
        }
        Ok(peers)
    }
}

/// Whether there can be such a job, with so many others: members take no other from a founder.
fn check(job: &Job, others: usize) -> Result<(), Error> {
    let wrong = if others >= MEMBERS {
        format!("a run of {others} others is not possible: {} at most", MEMBERS - 1)
    } else if !(1..=PARTS).contains(&(job.parts as usize)) {
        format!("{} parts are not possible: 1 to {PARTS}", job.parts)
    } else if job.tolerance.is_nan() || job.tolerance < 0.0 {
        format!("a tolerance of {} is not possible: a norm is 0 or more", job.tolerance)
    } else if job.every == 0 {
        "rounds every 0 iterations are not possible: 1 or more".into()
    } else if job.scheme == Scheme::Bounded(0) {
        "values at most 0 iterations old are the synchronous scheme's: a bound is 1 or more".into()
    } else if job.task.len() > TASK {
        format!("a task of {} bytes is too long: {TASK} at most", job.task.len())
    } else {
        return Ok(());
    };
    Err(Error::Use(wrong))
}

impl Peers {
    /// Joins a run; `founder` is what [`Founding::address`] gave there. Waits until it begins.
    ///
    /// # Errors
    /// It cannot be reached, or does not want this peer.
    pub fn join(settings: Settings, founder: &[u8]) -> Result<Self, Error> {
        let (mut mailbox, heard) = open(&settings)?;
        let peer = mailbox.peer(founder)?;
        let member =
            Member { address: mailbox.worker().address(), site: settings.site, weight: settings.weight };
        let word = words::encode(0, &Said::Join(member));
        // who decides on the view sends it, which may be another member
        mailbox.recv(None, Class::View.tag(0), vec![0; words::LONGEST]);
        let mut asked: Option<Instant> = None;
        let mut paused = Instant::now();
        loop {
            Pause::ask(&settings.pause, &mut paused)?;
            let moved = mailbox.progress();
            // whom it asked may have been lost with what it was asked
            if asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
                match mailbox.send_active(peer, words::ACTIVE, &word) {
                    Ok(()) => asked = Some(Instant::now()),
                    Err(Refused::Again) => {}
                    Err(Refused::Gone) => return Err(gone(mailbox.worker().why(peer), 0)),
                }
            }
            while let Ok((from, bytes)) = heard.try_recv() {
                if let (true, Ok((_, Said::Refuse(why)))) = (from == peer, words::decode(&bytes)) {
                    return Err(Error::Refused(why));
                }
            }
            if let Some(done) = mailbox.next_done() {
                let Done::Received { buffer, outcome, .. } = done else { continue };
                let Ok((len, false)) = outcome else { return Err(gone(mailbox.worker().why(peer), 0)) };
                return match words::decode(&buffer[..len]) {
                    Ok((epoch, Said::View(view))) => Self::new(settings, mailbox, heard, *view, epoch),
                    Ok(_) => Err(breach(0, "it says something else than who takes part")),
                    Err(why) => Err(breach(0, why)),
                };
            }
            if moved == 0 {
                mailbox.sleep(if asked.is_some() { SLEEP } else { Duration::from_millis(1) });
            }
        }
    }
}
