//! `struct tcp_info` as raw bytes, and the record that keeps a look at a connection in a file.

use crate::model::TcpSample;

/// Where each field stands in `struct tcp_info` (linux/tcp.h), which only ever grows at its end: an older kernel gives fewer
/// bytes, and what it does not give is 0.
macro_rules! tcp_info_fields {
    ($($field:ident: $type:ident = $at:literal, $kernel:ident;)*) => {
        /// What the bytes of a `struct tcp_info` of any length say: all of a [`TcpSample`] but the socket, the moment, the
        /// congestion control's name and the room in the send buffer, which the kernel tells apart from it.
        pub fn tcp_info(bytes: &[u8]) -> TcpSample {
            let mut sample = TcpSample::default();
            $(if let Some(field) = bytes.get($at..$at + size_of::<$type>()) {
                sample.$field = $type::from_ne_bytes(field.try_into().unwrap_or_default()).into();
            })*
            sample
        }

        #[cfg(test)]
        const OFFSETS: &[(&str, usize, usize)] =
            &[$((stringify!($field), $at, core::mem::offset_of!(libc::tcp_info, $kernel)),)*];
    };
}

tcp_info_fields! {
    state: u8 = 0, tcpi_state;
    ca_state: u8 = 1, tcpi_ca_state;
    rto: u32 = 8, tcpi_rto;
    mss: u32 = 16, tcpi_snd_mss;
    unacked: u32 = 24, tcpi_unacked;
    sacked: u32 = 28, tcpi_sacked;
    lost: u32 = 32, tcpi_lost;
    retrans: u32 = 36, tcpi_retrans;
    last_sent: u32 = 44, tcpi_last_data_sent;
    rtt: u32 = 68, tcpi_rtt;
    rtt_var: u32 = 72, tcpi_rttvar;
    ssthresh: u32 = 76, tcpi_snd_ssthresh;
    cwnd: u32 = 80, tcpi_snd_cwnd;
    total_retrans: u32 = 100, tcpi_total_retrans;
    pacing_rate: u64 = 104, tcpi_pacing_rate;
    bytes_acked: u64 = 120, tcpi_bytes_acked;
    bytes_received: u64 = 128, tcpi_bytes_received;
    notsent: u32 = 144, tcpi_notsent_bytes;
    min_rtt: u32 = 148, tcpi_min_rtt;
    delivery_rate: u64 = 160, tcpi_delivery_rate;
    busy_time: u64 = 168, tcpi_busy_time;
    rwnd_limited: u64 = 176, tcpi_rwnd_limited;
    sndbuf_limited: u64 = 184, tcpi_sndbuf_limited;
    bytes_sent: u64 = 200, tcpi_bytes_sent;
    bytes_retrans: u64 = 208, tcpi_bytes_retrans;
    dsack_dups: u32 = 216, tcpi_dsack_dups;
    reord_seen: u32 = 220, tcpi_reord_seen;
    snd_wnd: u32 = 228, tcpi_snd_wnd;
    total_rto: u16 = 240, tcpi_total_rto;
}

/// A look at a connection, as it is kept in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Which connection, by the kernel's number for its socket (`SO_COOKIE`).
    pub cookie: u64,
    /// What was seen, on the host's monotonic clock. Its socket is 0: whoever reads the file finds that out by the cookie.
    pub tcp: TcpSample,
}

/// Bytes of a [`Sample`] in a file.
pub const SAMPLE_BYTES: usize = 184;

