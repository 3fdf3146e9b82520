//! Lists in documents of other processes.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// Most entries of a list that is short by its nature.
pub const FEW: usize = 32;

/// Reads a list of at most `MOST`: a few bytes of a document could otherwise become very many in memory.
pub fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                if all.len() == MOST {
                    return Err(serde::de::Error::invalid_length(MOST + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(List::<T, MOST>(PhantomData))
}
