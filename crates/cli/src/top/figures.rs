//! What endpoints said, as rows for people: rates come from what they said before.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use polyrail_rails::events::{Protocol, Record, Side};
use polyrail_rails::top::{Answer, Closed, Collective, Lane, Peer, Said, Snapshot};

use crate::bench::written;

/// What the columns are.
pub const HEADING: [&str; 16] = [
    "PID", "PROGRAM", "PEER", "RAIL", "LANE", "NEAR", "FAR", "OUT MB/s", "IN MB/s", "SHARE", "RTT us",
    "CAN MB/s", "RESENT", "QUEUED", "CONTROL", "MESSAGES",
];
/// Which of them are numbers.
pub const NUMBERS: std::ops::RangeInclusive<usize> = 7..=13;
/// The last two.
const CONTROL: usize = 14;
const MESSAGES: usize = 15;
/// What the columns of collective operations are.
pub const OPERATIONS: [&str; 5] = ["OPERATION", "CALLS", "BYTES EACH", "ALGORITHM", "WHY"];
/// Most events that are shown.
const EVENTS: usize = 16;

/// All that is shown.
#[derive(Debug, Default)]
pub struct View {
    /// Each as long as [`HEADING`].
    pub rows: Vec<Vec<String>>,
    /// Collective operations of all processes together, each as long as [`OPERATIONS`].
    pub collectives: Vec<Vec<String>>,
    /// The last events of all, oldest first.
    pub events: Vec<String>,
    /// Bytes per second that all lanes together sent and received.
    pub total: (f64, f64),
    /// How many endpoints there are.
    pub endpoints: usize,
}

/// What went out and came in since the snapshot before, in bytes per second.
#[derive(Clone, Copy, Default)]
struct Rates {
    out: Option<f64>,
    into: Option<f64>,
}

impl View {
    /// What to show of these answers; `before` are the answers before them.
    pub fn new(before: &[Answer], now: &[Answer]) -> Self {
        let mut view = Self { endpoints: now.len(), ..Self::default() };
        let mut now: Vec<&Answer> = now.iter().collect();
        now.sort_by(|a, b| (a.pid, &a.endpoint).cmp(&(b.pid, &b.endpoint)));
        view.collectives = collectives(&now);
        let mut events: Vec<&Record> = Vec::new();
        for answer in now {
            let earlier =
                before.iter().find(|one| (one.pid, &one.endpoint) == (answer.pid, &answer.endpoint));
            match &answer.said {
                Said::All(snapshot) => {
                    view.add(answer.pid, snapshot, earlier.and_then(snapshot_of));
                    events.extend(&snapshot.events);
                }
                Said::Nothing => view.note(answer, "computing: it makes no progress just now"),
                Said::Refused => view.note(answer, "it does not answer, or has just ended"),
                Said::Nonsense(why) => view.note(answer, &format!("its answer cannot be read: {why}")),
            }
        }
        // RFC 3339 in UTC sorts as text
        events.sort_by(|a, b| a.time.cmp(&b.time));
        view.events = events[events.len().saturating_sub(EVENTS)..].iter().map(|event| told(event)).collect();
        view
    }

    fn row(&mut self, cells: &[(usize, String)]) {
        let mut row = vec![String::new(); HEADING.len()];
        for (at, cell) in cells {
            row[*at].clone_from(cell);
        }
        self.rows.push(row);
    }

    fn note(&mut self, answer: &Answer, what: &str) {
        self.row(&[(0, answer.pid.to_string()), (1, answer.program.clone()), (MESSAGES, what.to_owned())]);
    }

    /// `pid`: the process as this one's PID namespace counts, which it may not know itself.
    fn add(&mut self, pid: u32, now: &Snapshot, before: Option<&Snapshot>) {
        let pid = if pid == 0 { now.pid } else { pid }.to_string();
        let who = [(0, pid), (1, now.program.clone())];
        let gone = now.peers.iter().filter(|peer| peer.rail.is_none()).count();
        let alone = |peer: &&Peer| peer.rail.is_some() || gone == 1;
        for peer in now.peers.iter().filter(alone) {
            let was = before.and_then(|before| before.peers.iter().find(|one| one.id == peer.id));
            let seconds = before.map(|before| now.clock_us.saturating_sub(before.clock_us) as f64 / 1e6);
            let who = [&who[..], &[(2, peer.id.clone())]].concat();
            self.add_peer(&who, peer, was.zip(seconds.filter(|seconds| *seconds > 0.0)));
        }
        // of many that are gone one after the other, such as a server's clients, the last says it for all
        if let Some(last) = now.peers.iter().rfind(|peer| !alone(peer)) {
            let why =
                format!("{gone} peers; one of them: {}", last.why.as_deref().unwrap_or("not connected"));
            self.row(&[&who[..], &[(3, "gone".to_owned()), (MESSAGES, why)]].concat());
        }
        if now.peers.is_empty() {
            self.row(&[&who[..], &[(MESSAGES, "no peer is connected".to_owned())]].concat());
        }
        if now.peers_left_out > 0 {
            self.row(&[&who[..], &[(MESSAGES, format!("and {} more peers", now.peers_left_out))]].concat());
        }
    }

