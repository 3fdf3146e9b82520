use super::ends;
use super::hints::Hints;
use super::offer::{Offer, PROTOCOL, offer};
use crate::address::{Format, Source};
use crate::ffi::*;

const V: u32 = FI_VERSION(2, 5);

fn ask(set: impl FnOnce(&mut Hints)) -> Result<Offer, String> {
    let mut hints = Hints::default();
    set(&mut hints);
    offer(V, 0, Some(&hints))
}

const ALL: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_ATOMIC
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM
    | FI_SEND
    | FI_RECV
    | FI_READ
    | FI_WRITE
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE;

#[test]
fn who_asks_for_nothing_gets_all() {
    let o = offer(V, 0, None).unwrap();
    assert_eq!(o.caps & ALL, ALL);
    assert_eq!((o.threading, o.data_progress, o.av_type), (FI_THREAD_SAFE, FI_PROGRESS_MANUAL, FI_AV_UNSPEC));
    assert_eq!((o.mr_mode, o.format, o.tx_flags, o.rx_flags), (0, Format::Own, 0, 0));
    assert_eq!(o.tag_format.leading_zeros(), 0);
}

/// MPICH echoes the capabilities that it saw, and all that it asks for comes back (see `ch4/netmod/ofi`).
#[test]
fn mpich_is_satisfied() {
    let seen = offer(V, 0, None).unwrap();
    let o = ask(|h| {
        h.caps = seen.caps;
        h.domain.threading = FI_THREAD_DOMAIN;
        (h.domain.control_progress, h.domain.data_progress) = (FI_PROGRESS_MANUAL, FI_PROGRESS_MANUAL);
        h.domain.resource_mgmt = FI_RM_ENABLED;
        h.domain.av_type = FI_AV_TABLE;
        h.domain.cq_data_size = 4;
        h.domain.mr_mode = FI_MR_ENDPOINT;
        h.tx.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        h.tx.msg_order = FI_ORDER_SAS
            | FI_ORDER_ATOMIC_RAR
            | FI_ORDER_ATOMIC_RAW
            | FI_ORDER_ATOMIC_WAR
            | FI_ORDER_ATOMIC_WAW;
        h.rx.op_flags = FI_COMPLETION;
        h.rx.msg_order = FI_ORDER_SAS;
        h.ep.kind = FI_EP_RDM;
        h.ep.mem_tag_format = 0xffff_ffff_ffff_ffff;
    })
    .unwrap();
    assert_eq!(o.caps, seen.caps);
    assert_eq!((o.tx_flags, o.rx_flags), (FI_COMPLETION | FI_DELIVERY_COMPLETE, FI_COMPLETION));
    assert_eq!((o.threading, o.av_type, o.mr_mode), (FI_THREAD_DOMAIN, FI_AV_TABLE, 0));
}

#[test]
fn open_mpi_is_satisfied() {
    let caps = FI_MSG | FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
    let messages = offer(
        FI_VERSION(1, 18),
        0,
        Some(&Hints {
            caps,
            domain: super::hints::Domain {
                mr_mode: FI_MR_ALLOCATED,
                av_type: FI_AV_MAP,
                cq_data_size: 4,
                ..Default::default()
            },
            tx: super::hints::Tx { op_flags: FI_COMPLETION, msg_order: FI_ORDER_SAS, ..Default::default() },
            ..Default::default()
        }),
    )
    .unwrap();
    assert_eq!(messages.caps, caps | FI_SEND | FI_RECV | FI_MULTI_RECV);
    assert_eq!((messages.av_type, messages.mr_mode), (FI_AV_MAP, 0));
    let remote = ask(|h| {
        h.caps = FI_RMA | FI_ATOMIC;
        h.domain.mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ENDPOINT;
        h.tx.op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    })
    .unwrap();
    assert_eq!(remote.caps & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV), 0);
    assert_eq!(remote.caps & (FI_READ | FI_REMOTE_WRITE), FI_READ | FI_REMOTE_WRITE);
}

