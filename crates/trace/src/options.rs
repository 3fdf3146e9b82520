//! What is to be recorded, and how much of it.

use polyrail_core::trace::Call;
use polyrail_core::trace::ring::session;
use serde::{Deserialize, Serialize};

/// The same for all hosts of a run: collectors that recorders start find it in the environment, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// [Bits](session::OPTION_EVERY_CALL) for recorders.
    #[serde(skip_serializing_if = "is_default")]
    pub bits: u32,
    /// No kernel events.
    #[serde(skip_serializing_if = "is_default")]
    pub no_kernel: bool,
    /// When recording ends though the program goes on, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "is_default")]
    pub until: Option<u64>,
    /// Bytes that are recorded on each host, at most.
    #[serde(skip_serializing_if = "is_default")]
    pub most: Option<u64>,
    /// The last nanoseconds alone are kept.
    #[serde(skip_serializing_if = "is_default")]
    pub last: Option<u64>,
    /// Programs that are recorded, by name; all if there are none.
    #[serde(skip_serializing_if = "is_default")]
    pub programs: Vec<String>,
    /// Ports of the connections that are recorded; all if there are none.
    #[serde(skip_serializing_if = "is_default")]
    pub ports: Vec<u16>,
    /// Functions that are not recorded, by bit: the first of 64 with the lowest number.
    #[serde(skip_serializing_if = "is_default")]
    pub left_out: [u64; 4],
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why something cannot be chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refused {
    /// No such function.
    #[error(
        "{0:?} is the name of no function that is recorded; names are like send, 'recv*', MPI_Send, 'MPI_*'"
    )]
    Call(String),
    /// Too much for the page that recorders read.
    #[error("{0} are too many: {1} at most")]
    Many(&'static str, usize),
    /// It cannot be a program's.
    #[error("{0:?} is no name of a program: its file's, without directories")]
    Program(String),
    /// 0.
    #[error("0 is no port")]
    Port,
}

impl Options {
    /// Only these functions are recorded: names, which may end with `*`.
    ///
    /// # Errors
    /// One stands for no function.
    pub fn calls(&mut self, names: &[String]) -> Result<(), Refused> {
        if names.is_empty() {
            return Ok(());
        }
        let mut left_out = [u64::MAX; 4];
        for name in names {
            let fits = |call: &&Call| match name.strip_suffix('*') {
                Some(start) => call.name().starts_with(start),
                None => call.name() == name,
            };
            let mut found = Call::ALL.iter().filter(fits).peekable();
            if found.peek().is_none() {
                return Err(Refused::Call(name.clone()));
            }
            for call in found {
                left_out[*call as usize / 64] &= !(1 << (*call as usize % 64));
            }
        }
        self.left_out = left_out;
        Ok(())
    }

    /// Whether the recorders' page has room for all that is chosen.
    ///
    /// # Errors
    /// It has not, or something cannot be.
    pub fn check(&self) -> Result<(), Refused> {
        let wrong = |name: &&String| name.is_empty() || name.contains(['/', '\0']);
        if let Some(name) = self.programs.iter().find(wrong) {
            return Err(Refused::Program(name.clone()));
        }
        if self.programs.iter().map(|name| name.len() + 1).sum::<usize>() >= session::PROGRAMS {
            return Err(Refused::Many("characters of programs' names", session::PROGRAMS - 1));
        }
        if self.ports.contains(&0) {
            return Err(Refused::Port);
        }
        if self.ports.len() > session::PORTS {
            return Err(Refused::Many("ports", session::PORTS));
        }
        Ok(())
    }

    /// Writes what recorders look at into their page; what does not fit (see [`check`](Self::check)) is left out.
    pub(crate) fn write(&self, page: &mut [u8; session::SIZE]) {
        page[session::AT_OPTIONS..][..4].copy_from_slice(&self.bits.to_le_bytes());
        let left_out = self.left_out.map(u64::to_le_bytes);
        page[session::AT_LEFT_OUT..][..32].copy_from_slice(left_out.as_flattened());
        for (port, two) in
            self.ports.iter().zip(page[session::AT_PORTS..][..2 * session::PORTS].chunks_exact_mut(2))
        {
            two.copy_from_slice(&port.to_le_bytes());
        }
        let names: Vec<u8> = self.programs.iter().flat_map(|name| name.bytes().chain([0])).collect();
        let length = names.len().min(session::PROGRAMS - 1);
        page[session::AT_PROGRAMS..][..length].copy_from_slice(&names[..length]);
    }

    /// As text for the environment.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Of the environment; what cannot be read chooses nothing.
    pub fn of_text(text: &str) -> Options {
        serde_json::from_str::<Options>(text)
            .ok()
            .filter(|options| options.check().is_ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn functions_are_chosen_by_name() {
        let mut options = Options::default();
        options.calls(&names(&["send", "MPI_*"])).unwrap();
        let left_out = |call: Call| options.left_out[call as usize / 64] >> (call as usize % 64) & 1 != 0;
        assert!(
            !left_out(Call::Send)
                && !left_out(Call::MpiInit)
                && left_out(Call::SendTo)
                && left_out(Call::Close)
        );
        assert_eq!(options.calls(&names(&["send", "sned"])), Err(Refused::Call("sned".into())));
        assert_eq!(Options::default().calls(&[]), Ok(()));
    }

    #[test]
    fn what_is_chosen_fits_and_travels() {
        let mut options =
            Options { ports: vec![80, 65535], programs: names(&["nginx", "ab"]), ..Options::default() };
        (options.last, options.bits) = (Some(5), session::OPTION_DROP);
        options.calls(&names(&["recv"])).unwrap();
        assert_eq!(options.check(), Ok(()));
        assert_eq!(Options::of_text(&options.to_text()), options);
        assert_eq!(Options::default().to_text(), "{}");
        assert_eq!(Options::of_text("5"), Options::default());
        let mut page = [0; session::SIZE];
        options.write(&mut page);
        assert_eq!(page[session::AT_OPTIONS], 4);
        assert_eq!(page[session::AT_PORTS..][..6], [80, 0, 255, 255, 0, 0]);
        assert_eq!(page[session::AT_PROGRAMS..][..10], *b"nginx\0ab\0\0");
        let refused = |options: Options| options.check().unwrap_err().to_string();
        assert!(refused(Options { ports: vec![0], ..Options::default() }).contains("no port"));
        assert!(
            refused(Options { ports: vec![1; 65], ..Options::default() }).contains("ports are too many: 64")
        );
        assert!(
            refused(Options { programs: names(&["/bin/ls"]), ..Options::default() })
                .contains("without directories")
        );
        let many = names(&["x".repeat(300).as_str(), "y".repeat(300).as_str()]);
        assert!(refused(Options { programs: many, ..Options::default() }).contains("too many: 511"));
        // whatever is chosen, recorders hand it on whole
        let most = Options {
            bits: u32::MAX,
            no_kernel: true,
            until: Some(u64::MAX),
            most: Some(u64::MAX),
            last: Some(u64::MAX),
            programs: names(&["\"".repeat(510).as_str()]),
            ports: vec![u16::MAX; 64],
            left_out: [u64::MAX; 4],
        };
        assert!(most.check().is_ok() && most.to_text().len() < 1800, "{}", most.to_text().len());
    }
}
