//! Processes that a launcher started together meet by what it tells them (`polyrail_rendezvous`): the first founds the run.

use crate::error::Error;
use crate::meet::Founding;
use crate::peers::{Peers, Settings};
use crate::view::{ADDRESS, Job};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polyrail_rails::named::named_address;
use polyrail_rendezvous::{PATIENCE, Place, Way};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between two looks whether the first listens.
const AGAIN: Duration = Duration::from_millis(200);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);

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

/// This process among those that a launcher started together: `mpiexec`, `srun`, an indexed job of Kubernetes, or what sets `POLYRAIL_MEET`.
#[derive(Debug)]
pub struct Launched {
    place: Place,
}

impl Launched {
    /// As the environment says; none: this process is alone.
    ///
    /// # Errors
    /// Variables that cannot be; a launcher that does not answer.
    pub fn find() -> Result<Option<Self>, Error> {
        Ok(polyrail_rendezvous::find()?.map(|place| Self { place }))
    }

    /// Which of the processes this is; 0 is the one that has to [`found`](Self::found), all others [`join`](Self::join).
    pub fn rank(&self) -> usize {
        self.place.rank as usize
    }

    /// How many processes there are: at least 2.
    pub fn size(&self) -> usize {
        self.place.size as usize
    }

    /// Opens the run's first endpoint, and tells the others of it.
    ///
    /// # Errors
    /// No endpoint can be opened; the launcher refuses.
    pub fn found(self, mut settings: Settings) -> Result<Founding, Error> {
        match self.place.way {
            Way::At { port, .. } => {
                let at = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
                settings.rails = settings.rails.listen_on(at);
                Founding::new(settings)
            }
            Way::Told(board) => {
                let founding = Founding::new(settings)?;
                board.share(Some(&write_address(&founding.address())))?;
                Ok(founding)
            }
        }
    }

    /// Joins the run of the first.
    ///
    /// # Errors
    /// It cannot be reached, or does not want this peer; the launcher refuses.
    pub fn join(self, settings: Settings) -> Result<Peers, Error> {
        match self.place.way {
            Way::At { host, port } => {
                let at = listens(&host, port)?;
                Peers::join(settings, &named_address(at)?.to_bytes())
            }
            Way::Told(board) => Peers::join(settings, &read_address(&board.share(None)?)?),
        }
    }
}

/// Waits until somebody listens there. Names may become known late, as those of pods do.
fn listens(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let why = match (host, port).to_socket_addrs() {
            Err(error) => error.to_string(),
            Ok(all) => {
                let mut why = "the name has no address".to_owned();
                for at in all {
                    match TcpStream::connect_timeout(&at, LOOK) {
                        Ok(_) => return Ok(at),
                        Err(error) => why = format!("{at}: {error}"),
                    }
                }
                why
            }
        };
        if Instant::now() > until {
            return Err(Error::Use(format!(
                "the first process did not begin to listen at {host}:{port} within {} s: {why}",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(AGAIN);
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
            return launched.join(settings);
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
        let address: [u8; ADDRESS] = std::array::from_fn(|i| i as u8 * 37);
        let word = write_address(&address);
        assert_eq!(read_address(&word).unwrap(), address);
        assert!(word.len() <= polyrail_rendezvous::LONGEST);
        for bad in ["", "x", &word[1..], &format!("{word}A"), "../etc/passwd"] {
            assert!(read_address(bad).is_err(), "{bad}");
        }
    }
}
