//! Which addresses a gateway leads to, as it said when it was asked last.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use polyrail_gateway::config::WhenDown;
use polyrail_gateway::run::shown::Reached;

use crate::gateway;

/// How often it is asked.
const PERIOD: Duration = Duration::from_secs(2);

/// The gateway, and where it leads.
#[derive(Clone)]
pub struct Ways {
    /// Where programs call it.
    pub gateway: SocketAddr,
    all: Arc<RwLock<Vec<Reached>>>,
}

impl Ways {
    /// Asks a gateway, now and from time to time: what it does not say any more, because it is away, stays as it was.
    ///
    /// # Errors
    /// There is none.
    pub fn find(gateway: SocketAddr) -> io::Result<Self> {
        let ways = Self { gateway, all: Arc::new(RwLock::new(ask(gateway)?)) };
        let asked = ways.clone();
        thread::Builder::new().name("ways".into()).spawn(move || {
            loop {
                thread::sleep(PERIOD);
                if let Ok(now) = ask(asked.gateway)
                    && !now.is_empty()
                    && let Ok(mut all) = asked.all.write()
                {
                    // of sites that it does not tell of any more, what was known
                    let gone = all.iter().filter(|old| now.iter().all(|new| new.site != old.site)).cloned();
                    let gone: Vec<Reached> = gone.collect();
                    *all = now;
                    all.extend(gone);
                }
            }
        })?;
        Ok(ways)
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        self.all.read().is_ok_and(|all| all.is_empty())
    }

    /// Which site this address is at, and what becomes of connections to it while that is away; none: no other site's.
    pub fn of(&self, ip: IpAddr) -> Option<(String, WhenDown)> {
        let all = self.all.read().ok()?;
        let found = all.iter().filter(|way| way.network.has(ip)).max_by_key(|way| way.network.prefix())?;
        Some((found.site.clone(), found.when_down))
    }

    /// All of them.
    pub fn all(&self) -> Vec<Reached> {
        self.all.read().map(|all| all.clone()).unwrap_or_default()
    }
}

fn ask(gateway: SocketAddr) -> io::Result<Vec<Reached>> {
    serde_json::from_slice(&gateway::page(gateway, "/networks")?).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "what answers there is no gateway of this version")
    })
}
