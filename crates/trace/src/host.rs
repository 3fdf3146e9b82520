//! What a collector says of the host that it is on.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// A host, as in a [`HOST`](crate::blocks::kind::HOST) block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostBlock {
    /// Its name.
    pub name: String,
    /// Tells the machine, from one start of its kernel to the next.
    pub boot: String,
    /// Inode of the network namespace.
    pub network: u64,
    /// Inode of the time namespace: the same machine and this one, the same clock.
    pub time: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Processors.
    pub processors: u32,
    /// Interfaces and their addresses.
    pub addresses: Vec<(String, IpAddr)>,
    /// Settings of TCP.
    pub settings: Vec<(String, String)>,
    /// Whether records are in ticks of the processor's counter; else in nanoseconds.
    pub counter: bool,
    /// Whether kernel events are recorded.
    pub kernel_events: bool,
    /// Why they are not, though that was not asked for: a sentence for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_no_events: Option<String>,
}

/// What a report may say something about.
const SETTINGS: &[&str] = &[
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_no_metrics_save",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.default_qdisc",
];

fn line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

/// Inode of a namespace of this process; 0 where the kernel has none.
pub fn namespace(name: &str) -> u64 {
    std::fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |file| file.ino())
}

/// Whether the kernel itself trusts the processor's counter as a clock that runs evenly and is the same on all cores.
pub fn counter_is_clock() -> bool {
    cfg!(target_arch = "aarch64")
        || line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_some_and(|source| source == "tsc")
}

impl HostBlock {
    /// This one.
    pub fn here() -> HostBlock {
        HostBlock {
            name: line("/proc/sys/kernel/hostname").unwrap_or_else(|| "host".into()),
            boot: line("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            network: namespace("net"),
            time: namespace("time"),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            addresses: if_addrs::get_if_addrs()
                .unwrap_or_default()
                .into_iter()
                .map(|each| (each.name.clone(), each.ip()))
                .collect(),
            settings: SETTINGS
                .iter()
                .filter_map(|name| {
                    Some((name.to_string(), line(&format!("/proc/sys/{}", name.replace('.', "/")))?))
                })
                .collect(),
            counter: counter_is_clock(),
            kernel_events: false,
            why_no_events: None,
        }
    }
}
