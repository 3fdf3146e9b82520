//! Compositions of the data channel, as two sides tell each other of them.

use super::action::Proposable;
use super::word::SpecBytes;
use crate::micro::Composition;

/// Peers tell each other of it by its number.
impl Proposable for Composition {
    fn to_spec(&self) -> SpecBytes {
        SpecBytes::of_byte(*self as u8)
    }
    fn from_spec(spec: &SpecBytes) -> Option<Self> {
        match *spec.as_bytes() {
            [number] => Self::of_number(number),
            _ => None,
        }
    }
    fn delivers_all(&self) -> bool {
        // asynchronous ones, too, have a stream that is reliable: values have no turn
        true
    }
}
