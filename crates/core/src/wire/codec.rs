//! Bounded little-endian fields. Nothing here panics, and nothing allocates.

use core::fmt;

/// Fewer bytes than the field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short;

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too few bytes")
    }
}

impl core::error::Error for Short {}

/// Takes fields off the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes are left.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all was read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Short> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Short)?;
        self.0 = rest;
        Ok(head)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// The next `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_le_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Puts fields into a byte slice, one after the other. From the first that does not fit on, nothing is written any more;
/// only [`Writer::finish`] needs checking.
#[derive(Debug)]
pub struct Writer<'a> {
    room: &'a mut [u8],
    at: usize,
    short: bool,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `room`.
    pub const fn new(room: &'a mut [u8]) -> Self {
        Self { room, at: 0, short: false }
    }

    /// These bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        match self.room.get_mut(self.at..).and_then(|room| room.get_mut(..bytes.len())) {
            Some(place) if !self.short => {
                place.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            _ => self.short = true,
        }
        self
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// How many more bytes fit.
    pub const fn room(&self) -> usize {
        if self.short { 0 } else { self.room.len() - self.at }
    }

    /// How many bytes were written, or [`Short`] when any did not fit.
    pub const fn finish(&self) -> Result<usize, Short> {
        if self.short { Err(Short) } else { Ok(self.at) }
    }
}

/// A record of exactly `N` bytes; what `fill` leaves is zero.
pub fn record<const N: usize>(fill: impl FnOnce(&mut Writer<'_>)) -> [u8; N] {
    let mut bytes = [0; N];
    let mut writer = Writer::new(&mut bytes);
    fill(&mut writer);
    debug_assert!(writer.finish().is_ok(), "a record's fields fit its size");
    bytes
}
