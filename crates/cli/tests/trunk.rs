//! Two gateways in the lab, on two hosts that are joined by two rails: what becomes of streams when one of them fails, or both, while others flood the port
//! that gateways dial; and hosts that know IPv6 alone. It needs root, or user namespaces.

use std::path::Path;
use std::process::{Command, Stdio};

const POLYRAIL: &str = env!("CARGO_BIN_EXE_polyrail");

/// Each side of each connection sends so many bytes that look random, then their digest, and checks what it gets. Who calls says how it ended.
const PROGRAM: &str = r#"
import hashlib, os, socket, sys, threading
what, ip, port, count, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
PIECE = 1 << 16
def send(s):
    digest, piece = hashlib.sha256(), os.urandom(PIECE)
    for n in range(length // PIECE):
        piece = piece[1:] + bytes([n % 251])
        digest.update(piece)
        s.sendall(piece)
    s.sendall(digest.digest())
    s.shutdown(socket.SHUT_WR)
def receive(s):
    digest, left, last = hashlib.sha256(), length // PIECE * PIECE, b''
    while True:
        piece = s.recv(PIECE)
        if not piece:
            break
        if last == b'' and what == 'call' and left == length // PIECE * PIECE:
            begun.append(s)
            if len(begun) == count: open(sys.argv[6], 'w').close()
        digest.update(piece[:left])
        last += piece[left:]
        left -= min(left, len(piece))
    return left == 0 and last == digest.digest()
said, begun = [], []
def both(s):
    s.settimeout(90)
    # the kernel tells of a reset once: to who sends, or to who receives, and the other one sees an end
    errors, whole = [], []
    def ended(run):
        try: whole.append(run(s))
        except OSError as error: errors.append(type(error).__name__)
    sender = threading.Thread(target=ended, args=(send,))
    sender.start()
    ended(receive)
    sender.join()
    reset = [error for error in errors if error == 'ConnectionResetError']
    said.append('reset' if reset else str(errors) if errors else 'whole' if True in whole else 'cut short')
    s.close()
if what == 'serve':
    family = socket.AF_INET6 if ':' in ip else socket.AF_INET
    listener = socket.create_server((ip, port), family=family)
    print('serves', flush=True)
    while True:
        s = listener.accept()[0]
        print('called by', s.getpeername()[0], flush=True)
        threading.Thread(target=both, args=(s,), daemon=True).start()
all = [threading.Thread(target=both, args=(socket.create_connection((ip, port), 60),)) for _ in range(count)]
[one.start() for one in all]
[one.join() for one in all]
print('streams:', *said, flush=True)
"#;

/// Half of them say nothing, the others what is no greeting; until this ends.
const FLOOD: &str = r#"
import os, socket, sys, time
held = []
while True:
    for n in range(40):
        try:
            s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)
            if n % 2: s.sendall(os.urandom(200))
            held.append(s)
        except OSError: pass
    for s in held[:-400]: s.close()
    held = held[-400:]
    time.sleep(0.1)
"#;

const SCRIPT: &str = r#"
set -u
polyrail=$1 files=$2 case=$3
on() { local pid; pid=$(<"$POLYRAIL_LAB/$1/pid"); shift; nsenter -t "$pid" -n -- "$@"; }
gateway() { local host=$1 site=$2; shift 2; on "$host" env POLYRAIL_INTERFACES='r*' $polyrail gateway --config "$files/$site/site.toml" "$@"; }
on a ip link set lo up && on a ip addr add 10.1.0.1/32 dev lo || exit 90
on b ip link set lo up && on b ip addr add 10.2.0.1/32 dev lo || exit 90
ours=(--network 10.1.0.0/24 --listen 127.0.0.1:4000) theirs=(--network 10.2.0.0/24 --listen 127.0.0.1:4000 --reached-at 10.77.0.2:4001)
if [ "$case" = six ]; then
  # between the hosts there is IPv6 alone; what the west's programs call is not where its gateway calls from
  for rail in r0 r1; do on a ip -4 addr flush dev $rail; on b ip -4 addr flush dev $rail; done
  for host in a b; do for name in lo r0; do on $host sh -c "echo 0 > /proc/sys/net/ipv6/conf/$name/disable_ipv6"; done; done
  on a ip addr add fd00:77::1/64 dev r0 nodad && on a ip addr add fd00:1::1/128 dev lo || exit 90
  on b ip addr add fd00:77::2/64 dev r0 nodad && on b ip addr add fd00:2::1/128 dev lo && on b ip addr add 10.9.9.9/32 dev lo || exit 90
  ours=(--network fd00:1::/64 --listen '[fd00:1::1]:4000')
  theirs=(--network fd00:2::/64 --network 10.2.0.0/24 --listen 10.9.9.9:4000 --reached-at '[fd00:77::2]:4001')
