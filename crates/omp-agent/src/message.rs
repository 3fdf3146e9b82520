//! Control messages between agents. What arrives is bounded and checked; nothing here panics on it.

/// Bytes before the data.
pub const HEAD: usize = 112;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// A thread's request, for rank 0.
    Ask = 1,
    /// What rank 0 answers to it.
    Answer,
    /// The run ends with status `args[0]`.
    End,
    /// This rank has ended; the data are its counters.
    Ended,
    /// The run cannot go on; the data say why.
    Fail,
    /// All ranks have ended: nothing will come any more.
    Leave,
    /// Others wait for this rank for long: is it busy waiting?
    Waiting,
    /// Threads are to offer the tasks that they meet, or (`args[0]` 0) are not.
    Want,
}

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub what: What,
    /// Who sends it.
    pub rank: u32,
    /// Whose request it is.
    pub slot: u32,
    /// A [`Kind`](polyrail_omp::area::Kind), as a number.
    pub kind: u32,
    /// The question's arguments.
    pub args: [u64; 6],
    /// The answer's.
    pub result: [u64; 4],
    /// The rest.
    pub data: Vec<u8>,
}

impl Message {
    /// One without request and data.
    pub fn new(what: What, rank: usize) -> Self {
        Self { what, rank: rank as u32, slot: 0, kind: 0, args: [0; 6], result: [0; 4], data: Vec::new() }
    }

    /// As bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.data.len());
        for word in [self.what as u32, self.rank, self.slot, self.kind] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in self.args.iter().chain(&self.result) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.data.len() as u64).to_le_bytes());
        bytes.resize(HEAD, 0);
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// Reads a message that begins `bytes`; `None` if it is none, or comes from no rank below `ranks`.
    pub fn read(bytes: &[u8], ranks: usize) -> Option<Self> {
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let what = match half(0)? {
            1 => What::Ask,
            2 => What::Answer,
            3 => What::End,
            4 => What::Ended,
            5 => What::Fail,
            6 => What::Leave,
            7 => What::Waiting,
            8 => What::Want,
            _ => return None,
        };
        let (mut args, mut result) = ([0; 6], [0; 4]);
        for (index, value) in args.iter_mut().chain(&mut result).enumerate() {
            *value = word(16 + 8 * index)?;
        }
        let length = usize::try_from(word(96)?).ok()?;
        let data = bytes.get(HEAD..HEAD.checked_add(length)?)?.to_vec();
        let rank = half(4)?;
        ((rank as usize) < ranks).then_some(())?;
        Some(Self { what, rank, slot: half(8)?, kind: half(12)?, args, result, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_comes_back() {
        let whats = [
            What::Ask,
            What::Answer,
            What::End,
            What::Ended,
            What::Fail,
            What::Leave,
            What::Waiting,
            What::Want,
        ];
        for (index, what) in whats.into_iter().enumerate() {
            let message = Message {
                what,
                rank: 3,
                slot: 64,
                kind: 11,
                args: [1, 2, 3, 4, 5, u64::MAX],
                result: [6, 7, 8, 9],
                data: vec![7; index * 1000],
            };
            let mut bytes = message.bytes();
            assert_eq!(Message::read(&bytes, 4), Some(message.clone()));
            assert_eq!(Message::read(&bytes, 3), None, "no such rank");
            bytes.push(0);
            assert_eq!(Message::read(&bytes, 4), Some(message), "what follows is not read");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), what in 0u8..10) {
            let _ = Message::read(&bytes, 5);
            let mut likely = bytes;
            if likely.len() >= HEAD {
                likely[..16].fill(0);
                likely[0] = what;
                let _ = Message::read(&likely, 5);
            }
        }
    }
}
