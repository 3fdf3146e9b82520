//! What this machine has: rails, provider, MPIs, settings.

use std::fmt::Write;
use std::path::PathBuf;

use polyrail_rails::Config;
use polyrail_rails::discover::{Access, Device, Interface, Obstacle};
use polyrail_rails::list::RailId;
use serde_json::{Value, json};

use crate::run::environment::Provider;
use crate::run::mpiexec::{self, Family, Mpiexec};
use crate::settings::{self, Setting};
use crate::table;

/// All of it.
pub struct Machine {
    /// The rails' devices.
    devices: Vec<(RailId, Device)>,
    /// Whether memory of this host's processes can be reached directly, by rails that would.
    pub direct: Vec<Access>,
    /// Why the settings cannot be used, if so; then those without any are shown.
    pub bad_setting: Option<String>,
    config: Config,
    pub settings: Vec<Setting>,
    provider: Result<PathBuf, String>,
    /// Launchers that were found.
    pub mpis: Vec<(Family, Option<Mpiexec>)>,
}

impl Machine {
    /// Looks at everything.
    ///
    /// # Errors
    /// The kernel does not list the network interfaces.
    pub fn look() -> Result<Self, polyrail_rails::Error> {
        let (config, bad_setting) = match Config::from_env() {
            Ok(config) => (config, None),
            Err(error) => (Config::default(), Some(error.to_string())),
        };
        let (mut devices, mut direct) = (Vec::new(), Vec::new());
        for rail in RailId::chosen() {
            let found = rail.discover(&config)?;
            devices.extend(found.devices.into_iter().map(|device| (rail, device)));
            direct.extend(found.direct);
        }
        Ok(Self {
            devices,
            direct,
            bad_setting,
            config,
            settings: settings::here(),
            provider: Provider::find(None).map(|found| found.file()).map_err(|error| error.to_string()),
            mpis: [Family::Mpich, Family::OpenMpi]
                .map(|family| (family, mpiexec::find(Some(family), None, None).ok()))
                .into(),
        })
    }

