//! A stream over QUIC for so many seconds, as `bench/stream_check.c` is one over MPI, and what it felt like at the receiving end.
//!
//!   polyrail-bench-quic receive ADDRESS SECONDS
//!   polyrail-bench-quic send ADDRESS cubic|bbr
//!
//! The receiver prints `listens` when it may be called; then, as bytes come, `begin TIME` and `slice TIME MB/S` for each 100 ms, in
//! seconds of CLOCK_MONOTONIC; and at last `end TIME BYTES CPU`, processor seconds of its own, and hangs up. The sender prints `cpu` and its own.

use nix::time::ClockId;
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

type Any = Box<dyn Error>;

const SLICE: f64 = 0.1;
/// So much may be under way: what the longest path holds, and a little more; where it is far more, the receiver gives up for too many gaps.
const WINDOW: u32 = 16 << 20;
const PIECE: usize = 1 << 20;

/// Seconds of a clock.
fn clock(which: ClockId) -> f64 {
    which.now().map_or(0.0, |time| Duration::from(time).as_secs_f64())
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW));
    transport
}

async fn receive(at: SocketAddr, seconds: f64) -> Result<(), Any> {
    let made = rcgen::generate_simple_self_signed(vec!["bench".into()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    config.transport_config(Arc::new(transport()));
    let endpoint = Endpoint::server(config, at)?;
    println!("listens");
    let connection = endpoint.accept().await.ok_or("nobody calls")?.await?;
    let mut stream = connection.accept_uni().await?;
    let (mut slice, mut in_slice, mut total, mut used, mut begun) = (0.0, 0, 0, 0.0, 0.0);
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        let now = clock(ClockId::CLOCK_MONOTONIC);
        if slice == 0.0 {
            begun = now;
            (slice, used) = (now, clock(ClockId::CLOCK_PROCESS_CPUTIME_ID));
            println!("begin {now:.4}");
        }
        while now >= slice + SLICE {
            println!("slice {slice:.4} {:.2}", in_slice as f64 / SLICE / 1e6);
            (slice, in_slice) = (slice + SLICE, 0);
        }
        in_slice += chunk.bytes.len();
        total += chunk.bytes.len();
        if now >= begun + seconds {
            break;
        }
    }
    let used = clock(ClockId::CLOCK_PROCESS_CPUTIME_ID) - used;
    println!("end {:.4} {total} {used:.4}", clock(ClockId::CLOCK_MONOTONIC));
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// Whoever is there is believed: it is a measurement.
#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &rustls::pki_types::ServerName<'_>,
        _ocsp: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn send(to: SocketAddr, control: &str) -> Result<(), Any> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let crypto = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(crypto)?));
    let mut transport = transport();
    match control {
        "cubic" => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        "bbr" => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        _ => return Err(format!("it is cubic or bbr, not {control:?}").into()),
    };
    config.transport_config(Arc::new(transport));
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut endpoint = Endpoint::client(any.parse()?)?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(to, "bench")?.await?;
    let mut stream = connection.open_uni().await?;
    let piece = vec![0x5a; PIECE];
    // until the other side has had enough
    while stream.write_all(&piece).await.is_ok() {}
    println!("cpu {:.4}", clock(ClockId::CLOCK_PROCESS_CPUTIME_ID));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Any> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", at, seconds] => receive(at.parse()?, seconds.parse()?).await,
        ["send", to, control] => send(to.parse()?, control).await,
        _ => Err("usage: polyrail-bench-quic receive ADDRESS SECONDS | send ADDRESS cubic|bbr".into()),
    }
}
