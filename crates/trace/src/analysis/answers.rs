//! How long answers take: of connections that were accepted, from a question's arrival to the answer's first byte; of the others, from
//! a question's last byte to what came back.

use super::histogram::Histogram;
use crate::model::{CallEvent, Class, Event, Kind, Run};

/// Where a socket's dialogue is.
#[derive(Clone, Copy, Debug, Default)]
struct Dialogue {
    /// When the first bytes came since something was sent last.
    heard: Option<u64>,
    /// When something was sent last, and nothing came since.
    asked: Option<u64>,
}

/// All dialogues on streams.
#[derive(Debug)]
pub struct Answers {
    dialogues: Vec<Dialogue>,
    /// ns until this program answered.
    pub given: Histogram,
    /// ns until it was answered.
    pub got: Histogram,
}

impl Answers {
    /// Knows the run, and none of its events.
    pub fn new(run: &Run) -> Answers {
        Answers {
            dialogues: vec![Dialogue::default(); run.sockets.len()],
            given: Histogram::default(),
            got: Histogram::default(),
        }
    }

    /// Takes an event.
    pub fn event(&mut self, run: &Run, event: &Event) {
        if let Event::Call(call) = event
            && call.bytes > 0
            && let Some(socket) = call.socket
        {
            self.call(run, call, socket as usize);
        }
    }

    fn call(&mut self, run: &Run, call: &CallEvent, socket: usize) {
        let about = &run.sockets[socket];
        if !matches!(about.kind, Kind::Tcp | Kind::Unix) {
            return;
        }
        let dialogue = &mut self.dialogues[socket];
        let end = call.start.saturating_add(call.took);
        match call.call.class() {
            Class::Send => {
                // threads' events may come a little out of order: what would have ended before it began is left out
                if let Some(took) = dialogue.heard.take().and_then(|heard| call.start.checked_sub(heard))
                    && about.serves()
                {
                    self.given.add(took);
                }
                dialogue.asked = Some(end);
            }
            Class::Receive => {
                if let Some(took) = dialogue.asked.take().and_then(|asked| end.checked_sub(asked))
                    && !about.serves()
                {
                    self.got.add(took);
                }
                dialogue.heard.get_or_insert(end);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Socket, Thread};

    #[test]
    fn both_sides_of_a_dialogue() {
        let socket = |accepted| Socket { kind: Kind::Tcp, accepted, ..Socket::default() };
        let run = Run {
            threads: vec![Thread::default()],
            sockets: vec![socket(true), socket(false)],
            ..Run::default()
        };
        let mut answers = Answers::new(&run);
        let mut call = |call, start, took, socket, bytes| {
            let event = CallEvent {
                thread: 0,
                call,
                start,
                took,
                inside: took,
                calls: 1,
                socket: Some(socket),
                result: bytes as i32,
                bytes,
                asked: bytes,
                to: None,
                in_mpi: false,
                peeked: false,
            };
            answers.event(&run, &Event::Call(event));
        };
        // a question in two parts, its answer in two; then one that is never answered
        call(Call::Send, 100, 10, 1, 40);
        call(Call::Send, 120, 10, 1, 40);
        call(Call::Recv, 50, 150, 0, 40);
        call(Call::Recv, 210, 10, 0, 40);
        call(Call::Send, 1200, 10, 0, 9);
        call(Call::Send, 1300, 10, 0, 9);
        call(Call::Recv, 1000, 1130, 1, 9);
        call(Call::Recv, 2200, 10, 1, 9);
        call(Call::Send, 3000, 10, 1, 9);
        assert_eq!((answers.given.count(), answers.given.max()), (1, 1000));
        assert_eq!((answers.got.count(), answers.got.max()), (1, 2000));
    }
}
