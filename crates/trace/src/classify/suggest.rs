//! What would help, and why: no suggestion without a figure that was seen.

use super::{Classes, Size};
use crate::analysis::Analysis;
use crate::analysis::connections::{Connection, Direction};
use crate::model::{Kind, Run};
use crate::units;
use serde::Serialize;
use std::collections::BTreeMap;

/// A round trip of the wide area, and of the local one, in us.
const LONG: u32 = 2_000;
const SHORT: u32 = 1_000;
/// Congestion controls that do not take each loss for congestion.
const TOLERANT: [&str; 2] = ["bbr", "illinois"];

/// Something to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// What to do.
    pub title: String,
    /// What is in the way, in few words.
    pub problem: String,
    /// Why, with the figures.
    pub reason: String,
    /// How: a setting, a command, a call.
    pub how: String,
    /// Names and values of the figures.
    pub figures: Vec<(String, String)>,
    /// ns that it costs now, where that can be told.
    pub lost: Option<u64>,
}

type Figures = Vec<(String, String)>;

fn figures<const N: usize>(figures: [(&str, String); N]) -> Figures {
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// All that the run gives a reason for, the costliest first.
pub fn suggest(
    run: &Run,
    analysis: &Analysis,
    connections: &[Connection],
    whole: &Classes,
) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = [
        idle(run, connections),
        timeouts(run, connections),
        congestion_wide(connections),
        congestion_local(connections),
        buffers(run, connections, true),
        buffers(run, connections, false),
        striping(connections, whole),
        gateway(run, connections),
        crumbs(run, connections),
        waiting(run, analysis),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by_key(|suggestion| std::cmp::Reverse(suggestion.lost.unwrap_or(0)));
    found
}

fn directions<'a>(
    connections: &'a [Connection<'a>],
) -> impl Iterator<Item = (&'a Connection<'a>, &'a Direction<'a>)> {
    connections
        .iter()
        .filter(|connection| connection.kind == Kind::Tcp)
        .flat_map(|connection| [(connection, &connection.there), (connection, &connection.back)])
}

fn life(run: &Run) -> f64 {
    run.span.1.saturating_sub(run.span.0).max(1) as f64
}

fn setting<'a>(run: &'a Run, name: &str) -> Option<&'a str> {
    let settings = run.hosts.iter().flat_map(|host| &host.settings);
    settings.filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).next()
}

fn idle(run: &Run, connections: &[Connection]) -> Option<Suggestion> {
    let tcps = || directions(connections).filter_map(|(_, direction)| direction.tcp);
    let restarts: u64 = tcps().map(|tcp| tcp.restarted.0).sum();
    let pauses: u64 = tcps().map(|tcp| tcp.pauses).sum();
    let lost: u64 = tcps().map(|tcp| tcp.restarted.1).sum();
    // connections wait side by side: what one of them lost at most is what the program may have lost
    let worst = tcps().map(|tcp| tcp.restarted.1).max().unwrap_or(0);
    if restarts == 0 || (worst as f64) < life(run) / 1000.0 {
        return None;
    }
    let one = tcps().flat_map(|tcp| &tcp.restarts).max_by_key(|restart| restart.lost)?;
    let name = "net.ipv4.tcp_slow_start_after_idle";
    let now = setting(run, name).unwrap_or("not recorded");
    Some(Suggestion {
        title: "Do not slow-start after idle".into(),
        problem: "Windows that collapse after a pause".into(),
        reason: format!(
            "After {} of {} longer than a retransmission timeout the congestion window had collapsed (for instance from {} to {} segments after {}), \
             and it grew back while the next messages waited: about {} of missing round trips, up to {} on one connection.",
            units::count(restarts),
            units::many(pauses, "sending pause"),
            one.window.0,
            one.window.1,
            units::ns(one.idle as f64),
            units::ns(lost as f64),
            units::ns(worst as f64),
        ),
        how: format!("sysctl -w {name}=0 on the senders (recorded now: {now})"),
        figures: figures([
            ("collapses", units::count(restarts)),
            ("pauses", units::count(pauses)),
            ("time lost, all connections", units::ns(lost as f64)),
            ("time lost, worst connection", units::ns(worst as f64)),
        ]),
        lost: Some(worst),
    })
}

