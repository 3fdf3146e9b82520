//! Processes that a launcher started together meet by what it tells them (`polyrail_rendezvous`): the first founds the run.

use crate::board::{self, Board};
use crate::error::Error;
use crate::meet::Founding;
use crate::pause::Pause;
use crate::peers::{Peers, Settings};
use crate::view::{ADDRESS, Job};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polyrail_rails::named;
pub use polyrail_rendezvous::PATIENCE;
use polyrail_rendezvous::{Place, Way, place};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Between two looks at what a launcher says.
const TURN: Duration = Duration::from_millis(100);

/// An address as people copy it, and launchers hand it on: a word of letters, digits, `-` and `_`.
pub fn write_address(address: &[u8; ADDRESS]) -> String {
    URL_SAFE_NO_PAD.encode(address)
}

/// The address that [`write_address`] wrote.
///
/// # Errors
/// It is another word.
pub fn read_address(word: &str) -> Result<[u8; ADDRESS], Error> {
    let address = URL_SAFE_NO_PAD.decode(word).ok().and_then(|address| address.try_into().ok());
    address.ok_or_else(|| {
        Error::Use(format!(
            "{word:?} is no address of a run; it is the word of {} letters that the one who began it told",
            (ADDRESS * 4).div_ceil(3)
        ))
    })
}

/// What the first tells in place of an address when it does not begin: the others wait for a word.
const NONE: &str = "none";

/// This process among those that a launcher started together: `mpiexec`, `srun`, an indexed job of Kubernetes, or what sets `POLYRAIL_MEET`. When the first
/// lets go of it without having founded a run, the others are told.
#[derive(Debug)]
pub struct Launched {
    rank: u32,
    size: u32,
    way: Option<Way>,
}

impl Launched {
    /// As the environment says; none: this process is alone.
    ///
    /// # Errors
    /// Variables that cannot be; a launcher that does not answer.
    pub fn find() -> Result<Option<Self>, Error> {
        let place = polyrail_rendezvous::find()?;
        Ok(place.map(|Place { rank, size, way }| Self { rank, size, way: Some(way) }))
    }

    /// Which of the processes this is; 0 is the one that has to [`found`](Self::found), all others [`Peers::join`] its [`address`](Self::address).
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// How many processes there are: at least 2.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Opens the run's first endpoint, and tells the others of it.
    ///
    /// # Errors
    /// No endpoint can be opened; the launcher refuses.
    pub fn found(mut self, settings: Settings) -> Result<Founding, Error> {
        let (rails, pause) = (settings.rails.clone(), settings.pause.clone());
        if let Some(Way::At { .. }) = self.way {
            // all endpoints of the run are to have it, and the first of them is opened next
            named::make_secret_if_none()?;
        }
        let mut founding = Founding::new(settings)?;
        let address = founding.address();
        match self.way.take() {
            Some(Way::Told(board)) => _ = share(board, Some(write_address(&address)), &pause)?,
            Some(Way::At { port, run, .. }) => founding.is_asked(Board::open(&rails, port, run, address)?),
            None => {}
        }
        Ok(founding)
    }

    /// Where the run of the first can be joined: waits until it has begun. Of the settings of this process's endpoint those count that do not say where it is reached.
    ///
    /// # Errors
    /// It does not begin; the launcher refuses.
    pub fn address(mut self, settings: &Settings) -> Result<[u8; ADDRESS], Error> {
        match self.way.take() {
            Some(Way::At { host, port, run }) => {
                board::ask(&settings.rails, &settings.pause, (&host, port), &run, PATIENCE)
            }
            Some(Way::Told(board)) => match share(board, None, &settings.pause)?.as_str() {
                NONE => Err(Error::Meeting("the first process ended before it began the run".into())),
                word => read_address(word),
            },
            None => Err(Error::Use("the run was already begun".into())),
        }
    }
}

/// Tells the word of the first, in a thread of its own: a launcher may wait for long, and says nothing meanwhile.
fn share(board: place::Board, word: Option<String>, pause: &Option<Pause>) -> Result<String, Error> {
    let (tells, told) = sync_channel(1);
    let wait = move || tells.send(board.share(word.as_deref()));
    std::thread::Builder::new()
        .name("polyrail-launcher".into())
        .spawn(wait)
        .map_err(|error| Error::Meeting(format!("starting a thread: {error}")))?;
    let (until, mut paused) = (Instant::now() + PATIENCE, Instant::now());
    loop {
        match told.recv_timeout(TURN) {
            Ok(told) => return Ok(told?),
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => Pause::ask(pause, &mut paused)?,
            Err(_) => return Err(Error::Silent("the launcher, by which processes meet".into(), PATIENCE)),
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let (0, Some(Way::Told(board))) = (self.rank, self.way.take()) {
            // what the launcher says to that is of no use to anybody
            let _ = share(board, Some(NONE.into()), &None);
        }
    }
}

impl Peers {
    /// Meets the processes that the same launcher started, of which the first one's job counts; where there is no launcher it is alone.
    ///
    /// A launcher tells its processes of each other once: a further run of the same process begins with [`Founding`] and [`Peers::join`]. So does one in a program
    /// that has called `MPI_Init`, to which the launcher has told everything; its first rank sends the others the address.
    ///
    /// # Errors
    /// Those of [`Launched`]'s functions; others do not come within ten minutes.
    pub fn start(settings: Settings, job: Job) -> Result<Self, Error> {
        let Some(launched) = Launched::find()? else {
            return Founding::new(settings)?.gather(job, 0, |_| Ok(()));
        };
        if launched.rank() > 0 {
            let address = launched.address(&settings)?;
            return Self::join(settings, &address);
        }
        let others = launched.size() - 1;
        let until = Instant::now() + PATIENCE;
        launched.found(settings)?.gather(job, others, |here| {
            if Instant::now() < until {
                return Ok(());
            }
            Err(Error::Silent(format!("{} of the {others} other processes", others - here), PATIENCE))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_word() {
        let address: [u8; ADDRESS] = std::array::from_fn(|i| (i as u8).wrapping_mul(37));
        let word = write_address(&address);
        assert_eq!(read_address(&word).unwrap(), address);
        assert!(word.len() <= polyrail_rendezvous::LONGEST);
        for bad in ["", "x", &word[1..], &format!("{word}A"), "../etc/passwd"] {
            assert!(read_address(bad).is_err(), "{bad}");
        }
    }
}