    fn add_peer(&mut self, who: &[(usize, String)], peer: &Peer, before: Option<(&Peer, f64)>) {
        let Some(rail) = &peer.rail else {
            let why = peer.why.as_deref().unwrap_or("not connected");
            return self.row(&[who, &[(3, "gone".to_owned()), (MESSAGES, why.to_owned())]].concat());
        };
        let rates: Vec<Rates> = peer.lanes.iter().map(|lane| rates(peer, lane, before)).collect();
        let all: f64 = rates.iter().filter_map(|rates| rates.out).sum();
        let mut lanes: Vec<(&Lane, &Rates)> = peer.lanes.iter().zip(&rates).collect();
        lanes.sort_by_key(|(lane, _)| lane.number);
        for (at, (lane, rates)) in lanes.into_iter().enumerate() {
            self.total.0 += rates.out.unwrap_or(0.0);
            self.total.1 += rates.into.unwrap_or(0.0);
            let share = rates.out.filter(|_| all > 0.0).map(|out| format!("{:.0}%", 100.0 * out / all));
            let small = (lane.small && peer.lanes.len() > 1).then_some("small ones by this lane");
            let sizes = (at == 0).then(|| sizes(&peer.protocols));
            let encrypted = lane.encrypted.then_some("encrypted");
            let composed = lane.composition.as_ref().zip(lane.composition_why.as_ref());
            let composed = composed.map(|(composition, why)| format!("{composition}: {why}"));
            let more = small.into_iter().chain(encrypted).chain(composed.as_deref());
            let messages: Vec<&str> = sizes.as_deref().into_iter().chain(more).collect();
            let mut cells = vec![
                (3, lane.rail.as_ref().unwrap_or(rail).clone()),
                (9, share.unwrap_or_default()),
                (MESSAGES, messages.join("; ")),
            ];
            cells.extend([(7, megabytes(rates.out)), (8, megabytes(rates.into))]);
            if lane.near.is_some() {
                cells.extend(networked(lane));
            }
            self.row(&[who, &cells].concat());
        }
        for Closed { near, far, why } in &peer.closed {
            let cells = [
                (3, rail.clone()),
                (4, "none".into()),
                (5, end(near)),
                (6, end(far)),
                (MESSAGES, why.clone()),
            ];
            self.row(&[who, &cells].concat());
        }
    }
}

/// By operations and ways, the commonest first; a process with several endpoints says the same at each.
fn collectives(answers: &[&Answer]) -> Vec<Vec<String>> {
    let mut all: BTreeMap<(&str, &str, &str), (u64, u64)> = BTreeMap::new();
    let mut told: Vec<u32> = Vec::new();
    for answer in answers {
        let Some(snapshot) = snapshot_of(answer) else { continue };
        if answer.pid != 0 && told.contains(&answer.pid) {
            continue;
        }
        told.push(answer.pid);
        for Collective { operation, algorithm, why, calls, bytes } in &snapshot.collectives {
            let sum = all.entry((operation, algorithm, why)).or_default();
            *sum = (sum.0.saturating_add(*calls), sum.1.saturating_add(*bytes));
        }
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, (calls, _))| std::cmp::Reverse(*calls));
    let row = |((operation, algorithm, why), (calls, bytes)): ((&str, &str, &str), (u64, u64))| {
        let each = rounded(bytes / calls.max(1));
        [operation, &calls.to_string(), &each, algorithm, why].map(str::to_owned).to_vec()
    };
    all.into_iter().map(row).collect()
}

fn snapshot_of(answer: &Answer) -> Option<&Snapshot> {
    match &answer.said {
        Said::All(snapshot) => Some(snapshot),
        _ => None,
    }
}

fn rates(peer: &Peer, lane: &Lane, before: Option<(&Peer, f64)>) -> Rates {
    let Some((was, seconds)) = before else { return Rates::default() };
    let same = |one: &&Lane| one.number == lane.number && one.near == lane.near && one.far == lane.far;
    let Some(then) = was.lanes.iter().find(same) else { return Rates::default() };
    // what goes past the rail counts for it where it is the only one
    let direct = |peer: &Peer| match lane.near {
        Some(_) => (0, 0),
        None => (peer.direct_written_bytes, peer.direct_read_bytes),
    };
    let rate = |now: u64, then: u64| now.checked_sub(then).map(|bytes| bytes as f64 / seconds);
    let ((written, read), (written_then, read_then)) = (direct(peer), direct(was));
    Rates {
        out: rate(lane.sent_bytes.saturating_add(written), then.sent_bytes.saturating_add(written_then)),
        into: rate(lane.received_bytes.saturating_add(read), then.received_bytes.saturating_add(read_then)),
    }
}

