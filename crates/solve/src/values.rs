//! Room for the values of many points, in huge pages where the kernel has them: sweeps go through hundreds of megabytes again and again, and with pages of
//! 4 KiB the processor would look up one for every second row.

use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};

/// Bytes from which huge pages are asked for: that of one.
const HUGE: usize = 2 << 20;

/// Values, as many as it was made with.
pub struct Values(Room);

enum Room {
    /// Little, or what there is where the kernel gives no map.
    Heap(Vec<f64>),
    /// A map of the kernel's: whole pages.
    Map { map: MmapMut, len: usize },
}

impl Values {
    /// So many zeros. Memory is taken where they are first written.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        Self(huge(len).unwrap_or_else(|| Room::Heap(vec![0.0; len])))
    }
}

/// None where it is too little, or the kernel gives no map: then the heap does. A kernel without huge pages gives a map all the same.
fn huge(len: usize) -> Option<Room> {
    let bytes = len.checked_mul(size_of::<f64>()).filter(|bytes| *bytes >= HUGE)?;
    let map = MmapMut::map_anon(bytes).ok()?;
    // a wish: without it all is right, and slower
    let _ = map.advise(Advice::HugePage);
    Some(Room::Map { map, len })
}

impl Deref for Values {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        match &self.0 {
            Room::Heap(values) => values,
            Room::Map { map, len } => &bytemuck::cast_slice(map)[..*len],
        }
    }
}

impl DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [f64] {
        match &mut self.0 {
            Room::Heap(values) => values,
            Room::Map { map, len } => &mut bytemuck::cast_slice_mut(map)[..*len],
        }
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        match huge(values.len()) {
            None => Self(Room::Heap(values)),
            Some(room) => {
                let mut new = Self(room);
                new.copy_from_slice(&values);
                new
            }
        }
    }
}

impl Clone for Values {
    fn clone(&self) -> Self {
        let mut new = Self::zeros(self.len());
        new.copy_from_slice(self);
        new
    }

    fn clone_from(&mut self, from: &Self) {
        if self.len() == from.len() {
            self.copy_from_slice(from);
        } else {
            *self = from.clone();
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Values {
    type Item = &'a f64;
    type IntoIter = std::slice::Iter<'a, f64>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_and_much_are_the_same_values() {
        for len in [0, 1, HUGE / 8 - 1, HUGE / 8, HUGE / 8 + 1] {
            let mut values = Values::zeros(len);
            assert_eq!((values.len(), values.iter().position(|value| *value != 0.0)), (len, None));
            values.iter_mut().enumerate().for_each(|(i, value)| *value = i as f64);
            let plain: Vec<f64> = (0..len).map(|i| i as f64).collect();
            assert!(*values == *plain && values == Values::from(plain) && values.clone() == values);
            let mut other = Values::zeros(3);
            other.clone_from(&values);
            assert!(other == values);
            let mut other = Values::zeros(len);
            other.clone_from(&values);
            assert!(other == values && (&other).into_iter().eq(values.iter()));
        }
    }
}
