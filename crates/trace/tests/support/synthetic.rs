//! A made-up run: MPI ranks over TCP between two hosts, that exchange borders with two neighbours, agree on a sum now and then, pause, and lose
//! segments. Events are made while they are asked for, so that a run of any length needs no memory.

#![allow(dead_code, reason = "each user needs a part of it")]

use polyrail_trace::model::*;
use std::net::SocketAddr;

/// ns of a millisecond.
const MS: u64 = 1_000_000;

/// What to make.
#[derive(Clone, Debug)]
pub struct Synthetic {
    run: Run,
    ranks: u32,
    steps: u64,
}

/// Where a rank is in time, and what it has made and not given away.
struct Rank {
    now: u64,
    events: Vec<Event>,
}

/// What a socket's TCP is like.
#[derive(Clone, Copy, Default)]
struct Link {
    cwnd: u32,
    ssthresh: u32,
    sent: u64,
    again: u32,
    timeouts: u32,
    last: u64,
    busy: u64,
}

/// Numbers without a pattern.
struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most.max(1)
    }
}

impl Synthetic {
    /// A run of `ranks` ranks and so many steps of about 60 calls.
    pub fn new(ranks: u32, steps: u64) -> Synthetic {
        let host = |n: u32| Host {
            name: format!("node{n}"),
            kernel: "6.18.0".into(),
            processors: 8,
            addresses: vec![("eth0".into(), [10, 0, n as u8, 1].into())],
            settings: vec![("net.ipv4.tcp_slow_start_after_idle".into(), "1".into())],
            clock_error: Some(u64::from(n) * 12_000),
            kernel_events: n == 0,
            why_no_events: (n > 0).then(|| "kernel events need root; TCP_INFO is sampled instead".into()),
        };
        let mut run = Run {
            command: ["mpiexec", "-n", &ranks.to_string(), "./stencil", "--title", "</script><b>&amp;\"'"]
                .map(String::from)
                .into(),
            date: 1_795_000_000_000_000_000,
            status: Some(0),
            hosts: vec![host(0), host(1)],
            ..Run::default()
        };
        let start = 5_000_000_000_000;
        let span = (start, start + Self::length(steps));
        run.span = span;
        for rank in 0..ranks {
            run.processes.push(Process {
                host: rank * 2 / ranks,
                pid: 4000 + rank,
                parent: None,
                command: vec!["/home/ana/bin/stencil".into(), "--title".into(), "</script><b>".into()],
                mpi: Some(MpiWorld { rank, size: ranks, library: "MPICH 5.0.2".into() }),
                span,
                status: Some(0),
            });
            run.threads.push(Thread {
                process: rank,
                tid: 4000 + rank,
                name: "stencil".into(),
                records: steps * 60,
                lost: 0,
            });
        }
        for (socket, (me, other)) in Self::pairs(ranks).enumerate() {
            let name = |rank: u32, port: u32| {
                SocketAddr::from(([10, 0, (rank * 2 / ranks) as u8, 1], (20_000 + port) as u16))
            };
            let (low, high) = (me.min(other), me.max(other));
            let (mine, theirs) = (name(me, low * ranks + high), name(other, low * ranks + high));
            run.sockets.push(Socket {
                cookie: 1000 + socket as u64,
                kind: Kind::Tcp,
                process: me,
                local: Some(mine),
                remote: Some(theirs),
                listening: false,
                accepted: false,
                begun: true,
                heard_first: None,
                peer: Self::pairs(ranks).position(|pair| pair == (other, me)).map(|peer| peer as u32),
                span,
            });
        }
        Synthetic { run, ranks, steps }
    }

    /// The run, to be made worse.
    pub fn run_mut(&mut self) -> &mut Run {
        &mut self.run
    }

    fn pairs(ranks: u32) -> impl Iterator<Item = (u32, u32)> {
        (0..ranks).flat_map(move |a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)))
    }

    fn pauses(step: u64) -> bool {
        step % 200 == 199
    }

    fn length(steps: u64) -> u64 {
        steps * 14 * MS + steps / 200 * 1000 * MS + 400 * MS
    }

    fn socket(&self, from: u32, to: u32) -> u32 {
        from * (self.ranks - 1) + to - u32::from(to > from)
    }
}

impl Events for Synthetic {
    fn run(&self) -> &Run {
        &self.run
    }

