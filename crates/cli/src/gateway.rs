//! `polyrail gateway`: a site's gateway, and what its operator does for it. `polyrail_gateway` does the work.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use polyrail_gateway::Error;
use polyrail_gateway::config::{self, Config};
use polyrail_gateway::net::Network;
use polyrail_gateway::run::{Gateway, Signals};
use polyrail_gateway::site::{self, Identity, Token};
use polyrail_rails::relay;
use serde_json::Value;

use crate::output::{self, tell};
use crate::{signals, table};

/// How long a gateway that is asked how it is may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs this site's gateway, which carries connections to other sites; or does something for it.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// The gateway's file; its key and the sites that it trusts are beside it [default: ~/.config/polyrail/site.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Clone, clap::Subcommand)]
enum Task {
    /// Makes the file and the key of a site, and prints its token for other sites' operators
    Init(Init),
    /// Prints this site's token
    Token,
    /// Trusts a site from now on, by its token
    Trust(Trust),
    /// Shows what a running gateway carries
    Status(Status),
}

#[derive(Clone, clap::Args)]
struct Init {
    /// What this site is called: small letters, digits, hyphens
    #[arg(long)]
    site: String,
    /// Addresses of this site that others are to reach, such as 10.1.0.0/16
    #[arg(long = "network", value_name = "NETWORK")]
    networks: Vec<Network>,
    /// Where programs of this site call the gateway
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:1080")]
    listen: Vec<SocketAddr>,
    /// Where other gateways can dial this one, such as gateway.example:7400; nowhere: it dials them
    #[arg(long, value_name = "HOST:PORT")]
    reached_at: Vec<String>,
    /// The port where it waits for them [default: that of --reached-at]
    #[arg(long)]
    port: Option<u16>,
}

#[derive(Clone, clap::Args)]
struct Trust {
    /// What polyrail gateway init or token printed there
    token: Token,
    /// The site has a new key
    #[arg(long)]
    replace: bool,
}