macro_rules! sample_layout {
    ($($field:ident: $type:ident,)*) => {
        impl Sample {
            /// As in a file: moment u64, cookie u64, name of the congestion control, then the other fields by falling size,
            /// each little-endian; two bytes of zeros at the end.
            pub fn to_bytes(&self) -> [u8; SAMPLE_BYTES] {
                let mut bytes = [0; SAMPLE_BYTES];
                bytes[..8].copy_from_slice(&self.tcp.at.to_le_bytes());
                bytes[8..16].copy_from_slice(&self.cookie.to_le_bytes());
                bytes[16..32].copy_from_slice(&self.tcp.congestion);
                let mut at = 32;
                $(bytes[at..at + size_of::<$type>()].copy_from_slice(&self.tcp.$field.to_le_bytes());
                at += size_of::<$type>();)*
                debug_assert_eq!(at, SAMPLE_BYTES - 2);
                bytes
            }

            /// The reverse of [`to_bytes`](Self::to_bytes); any bytes are a sample.
            pub fn from_bytes(bytes: &[u8; SAMPLE_BYTES]) -> Sample {
                let mut rest = &bytes[..];
                // Never short: the sizes add up, as golden_bytes shows.
                let mut take = |n: usize| rest.split_off(..n).unwrap_or_default();
                let mut sample = Sample::default();
                sample.tcp.at = u64::from_le_bytes(take(8).try_into().unwrap_or_default());
                sample.cookie = u64::from_le_bytes(take(8).try_into().unwrap_or_default());
                sample.tcp.congestion = take(16).try_into().unwrap_or_default();
                $(sample.tcp.$field =
                    $type::from_le_bytes(take(size_of::<$type>()).try_into().unwrap_or_default());)*
                sample
            }
        }
    };
}

sample_layout! {
    bytes_sent: u64, bytes_retrans: u64, bytes_acked: u64, bytes_received: u64,
    delivery_rate: u64, pacing_rate: u64, busy_time: u64, rwnd_limited: u64, sndbuf_limited: u64,
    cwnd: u32, ssthresh: u32, mss: u32, rtt: u32, rtt_var: u32, min_rtt: u32, rto: u32,
    unacked: u32, lost: u32, sacked: u32, retrans: u32, total_retrans: u32, total_rto: u32,
    dsack_dups: u32, reord_seen: u32, notsent: u32, send_free: u32, snd_wnd: u32, last_sent: u32,
    state: u8, ca_state: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_are_those_of_the_kernel() {
        for &(field, ours, kernels) in OFFSETS {
            assert_eq!(ours, kernels, "{field}");
        }
    }

    #[test]
    fn what_an_older_kernel_does_not_say_is_zero() {
        let bytes: Vec<u8> = (0..248u32).map(|at| at as u8).collect();
        let whole = tcp_info(&bytes);
        assert_eq!((whole.state, whole.ca_state), (0, 1));
        assert_eq!(whole.total_rto, u32::from(u16::from_ne_bytes([240, 241])));
        for length in 0..=bytes.len() {
            let part = tcp_info(&bytes[..length]);
            let expected = |complete, value| if complete { value } else { 0 };
            assert_eq!(part.total_rto, expected(length >= 242, whole.total_rto));
            assert_eq!(part.snd_wnd, expected(length >= 232, whole.snd_wnd));
            assert_eq!(part.rtt, expected(length >= 72, whole.rtt));
        }
        assert_eq!(tcp_info(&[0xff; 4096]), tcp_info(&[0xff; 242]));
    }

    #[test]
    fn golden_bytes() {
        let tcp = TcpSample {
            at: 0x0102_0304_0506_0708,
            state: 1,
            ca_state: 4,
            congestion: *b"cubic\0\0\0\0\0\0\0\0\0\0\0",
            bytes_sent: 0x1111,
            sndbuf_limited: 0x2222,
            cwnd: 10,
            last_sent: 0x3333,
            ..Default::default()
        };
        let bytes = Sample { cookie: 0x4d2, tcp }.to_bytes();
        let mut expected = [0; SAMPLE_BYTES];
        expected[..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected[8..10].copy_from_slice(&[0xd2, 4]);
        expected[16..21].copy_from_slice(b"cubic");
        expected[32..34].copy_from_slice(&[0x11, 0x11]);
        expected[96..98].copy_from_slice(&[0x22, 0x22]);
        expected[104] = 10;
        expected[176..178].copy_from_slice(&[0x33, 0x33]);
        expected[180..182].copy_from_slice(&[1, 4]);
        assert_eq!(bytes, expected);
        assert_eq!(Sample::from_bytes(&bytes).tcp, tcp);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_sample_and_come_back(mut bytes in proptest::collection::vec(any::<u8>(), SAMPLE_BYTES)) {
            bytes[SAMPLE_BYTES - 2..].fill(0);
            let bytes: [u8; SAMPLE_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Sample::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn any_tcp_info_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            tcp_info(&bytes);
        }
    }
}
