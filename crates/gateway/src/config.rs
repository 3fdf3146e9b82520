//! The file of a gateway, and those beside it: `docs/gateway.md`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::classes::{self, Class, Rate};
use crate::error::Error;
use crate::net::Network;
use crate::site;

/// Most connections of a session over one way.
const CONNECTIONS: u8 = 16;

/// What becomes of connections to another site while it cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// They are refused, with an error that says so.
    #[default]
    Refuse,
    /// `polyrail wrap` lets programs connect directly.
    Direct,
}

/// What is said of one other site.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// Networks of that site, by what our programs call them; where nothing is said, as the site calls them itself.
    #[serde(default)]
    pub seen_as: BTreeMap<String, Network>,
    /// What of the networks that it says to have is believed; nothing said: all that it can have.
    pub networks: Option<Vec<Network>>,
    /// While it cannot be reached.
    #[serde(default)]
    pub when_down: WhenDown,
    /// How many connections the session to it has over each way, at least.
    pub connections: Option<u8>,
    /// How much is sent to it, at most.
    pub limit: Option<Rate>,
    /// Where this gateway waits for it, if it dials; else at `port` of the file.
    pub port: Option<u16>,
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What this site is called.
    pub site: String,
    /// Addresses that other sites reach through this gateway.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// Where programs of this site call the gateway.
    pub listen: Vec<SocketAddr>,
    /// Who may call it besides the site's networks and this host.
    #[serde(default)]
    pub callers: Vec<Network>,
    /// Where it waits for gateways that dial; none: it dials them.
    pub port: Option<u16>,
    /// Where others can dial it, host and port.
    #[serde(default)]
    pub reached_at: Vec<String>,
    /// Which streams belong together, and how they share what there is.
    #[serde(default, rename = "class")]
    pub classes: Vec<Class>,
    /// What is said of single other sites.
    #[serde(default)]
    pub to: BTreeMap<String, Other>,
}

/// The file, and where it and those beside it are.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where.
    pub path: PathBuf,
    /// What it says.
    pub file: File,
}

/// Where the site's key is, beside its file.
pub fn key_path(config: &Path) -> PathBuf {
    config.with_extension("key")
}

/// Where the tokens of trusted sites are, beside the file.
pub fn trusted_path(config: &Path) -> PathBuf {
    config.with_extension("trusted")
}

/// What the sites said last that they have, beside the file: by it a gateway knows before they are there what is theirs.
fn seen_path(config: &Path) -> PathBuf {
    config.with_extension("seen")
}

/// What the sites said last; nothing where that is not known.
pub fn seen(config: &Path) -> BTreeMap<String, Vec<Network>> {
    fs::read(seen_path(config)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Keeps that.
///
/// # Errors
/// It cannot be written.
pub fn keep_seen(config: &Path, seen: &BTreeMap<String, Vec<Network>>) -> Result<(), Error> {
    let (path, text) = (seen_path(config), serde_json::to_vec(seen).unwrap_or_default());
    let beside = path.with_extension("seen-new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    written.map_err(|why| Error::file("writing", &path, why))
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Rule(format!("there is no {}; polyrail gateway init makes one", path.display()))
            }
            _ => Error::file("reading", path, why),
        })?;
        let file = parse(&text).map_err(|why| Error::Rule(format!("{}: {why}", path.display())))?;
        Ok(Self { path: path.to_owned(), file })
    }
}

fn parse(text: &str) -> Result<File, String> {
    let file: File = toml::from_str(text).map_err(|why| why.to_string())?;
    site::check_name(&file.site)?;
    if file.listen.is_empty() {
        return Err("listen has no address: programs could not call this gateway".into());
    }
    if file.port == Some(0) {
        return Err("port 0 is none".into());
    }
    file.reached_at.iter().try_for_each(|place| site::check_place(place).map(drop))?;
    if !file.reached_at.is_empty() && file.port.is_none() {
        return Err("reached_at says where others dial, but no port says where this gateway waits".into());
    }
    classes::check(&file.classes)?;
    for (name, other) in &file.to {
        site::check_name(name)?;
        classes::check_limit(&file.classes, name, other.limit)?;
        if !(1..=CONNECTIONS).contains(&other.connections.unwrap_or(1)) {
            return Err(format!("to.{name}: connections are 1 to {CONNECTIONS}"));
        }
        for (seen, real) in &other.seen_as {
            let seen: Network = seen.parse()?;
            if !seen.is_as_large_as(real) {
                return Err(format!("to.{name}: {seen} and {real} are not of the same size"));
            }
        }
    }
    Ok(file)
}

