//! Lists of strings of bytes, and of numbers, as bytes.

/// Strings of bytes as one. The inverse is [`unpack`].
pub fn pack<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut all = Vec::new();
    for item in items {
        all.extend_from_slice(&(item.len() as u64).to_le_bytes());
        all.extend_from_slice(item);
    }
    all
}

/// Strings of bytes out of one; `None` if it is none of [`pack`]'s.
pub fn unpack(mut all: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    while !all.is_empty() {
        let (length, rest) = all.split_first_chunk()?;
        let (item, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        items.push(item.to_vec());
        all = rest;
    }
    Some(items)
}

/// Numbers as bytes.
pub fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The inverse of [`numbers`]; what is no whole number at the end is left out.
pub fn read_numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(items: Vec<Vec<u8>>, values: Vec<u64>) {
            prop_assert_eq!(unpack(&pack(items.iter().map(Vec::as_slice))), Some(items));
            prop_assert_eq!(read_numbers(&numbers(&values)), values);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Some(items) = unpack(&bytes) {
                prop_assert_eq!(pack(items.iter().map(Vec::as_slice)), bytes);
            }
        }
    }
}
