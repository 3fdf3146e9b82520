//! The functions that are recorded. Numbers are part of the file format: they are never given to another function.

/// What a call does for the one who waits on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Bytes leave.
    Send,
    /// Bytes arrive.
    Receive,
    /// Waits until something is possible: `poll` and its kin.
    Wait,
    /// A connection begins.
    Open,
    /// A descriptor or a connection ends.
    Close,
    /// Everything else: options, names, duplicates.
    Other,
    /// MPI: a message leaves (whether it blocks or not).
    MpiSend,
    /// MPI: a message is asked for or arrives.
    MpiReceive,
    /// MPI: waits for what was begun.
    MpiWait,
    /// MPI: all processes of a communicator take part.
    MpiCollective,
    /// MPI: put, get, accumulate and what orders them.
    MpiOneSided,
    /// MPI: everything else.
    MpiOther,
}

macro_rules! calls {
    ($($name:ident = $number:literal, $text:literal, $class:ident;)*) => {
        /// A recorded function, by its number in a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is named like its function")]
        pub enum Call { $($name = $number,)* }

        impl Call {
            /// All, by number.
            pub const ALL: &'static [Call] = &[$(Call::$name,)*];

            /// The call of this number.
            pub const fn from_number(number: u8) -> Option<Call> {
                match number { $($number => Some(Call::$name),)* _ => None }
            }

            /// The function's name as in its manual page.
            pub const fn name(self) -> &'static str {
                match self { $(Call::$name => $text,)* }
            }

            /// What it does.
            pub const fn class(self) -> Class {
                match self { $(Call::$name => Class::$class,)* }
            }
        }
    };
}

impl Call {
    /// What Polyrail's rails do in shared memory: a whole message put there, a part of one, what came taken out; the peer's memory read or
    /// written by the kernel.
    pub const SHARED: [Call; 5] =
        [Call::ShmPut, Call::ShmPart, Call::ShmTake, Call::ProcessVmReadV, Call::ProcessVmWriteV];

    /// Whether it moves bytes by itself from one process's memory to another's: no call of the other process belongs to it.
    pub const fn is_direct(self) -> bool {
        matches!(self, Call::ProcessVmReadV | Call::ProcessVmWriteV)
    }
}