impl File {
    /// The file as it is after it was read anew, and what of the new one cannot be taken without a restart.
    pub fn renewed(&self, mut new: Self) -> (Self, Vec<&'static str>) {
        let mut kept = Vec::new();
        let mut keep = |what: &'static str, differs: bool| {
            if differs {
                kept.push(what);
            }
        };
        keep("site", self.site != new.site);
        keep("networks", self.networks != new.networks);
        keep("listen", self.listen != new.listen);
        keep("port", self.port != new.port);
        keep("reached_at", self.reached_at != new.reached_at);
        let fixed = |file: &Self, site: &str| {
            let other = file.other(site);
            (other.port, other.connections)
        };
        let sites: Vec<String> = self.to.keys().chain(new.to.keys()).cloned().collect();
        keep(
            "port or connections of a site",
            sites.iter().any(|site| fixed(self, site) != fixed(&new, site)),
        );
        new.site.clone_from(&self.site);
        new.networks.clone_from(&self.networks);
        new.listen.clone_from(&self.listen);
        new.reached_at.clone_from(&self.reached_at);
        new.port = self.port;
        for site in sites {
            let (port, connections) = fixed(self, &site);
            let other = new.to.entry(site).or_default();
            (other.port, other.connections) = (port, connections);
        }
        (new, kept)
    }

    /// Whether programs at this address may call the gateway.
    pub fn lets_call(&self, ip: IpAddr) -> bool {
        crate::net::plain(ip).is_loopback()
            || self.networks.iter().chain(&self.callers).any(|network| network.has(ip))
    }

    /// What is said of a site.
    pub fn other(&self, site: &str) -> Other {
        self.to.get(site).cloned().unwrap_or_default()
    }
}

/// How one network of another site is reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What our programs call it.
    pub seen: Network,
    /// What the site calls it.
    pub real: Network,
}

