//! Numbers of compositions.

/// Which side of a link one is. Where two proposals cross, the opener's wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// It opened the link: the lower side, whose proposals have even numbers.
    Opener,
    /// It accepted the link; its proposals have odd numbers.
    Accepter,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Opener => Self::Accepter,
            Self::Accepter => Self::Opener,
        }
    }

    const fn parity(self) -> u8 {
        match self {
            Self::Opener => 0,
            Self::Accepter => 1,
        }
    }
}

/// Under which composition a datagram travels. A link begins with number 0; numbers wrap, and are compared for equality only, since
/// at most two are alive and a number comes again after 127 proposals at the earliest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Epoch(pub u8);

impl Epoch {
    /// What a link begins with.
    pub const FIRST: Self = Self(0);

    /// Whether `side` may propose this number: two proposals that cross never share one.
    pub const fn is_of(self, side: Side) -> bool {
        self.0 % 2 == side.parity()
    }

    /// The next number behind this one that `side` may propose.
    #[must_use]
    pub const fn after(self, side: Side) -> Self {
        let next = Self(self.0.wrapping_add(1));
        if next.is_of(side) { next } else { Self(next.0.wrapping_add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_own_numbers_and_they_wrap() {
        assert_eq!(Epoch(0).after(Side::Opener), Epoch(2));
        assert_eq!(Epoch(0).after(Side::Accepter), Epoch(1));
        assert_eq!(Epoch(254).after(Side::Opener), Epoch(0));
        assert_eq!(Epoch(255).after(Side::Accepter), Epoch(1));
        for n in 0..=255 {
            for side in [Side::Opener, Side::Accepter] {
                assert!(Epoch(n).after(side).is_of(side) && !Epoch(n).after(side).is_of(side.other()));
            }
        }
    }
}
