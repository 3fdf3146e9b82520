//! What kind of program it is, by who made the connections that carry its bytes: what matters of a server does not of a copy.

use crate::analysis::Analysis;
use crate::analysis::answers::Answers;
use crate::analysis::connections::{Connection, Direction};
use crate::model::{Process, Run};
use serde::Serialize;
use std::collections::HashSet;

/// The kinds that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Ranks.
    Mpi,
    /// Much, one way, by few connections, unasked or asked for once.
    Transfer,
    /// Most bytes go over connections that it accepted.
    Server,
    /// Most bytes go over connections that it made to programs that were not traced.
    Client,
    /// Processes that talk to each other, and what has no sockets.
    Other,
}

/// Connections that a transfer may have.
const STREAMS: usize = 16;
/// Bytes that a transfer moves at least, and for each message that goes the other way.
const BULK: u64 = 1_000_000;

/// A program by what it did on its connections.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub kind: Kind,
    pub connections: &'a [Connection<'a>],
    pub answers: &'a Answers,
}

impl<'a> Program<'a> {
    pub fn new(
        run: &Run,
        analysis: &Analysis,
        connections: &'a [Connection<'a>],
        answers: &'a Answers,
    ) -> Program<'a> {
        let mpi = analysis.seen.mpi > 0 || run.processes.iter().any(|process| process.mpi.is_some());
        let kind = match mpi {
            true => Kind::Mpi,
            false if is_transfer(connections) => Kind::Transfer,
            false => by_makers(run, connections),
        };
        Program { kind, connections, answers }
    }

    /// Those that this kind of program is judged by: a server's are the accepted ones, a client's the others.
    pub fn main(&self, run: &Run) -> Vec<&'a Connection<'a>> {
        let all = self.connections.iter();
        match self.kind {
            Kind::Server => all.filter(|one| accepting(run, one).is_some()).collect(),
            Kind::Client => all.filter(|one| accepting(run, one).is_none()).collect(),
            _ => all.collect(),
        }
    }
}

/// The socket among a connection's that serves the other.
pub(super) fn accepting(run: &Run, connection: &Connection) -> Option<u32> {
    let (one, other) = connection.sockets;
    [Some(one), other].into_iter().flatten().find(|socket| run.sockets[*socket as usize].serves())
}

/// The direction with most bytes.
pub(super) fn heavy<'a>(connection: &'a Connection<'a>) -> (&'a Direction<'a>, &'a Direction<'a>) {
    let (there, back) = (&connection.there, &connection.back);
    if there.flow.bytes >= back.flow.bytes { (there, back) } else { (back, there) }
}

fn is_transfer(connections: &[Connection]) -> bool {
    let (mut much, mut little, mut asked) = (0u64, 0u64, 0u64);
    let carrying = connections.iter().filter(|connection| connection.bytes() > 0);
    for connection in carrying.clone() {
        let (heavy, light) = heavy(connection);
        much = much.saturating_add(heavy.flow.bytes);
        little = little.saturating_add(light.flow.bytes);
        asked += light.flow.messages;
    }
    carrying.count() <= STREAMS && much >= BULK && little < much / 20 && much / asked.max(1) >= BULK
}

fn by_makers(run: &Run, connections: &[Connection]) -> Kind {
    let (mut all, mut served, mut asked) = (0u64, 0u64, 0u64);
    let (mut servers, mut clients) = (HashSet::new(), HashSet::new());
    let word = |process: u32| run.processes.get(process as usize).and_then(first_word);
    for connection in connections {
        let bytes = connection.bytes();
        all = all.saturating_add(bytes);
        match (accepting(run, connection), connection.sockets) {
            (None, (_, None)) => asked = asked.saturating_add(bytes),
            (None, _) => {}
            (Some(_), (_, None)) => served = served.saturating_add(bytes),
            (Some(socket), (one, Some(other))) => {
                served = served.saturating_add(bytes);
                servers.insert(word(run.sockets[socket as usize].process));
                clients.insert(word(run.sockets[if socket == one { other } else { one } as usize].process));
            }
        }
    }
    match all {
        0 => Kind::Other,
        // a program that talks to itself serves nobody
        all if served > all / 2 && servers.is_disjoint(&clients) => Kind::Server,
        all if asked > all / 2 => Kind::Client,
        _ => Kind::Other,
    }
}

fn first_word(process: &Process) -> Option<&str> {
    process.command.first().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::messages::Flow;
    use crate::model::Socket;

    fn flow(bytes: u64, messages: u64) -> Flow {
        let mut flow = Flow::default();
        (flow.bytes, flow.messages) = (bytes, messages);
        flow
    }

    fn connection<'a>(sockets: (u32, Option<u32>), there: &'a Flow, back: &'a Flow) -> Connection<'a> {
        let direction = |flow| Direction { from: None, flow, tcp: None, socket: None, limits: None };
        Connection {
            sockets,
            kind: crate::model::Kind::Tcp,
            nodes: (0, None),
            there: direction(there),
            back: direction(back),
            span: (0, 1),
        }
    }

    #[test]
    fn kinds_are_told_by_who_made_the_connections() {
        let process = |word: &str| Process { command: vec![word.into()], ..Process::default() };
        let socket = |accepted, process| Socket { accepted, process, ..Socket::default() };
        let mut run = Run {
            processes: vec![process("redis-server"), process("redis-benchmark")],
            sockets: vec![socket(true, 0), socket(false, 1)],
            ..Run::default()
        };
        let (question, answer, none) = (flow(4_000, 100), flow(90_000, 100), flow(0, 0));
        assert_eq!(by_makers(&run, &[connection((0, None), &answer, &question)]), Kind::Server);
        assert_eq!(by_makers(&run, &[connection((1, None), &question, &answer)]), Kind::Client);
        assert_eq!(by_makers(&run, &[connection((0, Some(1)), &answer, &question)]), Kind::Server);
        run.processes[1] = process("redis-server");
        assert_eq!(by_makers(&run, &[connection((0, Some(1)), &answer, &question)]), Kind::Other);
        assert_eq!(by_makers(&run, &[connection((0, None), &none, &none)]), Kind::Other);
    }

    #[test]
    fn much_that_goes_one_way_is_a_transfer() {
        let (much, asked, questions) = (flow(50_000_000, 700), flow(120, 1), flow(9_000, 100));
        assert!(is_transfer(&[connection((0, None), &much, &asked)]));
        assert!(
            !is_transfer(&[connection((0, None), &much, &questions)]),
            "each question has a small answer"
        );
        assert!(!is_transfer(&[connection((0, None), &much, &much)]), "both ways");
        let many: Vec<_> = (0..40).map(|_| connection((0, None), &much, &asked)).collect();
        assert!(!is_transfer(&many));
    }
}
