//! Which addresses a gateway leads to, as it said when it was asked last.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use polyrail_gateway::config::WhenDown;
use polyrail_gateway::run::shown::Reached;
use serde::de::DeserializeOwned;

use crate::gateway;

/// How often it is asked.
const PERIOD: Duration = Duration::from_secs(2);

/// The gateway, and where it leads.
#[derive(Clone)]
pub struct Ways {
    /// Where programs call it.
    pub gateway: SocketAddr,
    all: Arc<RwLock<Vec<Reached>>>,
    /// Its host's addresses.
    host: Arc<RwLock<Vec<IpAddr>>>,
}

impl Ways {
    /// Asks a gateway, now and from time to time: what it does not say any more, because it is away, stays as it was.
    ///
    /// # Errors
    /// There is none.
    pub fn find(gateway: SocketAddr) -> io::Result<Self> {
        let all = ask(gateway, "/networks")?;
        let host = ask(gateway, "/addresses").unwrap_or_default();
        let ways = Self { gateway, all: Arc::new(RwLock::new(all)), host: Arc::new(RwLock::new(host)) };
        let asked = ways.clone();
        thread::Builder::new().name("ways".into()).spawn(move || {
            loop {
                thread::sleep(PERIOD);
                if let Ok(now) = ask(asked.gateway, "/addresses")
                    && let Ok(mut host) = asked.host.write()
                {
                    *host = now;
                }
                if let Ok(now) = ask::<Reached>(asked.gateway, "/networks")
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

    /// Whether its host has this address, so that a connection from there may be the gateway's.
    pub fn is_at(&self, ip: IpAddr) -> bool {
        ip == self.gateway.ip().to_canonical() || self.host.read().is_ok_and(|host| host.contains(&ip))
    }

    /// All of them.
    pub fn all(&self) -> Vec<Reached> {
        self.all.read().map(|all| all.clone()).unwrap_or_default()
    }
}

fn ask<T: DeserializeOwned>(gateway: SocketAddr, page: &str) -> io::Result<Vec<T>> {
    serde_json::from_slice(&gateway::page(gateway, page)?).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "what answers there is no gateway of this version")
    })
}