fn timeouts(run: &Run, connections: &[Connection]) -> Option<Suggestion> {
    let each = || {
        directions(connections).filter_map(|(c, d)| Some((c, d.tcp?))).filter(|(_, tcp)| tcp.timeouts() > 0)
    };
    let (count, lost) = each()
        .fold((0, 0), |(count, lost), (_, tcp)| (count + tcp.timeouts(), lost + tcp.timeouts() * tcp.rto()));
    let (_, worst) = each().max_by_key(|(_, tcp)| tcp.timeouts() * tcp.rto())?;
    if (lost as f64) < life(run) / 1000.0 {
        return None;
    }
    let wide = each().any(|(connection, _)| connection.min_rtt().is_some_and(|rtt| rtt >= LONG));
    let how = if wide {
        "a gateway between the sites detects losses after a short round trip; on the long one: net.ipv4.tcp_thin_linear_timeouts=1, and congestion \
         control that does not fill queues (bbr)"
    } else {
        "ip route change ... rto_min 10ms on the local network; net.ipv4.tcp_thin_linear_timeouts=1"
    };
    Some(Suggestion {
        title: "Recover from losses before the timeout".into(),
        problem: "Losses that wait for a timer".into(),
        reason: format!(
            "{} stood still until a timer went off, at least {} each on the worst connection: about {} altogether. Small messages at the end of a step have nothing behind \
             them whose acknowledgement could show the loss earlier.",
            units::many(count, "loss"),
            units::ns(worst.rto() as f64),
            units::ns(lost as f64),
        ),
        how: how.into(),
        figures: figures([
            ("retransmission timeouts", units::count(count)),
            ("connections with any", units::count(each().count() as u64)),
            ("time standing still", units::ns(lost as f64)),
        ]),
        lost: Some(worst.timeouts() * worst.rto()),
    })
}

/// Connections that lost something, with their loss, by a condition.
fn losing<'a>(
    connections: &'a [Connection<'a>],
    fits: impl Fn(u32, &str, f64, u64) -> bool + 'a,
) -> Vec<(&'a Connection<'a>, &'a Direction<'a>, f64)> {
    let each = directions(connections).filter_map(|(connection, direction)| {
        let tcp = direction.tcp?;
        let loss = direction.loss()?;
        let rtt = connection.min_rtt()?;
        (direction.flow.bytes >= 1_000_000 && fits(rtt, &tcp.congestion, loss, tcp.retransmissions()))
            .then_some((connection, direction, loss))
    });
    each.collect()
}

fn congestion_wide(connections: &[Connection]) -> Option<Suggestion> {
    let losing = losing(connections, |rtt, name, loss, times| {
        rtt >= LONG && times >= 3 && loss >= 0.0001 && !name.is_empty() && !TOLERANT.contains(&name)
    });
    let (connection, direction, loss) = losing.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let tcp = direction.tcp?;
    let rtt = f64::from(connection.min_rtt()?) / 1e6;
    // what a window halved at each loss can carry: mss / rtt * sqrt(1.5 / p)
    let most = f64::from(tcp.mss()) / rtt * (1.5 / loss).sqrt();
    Some(Suggestion {
        title: "Another congestion control on the long path".into(),
        problem: format!("Losses on a long path under {}", tcp.congestion),
        reason: format!(
            "{} over round trips of {} and more lost up to {} of their bytes under {}, which takes each loss for congestion: at this loss a halving window \
             carries no more than about {}.",
            units::many(losing.len() as u64, "sender"),
            units::ns(rtt * 1e9),
            units::percent(*loss),
            tcp.congestion,
            units::rate(most),
        ),
        how: "ip route change PREFIX ... congctl bbr (or illinois) towards the other site only; or setsockopt(TCP_CONGESTION)".into(),
        figures: figures([
            ("round trip", units::ns(rtt * 1e9)),
            ("sent again", units::percent(*loss)),
            ("now", tcp.congestion.clone()),
            ("bound of a halving window", units::rate(most)),
        ]),
        lost: None,
    })
}