#[derive(Clone, clap::Args)]
struct Status {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Of the gateway that programs call there [default: the first of the file]
    #[arg(long, value_name = "IP:PORT")]
    at: Option<SocketAddr>,
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let path = match args.config.clone().or_else(usual_path) {
        Some(path) => path,
        None => {
            tell!(
                "polyrail gateway: HOME is not set, so there is no usual place for the file; say --config FILE"
            );
            return ExitCode::FAILURE;
        }
    };
    let done = match &args.task {
        None => run(&path),
        Some(Task::Init(init)) => begin(&path, init),
        Some(Task::Token) => own_token(&path).map(|token| output::print_line(&token.to_string())),
        Some(Task::Trust(trust)) => trust_site(&path, trust),
        Some(Task::Status(status)) => show(&path, status),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tell!("polyrail gateway: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Where the file is, where nobody says otherwise.
pub fn usual_path() -> Option<PathBuf> {
    Some(polyrail_rails::config::users_directory()?.join("polyrail/site.toml"))
}

fn run(path: &Path) -> Result<(), Error> {
    let config = Config::read(path)?;
    let failed = |why: io::Error| rule(format!("cannot wait for signals: {why}"));
    let told_by = |by: &[i32]| {
        let (ours, told) = UnixStream::pair().map_err(failed)?;
        for signal in by {
            let told = told.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(*signal, told).map_err(failed)?;
        }
        Ok::<_, Error>(OwnedFd::from(ours))
    };
    let told = Signals { stop: told_by(&[signals::INT, signals::TERM])?, reload: told_by(&[signals::HUP])? };
    let site = config.file.site.clone();
    let say = Box::new(|what: &str| tell!("polyrail gateway: {what}"));
    let gateway = Gateway::open(&config, told, say)?;
    let places: Vec<String> = gateway.places().iter().map(SocketAddr::to_string).collect();
    tell!("polyrail gateway: site {site}; programs call it at {}", places.join(", "));
    gateway.run()
}

fn rule(why: impl Into<String>) -> Error {
    Error::Rule(why.into())
}

fn own_token(path: &Path) -> Result<Token, Error> {
    let config = Config::read(path)?;
    let identity = Identity::read(&config::key_path(path))?;
    Ok(Token { site: config.file.site, key: identity.public(), dial: config.file.reached_at })
}

fn begin(path: &Path, init: &Init) -> Result<(), Error> {
    site::check_name(&init.site).map_err(rule)?;
    let mut port = init.port;
    for place in &init.reached_at {
        let (_, there) = site::check_place(place).map_err(rule)?;
        port = port.or(Some(there));
    }
    let list =
        |texts: Vec<String>| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
    let networks = list(init.networks.iter().map(Network::to_string).collect());
    let listen = list(init.listen.iter().map(SocketAddr::to_string).collect());
    let mut text = format!(
        "# A site's gateway: polyrail gateway --config {}\n# docs/gateway.md says what else can stand here.\n\n\
         site = {:?}\n# addresses that other sites reach through this gateway\nnetworks = [{networks}]\n\
         # where programs of this site call it\nlisten = [{listen}]\n",
        path.display(),
        init.site
    );
    // a string takes whatever is written
    if let Some(port) = port {
        let _ = write!(text, "# where it waits for other gateways\nport = {port}\n");
    }
    if !init.reached_at.is_empty() {
        let places = list(init.reached_at.clone());
        let _ = write!(text, "# where they can dial it\nreached_at = [{places}]\n");
    }
    let failed = |why: io::Error| rule(format!("making {}: {why}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    let checked = Config::read(path).and_then(|_| Identity::make(&config::key_path(path)).map(drop));
    if let Err(why) = checked {
        // what cannot be used is not left behind
        let _ = fs::remove_file(path);
        return Err(why);
    }
    tell!(
        "polyrail gateway: made {} and its key; this is the site's token, for other sites' operators:",
        path.display()
    );
    own_token(path).map(|token| output::print_line(&token.to_string()))
}

fn trust_site(path: &Path, trust: &Trust) -> Result<(), Error> {
    let ours = own_token(path)?;
    if trust.token.key == ours.key {
        return Err(rule("this is this site's own token; it wants that of the other site"));
    }
    if trust.token.site == ours.site {
        return Err(rule(format!(
            "both sites are called {}; one of them needs another name in its file",
            ours.site
        )));
    }
    site::trust(&config::trusted_path(path), &trust.token, trust.replace)?;
    let where_to = match trust.token.dial.is_empty() {
        true => "it dials this gateway".to_owned(),
        false => format!("it can be dialled at {}", trust.token.dial.join(", ")),
    };
    tell!(
        "polyrail gateway: site {} is trusted from now on; {where_to}. It has to trust this one, too (polyrail gateway token); a gateway that \
         runs hears of it when it is started anew",
        trust.token.site
    );
    Ok(())
}

/// A page of the gateway that programs call at `at`.
///
/// # Errors
/// Nobody answers there, or it is no gateway.
pub fn page(at: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    relay::page(at, path, PATIENCE)
}

/// Bytes as people read them.
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

fn show(path: &Path, wanted: &Status) -> Result<(), Error> {
    let at = match wanted.at {
        Some(at) => at,
        None => *Config::read(path)?.file.listen.first().ok_or_else(|| rule("the file has no listen"))?,
    };
    let body = page(at, "/status")
        .map_err(|why| rule(format!("no gateway answers at {at}: {why}; polyrail gateway starts one")))?;
    let status: Value = serde_json::from_slice(&body)
        .map_err(|why| rule(format!("what answers at {at} is no gateway: {why}")))?;
    if wanted.json {
        output::print_line(&status.to_string());
        return Ok(());
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut rows = vec![
        [
            "SITE", "STATE", "DIALS", "STREAMS", "SENT", "RECEIVED", "ASKED", "JOINED", "REFUSED", "RESET",
            "LOST",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let mut reasons = String::new();
    for site in status["sites"].as_array().into_iter().flatten() {
        let state = match (site["up_s"].as_f64(), site["rail"].as_str()) {
            (Some(seconds), rail) => format!("up {seconds:.0} s by {}", rail.unwrap_or("?")),
            (None, _) => "away".to_owned(),
        };
        if let Some(why) = site["why"].as_str() {
            let _ = writeln!(reasons, "{} is away: {why}", word(&site["site"]));
        }
        let mut row =
            vec![word(&site["site"]), state, word(&site["dials"]), number(&site["streams"]).to_string()];
        row.extend(["sent", "received"].map(|of| bytes(number(&site[of]))));
        row.extend(["asked", "joined", "refused", "reset", "losses"].map(|of| number(&site[of]).to_string()));
        rows.push(row);
    }
    let shares = shares(&status);
    let shares =
        if shares.len() > 1 { format!("\n{}", table::aligned(shares.into_iter())) } else { String::new() };
    output::print(&format!("{}{reasons}{shares}", table::aligned(rows.into_iter())));
    Ok(())
}

/// How the streams of each site share the session to it, where the file says something of that: a heading, and rows.
fn shares(status: &Value) -> Vec<Vec<String>> {
    let rate = |value: &Value| match value.as_u64() {
        Some(bits) => format!("{} Mb/s", bits as f64 / 1e6),
        None => "-".to_owned(),
    };
    let word = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut rows =
        vec![["SITE", "CLASS", "WAITING", "SENT", "LIMIT", "RESERVED"].map(str::to_owned).to_vec()];
    for site in status["sites"].as_array().into_iter().flatten() {
        let classes = site["classes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let name = word(&site["site"]);
        if !site["limit"].is_null() {
            let [all, nothing] = ["all", ""].map(str::to_owned);
            rows.push(vec![name.clone(), all, nothing.clone(), nothing, rate(&site["limit"]), "-".into()]);
        }
        for class in classes.iter().filter(|_| classes.len() > 1) {
            let number = |of: &str| class[of].as_u64().unwrap_or(0);
            let (waiting, sent) = (number("waiting").to_string(), bytes(number("sent")));
            let (limit, reserved) = (rate(&class["limit"]), rate(&class["reserve"]));
            rows.push(vec![name.clone(), word(&class["class"]), waiting, sent, limit, reserved]);
        }
    }
    rows
}
