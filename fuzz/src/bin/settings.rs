//! `POLYRAIL_...` settings: a value is used or refused by name, and what is used is within its bounds.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_rails::Config;
use polyrail_rails::config::SETTINGS;
use polyrail_rails::list::RailSet;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    match Config::from_lookup(value) {
        Ok(config) => {
            assert!(config.tcp_eager.is_none_or(|n| n <= 1 << 20) && config.shm_eager <= 32 << 10);
            assert!((4096..=1 << 30).contains(&config.window));
            assert!(!config.connect_timeout.is_zero() && !config.peer_timeout.is_zero());
            assert!(config.rails != RailSet::NONE);
            let _ = format!("{config:?}");
        }
        Err(why) => {
            let why = why.to_string();
            let named = SETTINGS.iter().any(|(name, _)| why.contains(&format!("POLYRAIL_{name}")));
            assert!(named, "{why}");
        }
    }
});