fn congestion_local(connections: &[Connection]) -> Option<Suggestion> {
    let losing =
        losing(connections, |rtt, name, _, times| rtt < SHORT && times >= 10 && TOLERANT.contains(&name));
    let (connection, direction, loss) = losing.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let tcp = direction.tcp?;
    let rtt = units::ns(f64::from(connection.min_rtt()?) * 1e3);
    Some(Suggestion {
        title: "Reno or cubic on the local network".into(),
        problem: format!("Losses on the local network under {}", tcp.congestion),
        reason: format!(
            "{} within {} of each other sent up to {} of their bytes again under {}, which is made for long paths and does not give way \
             to losses here.",
            units::many(losing.len() as u64, "sender"),
            rtt,
            units::percent(*loss),
            tcp.congestion
        ),
        how: "ip route change PREFIX ... congctl cubic for the local network; or setsockopt(TCP_CONGESTION)"
            .into(),
        figures: figures([
            ("round trip", rtt),
            ("sent again", units::percent(*loss)),
            ("now", tcp.congestion.clone()),
        ]),
        lost: None,
    })
}

fn buffers(run: &Run, connections: &[Connection], receiver: bool) -> Option<Suggestion> {
    // what is nothing to the whole run is not worth a change
    let noticed = 0.02 * life(run);
    let held = |direction: &Direction| {
        let limits = direction.limits?;
        let busy = limits.network + limits.receiver + limits.buffer;
        let held = if receiver { limits.receiver } else { limits.buffer };
        (busy >= 10e6 && held >= 0.1 * busy && held >= noticed).then_some((held, held / busy))
    };
    let each = || directions(connections).filter_map(|(_, direction)| held(direction));
    let (time, share) = each().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (title, why, how) = if receiver {
        (
            "A larger receive buffer",
            "the receiver's window was full: it reads too late, or its buffer is smaller than what the path holds",
            "larger net.ipv4.tcp_rmem (third value) at the receiver, or SO_RCVBUF; or receive earlier",
        )
    } else {
        (
            "A larger send buffer",
            "the send buffer held back what window and path had room for",
            "larger net.ipv4.tcp_wmem (third value) at the sender, or no SO_SNDBUF that switches its growth off",
        )
    };
    Some(Suggestion {
        title: title.into(),
        problem: (if receiver { "Full receive windows" } else { "Full send buffers" }).into(),
        reason: format!(
            "On {} {why}, for {} of the time with something to send on the worst ({}).",
            units::many(each().count() as u64, "sender"),
            units::percent(share),
            units::ns(time),
        ),
        how: how.into(),
        figures: figures([
            ("time held back, worst", units::ns(time)),
            ("of its busy time", units::percent(share)),
        ]),
        lost: Some(time as u64),
    })
}

fn striping(connections: &[Connection], whole: &Classes) -> Option<Suggestion> {
    if whole.size != Some(Size::Large) {
        return None;
    }
    let bound = |direction: &Direction| {
        let limits = direction.limits?;
        let life = limits.application + limits.network + limits.receiver + limits.buffer;
        let rate = direction.busy_rate()?;
        (direction.flow.bytes >= 10_000_000 && limits.network >= 0.5 * life)
            .then_some((limits.network / life, rate))
    };
    let each = || directions(connections).filter_map(|(_, direction)| bound(direction));
    let (share, rate) = each().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Suggestion {
        title: "Stripe large messages over several connections or cards".into(),
        problem: "One path for large messages".into(),
        reason: format!(
            "{} spent up to {} of their life with data that the network had not taken yet, at {} while busy, and most of it is in messages \
             over 200 kB, which can be cut.",
            units::many(each().count() as u64, "sender"),
            units::percent(share),
            units::rate(rate)
        ),
        how: "polyrail run stripes each large message over all rails that join two hosts".into(),
        figures: figures([
            ("bound by the network", units::percent(share)),
            ("rate while busy", units::rate(rate)),
        ]),
        lost: None,
    })
}

