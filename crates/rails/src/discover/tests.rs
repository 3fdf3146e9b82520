use super::*;
use std::fs;
use std::path::PathBuf;

const LIST: &str = "Inter-|   Receive\n face |bytes    packets\n";

fn names(list: &str) -> Names {
    Names::parse(list).unwrap()
}

/// A tree as the kernel's, of files `interface/file` with a line each.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("polyrail-sysfs-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        Self(root)
    }

    fn look(&self, name: &str, index: Option<u32>) -> Interface {
        Sysfs::new(self.0.clone(), LIST).interface(name, index)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn up(net: &str) -> Interface {
    let (ip, prefix) = net.split_once('/').unwrap();
    Interface {
        name: "eth7".into(),
        index: 9,
        kind: Kind::Ethernet,
        state: State::Up,
        speed: 1000,
        mtu: 1500,
        nets: vec![Net::new(ip.parse().unwrap(), prefix.parse().unwrap()).unwrap()],
        obstacle: None,
        dormant: false,
    }
}

#[test]
fn interfaces_are_listed_by_the_kernel_of_this_namespace() {
    let list = format!("{LIST}    lo: 1 2 3\n  eth0:4 5\n");
    let sysfs = Sysfs::new("/nonexistent".into(), &list);
    assert_eq!(sysfs.names().collect::<Vec<_>>(), ["lo", "eth0"]);
}

#[test]
fn sysfs_tells_what_an_interface_is() {
    let tree = Tree::new(
        "kinds",
        &[
            ("lo/ifindex", "1"),
            ("lo/type", "772"),
            ("lo/flags", "0x9"),
            ("lo/operstate", "unknown"),
            ("eth0/ifindex", "2"),
            ("eth0/type", "1"),
            ("eth0/flags", "0x1003"),
            ("eth0/operstate", "up"),
            ("eth0/speed", "25000"),
            ("eth0/mtu", "9000"),
            ("eth0/device/vendor", "x"),
            ("wlan0/ifindex", "3"),
            ("wlan0/phy80211/name", "x"),
            ("wlan0/speed", "-1"),
            ("br0/ifindex", "4"),
            ("br0/bridge/id", "x"),
            ("br0/flags", "0x1003"),
            ("br0/operstate", "down"),
            ("ib0/ifindex", "5"),
            ("ib0/type", "32"),
            ("ib0/flags", "0x1002"),
            ("vx/ifindex", "6"),
            ("vx/uevent", "DEVTYPE=vxlan\nINTERFACE=vx"),
            ("eth0.7/ifindex", "7"),
            ("eth0.7/uevent", "DEVTYPE=vlan"),
            ("none/ifindex", "8"),
        ],
    );
    let told = |name: &str| {
        let found = tree.look(name, None);
        (found.index, found.kind, found.state, found.speed, found.mtu)
    };
    assert_eq!(told("lo"), (1, Kind::Loopback, State::Up, 0, 0));
    assert_eq!(told("eth0"), (2, Kind::Ethernet, State::Up, 25000, 9000));
    assert_eq!(told("wlan0"), (3, Kind::Wireless, State::Up, 0, 0));
    assert_eq!(told("br0"), (4, Kind::Bridge, State::NoCarrier, 0, 0));
    assert_eq!(told("ib0"), (5, Kind::Infiniband, State::Down, 0, 0));
    assert_eq!(told("vx").1, Kind::Tunnel);
    assert_eq!(told("eth0.7").1, Kind::Vlan);
    assert_eq!(told("none").1, Kind::Virtual);
}

#[test]
fn files_of_another_namespace_are_not_believed() {
    let tree = Tree::new("other", &[("r0/ifindex", "4"), ("r0/speed", "1000"), ("r0/device/vendor", "x")]);
    assert_eq!(tree.look("r0", Some(4)).speed, 1000);
    let other = tree.look("r0", Some(5));
    assert_eq!((other.index, other.kind, other.speed), (5, Kind::Unknown, 0));
}

#[test]
fn what_keeps_an_interface_from_being_used_is_said_with_a_remedy() {
    let good = up("10.0.0.1/24");
    assert_eq!(good.judge(&Names::default()), None);
    assert_eq!(good.judge(&names("eth7")), None);
    let why = |interface: Interface, chosen: &Names| interface.judge(chosen).unwrap().to_string();
    let left_out = why(good.clone(), &names("eth0,eth1"));
    assert!(
        left_out.contains("POLYRAIL_INTERFACES=eth0,eth1") && left_out.contains("let it have eth7"),
        "{left_out}"
    );
    let down = why(Interface { state: State::Down, ..good.clone() }, &Names::default());
    assert!(down.contains("ip link set eth7 up"), "{down}");
    let cut = why(Interface { state: State::NoCarrier, kind: Kind::Veth, ..good.clone() }, &Names::default());
    assert!(cut.contains("no carrier") && cut.contains("other end"), "{cut}");
    let bare = why(Interface { nets: Vec::new(), ..good }, &Names::default());
    assert!(bare.contains("no IP address"), "{bare}");
    assert!(why(up("0.0.0.0/0"), &Names::default()).contains("nobody can connect"));
}

#[test]
fn addresses_that_lead_elsewhere_come_first() {
    let loopback = Interface { kind: Kind::Loopback, ..up("127.0.0.1/8") };
    let unusable = Interface { obstacle: Some(Obstacle::new("x", "y")), ..up("10.9.9.9/24") };
    let all = [loopback, unusable, up("fe80::1/64"), up("fd00::1/64"), up("10.0.0.1/24")];
    let order: Vec<String> = ips(&all).iter().map(|ip| ip.addr().to_string()).collect();
    assert_eq!(order, ["10.0.0.1", "fd00::1", "fe80::1", "127.0.0.1"]);
    assert_eq!(ips(&all)[2].scope(), 9, "a link-local address is of its interface");
}

#[test]
fn peers_are_told_what_was_found() {
    let told = Interface { kind: Kind::Veth, ..up("10.0.0.1/24") }.offer().unwrap();
    assert_eq!((told.name.as_str(), told.index, told.speed), ("eth7", 9, 1000));
    assert!(told.flags.has(InterfaceFlags::VIRTUAL) && !told.flags.has(InterfaceFlags::LOOPBACK));
    assert_eq!(Interface { name: "a name with spaces".into(), ..up("10.0.0.1/24") }.offer(), None);
}

#[test]
fn this_machine_has_a_loopback() {
    let all = interfaces(&Names::default()).unwrap();
    let loopback = all.iter().find(|one| one.kind == Kind::Loopback).unwrap();
    assert!(loopback.index > 0);
    let chosen = interfaces(&Names::parse("no such interface").unwrap()).unwrap();
    assert!(chosen.iter().all(|one| one.obstacle.is_some()));
}