calls! {
    Socket = 1, "socket", Open;
    SocketPair = 2, "socketpair", Open;
    Bind = 3, "bind", Other;
    Listen = 4, "listen", Other;
    Connect = 5, "connect", Open;
    Accept = 6, "accept", Open;
    Accept4 = 7, "accept4", Open;
    Shutdown = 8, "shutdown", Close;
    Close = 9, "close", Close;
    Dup = 10, "dup", Other;
    Dup2 = 11, "dup2", Other;
    Dup3 = 12, "dup3", Other;
    FcntlDup = 13, "fcntl", Other;
    GetSockOpt = 14, "getsockopt", Other;
    SetSockOpt = 15, "setsockopt", Other;
    GetSockName = 16, "getsockname", Other;
    GetPeerName = 17, "getpeername", Other;

    Send = 20, "send", Send;
    SendTo = 21, "sendto", Send;
    SendMsg = 22, "sendmsg", Send;
    SendMMsg = 23, "sendmmsg", Send;
    Write = 24, "write", Send;
    WriteV = 25, "writev", Send;
    SendFile = 26, "sendfile", Send;
    SpliceTo = 27, "splice", Send;

    Recv = 40, "recv", Receive;
    RecvFrom = 41, "recvfrom", Receive;
    RecvMsg = 42, "recvmsg", Receive;
    RecvMMsg = 43, "recvmmsg", Receive;
    Read = 44, "read", Receive;
    ReadV = 45, "readv", Receive;
    SpliceFrom = 46, "splice", Receive;

    Poll = 60, "poll", Wait;
    PPoll = 61, "ppoll", Wait;
    Select = 62, "select", Wait;
    PSelect = 63, "pselect", Wait;
    EpollWait = 64, "epoll_wait", Wait;
    EpollPWait = 65, "epoll_pwait", Wait;
    EpollPWait2 = 66, "epoll_pwait2", Wait;
    EpollCtl = 67, "epoll_ctl", Other;

    ShmPut = 80, "shm_put", Send;
    ShmPart = 81, "shm_part", Send;
    ShmTake = 82, "shm_take", Receive;
    ProcessVmReadV = 83, "process_vm_readv", Receive;
    ProcessVmWriteV = 84, "process_vm_writev", Send;

    MpiInit = 128, "MPI_Init", MpiOther;
    MpiFinalize = 129, "MPI_Finalize", MpiOther;
    MpiSend = 130, "MPI_Send", MpiSend;
    MpiBsend = 131, "MPI_Bsend", MpiSend;
    MpiSsend = 132, "MPI_Ssend", MpiSend;
    MpiRsend = 133, "MPI_Rsend", MpiSend;
    MpiIsend = 134, "MPI_Isend", MpiSend;
    MpiIbsend = 135, "MPI_Ibsend", MpiSend;
    MpiIssend = 136, "MPI_Issend", MpiSend;
    MpiIrsend = 137, "MPI_Irsend", MpiSend;
    MpiRecv = 138, "MPI_Recv", MpiReceive;
    MpiIrecv = 139, "MPI_Irecv", MpiReceive;
    MpiSendrecv = 140, "MPI_Sendrecv", MpiSend;
    MpiSendrecvReplace = 141, "MPI_Sendrecv_replace", MpiSend;
    MpiProbe = 142, "MPI_Probe", MpiWait;
    MpiIprobe = 143, "MPI_Iprobe", MpiWait;
    MpiMprobe = 144, "MPI_Mprobe", MpiWait;
    MpiMrecv = 145, "MPI_Mrecv", MpiReceive;
    MpiImrecv = 146, "MPI_Imrecv", MpiReceive;
    MpiWait = 147, "MPI_Wait", MpiWait;
    MpiWaitall = 148, "MPI_Waitall", MpiWait;
    MpiWaitany = 149, "MPI_Waitany", MpiWait;
    MpiWaitsome = 150, "MPI_Waitsome", MpiWait;
    MpiTest = 151, "MPI_Test", MpiWait;
    MpiTestall = 152, "MPI_Testall", MpiWait;
    MpiTestany = 153, "MPI_Testany", MpiWait;
    MpiTestsome = 154, "MPI_Testsome", MpiWait;
    MpiStart = 155, "MPI_Start", MpiSend;
    MpiStartall = 156, "MPI_Startall", MpiSend;
    MpiSendInit = 157, "MPI_Send_init", MpiOther;
    MpiRecvInit = 158, "MPI_Recv_init", MpiOther;

    MpiBarrier = 170, "MPI_Barrier", MpiCollective;
    MpiBcast = 171, "MPI_Bcast", MpiCollective;
    MpiReduce = 172, "MPI_Reduce", MpiCollective;
    MpiAllreduce = 173, "MPI_Allreduce", MpiCollective;
    MpiGather = 174, "MPI_Gather", MpiCollective;
    MpiGatherv = 175, "MPI_Gatherv", MpiCollective;
    MpiScatter = 176, "MPI_Scatter", MpiCollective;
    MpiScatterv = 177, "MPI_Scatterv", MpiCollective;
    MpiAllgather = 178, "MPI_Allgather", MpiCollective;
    MpiAllgatherv = 179, "MPI_Allgatherv", MpiCollective;
    MpiAlltoall = 180, "MPI_Alltoall", MpiCollective;
    MpiAlltoallv = 181, "MPI_Alltoallv", MpiCollective;
    MpiReduceScatter = 182, "MPI_Reduce_scatter", MpiCollective;
    MpiReduceScatterBlock = 183, "MPI_Reduce_scatter_block", MpiCollective;
    MpiScan = 184, "MPI_Scan", MpiCollective;
    MpiExscan = 185, "MPI_Exscan", MpiCollective;
    MpiIbarrier = 186, "MPI_Ibarrier", MpiCollective;
    MpiIbcast = 187, "MPI_Ibcast", MpiCollective;
    MpiIreduce = 188, "MPI_Ireduce", MpiCollective;
    MpiIallreduce = 189, "MPI_Iallreduce", MpiCollective;
    MpiIallgather = 190, "MPI_Iallgather", MpiCollective;
    MpiIalltoall = 191, "MPI_Ialltoall", MpiCollective;
    MpiAlltoallw = 192, "MPI_Alltoallw", MpiCollective;
    MpiCommSplit = 193, "MPI_Comm_split", MpiCollective;
    MpiCommDup = 194, "MPI_Comm_dup", MpiCollective;
    MpiCommCreate = 195, "MPI_Comm_create", MpiCollective;

    MpiPut = 210, "MPI_Put", MpiOneSided;
    MpiGet = 211, "MPI_Get", MpiOneSided;
    MpiAccumulate = 212, "MPI_Accumulate", MpiOneSided;
    MpiWinFence = 213, "MPI_Win_fence", MpiOneSided;
    MpiWinFlush = 214, "MPI_Win_flush", MpiOneSided;
    MpiWinLock = 215, "MPI_Win_lock", MpiOneSided;
    MpiWinUnlock = 216, "MPI_Win_unlock", MpiOneSided;
}
