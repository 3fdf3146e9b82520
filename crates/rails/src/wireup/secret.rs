//! The keys that connections prove: those of addresses, and with them the user's secret where there is one.

use crate::config::{Config, SecretFile};
use crate::error::Error;
use crate::events::host_name;
use crate::named::{self, Secret};
use polyrail_core::wire::{Address, HostId, Key};

/// What helps where one host has the secret and another has not, or another one.
const REMEDY: &str =
    "copy the file from one host to the others (scp -p), or run all without: POLYRAIL_SECRET_FILE= (empty)";

/// The user's secret, and what follows from having it or not.
pub(super) struct Keyring {
    secret: Secret,
    file: SecretFile,
    here: HostId,
}

impl Keyring {
    /// Named endpoints cannot be without: their key follows from it.
    pub fn open(config: &Config, here: HostId) -> Result<Self, Error> {
        let secret = match config.named {
            Some(_) => Ok(named::secret()?),
            None => named::users_secret(&config.secret)?,
        };
        Ok(Self { secret, file: config.secret.clone(), here })
    }

    /// The key that is to be proved to the endpoint that has this one.
    pub fn own(&self, key: Key) -> Key {
        self.secret.as_ref().map_or(key, |secret| key.with_secret(secret))
    }

    /// The endpoint's address, told to those who have to know the secret that they need it.
    pub fn seal(&self, address: Address) -> Address {
        if self.secret.is_ok() { address.needing_secret() } else { address }
    }

    /// The key to prove to whom this address leads to.
    ///
    /// # Errors
    /// The secret is here and not there, or there and not here.
    pub fn of(&mut self, address: &Address) -> Result<Key, String> {
        if address.needs_secret() && self.secret.is_err() {
            // it may have been made since
            self.secret = named::users_secret(&self.file).map_err(|error| error.to_string())?;
        }
        let (host, path) = (host_name(), named::shown_path(&self.file));
        match (address.needs_secret(), &self.secret) {
            (true, Ok(secret)) => Ok(address.key().with_secret(secret)),
            (false, Err(_)) => Ok(address.key()),
            // the secret was made after it had opened; it finds it when it calls
            (false, Ok(_)) if address.host() == self.here => Ok(address.key()),
            (true, Err(why)) => {
                Err(format!("it asks for the user's secret, and host {host} has none ({why}): {REMEDY}"))
            }
            (false, Ok(_)) => {
                Err(format!("it does not use the user's secret, as host {host} does ({path}): {REMEDY}"))
            }
        }
    }

    /// What may be the matter where an endpoint does not know the key that is proved to it.
    pub fn doubt(&self) -> String {
        match self.secret {
            Ok(_) => {
                let (host, path) = (host_name(), named::shown_path(&self.file));
                format!(", or has another secret of the user's than host {host} ({path}): {REMEDY}")
            }
            Err(_) => String::new(),
        }
    }
}
