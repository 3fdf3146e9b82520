//! Who a site is, and whom it trusts: a key pair that is kept, the token that shows the public half to another site's operator, and the file of
//! those that were trusted. Nothing here expires, and no clock is asked.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polyrail_core::wire::Key;
use polyrail_rails::keys::KeyPair;
use serde::{Deserialize, Serialize};

use crate::error::Error;

const TOKEN: &str = "polyrail-site-1:";
/// Longest token that is read, in bytes.
const TOKEN_MAX: usize = 4096;
/// Most places at which a site can be dialled.
const PLACES_MAX: usize = 8;
/// Longest name of a site.
const NAME_MAX: usize = 32;
const KEY_LEN: usize = 32;

/// Whether a site can have this name.
///
/// # Errors
/// A sentence.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fits) {
        true => Ok(()),
        false => {
            Err(format!("{name:?} is no name for a site: 1 to {NAME_MAX} small letters, digits and hyphens"))
        }
    }
}

/// What an operator gives to that of another site. It is public: who has it can be trusted with nothing by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The site's name.
    pub site: String,
    #[serde(with = "as_text")]
    /// The public half of its key.
    pub key: [u8; KEY_LEN],
    /// Where it can be dialled, host and port; nowhere: it dials.
    pub dial: Vec<String>,
}

mod as_text {
    use super::{Engine, KEY_LEN, URL_SAFE_NO_PAD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(key: &[u8; KEY_LEN], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&URL_SAFE_NO_PAD.encode(key))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; KEY_LEN], D::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        bytes.try_into().map_err(|_| D::Error::custom("a key of another length"))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        write!(f, "{TOKEN}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some(body) = text.strip_prefix(TOKEN).filter(|_| text.len() <= TOKEN_MAX) else {
            return Err(format!("this is no token of a site, which begins with {TOKEN}"));
        };
        let damaged = || "this token is damaged; copy all of it".to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| damaged())?;
        let (json, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32fast::hash(json) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let token: Self =
            serde_json::from_slice(json).map_err(|why| format!("this token cannot be read: {why}"))?;
        check_name(&token.site)?;
        if token.dial.len() > PLACES_MAX {
            return Err(format!("a token with {} places to dial; at most {PLACES_MAX}", token.dial.len()));
        }
        token.dial.iter().try_for_each(|place| check_place(place).map(drop))?;
        Ok(token)
    }
}

/// Host and port of a place where a gateway can be dialled.
///
/// # Errors
/// A sentence: it is none.
pub fn check_place(place: &str) -> Result<(&str, u16), String> {
    let bad = || format!("{place:?} is no host and port, as gateway.example:7400 is");
    let (host, port) = place.rsplit_once(':').ok_or_else(bad)?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host.parse::<std::net::Ipv6Addr>().is_ok() || crate::net::Target::named(host, port).is_ok() {
        true => Ok((host, port)),
        false => Err(bad()),
    }
}

/// The site's own pair of keys.
pub struct Identity {
    pair: KeyPair,
}

impl Identity {
    /// Makes one, in a file that only this user can read.
    ///
    /// # Errors
    /// It is there already, or cannot be written.
    pub fn make(path: &Path) -> Result<Self, Error> {
        let mut bytes = [0; KEY_LEN];
        getrandom::fill(&mut bytes).map_err(|why| Error::file("making", path, io::Error::other(why)))?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let text = format!("{}\n", URL_SAFE_NO_PAD.encode(bytes));
        made.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(|why| Error::file("making", path, why))?;
        Self::of(&bytes, path)
    }

    /// The one in a file.
    ///
    /// # Errors
    /// It cannot be read, is no key, or others can read it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |why| Error::file("reading", path, why);
        let about = fs::metadata(path).map_err(failed)?;
        if about.mode() & 0o077 != 0 {
            return Err(Error::Rule(format!(
                "others can read the site's key; run: chmod 600 {}",
                path.display()
            )));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| Error::Rule(format!("{} has no key of a site", path.display())))?;
        Self::of(&bytes, path)
    }

    fn of(bytes: &[u8; KEY_LEN], path: &Path) -> Result<Self, Error> {
        let pair = KeyPair::of(bytes)
            .ok_or_else(|| Error::Rule(format!("{} has no key of a site", path.display())))?;
        Ok(Self { pair })
    }

    /// The public half.
    pub fn public(&self) -> [u8; KEY_LEN] {
        self.pair.public()
    }

    /// The key of the endpoint at which `listener` waits for the other of the two, which only they can know.
    ///
    /// # Errors
    /// What the other calls its key is none.
    pub fn key_with(&self, other: &Token, listener: &[u8; KEY_LEN]) -> Result<Key, Error> {
        let shared = self.pair.in_common(&other.key, b"polyrail gateways");
        let shared = shared.ok_or_else(|| Error::Rule(format!("the key of site {} is none", other.site)))?;
        Ok(Key::derive(&shared, &[&b"gateway "[..], listener].concat()))
    }
}