    fn for_each(&self, each: &mut dyn FnMut(&Event)) -> Result<(), std::io::Error> {
        let mut noise = Noise(88_172_645_463_325_252);
        let mut links =
            vec![Link { cwnd: 10, ssthresh: 0x7fff_ffff, ..Link::default() }; self.run.sockets.len()];
        let mut all: Vec<Event> = Vec::new();
        let mut base = self.run.span.0;
        for step in 0..self.steps {
            let pause = Self::pauses(step);
            if pause {
                base += 1000 * MS;
            }
            let bytes = if pause { 512 << 10 } else { 20_000 + noise.below(4000) };
            let mut ranks: Vec<Rank> = (0..self.ranks)
                .map(|rank| Rank {
                    now: base + noise.below(MS) + u64::from(rank == 1) * MS,
                    events: Vec::new(),
                })
                .collect();
            self.exchange(&mut ranks, &mut links, &mut noise, bytes, step);
            if step % 10 == 9 {
                self.reduce(&mut ranks, &mut links, &mut noise);
            }
            base += 14 * MS;
            all.extend(ranks.into_iter().flat_map(|rank| rank.events));
            all.sort_by_key(|event| match event {
                Event::Call(call) => call.start + call.took,
                Event::Mpi(call) => call.start + call.took,
                Event::Tcp(sample) => sample.at,
                Event::Kernel(event) => event.at,
            });
            all.drain(..).for_each(|event| each(&event));
        }
        Ok(())
    }
}

impl Synthetic {
    fn exchange(&self, ranks: &mut [Rank], links: &mut [Link], noise: &mut Noise, bytes: u64, step: u64) {
        let n = self.ranks;
        let mut arrivals = vec![0u64; (n * n) as usize];
        for me in 0..n {
            for to in [(me + 1) % n, (me + n - 1) % n] {
                let start = ranks[me as usize].now;
                let arrival = self.send(&mut ranks[me as usize], links, noise, me, to, bytes, step);
                let end = ranks[me as usize].now + 900;
                ranks[me as usize].now = end;
                arrivals[(me * n + to) as usize] = arrivals[(me * n + to) as usize].max(arrival);
                ranks[me as usize].events.push(mpi(me, Call::MpiSend, start, end, to as i32, bytes));
            }
        }
        for me in 0..n {
            let rank = &mut ranks[me as usize];
            let start = rank.now;
            for from in [(me + 1) % n, (me + n - 1) % n] {
                self.receive(rank, me, from, bytes, arrivals[(from * n + me) as usize]);
            }
            let end = rank.now + 700;
            rank.now = end;
            rank.events.push(mpi(me, Call::MpiWaitall, start, end, MpiFields::NOBODY, 0));
        }
    }

    fn reduce(&self, ranks: &mut [Rank], links: &mut [Link], noise: &mut Noise) {
        let n = self.ranks;
        let starts: Vec<u64> = ranks.iter().map(|rank| rank.now).collect();
        let mut distance = 1;
        while distance < n {
            let mut arrivals = vec![0; n as usize];
            for me in 0..n {
                let to = me ^ distance;
                if to < n {
                    arrivals[to as usize] = self.send(&mut ranks[me as usize], links, noise, me, to, 8, 0);
                }
            }
            for me in (0..n).filter(|me| (me ^ distance) < n) {
                self.receive(&mut ranks[me as usize], me, me ^ distance, 8, arrivals[me as usize]);
            }
            distance *= 2;
        }
        for (me, start) in starts.into_iter().enumerate() {
            let end = ranks[me].now + 400;
            ranks[me].now = end;
            ranks[me].events.push(mpi(me as u32, Call::MpiAllreduce, start, end, MpiFields::NOBODY, 8));
        }
    }