fn gateway(run: &Run, connections: &[Connection]) -> Option<Suggestion> {
    let mut legs: BTreeMap<(String, String), Vec<&Connection>> = BTreeMap::new();
    let far = |c: &&Connection| c.kind == Kind::Tcp && c.min_rtt().is_some_and(|rtt| rtt >= LONG);
    for connection in connections.iter().filter(far) {
        let host = |node: Option<u32>| {
            let process = run.processes.get(node? as usize)?;
            Some(run.hosts.get(process.host as usize)?.name.clone())
        };
        let outside =
            || run.sockets[connection.sockets.0 as usize].remote.map(|remote| remote.ip().to_string());
        let ends = (host(Some(connection.nodes.0)), host(connection.nodes.1).or_else(outside));
        if let (Some(a), Some(b)) = ends
            && a != b
        {
            let key = if a < b { (a, b) } else { (b, a) };
            legs.entry(key).or_default().push(connection);
        }
    }
    let ((a, b), leg) = legs.into_iter().max_by_key(|(_, leg)| leg.len())?;
    if leg.len() < 4 {
        return None;
    }
    let rtt = leg.iter().filter_map(|connection| connection.min_rtt()).min()?;
    let (again, timeouts) = leg
        .iter()
        .fold((0, 0), |(r, t), connection| (r + connection.retransmissions(), t + connection.timeouts()));
    let bytes: u64 = leg.iter().map(|connection| connection.bytes()).sum();
    Some(Suggestion {
        title: "A gateway at each site".into(),
        problem: format!("{} that share a long path", units::many(leg.len() as u64, "connection")),
        reason: format!(
            "{} share the leg of {} between {a} and {b}; each finds out by its own losses what the path carries ({} sent again, {}). Gateways join \
             them to few, and repair losses of the local part in a local round trip.",
            units::many(leg.len() as u64, "connection"),
            units::ns(f64::from(rtt) * 1e3),
            units::many(again, "segment"),
            units::many(timeouts, "timeout"),
        ),
        how: "split the connections at the border of each site, and let the gateways keep the long leg's window open".into(),
        figures: figures([
            ("connections on the leg", units::count(leg.len() as u64)),
            ("round trip", units::ns(f64::from(rtt) * 1e3)),
            ("bytes", units::bytes(bytes as f64)),
            ("sent again", units::count(again)),
        ]),
        lost: None,
    })
}

/// Messages in several small sends: of programs that choose their sends, not of those that have an MPI library choose them.
fn crumbs(run: &Run, connections: &[Connection]) -> Option<Suggestion> {
    let is_rank = |node: u32| run.processes.get(node as usize).is_some_and(|process| process.mpi.is_some());
    let flows = || {
        directions(connections)
            .filter(|(_, direction)| !direction.from.is_some_and(is_rank))
            .filter(|(c, _)| c.min_rtt().is_none_or(|rtt| rtt < 30_000))
            .map(|(_, d)| d.flow)
    };
    let sum = |get: fn(&crate::analysis::messages::Flow) -> u64| flows().map(get).sum::<u64>();
    let (messages, crumbled, stalls) = (sum(|f| f.messages), sum(|f| f.crumbled), sum(|f| f.stalls));
    // some answers take as long by chance; where the algorithms meet, most of such messages wait
    let stalled = stalls >= 3 && stalls * 4 >= crumbled;
    if !stalled && (crumbled < 100 || crumbled * 5 < messages) {
        return None;
    }
    let mut reason = format!(
        "{} of {} were given to the kernel in several sends of less than 1 kB each.",
        units::count(crumbled),
        units::many(messages, "message")
    );
    if stalled {
        reason += &format!(
            " {} of them were answered only after 35 to 60 ms, as long as a delayed acknowledgement takes: the second send waited for the acknowledgement of the first.",
            units::count(stalls)
        );
    }
    Some(Suggestion {
        title: if stalled { "TCP_NODELAY, and one send per message" } else { "One send per message" }.into(),
        problem: "Messages in small pieces".into(),
        reason,
        how: "writev or sendmsg with all parts at once, or MSG_MORE on all but the last; setsockopt(TCP_NODELAY)".into(),
        figures: figures([
            ("messages in small pieces", units::count(crumbled)),
            ("of", units::count(messages)),
            ("answered after 35 to 60 ms", units::count(stalls)),
        ]),
        lost: stalled.then_some(stalls * 40_000_000),
    })
}