/// The sites that are trusted, a token a line; lines that begin with # say something to people.
///
/// # Errors
/// The file cannot be read, or a line is no token; none there is no error.
pub fn trusted(path: &Path) -> Result<Vec<Token>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(Error::file("reading", path, why)),
    };
    let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(line, number)| {
            line.parse().map_err(|why| Error::Rule(format!("{}, line {number}: {why}", path.display())))
        })
        .collect()
}

/// Trusts a site from now on. If one of that name was, with another key, it is replaced only where that is said.
///
/// # Errors
/// It cannot be written; another of that name is trusted.
pub fn trust(path: &Path, token: &Token, replace: bool) -> Result<(), Error> {
    let mut known = trusted(path)?;
    if let Some(other) =
        known.iter().find(|other| other.site == token.site && other.key != token.key && !replace)
    {
        return Err(Error::Rule(format!(
            "a site {} with another key is trusted already; if it has a new one, say --replace",
            other.site
        )));
    }
    if let Some(other) = known.iter().find(|other| other.site != token.site && other.key == token.key) {
        return Err(Error::Rule(format!("this is the key of site {}, which is trusted already", other.site)));
    }
    // in its place: ports go by the order
    match known.iter_mut().find(|other| other.site == token.site) {
        Some(other) => *other = token.clone(),
        None => known.push(token.clone()),
    }
    let mut text = String::from(
        "# Sites that this gateway trusts, by their tokens: written by polyrail gateway trust\n",
    );
    for token in &known {
        text.push_str(&format!("# {}\n{token}\n", token.site));
    }
    let beside = path.with_extension("new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.map_err(|why| Error::file("writing", path, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(site: &str, key: u8) -> Token {
        Token { site: site.into(), key: [key; KEY_LEN], dial: vec!["gw.east.example:7400".into()] }
    }

    #[test]
    fn tokens_are_read_and_damaged_ones_refused() {
        let text = token("east", 7).to_string();
        assert_eq!(text.parse(), Ok(token("east", 7)));
        assert_eq!(format!(" {text}\n").parse(), Ok(token("east", 7)));
        for at in TOKEN.len()..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            assert!(String::from_utf8(damaged).unwrap().parse::<Token>().is_err(), "{at}");
        }
        assert!(text[..text.len() - 1].parse::<Token>().is_err() && "east".parse::<Token>().is_err());
        for bad in
            [Token { site: "East".into(), ..token("", 1) }, Token { dial: vec!["x".into()], ..token("a", 1) }]
        {
            assert!(bad.to_string().parse::<Token>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn two_sites_have_a_key_that_no_third_has() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let identity = Identity::make(&place.path().join(name)).unwrap();
            let token = Token { site: name.into(), key: identity.public(), dial: vec![] };
            (identity, token)
        };
        let ((east, east_token), (west, west_token), (third, _)) =
            (make("east"), make("west"), make("third"));
        let ours = east.key_with(&west_token, &east.public()).unwrap();
        assert!(ours == west.key_with(&east_token, &east.public()).unwrap());
        assert!(
            ours != west.key_with(&east_token, &west.public()).unwrap(),
            "each listens by a key of its own"
        );
        assert!(ours != third.key_with(&west_token, &east.public()).unwrap());
        assert!(ours != third.key_with(&east_token, &east.public()).unwrap());
        let again = Identity::read(&place.path().join("east")).unwrap();
        assert_eq!(again.public(), east.public());
        assert!(Identity::make(&place.path().join("east")).is_err(), "a key that is there stays");
        assert!(east.key_with(&Token { key: [0; KEY_LEN], ..west_token }, &east.public()).is_err());
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        Identity::make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let why = Identity::read(&path).err().unwrap().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Identity::read(&path).err().unwrap().to_string().contains("no key"));
    }

    #[test]
    fn trust_is_kept_and_not_changed_by_the_way() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trusted");
        assert_eq!(trusted(&path).unwrap(), []);
        trust(&path, &token("east", 1), false).unwrap();
        trust(&path, &token("west", 2), false).unwrap();
        trust(&path, &token("east", 1), false).unwrap();
        assert_eq!(trusted(&path).unwrap(), [token("east", 1), token("west", 2)]);
        let why = trust(&path, &token("east", 3), false).unwrap_err().to_string();
        assert!(why.contains("--replace"), "{why}");
        trust(&path, &token("east", 3), true).unwrap();
        assert!(trust(&path, &token("north", 3), false).unwrap_err().to_string().contains("site east"));
        assert_eq!(trusted(&path).unwrap().len(), 2);
        fs::write(&path, "# x\n\npolyrail-site-1:x\n").unwrap();
        assert!(trusted(&path).unwrap_err().to_string().contains("line 3"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_none(text in ".{0,200}") {
            let _ = text.parse::<Token>();
            let _ = format!("{TOKEN}{text}").parse::<Token>();
        }
    }
}