fi
east=$(gateway a east init --site east "${ours[@]}") || exit 91
west=$(gateway b west init --site west "${theirs[@]}") || exit 91
gateway a east trust "$west" && gateway b west trust "$east" || exit 92
[ "$case" = long ] && export POLYRAIL_PEER_TIMEOUT=3
gateway b west & gateway a east &
up() { gateway a east status --json | grep -q '"up":true'; }
for _ in $(seq 300); do up && break; sleep 0.1; done
up || exit 93
place=10.2.0.1 near=127.0.0.1:4000 wrap=()
[ "$case" = six ] && place=fd00:2::1 near='[fd00:1::1]:4000' wrap=($polyrail wrap --gateway 10.9.9.9:4000 --)
on b "${wrap[@]}" python3 "$files/program.py" serve $place 5000 0 "$4" > "$files/serves" &
for _ in $(seq 300); do [ -s "$files/serves" ] && break; sleep 0.1; done
call() { on a $polyrail wrap --gateway $near -- python3 "$files/program.py" call $place 5000 4 "$4" "$files/begun"; }
# all streams are under way
begun() { for _ in $(seq 600); do [ -e "$files/begun" ] && return; sleep 0.05; done; exit 95; }
case $case in
short)
  on a python3 "$files/flood.py" 10.77.0.2 4001 &
  call "$@" & called=$!
  begun; scripts/lab reset 0
  sleep 0.5; scripts/lab rail 0 down; sleep 1; scripts/lab rail 0 up
  sleep 0.5; scripts/lab rail 1 down; sleep 1; scripts/lab rail 1 up
  sleep 0.5; scripts/lab blackhole 0 on; scripts/lab blackhole 1 on; sleep 3; scripts/lab blackhole 0 off; scripts/lab blackhole 1 off
  kill -0 $called 2> /dev/null && echo "while they were under way"
  wait $called || exit 94 ;;
long)
  call "$@" & called=$!
  begun; scripts/lab blackhole 0 on; scripts/lab blackhole 1 on
  wait $called || exit 94
  scripts/lab blackhole 0 off; scripts/lab blackhole 1 off
  for _ in $(seq 300); do up && break; sleep 0.1; done
  call "$@" ;;
six)
  call "$@"; cat "$files/serves"
  # the gateway cannot be called by who speaks IPv4
  on a $polyrail wrap --gateway $near -- bash -c ': > /dev/tcp/10.2.0.1/5000' ;;
esac
kill $(jobs -p) 2> /dev/null
exit 0
"#;

/// Runs a case in the lab: what was said; nothing where there is no lab.
#[track_caller]
fn run(case: &str, rails: &str, bytes: usize) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let lab = |words: &[&str]| {
        let mut lab = Command::new("timeout");
        lab.args(["--kill-after=5", "240"]).arg(root.join("scripts/lab")).arg("run").args(words);
        lab.current_dir(&root).stdin(Stdio::null()).output().unwrap()
    };
    if !lab(&["--", "true"]).status.success() {
        polyrail_testing::lacking("network namespaces (scripts/lab)");
        return None;
    }
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("program.py"), PROGRAM).unwrap();
    std::fs::write(files.path().join("flood.py"), FLOOD).unwrap();
    let place = files.path().to_str().unwrap();
    let output = lab(&[
        "--rails",
        rails,
        "--",
        "bash",
        "-c",
        SCRIPT,
        "trunk",
        POLYRAIL,
        place,
        case,
        &bytes.to_string(),
    ]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{case}: {:?} {said}", output.status);
    Some(said)
}

#[test]
fn streams_are_whole_while_one_rail_after_the_other_fails_and_both_for_a_while() {
    if let Some(said) = run("short", "200 200", 120 << 20) {
        assert!(said.contains("while they were under way"), "it was over too soon: {said}");
        assert!(said.contains("streams: whole whole whole whole"), "{said}");
    }
}

#[test]
fn streams_end_with_an_error_when_both_rails_fail_for_long_and_others_go_on_afterwards() {
    if let Some(said) = run("long", "200 200", 20 << 20) {
        let ends: Vec<&str> = said.lines().filter(|line| line.starts_with("streams:")).collect();
        assert_eq!(ends.len(), 2, "{said}");
        let cut: Vec<&str> = ends[0].split_whitespace().skip(1).collect();
        assert!(cut.len() == 4 && cut.iter().all(|end| *end == "reset"), "{said}");
        assert_eq!(ends.get(1), Some(&"streams: whole whole whole whole"), "{said}");
    }
}

#[test]
fn hosts_that_know_ipv6_alone_reach_each_other() {
    if let Some(said) = run("six", "200 200", 2 << 20) {
        assert!(said.contains("streams: whole whole whole whole"), "{said}");
        // by their own name for it, though their gateway is called at another address than it calls from
        assert_eq!(said.matches("called by fd00:1::1\n").count(), 4, "{said}");
        assert!(said.contains("is called by IPv6 alone"), "{said}");
        assert!(said.contains("/dev/tcp/10.2.0.1/5000: Network is unreachable"), "{said}");
    }
}
