//! What was recorded, passed over in the order of time.

use std::fs::File;
use std::io::{self, BufReader};

use polyrail_core::trace::{Call, Class, Record, Span, flags, note};

use super::{Recorded, Source, Stream};
use crate::blocks::kind;
use crate::diag::{SAMPLE_BYTES, Sample, tcp_info};
use crate::file::{Block, Next, Reader};
use crate::kernel::{KERNEL_BYTES, KernelRecord};
use crate::model::{CallEvent, Event, Events, KernelEvent, MpiEvent, Run, TcpSample};
use crate::notes::u32_at;
use crate::records::Records;

impl Recorded {
    /// Passes over the sources, block by block in the order of time.
    fn each_block(&self, each: &mut dyn FnMut(&Source, &Block)) -> io::Result<()> {
        struct Open<'a> {
            source: &'a Source,
            reader: Reader<BufReader<File>>,
            block: Block,
            at: Option<u64>,
        }
        impl Open<'_> {
            fn advance(&mut self) -> io::Result<()> {
                self.at = match self.reader.next(&mut self.block)? {
                    Next::Block => Some(self.source.aligned.time(self.block.at)),
                    _ => None,
                };
                Ok(())
            }
        }
        let mut all = Vec::new();
        for source in &self.sources {
            let file = File::open(&source.path)?;
            let length = file.metadata()?.len();
            let reader = Reader::new(BufReader::with_capacity(1 << 18, file), length)?;
            let mut open = Open { source, reader, block: Block::default(), at: None };
            open.advance()?;
            all.push(open);
        }
        while let Some(next) = all.iter_mut().filter(|open| open.at.is_some()).min_by_key(|open| open.at) {
            each(next.source, &next.block);
            next.advance()?;
        }
        Ok(())
    }
}

impl Events for Recorded {
    fn run(&self) -> &Run {
        &self.run
    }

    fn for_each(&self, each: &mut dyn FnMut(&Event)) -> Result<(), io::Error> {
        self.each_block(&mut |source, block| match block.kind {
            kind::RECORDS | kind::SYSCALLS => {
                if let Some(stream) = source.streams.get(&block.stream) {
                    for (record, payload) in Records::new(&block.payload) {
                        if let Some(event) = source.event(stream, &record, payload) {
                            each(&event);
                        }
                    }
                }
            }
            kind::TCP => {
                for bytes in block.payload.as_chunks::<SAMPLE_BYTES>().0 {
                    let Sample { cookie, tcp } = Sample::from_bytes(bytes);
                    if let Some(socket) = source.cookies.get(&cookie) {
                        each(&Event::Tcp(TcpSample {
                            socket: *socket,
                            at: source.aligned.time(tcp.at),
                            ..tcp
                        }));
                    }
                }
            }
            kind::KERNEL => {
                for bytes in block.payload.as_chunks::<KERNEL_BYTES>().0 {
                    if let Some(KernelRecord { at, cookie, what }) = KernelRecord::from_bytes(bytes)
                        && let Some(socket) = source.cookies.get(&cookie)
                    {
                        each(&Event::Kernel(KernelEvent {
                            socket: *socket,
                            at: source.aligned.time(at),
                            what,
                        }));
                    }
                }
            }
            _ => {}
        })
    }
}

impl Source {
    fn event(&self, stream: &Stream, record: &Record, payload: &[u8]) -> Option<Event> {
        if record.call == 0 {
            return self.last_word(stream, record, payload);
        }
        let call = Call::from_number(record.call)?;
        let start = self.time(record.start, stream.by_kernel);
        let end = self.time(record.start.saturating_add(record.took.ticks()), stream.by_kernel);
        let took = end.saturating_sub(start);
        let run = record.flags & flags::RUN != 0;
        let calls = if run { record.rest[3].max(1) } else { 1 };
        if record.call >= Call::MpiInit as u8 {
            let fields = record.mpi_fields();
            let bytes = if run { 0 } else { fields.bytes };
            return Some(Event::Mpi(MpiEvent {
                thread: stream.thread,
                call,
                start,
                took,
                calls,
                peer: fields.peer,
                tag: fields.tag,
                bytes,
                comm: fields.comm,
            }));
        }
        let fields = record.socket_fields();
        let moves = matches!(call.class(), Class::Send | Class::Receive);
        let many = matches!(call, Call::SendMMsg | Call::RecvMMsg);
        let receives = matches!(call, Call::Recv | Call::RecvFrom | Call::RecvMsg | Call::RecvMMsg);
        let peeked = receives && !run && i32::from(fields.extra) & libc::MSG_PEEK != 0;
        let bytes = match (moves && fields.result > 0 && !peeked, many) {
            (true, true) => fields.arg,
            (true, false) => fields.result as u32,
            _ => 0,
        };
        let inside = if run { self.ticks.length(Span(fields.arg).ticks()).min(took) } else { took };
        Some(Event::Call(CallEvent {
            thread: stream.thread,
            call,
            start,
            took,
            inside,
            calls,
            socket: self.programs[stream.program].sockets.get(&fields.socket).copied(),
            result: fields.result,
            bytes,
            asked: if run { 0 } else { fields.arg },
            to: if (moves || call == Call::Connect) && !run && fields.arg2 != 0 {
                self.addresses.get(&fields.arg2).copied()
            } else {
                None
            },
            in_mpi: record.flags & flags::IN_MPI != 0,
            peeked,
        }))
    }

    /// What the kernel said of a connection when it was closed.
    fn last_word(&self, stream: &Stream, record: &Record, payload: &[u8]) -> Option<Event> {
        if record.flags != note::TCP_INFO {
            return None;
        }
        let socket = *self.programs[stream.program].sockets.get(&u32_at(payload, 0))?;
        let mut sample = tcp_info(payload.get(24..)?);
        (sample.socket, sample.at, sample.send_free) =
            (socket, self.time(record.start, stream.by_kernel), u32_at(payload, 4));
        sample.congestion.copy_from_slice(payload.get(8..24)?);
        Some(Event::Tcp(sample))
    }
}