/// The ways to a site that says it has these networks; and what of them is no way, a sentence each.
pub fn ways(file: &File, site: &str, theirs: &[Network]) -> (Vec<Way>, Vec<String>) {
    let other = file.other(site);
    let (mut ways, mut none) = (Vec::new(), Vec::new());
    let named: Vec<(Network, Network)> =
        other.seen_as.iter().filter_map(|(seen, real)| Some((seen.parse().ok()?, *real))).collect();
    for real in theirs {
        let refused = match &other.networks {
            Some(believed) if !believed.iter().any(|one| real.is_within(one)) => {
                Some("the file does not have it under networks of that site")
            }
            Some(_) => None,
            None => real.is_nobodys(),
        };
        if let Some(why) = refused {
            none.push(format!("site {site} says that it has {real}: {why}"));
            continue;
        }
        let seen: Vec<Network> =
            named.iter().filter(|(_, theirs)| theirs == real).map(|(seen, _)| *seen).collect();
        for seen in if seen.is_empty() { vec![*real] } else { seen } {
            match file.networks.iter().find(|ours| ours.meets(&seen)) {
                Some(ours) => none.push(format!(
                    "site {site} has {real}, which meets our {ours}: say in the file under [to.{site}] what it is to be seen as, such as \
                     seen_as = {{ \"10.200.0.0/16\" = \"{real}\" }}"
                )),
                None => ways.push(Way { seen, real: *real }),
            }
        }
    }
    for (_, real) in named.iter().filter(|(_, real)| !theirs.contains(real)) {
        none.push(format!("site {site} does not have {real}, which the file gives another name"));
    }
    (ways, none)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        site = "east"
        networks = ["10.1.0.0/16"]
        listen = ["127.0.0.1:1080"]
        [to.west]
        seen_as = { "10.200.0.0/16" = "10.1.0.0/16" }
        when_down = "direct"
    "#;

    #[test]
    fn files_are_read_and_bad_ones_named() {
        let file = parse(FILE).unwrap();
        assert_eq!(file.other("west").when_down, WhenDown::Direct);
        assert_eq!(file.other("north").when_down, WhenDown::Refuse);
        assert!(file.lets_call("10.1.2.3".parse().unwrap()) && file.lets_call("::1".parse().unwrap()));
        assert!(!file.lets_call("10.2.2.3".parse().unwrap()));
        for (from, to, said) in [
            ("east", "East!", "no name for a site"),
            ("[\"127.0.0.1:1080\"]", "[]", "no address"),
            ("site", "sight", "unknown field"),
            ("10.200.0.0/16", "10.200.0.0/24", "same size"),
            ("\"direct\"", "\"maybe\"", "unknown variant"),
            ("listen", "port = 0\nlisten", "port 0"),
            ("when_down", "limit = \"8 bits\"\nwhen_down", "no rate"),
            ("[to.west]", "[[class]]\nname = \"rest\"\n[to.west]", "another of that name"),
            ("listen", "reached_at = [\"gw:7400\"]\nlisten", "no port"),
            ("listen", "port = 1\nreached_at = [\"gw\"]\nlisten", "no host and port"),
        ] {
            let why = parse(&FILE.replacen(from, to, 1)).unwrap_err();
            assert!(why.contains(said), "{said}: {why}");
        }
    }

    #[test]
    fn what_needs_a_restart_stays_when_the_file_is_read_anew() {
        let old = parse(&FILE.replace("[to.west]", "[to.west]\nport = 7401\nconnections = 2")).unwrap();
        let changes = [
            ("site = \"east\"", "site = \"north\"", "site"),
            ("[\"10.1.0.0/16\"]", "[\"10.3.0.0/16\"]", "networks"),
            ("127.0.0.1:1080", "127.0.0.1:1081", "listen"),
            ("listen", "port = 7400\nlisten", "port"),
            ("listen", "port = 7400\nreached_at = [\"gw:7400\"]\nlisten", "reached_at"),
            ("[to.west]", "[to.north]", "port or connections of a site"),
        ];
        for (from, to, what) in changes {
            let new = parse(&FILE.replacen(from, to, 1)).unwrap();
            let (now, kept) = old.renewed(new);
            assert!(kept.contains(&what), "{kept:?}, without {what}");
            assert_eq!((&now.site, &now.networks, &now.listen), (&old.site, &old.networks, &old.listen));
            assert_eq!((now.port, &now.reached_at), (old.port, &old.reached_at));
            assert_eq!((now.other("west").port, now.other("west").connections), (Some(7401), Some(2)));
        }
        let text = FILE.replace("\"direct\"", "\"refuse\"\nport = 7401\nconnections = 2\nlimit = \"1G\"");
        let (now, kept) = old.renewed(parse(&format!("{text}\n[[class]]\nname = \"a\"\n")).unwrap());
        assert!(kept.is_empty(), "{kept:?}");
        assert_eq!((now.other("west").when_down, now.classes.len()), (WhenDown::Refuse, 1));
        assert_eq!(now.other("west").limit.map(Rate::bytes), Some(125_000_000));
    }

    #[test]
    fn networks_that_overlap_need_another_name() {
        let file = parse(FILE).unwrap();
        let networks =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Network>>();
        let (found, none) = ways(&file, "west", &networks(&["10.1.0.0/16", "10.2.0.0/16"]));
        let way = |seen: &str, real: &str| Way { seen: seen.parse().unwrap(), real: real.parse().unwrap() };
        assert_eq!(found, [way("10.200.0.0/16", "10.1.0.0/16"), way("10.2.0.0/16", "10.2.0.0/16")]);
        assert!(none.is_empty());
        let (found, none) = ways(&file, "north", &networks(&["10.1.4.0/24"]));
        assert!(found.is_empty() && none[0].contains("seen_as"), "{none:?}");
        let (found, none) = ways(&file, "west", &networks(&["127.0.0.0/8", "0.0.0.0/0", "10.1.0.0/16"]));
        assert!(found.len() == 1 && none.len() == 2, "{found:?} {none:?}");
        let pinned = parse(&FILE.replace("[to.west]", "[to.west]\nnetworks = [\"127.9.0.0/16\"]")).unwrap();
        let (found, none) = ways(&pinned, "west", &networks(&["127.9.1.0/24", "10.4.0.0/16"]));
        assert_eq!(found, [way("127.9.1.0/24", "127.9.1.0/24")]);
        assert!(none[0].contains("under networks"), "{none:?}");
        let (_, none) = ways(&file, "west", &networks(&["10.3.0.0/16"]));
        assert!(none[0].contains("does not have 10.1.0.0/16"), "{none:?}");
    }
}