/// One process that most others wait for.
fn waiting(run: &Run, analysis: &Analysis) -> Option<Suggestion> {
    let ranked = || run.processes.iter().enumerate().filter(|(_, process)| process.mpi.is_some());
    let size = ranked().count();
    if size < 3 {
        return None;
    }
    let mut by_sender: BTreeMap<u32, u64> = BTreeMap::new();
    for (from, to, cell) in &analysis.links.cells {
        let rank = |node: u32| run.processes.get(node as usize).is_some_and(|process| process.mpi.is_some());
        if rank(*from) && rank(*to) {
            let sum = by_sender.entry(*from).or_default();
            *sum = sum.saturating_add(cell.waited);
        }
    }
    let whole = by_sender.values().fold(0u64, |sum, waited| sum.saturating_add(*waited));
    let (&late, &waited) = by_sender.iter().max_by_key(|(_, waited)| **waited)?;
    let share = waited as f64 / whole.max(1) as f64;
    let each = waited as f64 / (size - 1) as f64;
    if share < 2.0 / size as f64 || share < 0.4 || each < 0.05 * life(run) {
        return None;
    }
    let rank = run.processes[late as usize].mpi.as_ref()?.rank;
    Some(Suggestion {
        title: format!("Give rank {rank} less to do, or start it first"),
        problem: format!("Waiting for rank {rank}"),
        reason: format!(
            "{} of all the time that ranks wait for each other, they wait for rank {rank}: {} each on average.",
            units::percent(share),
            units::ns(each)
        ),
        how: "look at its time line where the others wait: what it computes there is what could be divided better".into(),
        figures: figures([("waited for it", units::ns(waited as f64)), ("of all waiting", units::percent(share))]),
        lost: Some(each as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Analyst, Settings};
    use crate::model::{Call, CallEvent, Event, MpiWorld, Process, Socket, Thread};

    /// A process that sends to another one, each message in two pieces.
    fn pieces(mpi: Option<MpiWorld>) -> Vec<Suggestion> {
        let process = || Process { mpi: mpi.clone(), span: (0, 1_000_000_000), ..Process::default() };
        let socket = |process, peer| Socket {
            kind: Kind::Tcp,
            process,
            peer: Some(peer),
            span: (0, 1_000_000_000),
            ..Socket::default()
        };
        let thread = |process| Thread { process, ..Thread::default() };
        let run = Run {
            processes: vec![process(), process()],
            threads: vec![thread(0), thread(1)],
            sockets: vec![socket(0, 1), socket(1, 0)],
            span: (0, 1_000_000_000),
            ..Run::default()
        };
        let mut analyst = Analyst::new(&run, Settings::default());
        for message in 0..300 {
            for piece in 0..2 {
                analyst.event(&Event::Call(CallEvent {
                    thread: 0,
                    call: Call::Send,
                    start: message * 1_000_000 + piece * 2000,
                    took: 1000,
                    inside: 1000,
                    calls: 1,
                    socket: Some(0),
                    result: 100,
                    bytes: 100,
                    asked: 100,
                    to: None,
                    in_mpi: false,
                    peeked: false,
                }));
            }
        }
        let analysis = analyst.finish();
        let connections = analysis.connections(&run);
        crumbs(&run, &connections).into_iter().collect()
    }

    #[test]
    fn small_pieces_are_the_programs_only_where_it_chooses_its_sends() {
        let found = pieces(None);
        assert!(found.iter().any(|one| one.title == "One send per message"), "{found:?}");
        assert!(pieces(Some(MpiWorld::default())).is_empty());
    }
}
