//! The configuration file: what it says is used as if it were in the environment, or refused with a reason; and so are the lists
//! of interfaces and their rates.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_rails::Config;
use polyrail_rails::config::{Caps, File, Names, SETTINGS};

const INTERFACES: [&str; 4] = ["eth0", "ib1", "docker0", ""];

/// What is said of names says the same when it is printed and read again.
fn names(list: &str) {
    let Ok(names) = Names::parse(list) else { return };
    assert_eq!(Names::parse(&names.to_string()).as_ref(), Ok(&names));
    assert!(!names.is_empty());
    assert!(names.wanted().all(|name| names.has(name)), "{list:?}");
    let _ = INTERFACES.map(|name| names.has(name));
}

fn caps(list: &str) {
    let Ok(caps) = Caps::parse(list) else { return };
    for name in INTERFACES {
        assert!(caps.of(name).is_none_or(|rate| rate >= 1000), "{list:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    text.lines().for_each(|line| {
        names(line);
        caps(line);
    });
    match File::parse(&text) {
        Ok(file) => {
            SETTINGS.iter().filter_map(|(name, _)| file.get(name)).for_each(|value| {
                names(&value);
                caps(&value);
            });
            if let Err(why) = Config::from_lookup(|name| file.get(name)) {
                let why = why.to_string();
                let named = SETTINGS.iter().any(|(name, _)| why.contains(&format!("POLYRAIL_{name}")));
                assert!(named, "{why}");
            }
        }
        Err(why) => assert!(!why.is_empty()),
    }
});
