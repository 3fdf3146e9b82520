//! The configuration file: the same settings as in the environment, for all programs of a user or of a machine.
//!
//! TOML; keys are the settings' names in lower case, lists may be arrays: `interfaces = ["^docker*"]`, `peer_timeout = 10`. What
//! the environment says counts more.

use super::SETTINGS;
use crate::error::Error;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Most bytes that a file may have.
const MAX_LEN: u64 = 64 << 10;

/// The settings in a file, by their names as in [`SETTINGS`].
#[derive(Clone, Debug, Default)]
pub struct File {
    values: HashMap<String, String>,
    /// Which file it is.
    pub path: Option<PathBuf>,
}

/// Where a user's files of settings are: what `XDG_CONFIG_HOME` says, else `~/.config`; none if there is neither. A path that does not begin
/// at the root is none, as the XDG Base Directory Specification has it: it would be another one in each directory.
pub fn users_directory() -> Option<PathBuf> {
    users_directory_by(|name| std::env::var_os(name))
}

fn users_directory_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")))
}

impl File {
    /// Where it is: what `POLYRAIL_CONFIG` says, else the user's, else the machine's; none if there is none.
    ///
    /// # Errors
    /// [`Error::Setting`] when the file cannot be read or used, with its path and what is wrong.
    pub fn find() -> Result<Self, Error> {
        if let Some(path) = std::env::var_os("POLYRAIL_CONFIG") {
            return if path.is_empty() { Ok(Self::default()) } else { Self::read(Path::new(&path)) };
        }
        let places = users_directory().map(|dir| dir.join("polyrail/polyrail.toml")).into_iter();
        let found = places.chain(["/etc/polyrail.toml".into()]).find(|path| path.exists());
        found.map_or(Ok(Self::default()), |path| Self::read(&path))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`File::find`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |why: String| Error::Setting {
            name: "POLYRAIL_CONFIG",
            why: format!("{}: {why}", path.display()),
        };
        let len = std::fs::metadata(path).map_err(|e| bad(e.to_string()))?.len();
        if len > MAX_LEN {
            return Err(bad(format!("it has {len} bytes; a configuration has at most {MAX_LEN}")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let file = Self::parse(&text).map_err(bad)?;
        Ok(Self { path: Some(path.to_owned()), ..file })
    }

    /// What a text says that stands in no file.
    ///
    /// # Errors
    /// A sentence or several.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { values: values(text)?, path: None })
    }

    /// A setting's value.
    pub fn get(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned()
    }
}

/// The settings in a text, by their names as in [`SETTINGS`].
fn values(text: &str) -> Result<HashMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut values = HashMap::new();
    for (key, value) in table {
        let name = key.to_uppercase();
        if !SETTINGS.iter().any(|(known, _)| *known == name) {
            let known: Vec<String> = SETTINGS.iter().map(|(known, _)| known.to_lowercase()).collect();
            return Err(format!("no setting is called {key:?}; there are {}", known.join(", ")));
        }
        let value = plain(&value)
            .ok_or_else(|| format!("{key} is to be a text, a number, true, false, or a list"))?;
        values.insert(name, value);
    }
    Ok(values)
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(n) => Some(n.to_string()),
        toml::Value::Boolean(yes) => Some(u8::from(*yes).to_string()),
        toml::Value::Array(list) => {
            let items: Option<Vec<String>> = list.iter().map(plain).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty one would have a secret made wherever a command is called.
    #[test]
    fn what_is_no_whole_path_is_no_place() {
        let find = |xdg: Option<&str>, home: Option<&str>| {
            users_directory_by(|name| if name == "HOME" { home } else { xdg }.map(OsString::from))
        };
        assert_eq!(find(Some("/x"), Some("/home/ann")), Some("/x".into()));
        for xdg in [None, Some(""), Some("x")] {
            assert_eq!(find(xdg, Some("/home/ann")), Some("/home/ann/.config".into()));
            assert_eq!((find(xdg, None), find(xdg, Some(""))), (None, None));
        }
    }

    #[test]
    fn settings_are_read_and_what_is_wrong_is_said() {
        let values = values("interfaces = [\"eth0\", \"eth1\"]\npeer_timeout = 10\nyield = false\n").unwrap();
        assert_eq!(values["INTERFACES"], "eth0,eth1");
        assert_eq!((&*values["PEER_TIMEOUT"], &*values["YIELD"]), ("10", "0"));
        assert!(File::parse("interface = 1").unwrap_err().contains("interfaces"));
        assert!(File::parse("interfaces = {}").unwrap_err().contains("list"));
        assert!(File::parse("port = ").unwrap_err().contains("line 1"));
    }
}
