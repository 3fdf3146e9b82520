//! Sizes as people write them.

/// `8`, `64K`, `4M`, `1G`, with or without a B behind: K, M, G and T are powers of 1024.
///
/// # Errors
/// A sentence for the user.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; sizes are like 8, 64K, 4M");
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_suffix('B').unwrap_or(&upper);
    let unit = bare.chars().last().and_then(|last| "KMGT".find(last));
    let digits = if unit.is_some() { &bare[..bare.len() - 1] } else { bare };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(unit.map_or(1, |unit| 1 << (10 * (unit + 1))))
        .ok_or_else(|| format!("{text:?} is more than there can be"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("8", 8), ("64k", 65536), ("4MB", 4 << 20), ("1G", 1 << 30), ("2T", 2 << 40), ("0", 0)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "12X", "20000000T", "4MM", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
