//! The rails that there are, a line each: nothing else outside a rail's own folder names one. What is known of all of them before
//! any is opened stands here; [`crate::set`] has one of each.

use polyrail_core::wire::Transport;

/// Whom a rail leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// This process.
    Process,
    /// Processes of this host.
    Host,
    /// Whoever a network leads to.
    Network,
}

/// Gives the list to another macro. A line: the rail's name in this crate and for users (`POLYRAIL_RAILS`), whom it leads to, the
/// number of its transport on the wire (docs/wire.md; none of what never leaves this process), the field that the set has for
/// it, and its module and type.
macro_rules! listed {
    ($then:ident, $($trial:tt)*) => {
        $then! {
            /// Shared memory between processes of one host.
            Shm, "shm", Host, Some(Transport::SHM), shm: shm::ShmRail;
            /// A process's way to itself.
            Loopback, "loopback", Process, None, loopback: loopback::Loopback;
            /// TCP, between any two.
            Tcp, "tcp", Network, Some(Transport::TCP), tcp: tcp::TcpRail;
            /// Datagrams with Polyrail's own protocols, between any two.
            Udp, "udp", Network, Some(Transport::UDP), udp: udp::UdpRail;
            $($trial)*
        }
    };
}
#[cfg(not(test))]
macro_rules! rails {
    ($then:ident) => {
        listed! { $then, }
    };
}
/// Unit tests have one more.
#[cfg(test)]
macro_rules! rails {
    ($then:ident) => {
        listed! { $then,
            /// Lanes agreed on by words.
            Trial, "trial", Network, Transport::from_wire(255), trial: trial::Trial;
        }
    };
}
pub(crate) use listed;
pub(crate) use rails;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $reach:ident, $wire:expr, $field:ident: $module:ident::$rail:ident;)+) => {
        /// Which rail.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        pub enum RailId {
            $($(#[$doc])* $name,)+
        }

        impl RailId {
            /// All of them, in the order in which they are looked at.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            /// What it is called, as in `POLYRAIL_RAILS`.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Whom it leads to.
            #[inline]
            pub const fn reach(self) -> Reach {
                match self { $(Self::$name => Reach::$reach,)+ }
            }

            /// The number of its transport on the wire; none of what never leaves this process.
            pub const fn transport(self) -> Option<Transport> {
                match self { $(Self::$name => $wire,)+ }
            }
        }
    };
}
rails! { ids }

impl RailId {
    /// Those that users choose between: all but the way to oneself.
    pub fn chosen() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|rail| rail.reach() != Reach::Process)
    }

    /// The rail of this transport, if this process has it.
    pub fn of_transport(transport: Transport) -> Option<Self> {
        Self::ALL.into_iter().find(|rail| rail.transport() == Some(transport))
    }
}

/// Some of the rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailSet(u32);

impl RailSet {
    /// All of them.
    pub const ALL: Self = Self(u32::MAX);
    /// None.
    pub const NONE: Self = Self(0);

    /// These, and one more.
    #[must_use]
    pub const fn with(self, rail: RailId) -> Self {
        Self(self.0 | 1 << rail as u32)
    }

    /// Those of them that do not lead there.
    #[must_use]
    pub fn without(self, reach: Reach) -> Self {
        self.that(|rail| rail.reach() != reach)
    }

    /// Those of them of which this holds.
    #[must_use]
    pub fn that(self, holds: impl Fn(RailId) -> bool) -> Self {
        self.iter().filter(|rail| holds(*rail)).fold(Self::NONE, Self::with)
    }

    /// Whether this is one of them.
    pub const fn has(self, rail: RailId) -> bool {
        self.0 & 1 << rail as u32 != 0
    }

    /// Those of them that lead there.
    pub fn reaching(self, reach: Reach) -> impl DoubleEndedIterator<Item = RailId> {
        self.iter().filter(move |rail| rail.reach() == reach)
    }

    /// Whether one of them leads there.
    pub fn reaches(self, reach: Reach) -> bool {
        self.reaching(reach).next().is_some()
    }

    /// Each of them.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = RailId> {
        RailId::ALL.into_iter().filter(move |rail| self.has(*rail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rail_to_others_has_a_name_and_a_number_of_its_own() {
        for rail in RailId::chosen() {
            assert_eq!(rail.transport().and_then(RailId::of_transport), Some(rail), "{rail:?}");
            let same = RailId::ALL.into_iter().filter(|other| other.name() == rail.name()).count();
            assert_eq!(same, 1, "{rail:?}");
        }
    }
}