fn networked(lane: &Lane) -> Vec<(usize, String)> {
    let claimed = if lane.measured { "" } else { "~" };
    let can = lane.rate_bytes_per_s.map(|rate| format!("{claimed}{:.1}", rate as f64 / 1e6));
    let resent = match (lane.retransmitted, lane.packets) {
        (0, _) | (_, 0) => lane.retransmitted.to_string(),
        (again, all) => format!("{again} ({:.1}%)", 100.0 * again as f64 / all as f64),
    };
    vec![
        (4, lane.number.to_string()),
        (5, lane.near.as_ref().map(end).unwrap_or_default()),
        (6, lane.far.as_ref().map(end).unwrap_or_default()),
        (10, lane.rtt_us.map(|us| us.to_string()).unwrap_or_default()),
        (11, can.unwrap_or_default()),
        (12, resent),
        (13, rounded(lane.queued_bytes)),
        (
            CONTROL,
            lane.composition.as_ref().or(lane.congestion_control.as_ref()).cloned().unwrap_or_default(),
        ),
    ]
}

fn megabytes(rate: Option<f64>) -> String {
    rate.map(|rate| format!("{:.1}", rate / 1e6)).unwrap_or_default()
}

/// Bytes, in three or four digits.
fn rounded(bytes: u64) -> String {
    match bytes {
        0..10_000 => bytes.to_string(),
        10_000..10_000_000 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

/// Interface and IP; ports tell nobody anything.
fn end(side: &Side) -> String {
    let ip = side
        .address
        .parse()
        .map(|at: SocketAddr| at.ip())
        .map_or(side.address.clone(), |ip: IpAddr| ip.to_string());
    side.interface.as_ref().map_or(ip.clone(), |name| format!("{name} {ip}"))
}

fn sizes(protocols: &[Protocol]) -> String {
    let one = |protocol: &Protocol| {
        let to = protocol.up_to_bytes.map_or("above".to_owned(), |most| format!("to {}", written(most)));
        let of = protocol.fragment_bytes.map_or(String::new(), |bytes| format!(" of {}", written(bytes)));
        format!("{to} {}{of}", protocol.name)
    };
    protocols.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An event as a line: time of day, process, peer, what, where, why.
fn told(event: &Record) -> String {
    let Record { time, pid, peer, lane, near, far, why, .. } = event;
    let time = time.get(11..23).unwrap_or(time);
    let lane = lane.map(|number| format!(" lane {number}")).unwrap_or_default();
    let ends = match (near, far) {
        (Some(near), Some(far)) => format!(" ({} to {})", end(near), end(far)),
        _ => String::new(),
    };
    format!("{time} {pid} {peer} {}{lane}{ends}: {why}", event.event.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_rails::events::Kind;

    fn side(interface: &str, address: &str) -> Option<Side> {
        Some(Side { interface: Some(interface.into()), address: address.into() })
    }

    fn answer(clock_us: u64, sent: [u64; 2]) -> Answer {
        let lane = |number: u16, sent_bytes| Lane {
            number,
            near: side("eth1", "10.0.1.1:5000"),
            far: side("eth1", "[fd00::2]:4000"),
            sent_bytes,
            received_bytes: sent_bytes / 2,
            queued_bytes: 2048,
            rate_bytes_per_s: Some(125_000_000),
            measured: number == 0,
            rtt_us: Some(250),
            packets: 1000,
            retransmitted: 5,
            small: number == 1,
            encrypted: number == 1,
            rail: Some(if number == 1 { "udp" } else { "tcp" }.into()),
            composition: (number == 1).then(|| "sync-bbr".into()),
            composition_why: (number == 1).then(|| "the peer wanted it".into()),
            congestion_control: (number == 0).then(|| "cubic".into()),
            ..Lane::default()
        };
        let protocols = vec![
            Protocol { up_to_bytes: Some(64 << 10), name: "eager".into(), fragment_bytes: None },
            Protocol { up_to_bytes: None, name: "fragments".into(), fragment_bytes: Some(1 << 20) },
        ];
        let closed = Closed { why: "no route".into(), ..Closed::default() };
        let peer = Peer {
            id: "4e5f6071".into(),
            rail: Some("tcp".into()),
            protocols,
            lanes: vec![lane(0, sent[0]), lane(1, sent[1])],
            closed: vec![closed],
            ..Peer::default()
        };
        let event = Record {
            time: "2026-11-21T18:00:00.000250Z".into(),
            event: Kind::LaneUp,
            pid: 7,
            peer: "4e5f6071".into(),
            lane: Some(1),
            why: "because".into(),
            ..Record::default()
        };
        let (program, peers, events) = ("app".to_owned(), vec![peer], vec![event]);
        let snapshot = Snapshot { clock_us, pid: 7, program, peers, events, ..Snapshot::default() };
        let (endpoint, program) = ("0a1b2c3d".to_owned(), "app".to_owned());
        Answer { endpoint, pid: 7, program, said: Said::All(Box::new(snapshot)) }
    }

    #[test]
    fn rates_and_shares_come_from_two_snapshots() {
        let view = View::new(&[answer(1_000_000, [0, 0])], &[answer(1_500_000, [45_000_000, 15_000_000])]);
        let cells = |row: usize, columns: &[usize]| {
            columns.iter().map(|at| view.rows[row][*at].as_str()).collect::<Vec<_>>()
        };
        assert_eq!(view.rows.len(), 3);
        assert_eq!(cells(0, &[0, 1, 2, 3, 4]), ["7", "app", "4e5f6071", "tcp", "0"]);
        assert_eq!(cells(0, &[5, 6]), ["eth1 10.0.1.1", "eth1 fd00::2"]);
        assert_eq!(cells(0, &[7, 8, 9, 10, 11]), ["90.0", "45.0", "75%", "250", "125.0"]);
        assert_eq!(
            cells(0, &[12, 13, 14, 15]),
            ["5 (0.5%)", "2048", "cubic", "to 64K eager, above fragments of 1M"]
        );
        assert_eq!(
            cells(1, &[3, 7, 9, 11, 14, 15]),
            [
                "udp",
                "30.0",
                "25%",
                "~125.0",
                "sync-bbr",
                "small ones by this lane; encrypted; sync-bbr: the peer wanted it"
            ]
        );
        assert_eq!(cells(2, &[4, 14, 15]), ["none", "", "no route"]);
        assert_eq!(view.total, (120e6, 60e6));
        assert_eq!(view.events, ["18:00:00.000 7 4e5f6071 lane_up lane 1: because"]);
    }

    #[test]
    fn collective_operations_are_of_all_processes_together() {
        let of = |pid: u32, calls: u64| {
            let one = |operation: &str, calls: u64| Collective {
                operation: operation.into(),
                algorithm: "slots".into(),
                why: "one host".into(),
                calls,
                bytes: calls * 100,
            };
            let collectives = vec![one("MPI_Bcast", calls), one("MPI_Reduce", 3)];
            Answer {
                endpoint: format!("{pid:08x}"),
                pid,
                program: "app".into(),
                said: Said::All(Box::new(Snapshot { pid, collectives, ..Snapshot::default() })),
            }
        };
        // the second endpoint of a process counts no more
        let view = View::new(&[], &[of(7, 5), of(7, 5), of(8, 6)]);
        assert_eq!(
            view.collectives,
            [
                ["MPI_Bcast", "11", "100", "slots", "one host"],
                ["MPI_Reduce", "6", "100", "slots", "one host"]
            ]
        );
    }

    #[test]
    fn without_an_earlier_snapshot_there_are_no_rates() {
        for before in [&[][..], &[answer(1_500_000, [9, 9])], &[answer(0, [u64::MAX, 0])]] {
            let view = View::new(before, &[answer(1_500_000, [5, 0])]);
            assert_eq!(view.rows[0][7], "", "{before:?}");
        }
    }

    #[test]
    fn peers_that_are_gone_take_one_line() {
        let mut answer = answer(0, [0, 0]);
        let Said::All(now) = &mut answer.said else { unreachable!() };
        for id in ["aaaaaaaa", "bbbbbbbb"] {
            now.peers.push(Peer {
                id: id.into(),
                why: Some(format!("peer {id}: it left")),
                ..Peer::default()
            });
        }
        let view = View::new(&[], &[answer]);
        assert_eq!(view.rows.len(), 4, "{view:?}");
        assert_eq!(view.rows[3][2..4], ["", "gone"]);
        assert_eq!(view.rows[3][15], "2 peers; one of them: peer bbbbbbbb: it left");
    }

    #[test]
    fn who_computes_is_shown_so() {
        let answers = [Said::Nothing, Said::Refused].map(|said| Answer { said, ..answer(0, [0, 0]) });
        let view = View::new(&[], &answers);
        assert!(view.rows[0][15].starts_with("computing"), "{view:?}");
        assert_eq!(view.rows.len(), 2);
    }
}
