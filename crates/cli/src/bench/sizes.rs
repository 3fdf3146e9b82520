//! Lists of message sizes on the command line.

use super::job::Job;
use crate::units;

/// `8`, `64K`, `1,8,4M`, `1-64M` (each power of two from the first to the last), and mixtures. K, M and G are powers of 1024.
pub fn parse(list: &str) -> Result<Vec<usize>, String> {
    let mut sizes = Vec::new();
    for item in list.split(',').map(str::trim) {
        match item.split_once('-') {
            None => sizes.push(size(item)?),
            Some((first, last)) => {
                let (first, last) = (size(first)?, size(last)?);
                if first == 0 || last < first {
                    return Err(format!("{item:?} is no range: from 1 upwards, the smaller size first"));
                }
                sizes.extend(
                    std::iter::successors(Some(first), |size| Some(size * 2)).take_while(|s| *s <= last),
                );
            }
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn size(text: &str) -> Result<usize, String> {
    match usize::try_from(units::size(text)?) {
        Ok(size) if size <= Job::SIZE_MAX => Ok(size),
        _ => Err(format!("{text:?} is more than the longest message, 1G")),
    }
}

/// A size as people write it.
pub fn written(size: u64) -> String {
    match size {
        0 => "0".into(),
        _ if size.is_multiple_of(1 << 30) => format!("{}G", size >> 30),
        _ if size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        _ => size.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("8").unwrap(), [8]);
        assert_eq!(parse("4M, 1,64K,1").unwrap(), [1, 65536, 4 << 20]);
        assert_eq!(parse("1-8,7").unwrap(), [1, 2, 4, 7, 8]);
        assert_eq!(parse("1-64M").unwrap().len(), 27);
        assert_eq!(parse("0,1kB,1g").unwrap(), [0, 1024, 1 << 30]);
    }

    #[test]
    fn what_is_no_size_is_named() {
        for wrong in ["", "x", "8,", "1.5K", "-8", "8-4", "0-4", "K", "2G", "99999999999999999999"] {
            let why = parse(wrong).unwrap_err();
            assert!(
                why.contains("size") || why.contains("range") || why.contains("longest"),
                "{wrong}: {why}"
            );
        }
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for text in ["0", "7", "1000", "1K", "24K", "64M", "1G"] {
            assert_eq!(written(parse(text).unwrap()[0] as u64), text);
        }
    }
}