/// Each of these alone is too much, and the reason names it.
#[test]
fn what_cannot_be_met_is_refused_by_name() {
    type Set = fn(&mut Hints);
    let cases: [(&str, Set); 40] = [
        ("endpoint type", |h| h.ep.kind = FI_EP_MSG),
        ("endpoint type", |h| h.ep.kind = FI_EP_DGRAM),
        ("caps", |h| h.caps = FI_MSG | FI_MULTICAST),
        ("caps", |h| h.caps = FI_MSG | FI_HMEM),
        ("caps", |h| h.caps = FI_MSG | FI_TRIGGER),
        ("caps", |h| h.caps = FI_NAMED_RX_CTX),
        ("FI_SOURCE_ERR", |h| h.caps = FI_MSG | FI_SOURCE_ERR),
        ("address format", |h| h.addr_format = FI_SOCKADDR_IB),
        ("fabric", |h| h.fabric.name = Some("other".into())),
        ("domain", |h| h.domain.name = Some("polyrail2".into())),
        ("provider version", |h| h.fabric.prov_version = u32::MAX),
        ("protocol", |h| h.ep.protocol = FI_PROTO_UDP),
        ("protocol version", |h| h.ep.protocol_version = 2),
        ("max_msg_size", |h| h.ep.max_msg_size = usize::MAX),
        ("tx_ctx_cnt", |h| h.ep.tx_ctx_cnt = FI_SHARED_CONTEXT),
        ("rx_ctx_cnt", |h| h.ep.rx_ctx_cnt = 2),
        ("auth_key_size", |h| h.ep.auth_key_size = 8),
        ("threading", |h| h.domain.threading = 6),
        ("data_progress", |h| h.domain.data_progress = 4),
        ("control_progress", |h| h.domain.control_progress = 4),
        ("resource_mgmt", |h| h.domain.resource_mgmt = 3),
        ("av_type", |h| h.domain.av_type = 3),
        ("mr_key_size", |h| h.domain.mr_key_size = 9),
        ("cq_data_size", |h| h.domain.cq_data_size = 9),
        ("max_ep_tx_ctx", |h| h.domain.max_ep_tx_ctx = 2),
        ("max_ep_srx_ctx", |h| h.domain.max_ep_srx_ctx = 1),
        ("mr_iov_limit", |h| h.domain.mr_iov_limit = 2),
        ("domain_attr->caps", |h| h.domain.caps = FI_SHARED_AV),
        ("max_err_data", |h| h.domain.max_err_data = 257),
        ("mr_mode", |h| h.domain.mr_mode = FI_MR_BASIC | FI_MR_LOCAL),
        ("tx_attr->op_flags", |h| h.tx.op_flags = FI_COMMIT_COMPLETE),
        ("tx_attr->comp_order", |h| h.tx.comp_order = FI_ORDER_STRICT),
        ("tx_attr->msg_order", |h| h.tx.msg_order = 1 << 40),
        ("inject_size", |h| h.tx.inject_size = polyrail_rails::INJECT_MAX + 1),
        ("tx_attr->iov_limit", |h| h.tx.iov_limit = 33),
        ("rma_iov_limit", |h| h.tx.rma_iov_limit = 9),
        ("rx_attr->op_flags", |h| h.rx.op_flags = FI_DELIVERY_COMPLETE),
        ("rx_attr->iov_limit", |h| h.rx.iov_limit = 33),
        ("total_buffered_recv", |h| h.rx.total_buffered_recv = 1),
        ("rx_attr->size", |h| h.rx.size = usize::MAX),
    ];
    for (name, set) in cases {
        let why = ask(set).expect_err(name);
        assert!(why.contains(name), "{name}: {why}");
    }
}

#[test]
fn what_is_asked_for_comes_back() {
    let o = ask(|h| {
        h.caps = FI_TAGGED | FI_SEND;
        h.domain.threading = FI_THREAD_COMPLETION;
        h.domain.data_progress = FI_PROGRESS_AUTO;
        h.tx.size = 5000;
        h.ep.protocol = PROTOCOL;
        h.ep.mem_tag_format = FI_TAG_MPI;
        h.domain.name = Some("Polyrail".into());
    })
    .unwrap();
    assert_eq!(o.caps, FI_TAGGED | FI_SEND | FI_LOCAL_COMM | FI_REMOTE_COMM);
    assert_eq!((o.tx_caps, o.rx_caps), (FI_TAGGED | FI_SEND, FI_TAGGED));
    assert_eq!((o.threading, o.tx_size), (FI_THREAD_COMPLETION, 5000));
    assert_eq!((o.data_progress, o.control_progress), (FI_PROGRESS_AUTO, FI_PROGRESS_AUTO));
    assert_eq!(o.tag_format, FI_TAG_MPI);
    let few = ask(|h| {
        h.caps = FI_MSG | FI_TAGGED | FI_RMA;
        h.tx.caps = FI_MSG;
        h.rx.caps = FI_TAGGED | FI_RECV;
    })
    .unwrap();
    assert_eq!(few.tx_caps & (FI_MSG | FI_TAGGED | FI_RMA), FI_MSG);
    assert_eq!(few.rx_caps, FI_TAGGED | FI_RECV);
}

