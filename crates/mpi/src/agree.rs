//! How the ranks that speak for a communicator's hosts agree on a [group](crate::group).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use polyrail_core::coll::cast::Window;
use polyrail_rails::Config;
use polyrail_rails::multicast::{Ear, networks};

use crate::group::{AGREED, Group, TRIES, WINDOW, agree, facts, join, told};
use crate::letters::{Letters, Outbox};
use crate::library::{Failed, LookIn};
use crate::team::{Call, Team};

/// The tag of what hosts have heard: no operation has it.
const HEARD: c_int = 66;
/// How often the first host looks for that.
const LOOK: Duration = Duration::from_micros(200);
/// Communicators that this process has tried to make a group of, where no network carried it; and how many are enough.
static MUTE: AtomicU32 = AtomicU32::new(0);
const PATIENCE: u32 = 2;

impl Team {
    /// The group, agreed by all ranks at once; all get one, or none.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn agree_on_group(&mut self, call: Call) -> Result<Option<Box<Group>>, Failed> {
        // what this host cannot find out is no network; a wrong setting the provider has told already
        let config = Config::from_env().unwrap_or_default();
        let own = networks(&config).unwrap_or_default();
        let mut agreed = [0; AGREED];
        let mut group = None;
        // chunks of the window, and the networks that all hear, as bits
        let mut found = [0; 6];
        if self.place == 0 {
            let all = self.tell_first(call, &facts(&own))?;
            if self.host == 0 {
                let seldom = MUTE.load(Ordering::Relaxed) >= PATIENCE;
                agreed = agree(&all, &own).filter(|_| !seldom).unwrap_or(agreed);
            }
            self.tell_all(call, &mut agreed)?;
            let all_there = |group: &Group| group.networks.len() == told(&agreed[41..]).count();
            group = join(&agreed, &own).filter(all_there).and_then(|mut group| {
                let networks: Vec<_> = group.networks.iter().map(|(_, network)| *network).collect();
                group.ear = Some(Ear::open(group.address, &networks, &config).ok()?);
                Some(group)
            });
            let room = group.as_ref().and_then(|group| Some(group.ear.as_ref()?.room() / group.chunk));
            let room = u32::try_from(room.unwrap_or(0)).unwrap_or(u32::MAX).to_le_bytes();
            let all = self.tell_first(call, &room)?;
            let most = (WINDOW / group.as_ref().map_or(1, |group| group.chunk)) as u32;
            let least = all.into_iter().map(u32::from_le_bytes).min().unwrap_or(u32::MAX);
            let mut window = least.min(u32::from_le_bytes(room)).min(most).to_le_bytes();
            self.tell_all(call, &mut window)?;
            // all have joined: now it is tried
            let mut heard = match &mut group {
                Some(group) if window != [0; 4] => self.try_out(group)?.to_le_bytes(),
                _ => [0; 2],
            };
            self.tell_all(call, &mut heard)?;
            found[..4].copy_from_slice(&window);
            found[4..].copy_from_slice(&heard);
        }
        let mut both = [0; AGREED + 6];
        both[..AGREED].copy_from_slice(&agreed);
        both[AGREED..].copy_from_slice(&found);
        self.spread(0, call, both.as_mut_ptr(), both.len())?;
        agreed.copy_from_slice(&both[..AGREED]);
        found.copy_from_slice(&both[AGREED..]);
        let [w0, w1, w2, w3, h0, h1] = found;
        let (window, heard) = (u32::from_le_bytes([w0, w1, w2, w3]), u16::from_le_bytes([h0, h1]));
        if window == 0 || heard == 0 {
            MUTE.fetch_add(u32::from(window > 0), Ordering::Relaxed);
            return Ok(None);
        }
        let group = group.or_else(|| if self.place == 0 { None } else { join(&agreed, &own) });
        Ok(group.map(|mut group| {
            group.window = Window::new(window);
            group.keep(heard);
            Box::new(group)
        }))
    }

    /// The networks on which all hear the first host's rank, as bits, at that; what the others hear, at them.
    fn try_out(&mut self, group: &mut Group) -> Result<u16, Failed> {
        let Some(comm) = self.between else { return Ok(0) };
        let _looking = LookIn::begin();
        if self.host > 0 {
            let heard = group.heard();
            let mut outbox = Outbox::new(comm, HEARD);
            outbox.send(self.layout.speaker(0, None), heard.to_le_bytes().to_vec())?;
            while outbox.left()? > 0 {
                std::thread::yield_now();
            }
            return Ok(heard);
        }
        let others = (1..self.layout.hosts()).map(|host| self.layout.speaker(host, None));
        let mut letters: Vec<_> = others.map(|other| Letters::new(comm, HEARD, other, 2)).collect();
        letters.iter_mut().try_for_each(Letters::expect)?;
        let (mut all, mut came, begin, mut tries) =
            (u16::MAX, 0, Instant::now(), (0..).zip(TRIES).peekable());
        // they answer when they have heard it on each network, or waited for long enough
        while came < letters.len() {
            if let Some((again, _)) = tries.next_if(|(_, at)| begin.elapsed() >= Duration::from_millis(*at)) {
                group.try_all(again);
            }
            for one in &mut letters {
                if let Some(heard) = one.take()? {
                    all &= u16::from_le_bytes(heard.try_into().unwrap_or_default());
                    came += 1;
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(all)
    }

    /// The first host's rank hears what each other's has to say.
    fn tell_first<const N: usize>(&mut self, call: Call, own: &[u8; N]) -> Result<Vec<[u8; N]>, Failed> {
        let hosts = self.layout.hosts();
        let mut all = vec![[0; N]; hosts - 1];
        let Some(mut messages) = self.messages(call.what()) else { return Ok(Vec::new()) };
        if self.host == 0 {
            for (host, place) in (1..hosts).zip(&mut all) {
                messages.receive(self.layout.speaker(host, None), place.as_mut_ptr(), N)?;
            }
            messages.wait_for_all()?;
            return Ok(all);
        }
        messages.send(self.layout.speaker(0, None), own.as_ptr(), N)?;
        messages.wait_for_all()?;
        Ok(Vec::new())
    }

    /// The others hear what the first host's has to say.
    fn tell_all<const N: usize>(&mut self, call: Call, bytes: &mut [u8; N]) -> Result<(), Failed> {
        let Some(mut messages) = self.messages(call.what()) else { return Ok(()) };
        if self.host == 0 {
            for host in 1..self.layout.hosts() {
                messages.send(self.layout.speaker(host, None), bytes.as_ptr(), N)?;
            }
        } else {
            messages.receive(self.layout.speaker(0, None), bytes.as_mut_ptr(), N)?;
        }
        messages.wait_for_all()
    }
}
