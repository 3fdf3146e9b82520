//! A page of the kernel's ring buffer, as `trace_pipe_raw` gives it: a time, the number of bytes that are used (with two flags
//! above them), and events, each behind a word of 5 bits of type or length and 27 bits of time since the one before.

use super::format::Format;

/// Events were lost before this page.
const MISSED: u64 = 1 << 31;
/// The bits of the commit word that are a number of bytes.
const LENGTH: u64 = (1 << 27) - 1;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// What an absolute time has no bits for is taken from the page's time.
const ABSOLUTE: u64 = (1 << 59) - 1;

/// Where a page's parts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    timestamp: super::format::Field,
    commit: super::format::Field,
    data: usize,
    /// Bytes of a whole page.
    pub size: usize,
}

impl Layout {
    /// Bytes of events that a page holds.
    pub fn data_size(&self) -> usize {
        self.size.saturating_sub(self.data)
    }

    /// From the text of `events/header_page`; `None`: it is no such text.
    pub fn parse(text: &str) -> Option<Layout> {
        let format = Format::parse(text);
        let data = format.field("data")?;
        let size = data.offset.checked_add(data.size)?;
        if !(64..=1 << 20).contains(&size) {
            return None;
        }
        Some(Layout {
            timestamp: format.field("timestamp")?,
            commit: format.field("commit")?,
            data: data.offset,
            size,
        })
    }

    /// Whether events were lost before this page.
    pub fn missed(&self, page: &[u8]) -> bool {
        self.commit.number(page).is_some_and(|word| word & MISSED != 0)
    }

    /// The events of a page: time in nanoseconds of the instance's clock, and data, which begins with the event's number. A
    /// page that breaks off in the middle of an event ends before it.
    pub fn events<'a>(&self, page: &'a [u8]) -> Events<'a> {
        let time = self.timestamp.number(page).unwrap_or(0);
        let used = (self.commit.number(page).unwrap_or(0) & LENGTH) as usize;
        let rest = page.get(self.data..).unwrap_or_default();
        Events { time, rest: &rest[..used.min(rest.len())] }
    }
}

/// See [`Layout::events`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    time: u64,
    rest: &'a [u8],
}

impl<'a> Events<'a> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_ne_bytes(*word))
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        loop {
            let head = self.word()?;
            // The order of bits is that of bytes.
            let (kind, delta) = if cfg!(target_endian = "big") {
                (head >> 27, head & ((1 << 27) - 1))
            } else {
                (head & 31, head >> 5)
            };
            let delta = u64::from(delta);
            let length = match kind {
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(delta + (u64::from(self.word()?) << 27));
                    continue;
                }
                TIME_STAMP => {
                    self.time = (delta + (u64::from(self.word()?) << 27)) | self.time & !ABSOLUTE;
                    continue;
                }
                // What remains of the page is empty.
                PADDING if delta == 0 => return None,
                // An event that was given up after others had been written behind it: their times count from its.
                PADDING | 0 => (self.word()? as usize).checked_sub(4)?,
                words => words as usize * 4,
            };
            self.time = self.time.wrapping_add(delta);
            let data = self.rest.get(..length)?;
            self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if kind != PADDING {
                return Some((self.time, data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = time.to_ne_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | flags).to_ne_bytes());
        words.iter().for_each(|word| page.extend(word.to_ne_bytes()));
        page.resize(4096, 0xaa);
        page
    }

    fn head(kind: u32, delta: u32) -> u32 {
        if cfg!(target_endian = "big") { kind << 27 | delta } else { kind | delta << 5 }
    }

    #[test]
    fn every_kind_of_record() {
        let layout = Layout::parse(HEADER).expect("a layout");
        assert_eq!(layout.size, 4096);
        let words = [
            head(2, 5),
            0x11,
            0x12, // two words
            head(0, 6),
            12,
            0x21,
            0x22, // a length apart, which counts itself
            head(TIME_EXTEND, 7),
            1, // 2^27 + 7 later
            head(1, 0),
            0x31,
            head(PADDING, 9),
            8,
            0xdead, // given up
            head(1, 1),
            0x41,
            head(TIME_STAMP, 3),
            2, // absolute: 2^28 + 3
            head(1, 0),
            0x51,
            head(PADDING, 0),
            0xffff_ffff, // the end
        ];
        let page = page(1000, MISSED, &words);
        assert!(layout.missed(&page));
        let events: Vec<_> = layout.events(&page).map(|(at, data)| (at, data.len(), data[0])).collect();
        let later = 1011 + (1 << 27) + 7;
        let expected = [
            (1005, 8, 0x11),
            (1011, 8, 0x21),
            (later, 4, 0x31),
            (later + 10, 4, 0x41),
            ((1 << 28) + 3, 4, 0x51),
        ];
        assert_eq!(events, expected);
        assert!(!layout.missed(&page[..8]));
    }

    #[test]
    fn an_absolute_time_keeps_the_high_bits_of_the_page() {
        let layout = Layout::parse(HEADER).expect("a layout");
        let page = page(1 << 60 | 5, 0, &[head(TIME_STAMP, 9), 0, head(1, 1), 0]);
        assert_eq!(layout.events(&page).map(|(at, _)| at).collect::<Vec<_>>(), [1 << 60 | 10]);
    }

    proptest! {
        #[test]
        fn any_page_can_be_read(words in proptest::collection::vec(any::<u32>(), 0..200), length: u16, flags: u32) {
            let layout = Layout::parse(HEADER).unwrap();
            let mut page = page(u64::MAX - 5, u64::from(flags), &words);
            page.truncate(length.into());
            prop_assert!(layout.events(&page).map(|(_, data)| data.len() + 4).sum::<usize>() <= page.len());
        }

        #[test]
        fn small_events_come_back(sizes in proptest::collection::vec((1u32..28, 1u32..1 << 27), 0..30)) {
            let layout = Layout::parse(HEADER).unwrap();
            let mut words = Vec::new();
            for (at, &(size, delta)) in sizes.iter().enumerate() {
                words.push(head(size, delta));
                words.extend(std::iter::repeat_n(at as u32, size as usize));
            }
            let page = page(7, 0, &words);
            let mut at = 7;
            let mut expected = Vec::new();
            for (index, &(size, delta)) in sizes.iter().enumerate() {
                at += u64::from(delta);
                expected.push((at, (index as u32).to_ne_bytes().repeat(size as usize)));
            }
            let events: Vec<_> = layout.events(&page).map(|(at, data)| (at, data.to_vec())).collect();
            prop_assert_eq!(events, expected);
        }
    }
}
