//! Which micro-protocols each composition has: the first eight as P2PSAP's table says (El Baz and Nguyen, PDP 2010 and 2013).

use crate::snapshot;
use Composition::{
    AsyncInterEth, AsyncInterIb, AsyncIntraEth, AsyncIntraIb, AsyncPaced, SyncBbr, SyncCubic, SyncHtcp,
    SyncIllinois, SyncInterEth, SyncInterIb, SyncIntraEth, SyncIntraIb, SyncReno,
};
use polyrail_core::micro::{Composition, Scheme};
use std::fmt::Write;

const PUBLISHED: [Composition; 8] = [
    SyncIntraIb,
    SyncIntraEth,
    SyncInterIb,
    SyncInterEth,
    AsyncIntraIb,
    AsyncIntraEth,
    AsyncInterIb,
    AsyncInterEth,
];

/// The published table, a column a composition.
const TABLE: [(&str, &str); 15] = [
    ("TransportDriver", "xxxxxxxx"),
    ("Resize", "xxxxxxxx"),
    ("Synchronous", "xxxx...."),
    ("Asynchronous", "....xxxx"),
    ("SequencedSegment", ".x.x...."),
    ("PositiveAck", ".x.x...."),
    ("Retransmit", ".x.x...."),
    ("RTTEstimation", ".x.x...."),
    ("ReliableFIFO", ".x.x...."),
    ("DuplicateAck", "...x...."),
    ("WindowedCongestionControl", "...x...."),
    ("TCPNewRenoCongestionAvoidance", "...x...."),
    ("DCCPAck", ".......x"),
    ("DCCPWindowCongestionControl", ".......x"),
    ("TCPCongestionAvoidance", ".......x"),
];

/// x: for data; c: for the stream of an asynchronous channel, the control channel's share.
fn cell_of(one: Composition, row: &str) -> String {
    match () {
        () if one.micro_protocols().contains(&row) => "x",
        () if one.stream_micro_protocols().contains(&row) => "c",
        () => "",
    }
    .into()
}

fn table(title: &str, rows: &[&str], columns: &[Composition]) -> String {
    let mut text = format!("## {title}\n\n| micro-protocol |");
    columns.iter().for_each(|one| write!(text, " {} |", one.name()).unwrap());
    write!(text, "\n|---|{}\n", "---|".repeat(columns.len())).unwrap();
    let mut line = |name: &str, cell: &dyn Fn(Composition) -> String| {
        let cells: Vec<String> = columns.iter().map(|one| cell(*one)).collect();
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    };
    for row in rows {
        line(row, &|one| cell_of(one, row));
    }
    line("*number*", &|one| (one as u8).to_string());
    line("*needs a reliable network*", &|one| if one.needs_reliable_network() { "x" } else { "" }.into());
    text
}

/// The micro-protocols of these, in the order in which they stand first.
fn all_of(compositions: &[Composition]) -> Vec<&'static str> {
    let mut all = Vec::new();
    for name in compositions.iter().flat_map(|one| one.micro_protocols()) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[test]
fn the_first_eight_are_as_published() {
    for (at, composition) in PUBLISHED.into_iter().enumerate() {
        assert_eq!(composition as usize, at);
        let mut published: Vec<&str> =
            TABLE.iter().filter(|(_, row)| row.as_bytes()[at] == b'x').map(|(name, _)| *name).collect();
        let mut ours = composition.micro_protocols();
        published.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, published, "{composition:?}");
    }
}

#[test]
fn all_are_as_pinned() {
    let modern = [SyncReno, SyncCubic, SyncBbr, SyncIllinois, SyncHtcp, AsyncPaced];
    assert_eq!(PUBLISHED.len() + modern.len(), Composition::ALL.len());
    let mut names = TABLE.map(|(name, _)| name).to_vec();
    names.push("ControlAck");
    let legend =
        "x: for data; c: for the stream of an asynchronous channel, which is the control channel's share.\n"
            .into();
    let text = [
        legend,
        table("Compositions of P2PSAP", &names, &PUBLISHED),
        table("Compositions of today", &all_of(&modern), &modern),
    ];
    snapshot::check("compositions.md", &text.join("\n"));
}

#[test]
fn names_and_numbers_are_of_one_each() {
    for one in Composition::ALL.iter().copied() {
        assert_eq!(Composition::of_name(one.name()), Some(one));
        assert_eq!(Composition::of_number(one as u8), Some(one));
        assert_eq!(one.scheme() == Scheme::Asynchronous, one.micro_protocols().contains(&"Asynchronous"));
    }
}