#[test]
fn old_versions_register_memory_as_they_did() {
    let ask = |version, mode| {
        let mut h = Hints::default();
        h.domain.mr_mode = mode;
        offer(version, 0, Some(&h)).map(|o| o.mr_mode).ok()
    };
    let (old, new) = (FI_VERSION(1, 4), FI_VERSION(1, 5));
    assert_eq!(offer(old, 0, None).unwrap().mr_mode, FI_MR_SCALABLE);
    assert_eq!(ask(old, FI_MR_UNSPEC), Some(FI_MR_SCALABLE));
    assert_eq!(ask(old, FI_MR_BASIC), Some(FI_MR_BASIC));
    assert_eq!(ask(old, FI_MR_LOCAL), None);
    assert_eq!(ask(new, FI_MR_BASIC), Some(FI_MR_BASIC));
    assert_eq!(ask(new, FI_MR_SCALABLE), Some(FI_MR_SCALABLE));
    assert_eq!(ask(new, FI_MR_VIRT_ADDR | FI_MR_LOCAL | FI_MR_HMEM), Some(0));
    let mut unified = Hints::default();
    unified.domain.data_progress = FI_PROGRESS_CONTROL_UNIFIED;
    assert!(offer(FI_VERSION(1, 22), 0, Some(&unified)).is_err());
    assert!(offer(FI_VERSION(2, 0), 0, Some(&unified)).is_ok());
}

#[test]
fn ends_follow_node_and_service() {
    let text = |text: &str| Some(std::ffi::CString::new(text).unwrap());
    let find =
        |format: &mut Format, node: Option<&str>, service: Option<&str>, flags, hints: Option<&Hints>| {
            ends(format, node.and_then(text), service.and_then(text), flags, hints)
        };
    let mut own = Format::Own;
    let nowhere = find(&mut own, None, None, 0, None).unwrap();
    assert_eq!((nowhere.src, nowhere.dest), (Source::Anywhere.write(Format::Own), None));
    let source = find(&mut own, None, Some("4711"), FI_SOURCE, None).unwrap();
    assert_eq!(Source::read(own, &source.src), Some(Source::At(([0, 0, 0, 0], 4711).into())));
    assert!(find(&mut own, Some("localhost"), None, FI_NUMERICHOST, None).is_err());

    // socket addresses: the family is that of the address
    let mut any = Hints { addr_format: FI_SOCKADDR, ..Hints::default() };
    let mut format = Format::V4;
    let v6 = find(&mut format, Some("::1"), Some("80"), 0, Some(&any)).unwrap();
    assert_eq!((format, v6.dest.unwrap().len(), v6.src.len()), (Format::V6, 28, 28));
    let mut format = Format::V4;
    let four = Hints { addr_format: FI_SOCKADDR_IN, ..Hints::default() };
    assert!(find(&mut format, Some("::1"), Some("80"), 0, Some(&four)).is_err());

    // a source given as hint is kept unless FI_SOURCE says otherwise, a destination unless node or service do
    let at = |port| crate::address::write_socket(([127, 0, 0, 1], port).into());
    (any.src_addr, any.dest_addr) = (Some(at(1)), Some(at(2)));
    let both = find(&mut Format::V4.clone(), None, None, 0, Some(&any)).unwrap();
    assert_eq!((both.src, both.dest), (at(1), Some(at(2))));
    let dest = find(&mut Format::V4.clone(), Some("127.0.0.1"), Some("3"), 0, Some(&any)).unwrap();
    assert_eq!((dest.src, dest.dest), (at(1), Some(at(3))));
    let src = find(&mut Format::V4.clone(), Some("127.0.0.1"), Some("3"), FI_SOURCE, Some(&any)).unwrap();
    assert_eq!((src.src, src.dest), (at(3), Some(at(2))));
    any.src_addr = Some(vec![1, 2, 3]);
    assert!(find(&mut Format::V4.clone(), None, None, 0, Some(&any)).is_err());
}
