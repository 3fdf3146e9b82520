//! Which faults rails are to pretend, for tests.

/// Which faults are pretended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Determines everything.
    pub seed: u64,
    /// Links have no room for a while.
    pub full: bool,
    /// Frames wait for some rounds of progress after they have come.
    pub delay: bool,
    /// Payloads come in parts.
    pub parts: bool,
    /// Links end, after any frame.
    pub end: bool,
    /// The first link of a rail whose links fail alone ends, after any frame, and no other.
    pub lane: bool,
    /// Links change how they are reliable ten times a second, if they can.
    pub change: bool,
    /// They begin that anew as often.
    pub renew: bool,
    /// One of 32 datagrams to a group is lost, at each host another.
    pub lose: bool,
    /// All of them are.
    pub deaf: bool,
    /// The same but for those by which a group is tried.
    pub lapse: bool,
}

impl Faults {
    /// None.
    pub const NONE: Self = Self {
        seed: 0,
        full: false,
        delay: false,
        parts: false,
        end: false,
        lane: false,
        change: false,
        renew: false,
        lose: false,
        deaf: false,
        lapse: false,
    };

    /// All that loses nothing.
    pub const fn harmless(seed: u64) -> Self {
        Self { seed, full: true, delay: true, parts: true, change: true, ..Self::NONE }
    }

    /// From `seed` or `seed:full,delay,parts,lane,end,change,renew,lose,deaf,lapse`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (seed, kinds) = text.split_once(':').unwrap_or((text, "full,delay,parts,change"));
        let seed = seed.trim().parse().map_err(|_| format!("{seed:?} is no seed: a number is"))?;
        let mut faults = Self { seed, ..Self::NONE };
        for kind in kinds.split(',').map(str::trim) {
            match kind {
                "full" => faults.full = true,
                "delay" => faults.delay = true,
                "parts" => faults.parts = true,
                "end" => faults.end = true,
                "lane" => faults.lane = true,
                "change" => faults.change = true,
                "renew" => faults.renew = true,
                "lose" => faults.lose = true,
                "deaf" => faults.deaf = true,
                "lapse" => faults.lapse = true,
                other => {
                    return Err(format!(
                        "no fault is called {other:?}; there are full, delay, parts, lane, end, change, renew, lose, deaf and lapse"
                    ));
                }
            }
        }
        Ok(faults)
    }
}
