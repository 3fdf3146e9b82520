//! Over what the tests run.

use polyrail_rails::Config;
use polyrail_rails::config::Faults;
use polyrail_rails::config::Rendezvous;
use polyrail_rails::list::RailId;
use polyrail_rails::list::Reach;

/// Seeds by which faults are pretended.
const SEEDS: std::ops::Range<u64> = 1..4;

/// Settings by which two workers of this host use this rail and no other; none for one that leads to nobody else.
pub fn only(rail: RailId) -> Option<Config> {
    let name = rail.name();
    let settings = Config::from_lookup(|key| (key == "RAILS").then(|| name.to_owned()));
    (rail.reach() != Reach::Process).then(|| settings.expect("a rail is chosen by its name"))
}

/// Each rail, without faults.
pub fn each(mut test: impl FnMut(Config)) {
    for config in RailId::ALL.into_iter().filter_map(only) {
        test(config);
    }
}

/// Each rail, without faults and with those that lose nothing. What a test prints is shown when it fails.
pub fn all(mut test: impl FnMut(Config)) {
    for rail in RailId::ALL {
        let Some(config) = only(rail) else { continue };
        println!("over {}", rail.name());
        test(config.clone());
        for seed in SEEDS {
            println!("over {}, faults of seed {seed}", rail.name());
            test(Config { faults: Some(Faults::harmless(seed)), ..config.clone() });
        }
    }
}

/// Likewise, for each way that large messages may travel.
pub fn all_ways(mut test: impl FnMut(Config)) {
    for rendezvous in [Rendezvous::Auto, Rendezvous::Put, Rendezvous::Fragments] {
        println!("large messages by {rendezvous:?}");
        all(|config| test(Config { rendezvous, ..config }));
    }
}
