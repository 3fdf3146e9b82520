//! Settings of endpoints: `POLYRAIL_...` in the environment, then `FI_POLYRAIL_...` there or in libfabric's configuration file, then Polyrail's own.

use std::ffi::CString;
use std::sync::OnceLock;

use polyrail_rails::config::{File, SETTINGS};
use polyrail_rails::{Config, Error};

use crate::ffi::host::HostOf;
use crate::log::log;

static SET: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// Declares `FI_POLYRAIL_...` to libfabric, and keeps what is set of them, also in libfabric's configuration file.
pub fn define(host: &HostOf) {
    let defined = SETTINGS.iter().filter_map(|&(name, help)| {
        let parameter = CString::new(name.to_ascii_lowercase()).ok()?;
        let help = CString::new(format!("{help}; POLYRAIL_{name} is the same, and comes first")).ok()?;
        match host.param_string(&parameter, &help) {
            Ok(value) => Some((name, value?.into_string().ok()?)),
            Err(code) => {
                log!(FI_LOG_WARN, FI_LOG_CORE, "parameter {name}: {}", host.host().strerror(code));
                None
            }
        }
    });
    let _ = SET.set(defined.collect());
}

/// The settings of a new endpoint.
pub fn read() -> Result<Config, Error> {
    let file = File::find()?;
    Config::from_lookup(|name| {
        let ours = std::env::var(format!("POLYRAIL_{name}")).ok();
        let theirs = || {
            let all = SET.get()?;
            all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        };
        ours.or_else(theirs).filter(|value| !value.is_empty()).or_else(|| file.get(name))
    })
}