    /// Devices that could lead to other hosts, and why not, if so.
    pub fn to_other_hosts(&self) -> impl Iterator<Item = (&str, Option<Obstacle>)> {
        self.rows().filter(|row| !row.device.stays).map(|row| (row.device.name.as_str(), row.obstacle))
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.devices.iter().map(|(rail, device)| {
            let off = (!self.config.rails.has(*rail)).then(|| Obstacle {
                why: "POLYRAIL_RAILS leaves it out".into(),
                remedy: format!("add {} to it", rail.name()),
            });
            Row { rail: rail.name(), device, obstacle: off.or_else(|| device.obstacle.clone()) }
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("polyrail {}, wire protocol {}\n", env!("CARGO_PKG_VERSION"), super::wire());
        text.push_str("\nRails\n");
        let rows: Vec<Row<'_>> = self.rows().collect();
        let heading =
            ["RAIL", "DEVICE", "KIND", "STATE", "Mb/s", "MTU", "ADDRESSES", "USED FOR"].map(str::to_owned);
        let lines = rows.iter().map(|row| {
            let used = match (&row.obstacle, row.device.stays) {
                (Some(_), _) => "nothing",
                (None, true) => "this host",
                (None, false) => "any host",
            };
            row.cells().into_iter().chain([used.to_owned()]).collect()
        });
        text.push_str(&table::aligned([heading.to_vec()].into_iter().chain(lines)));
        for row in &rows {
            if let Some(obstacle) = &row.obstacle {
                let _ = writeln!(text, "  {} is not used: {obstacle}", row.device.name);
            }
        }
        for access in &self.direct {
            let attach = match access {
                Access::Allowed => "one copy, by cross-memory attach".into(),
                Access::Refused(why) => format!("two copies: no cross-memory attach, {why}"),
                Access::Untried(why) => format!("unknown whether by cross-memory attach: {why}"),
            };
            let _ = writeln!(text, "  Large messages within this host: {attach}");
        }

        text.push_str("\nMPI\n");
        let provider = match &self.provider {
            Ok(file) => file.display().to_string(),
            Err(why) => why.replace('\n', "\n             "),
        };
        let _ = writeln!(text, "  provider   {provider}");
        for (family, found) in &self.mpis {
            let found = match found {
                Some(mpi) => format!("{}, {}", mpi.path.display(), mpi.version),
                None => "not found, neither on PATH nor in .venv".into(),
            };
            let _ = writeln!(text, "  {:<10} {found}", family.name());
        }

        text.push_str("\nSettings\n");
        if let Some(why) = &self.bad_setting {
            let _ = writeln!(text, "  unusable: {why}");
        }
        if self.settings.is_empty() {
            text.push_str("  none made; none are needed\n");
        }
        for setting in &self.settings {
            let Setting { name, value, meaning, nearest } = setting;
            let note = match (meaning, nearest) {
                (Some(meaning), _) => (*meaning).to_owned(),
                (None, Some(nearest)) => format!("nobody reads this; did you mean {nearest}?"),
                (None, None) => "nobody reads this".into(),
            };
            let _ = writeln!(text, "  {name}={value}  ({note})");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let usable = |obstacle: &Option<Obstacle>| match obstacle {
            None => json!({ "usable": true }),
            Some(Obstacle { why, remedy }) => json!({ "usable": false, "why": why, "remedy": remedy }),
        };
        let rails: Vec<Value> = self
            .rows()
            .map(|row| {
                let mut value = usable(&row.obstacle);
                value["rail"] = row.rail.into();
                value["device"] = row.device.name.clone().into();
                if let Some(interface) = &row.device.interface {
                    value["index"] = interface.index.into();
                    value["kind"] = interface.kind.name().into();
                    value["state"] = interface.state.to_string().into();
                    value["speed_mbit_per_s"] = known(interface.speed);
                    value["mtu_bytes"] = known(interface.mtu);
                    value["addresses"] = interface.nets.iter().map(|net| format!("{net:?}")).collect();
                }
                value
            })
            .collect();
        let attach = self.direct.first().map(|access| match access {
            Access::Allowed => json!({ "usable": true }),
            Access::Refused(why) => usable(&Some(why.clone())),
            Access::Untried(why) => json!({ "usable": null, "why": why }),
        });
        let mpis: Vec<Value> = self
            .mpis
            .iter()
            .filter_map(|(family, found)| Some((family, found.as_ref()?)))
            .map(|(family, mpi)| json!({ "mpi": family.name(), "mpiexec": mpi.path, "version": mpi.version }))
            .collect();
        let settings: Vec<Value> = self
            .settings
            .iter()
            .map(|one| json!({ "name": one.name, "value": one.value, "known": one.meaning.is_some(), "nearest": one.nearest }))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "wire_protocol": super::wire(),
            "rails": rails,
            "cross_memory_attach": attach,
            "provider": self.provider.as_ref().ok(),
            "mpis": mpis,
            "settings": settings,
            "unusable_setting": self.bad_setting,
        })
    }
}

/// A line of the table of rails.
struct Row<'a> {
    rail: &'static str,
    device: &'a Device,
    obstacle: Option<Obstacle>,
}

impl Row<'_> {
    /// All columns but the last.
    fn cells(&self) -> [String; 7] {
        let (rail, name) = (self.rail.to_owned(), self.device.name.clone());
        let Some(interface) = &self.device.interface else {
            return [rail, name, String::new(), String::new(), String::new(), String::new(), String::new()];
        };
        let Interface { kind, state, speed, mtu, nets, .. } = interface;
        let or_unknown = |number: u32| if number == 0 { "?".to_owned() } else { number.to_string() };
        let nets: Vec<String> = nets.iter().map(|net| format!("{net:?}")).collect();
        [
            rail,
            name,
            kind.to_string(),
            state.to_string(),
            or_unknown(*speed),
            or_unknown(*mtu),
            nets.join(" "),
        ]
    }
}

fn known(number: u32) -> Value {
    if number == 0 { Value::Null } else { number.into() }
}