    /// A header and the payload; returns when it arrives.
    #[allow(clippy::too_many_arguments, reason = "a message has that many sides")]
    fn send(
        &self,
        rank: &mut Rank,
        links: &mut [Link],
        noise: &mut Noise,
        from: u32,
        to: u32,
        bytes: u64,
        step: u64,
    ) -> u64 {
        let socket = self.socket(from, to);
        let far = from * 2 / self.ranks != to * 2 / self.ranks;
        let rtt = if far { 5_000 + noise.below(400) as u32 } else { 60 + noise.below(30) as u32 };
        let link = &mut links[socket as usize];
        if rank.now.saturating_sub(link.last) > 220 * MS && link.last > 0 {
            link.cwnd = 10;
        }
        let mut at = rank.now + 300;
        for (call, part) in [(Call::SendMsg, 64), (Call::WriteV, bytes)] {
            let took = 1_500 + part / 8 + noise.below(800);
            rank.events.push(call_event(from, call, at, took, Some(socket), part as i32));
            at += took + 400;
            link.sent += part;
        }
        let segments = bytes.div_ceil(1448) as u32;
        let mut left = segments;
        let mut time = at;
        while left > 0 {
            let cwnd = link.cwnd;
            let snd_nxt = link.sent.saturating_sub(u64::from(left.saturating_sub(cwnd)) * 1448) as u32;
            let snd_una = link.sent.saturating_sub(u64::from(left) * 1448) as u32;
            left = left.saturating_sub(cwnd);
            time += u64::from(rtt) * 1000;
            rank.events.push(Event::Kernel(KernelEvent {
                socket,
                at: time,
                what: KernelEventKind::Probe {
                    length: 0,
                    snd_nxt,
                    snd_una,
                    cwnd,
                    ssthresh: link.ssthresh,
                    snd_wnd: 400_000,
                    rtt,
                },
            }));
            let more = if cwnd < link.ssthresh { cwnd } else { 1 };
            link.cwnd = (cwnd + more).min(400);
            if far && noise.below(90) == 0 {
                let timeout = noise.below(4) == 0;
                link.again += 1;
                link.timeouts += u32::from(timeout);
                link.ssthresh = (cwnd / 2).max(2);
                link.cwnd = if timeout { 1 } else { link.ssthresh };
                let what = KernelEventKind::Retransmit { timeout };
                rank.events.push(Event::Kernel(KernelEvent { socket, at: time + 1000, what }));
                time += if timeout { 3 * MS } else { MS / 2 };
            }
        }
        let what = KernelEventKind::Probe {
            length: 0,
            snd_nxt: link.sent as u32,
            snd_una: link.sent as u32,
            cwnd: link.cwnd,
            ssthresh: link.ssthresh,
            snd_wnd: 400_000,
            rtt,
        };
        rank.events.push(Event::Kernel(KernelEvent { socket, at: time + 50_000, what }));
        link.busy += (time - at) / 1000;
        if step.is_multiple_of(4) {
            rank.events.push(Event::Tcp(self.sample(socket, at, link, rtt, segments)));
        }
        link.last = at;
        rank.now = at;
        (time - u64::from(rtt) * 500).min(rank.now + 9 * MS)
    }

    fn sample(&self, socket: u32, at: u64, link: &Link, rtt: u32, segments: u32) -> TcpSample {
        let mut congestion = [0; 16];
        congestion[..5].copy_from_slice(b"cubic");
        TcpSample {
            socket,
            at,
            state: 1,
            congestion,
            cwnd: link.cwnd,
            ssthresh: link.ssthresh,
            mss: 1448,
            rtt,
            rtt_var: rtt / 4,
            min_rtt: rtt * 9 / 10,
            rto: 200_000 + rtt,
            unacked: segments.min(link.cwnd),
            total_retrans: link.again,
            total_rto: link.timeouts,
            bytes_sent: link.sent + u64::from(link.again) * 1448,
            bytes_retrans: u64::from(link.again) * 1448,
            bytes_acked: link.sent.saturating_sub(1000),
            delivery_rate: 30_000_000,
            busy_time: link.busy,
            rwnd_limited: link.busy / 50,
            sndbuf_limited: link.busy / 7,
            send_free: 87_040 - segments.min(40) * 1448,
            snd_wnd: 400_000,
            ..TcpSample::default()
        }
    }

    fn receive(&self, rank: &mut Rank, me: u32, from: u32, bytes: u64, arrival: u64) {
        let socket = self.socket(me, from);
        let wait = arrival.saturating_sub(rank.now);
        let parts = 1 + wait / (2 * MS);
        for _ in 0..parts {
            rank.events.push(call_event(me, Call::EpollWait, rank.now, wait / parts, None, 1));
            rank.now += wait / parts + 300;
        }
        rank.events.push(call_event(me, Call::Recv, rank.now, 1_200, Some(socket), 64));
        rank.now += 1_500;
        let took = 1_000 + bytes / 6;
        rank.events.push(call_event(me, Call::ReadV, rank.now, took, Some(socket), bytes as i32));
        rank.now += took + 200;
        rank.events.push(call_event(me, Call::Recv, rank.now, 400, Some(socket), -11));
        rank.now += 600;
    }
}

fn call_event(thread: u32, call: Call, start: u64, took: u64, socket: Option<u32>, result: i32) -> Event {
    let bytes = if socket.is_some() { result.max(0) as u32 } else { 0 };
    Event::Call(CallEvent {
        thread,
        call,
        start,
        took,
        inside: took,
        calls: 1,
        socket,
        result,
        bytes,
        asked: bytes,
        to: None,
        in_mpi: true,
        peeked: false,
    })
}

fn mpi(thread: u32, call: Call, start: u64, end: u64, peer: i32, bytes: u64) -> Event {
    Event::Mpi(MpiEvent { thread, call, start, took: end - start, calls: 1, peer, tag: 7, bytes, comm: 0 })
}
