//! PMI-1: lines of `name=value` over a descriptor that the launcher opened (the wire protocol of MPICH's `src/pmi`, which Slurm speaks, too).

use crate::{Error, LONGEST, PATIENCE};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What the first's word is kept under.
const KEY: &str = "polyrail";
/// The longest line that is read, in bytes.
const LINE: usize = 2048;

/// A launcher that waits for what this process says.
#[derive(Debug)]
pub struct Pmi {
    stream: UnixStream,
}

/// Whether this process has such a descriptor, and it is a socket.
pub(crate) fn is_socket(fd: i32) -> bool {
    // SAFETY: all zeros are a stat, and the call writes nothing else.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the memory is that of a stat; a descriptor that is not open is an error.
    let found = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
    found && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
}

impl Pmi {
    /// The one at the other end of an inherited descriptor.
    ///
    /// # Errors
    /// There is no such descriptor, or it is no socket.
    pub fn inherited(fd: i32) -> Result<Self, Error> {
        let gone = || {
            Error::pmi(format!(
                "PMI_FD={fd} is no socket of it: it does not hand its descriptor on to this process, or another program has used it"
            ))
        };
        if !is_socket(fd) {
            return Err(gone());
        }
        // SAFETY: a plain call; the descriptor itself stays with whoever has it in this process.
        let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if own < 0 {
            return Err(gone());
        }
        // SAFETY: it was just made, and nobody else knows of it.
        Self::over(unsafe { OwnedFd::from_raw_fd(own) }.into())
    }

    fn over(stream: UnixStream) -> Result<Self, Error> {
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| Error::pmi(error.to_string()))?;
        Ok(Self { stream })
    }

    /// Tells all the first one's word.
    ///
    /// # Errors
    /// It is gone, refuses, or says what is none of its answers.
    pub fn share(mut self, word: Option<&str>) -> Result<String, Error> {
        self.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let name = self.ask("get_my_kvsname", "my_kvsname")?;
        let name = value(&name, "kvsname").filter(|name| name.len() <= LONGEST);
        let name = name.ok_or_else(|| Error::pmi("it gives no name for what is told"))?.to_owned();
        if let Some(word) = word {
            self.ask(&format!("put kvsname={name} key={KEY} value={word}"), "put_result")?;
        }
        self.ask("barrier_in", "barrier_out")?;
        let answer = self.ask(&format!("get kvsname={name} key={KEY}"), "get_result")?;
        let told = value(&answer, "value").ok_or_else(|| Error::pmi("the first process has told nothing"))?;
        let told = told.to_owned();
        // who ends without it has failed
        self.ask("finalize", "finalize_ack")?;
        Ok(told)
    }

    /// Sends a command, and reads what has to follow.
    fn ask(&mut self, command: &str, wanted: &str) -> Result<String, Error> {
        let line = format!("cmd={command}\n");
        let first = command.split(' ').next().unwrap_or(command);
        let failed = |why: String| Error::pmi(format!("to {first}: {why}"));
        self.stream.write_all(line.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let answer = self.line().map_err(failed)?;
        if value(&answer, "cmd") != Some(wanted) {
            return Err(failed(format!("it answers {answer:?}, and not {wanted}")));
        }
        match value(&answer, "rc") {
            None | Some("0") => Ok(answer),
            Some(_) => Err(failed(format!("it refuses: {answer:?}"))),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut byte = [0];
        // nothing that follows is taken: it may be of somebody else's
        while line.last() != Some(&b'\n') {
            match self.stream.read(&mut byte) {
                Ok(0) => return Err("it is gone".into()),
                Ok(_) if line.len() == LINE => return Err("it says more than a line".into()),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(format!("nothing for {} seconds", PATIENCE.as_secs()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        line.pop();
        String::from_utf8(line).map_err(|_| "it says what is no text".into())
    }
}

/// The value of this name in a line.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsRawFd;
    use std::thread;

    /// A launcher of two that answers as Hydra does.
    fn launcher(streams: [UnixStream; 2]) {
        let mut readers = streams.each_ref().map(|stream| BufReader::new(stream.try_clone().unwrap()));
        let mut kept = None;
        let mut waiting = 0;
        let mut ended = 0;
        for turn in (0..2).cycle() {
            if ended == 2 {
                return;
            }
            let mut line = String::new();
            if readers[turn].read_line(&mut line).unwrap() == 0 {
                continue;
            }
            let say =
                |to: usize, what: &str| (&streams[to]).write_all(format!("cmd={what}\n").as_bytes()).unwrap();
            match value(&line, "cmd").unwrap() {
                "init" => say(turn, "response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
                "get_my_kvsname" => say(turn, "my_kvsname kvsname=kvs_1"),
                "put" => {
                    kept = value(&line, "value").map(str::to_owned);
                    say(turn, "put_result rc=0 msg=success");
                    // the one who puts has one more to say before all wait
                    readers[turn].read_line(&mut line).unwrap();
                    waiting += 1;
                }
                "barrier_in" => waiting += 1,
                "get" => say(turn, &format!("get_result rc=0 msg=success value={}", kept.clone().unwrap())),
                "finalize" => {
                    ended += 1;
                    say(turn, "finalize_ack");
                }
                other => panic!("{other}"),
            }
            if waiting == 2 {
                waiting = 0;
                say(0, "barrier_out");
                say(1, "barrier_out");
            }
        }
    }

    #[test]
    fn the_first_tells_the_others() {
        let (a, to_a) = UnixStream::pair().unwrap();
        let (b, to_b) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || launcher([to_a, to_b]));
        let first =
            thread::spawn(move || Pmi::inherited(a.as_raw_fd()).unwrap().share(Some("a-word_1")).unwrap());
        let told = Pmi::inherited(b.as_raw_fd()).unwrap().share(None).unwrap();
        assert_eq!(told, "a-word_1");
        assert_eq!(first.join().unwrap(), told);
        drop(b);
        server.join().unwrap();
    }

    #[test]
    fn a_descriptor_that_is_none_is_told_of() {
        let file = std::fs::File::open("/dev/null").unwrap();
        for fd in [-1, 1 << 20, file.as_raw_fd()] {
            let why = Pmi::inherited(fd).unwrap_err().to_string();
            assert!(why.contains("PMI_FD"), "{why}");
        }
    }

    proptest! {
        #[test]
        fn whatever_it_says_there_is_an_end(bytes in prop::collection::vec(any::<u8>(), 0..6000), begins in 0_usize..4) {
            let (near, mut far) = UnixStream::pair().unwrap();
            let right: [&[u8]; 4] = [b"", b"cmd=response_to_init rc=0\n", b"cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=k\n",
                b"cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=k\ncmd=barrier_out\ncmd=get_result rc=0 value=x\n"];
            far.write_all(right[begins]).unwrap();
            far.write_all(&bytes).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            // not by chance the rest of a right answer
            let _ = Pmi::over(near).unwrap().share(None);
        }
    }
}
