//! What is offered to an application that asks for this or that: `fi_getinfo(3)` as a pure function.

use std::ffi::c_int;

use polyrail_rails::INJECT_MAX;

use super::hints::Hints;
use crate::address::Format;
use crate::ffi::*;
use crate::limits::{ERR_DATA_MAX, IOV_LIMIT, MSG_MAX, NAME, QUEUE, RMA_IOV_LIMIT, VERSION};

/// Our protocol. Numbers with the highest bit set are free to take.
pub const PROTOCOL: u32 = 1 << 31 | u32::from_be_bytes([0, 0, b'P', b'R']);
pub const PROTOCOL_VERSION: u32 = 1;
/// The most that may be asked for: nothing is allocated for what is only announced.
const QUEUE_MAX: usize = 1 << 20;
const COUNT_MAX: usize = 1 << 15;
const MR_MAX: usize = 1 << 20;
/// Every bit of a tag may be ignored by itself.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

const MSG_DIRECTIONS: u64 = FI_SEND | FI_RECV;
const RMA_DIRECTIONS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const DIRECTIONS: u64 = MSG_DIRECTIONS | RMA_DIRECTIONS;
const PRIMARY: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV;
/// Had only by those who ask for it.
const ON_DEMAND: u64 = FI_TAGGED_DIRECTED_RECV | FI_SOURCE_ERR;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const SECONDARY: u64 = FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT | DOMAIN_CAPS;
const CAPS: u64 = PRIMARY | DIRECTIONS | SECONDARY;
const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = PRIMARY
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_RMA_EVENT
    | ON_DEMAND;

const TX_FLAGS: u64 = FI_INJECT
    | FI_COMPLETION
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
const RX_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;
/// All that one peer sends takes effect in the order in which it was sent.
const ORDER: u64 = FI_ORDER_STRICT
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

const V1_5: u32 = FI_VERSION(1, 5);
const V2_0: u32 = FI_VERSION(2, 0);
/// Asked for by a layer of libfabric that would put itself on top of us; a bit of its own, in no header.
const CORE_ONLY: u64 = 1 << 59;

/// The answer, where it depends on the question. What does not is in `fill`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub caps: u64,
    pub format: Format,
    pub tx_caps: u64,
    pub tx_flags: u64,
    pub tx_size: usize,
    pub rx_caps: u64,
    pub rx_flags: u64,
    pub rx_size: usize,
    pub tag_format: u64,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub order: u64,
}

/// Returns the reason for a refusal.
macro_rules! need {
    ($that:expr, $($why:tt)*) => {
        if !$that {
            return Err(format!($($why)*));
        }
    };
}

/// A wanted number that is too large.
fn within(wanted: usize, most: usize, what: &str) -> Result<(), String> {
    need!(wanted <= most, "{what} {wanted}: at most {most}");
    Ok(())
}

/// Wanted bits that do not exist.
fn among(wanted: u64, known: u64, what: &str) -> Result<(), String> {
    need!(wanted & !known == 0, "{what}: {:#x} not supported", wanted & !known);
    Ok(())
}

/// What an application gets that uses this API version and gives these hints, if any; or which hint cannot be met.
pub fn offer(version: u32, flags: u64, hints: Option<&Hints>) -> Result<Offer, String> {
    let none = Hints::default();
    let h = hints.unwrap_or(&none);
    need!(matches!(h.ep.kind, FI_EP_UNSPEC | FI_EP_RDM), "endpoint type {}: only FI_EP_RDM", h.ep.kind);
    need!(h.ep.kind == FI_EP_RDM || flags & CORE_ONLY == 0, "a layer without an endpoint type");
    let format = match h.addr_format {
        FI_FORMAT_UNSPEC => Format::Own,
        FI_SOCKADDR | FI_SOCKADDR_IP | FI_SOCKADDR_IN => Format::V4,
        FI_SOCKADDR_IN6 => Format::V6,
        other => return Err(format!("address format {other}")),
    };
    among(h.caps, CAPS | ON_DEMAND, "caps")?;
    need!(h.caps & (FI_SOURCE | FI_SOURCE_ERR) != FI_SOURCE_ERR, "FI_SOURCE_ERR without FI_SOURCE");
    fabric(h)?;
    endpoint(version, h)?;
    let mr_mode = domain(version, h)?;
    transmit(h)?;
    receive(h)?;

    let caps = caps(h.caps);
    let known = |wanted: fi_progress| if wanted == FI_PROGRESS_UNSPEC { FI_PROGRESS_MANUAL } else { wanted };
    let data_progress = known(h.domain.data_progress);
    let control_progress = match h.domain.control_progress {
        FI_PROGRESS_UNSPEC => data_progress,
        wanted => wanted,
    };
    let is_format = version >= V2_0 && matches!(h.ep.mem_tag_format, FI_TAG_MPI | FI_TAG_CCL);
    Ok(Offer {
        caps,
        format,
        tx_caps: context_caps(caps, h.tx.caps, TX_CAPS),
        tx_flags: h.tx.op_flags,
        tx_size: h.tx.size.max(QUEUE),
        rx_caps: context_caps(caps, h.rx.caps, RX_CAPS),
        rx_flags: h.rx.op_flags,
        rx_size: h.rx.size.max(QUEUE),
        tag_format: if is_format { h.ep.mem_tag_format } else { TAG_FORMAT },
        threading: if h.domain.threading == FI_THREAD_UNSPEC { FI_THREAD_SAFE } else { h.domain.threading },
        control_progress,
        data_progress,
        // either kind will do, and says so when it is opened
        av_type: h.domain.av_type,
        mr_mode,
        order: ORDER,
    })
}

/// Primary capabilities as asked, secondary ones where they cost nothing and have something to be about. Who asks for none
/// gets all.
fn caps(wanted: u64) -> u64 {
    if wanted == 0 {
        return CAPS;
    }
    let mut caps = wanted | DOMAIN_CAPS;
    if caps & FI_MSG != 0 {
        caps |= FI_MULTI_RECV;
    }
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & MSG_DIRECTIONS == 0 {
        caps |= MSG_DIRECTIONS;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 {
        caps |= FI_RMA_EVENT;
        if caps & RMA_DIRECTIONS == 0 {
            caps |= RMA_DIRECTIONS;
        }
    }
    caps
}

/// Those of a context: what it asks for, or all of the endpoint's that concern it.
fn context_caps(caps: u64, wanted: u64, concerned: u64) -> u64 {
    let own = caps & concerned;
    match wanted & concerned {
        0 => own,
        // the directions of what it asks for, when it names none
        some if some & DIRECTIONS == 0 => own & (some | DIRECTIONS),
        some => own & some,
    }
}

fn fabric(h: &Hints) -> Result<(), String> {
    let ours = |name: &Option<String>| name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(NAME));
    need!(ours(&h.fabric.name), "fabric {:?}: there is only {NAME:?}", h.fabric.name);
    need!(ours(&h.domain.name), "domain {:?}: there is only {NAME:?}", h.domain.name);
    need!(
        h.fabric.prov_version <= VERSION,
        "provider version {:#x}: this is {VERSION:#x}",
        h.fabric.prov_version
    );
    Ok(())
}

fn endpoint(version: u32, h: &Hints) -> Result<(), String> {
    let e = &h.ep;
    need!(matches!(e.protocol, FI_PROTO_UNSPEC | PROTOCOL), "protocol {:#x}", e.protocol);
    need!(e.protocol_version <= PROTOCOL_VERSION, "protocol version {}", e.protocol_version);
    within(e.max_msg_size, MSG_MAX, "max_msg_size")?;
    // FI_SHARED_CONTEXT is the largest number
    within(e.tx_ctx_cnt, 1, "tx_ctx_cnt")?;
    within(e.rx_ctx_cnt, 1, "rx_ctx_cnt")?;
    if version >= V1_5 {
        within(e.auth_key_size, 0, "ep_attr->auth_key_size")?;
    }
    Ok(())
}

/// The `mr_mode` granted.
fn domain(version: u32, h: &Hints) -> Result<c_int, String> {
    let d = &h.domain;
    need!(d.threading <= FI_THREAD_ENDPOINT, "threading {}", d.threading);
    let most = if version < V2_0 { FI_PROGRESS_MANUAL } else { FI_PROGRESS_CONTROL_UNIFIED };
    need!(d.data_progress <= most, "data_progress {}", d.data_progress);
    need!(d.control_progress <= most, "control_progress {}", d.control_progress);
    need!(d.resource_mgmt <= FI_RM_ENABLED, "resource_mgmt {}", d.resource_mgmt);
    need!(d.av_type <= FI_AV_TABLE, "av_type {}", d.av_type);
    within(d.mr_key_size, 8, "mr_key_size")?;
    within(d.cq_data_size, 8, "cq_data_size")?;
    within(d.cq_cnt, COUNT_MAX, "cq_cnt")?;
    within(d.ep_cnt, COUNT_MAX, "ep_cnt")?;
    within(d.tx_ctx_cnt, COUNT_MAX, "domain_attr->tx_ctx_cnt")?;
    within(d.rx_ctx_cnt, COUNT_MAX, "domain_attr->rx_ctx_cnt")?;
    within(d.max_ep_tx_ctx, 1, "max_ep_tx_ctx")?;
    within(d.max_ep_rx_ctx, 1, "max_ep_rx_ctx")?;
    within(d.max_ep_stx_ctx, 0, "max_ep_stx_ctx")?;
    within(d.max_ep_srx_ctx, 0, "max_ep_srx_ctx")?;
    if version >= V1_5 {
        within(d.cntr_cnt, COUNT_MAX, "cntr_cnt")?;
        within(d.mr_iov_limit, 1, "mr_iov_limit")?;
        among(d.caps, DOMAIN_CAPS, "domain_attr->caps")?;
        within(d.auth_key_size, 0, "domain_attr->auth_key_size")?;
        within(d.max_err_data, ERR_DATA_MAX, "max_err_data")?;
        within(d.mr_cnt, MR_MAX, "mr_cnt")?;
    }
    let v1_0 = FI_MR_BASIC | FI_MR_SCALABLE;
    match (d.mr_mode, version < V1_5) {
        (mode @ (FI_MR_BASIC | FI_MR_SCALABLE), _) => Ok(mode),
        (FI_MR_UNSPEC, true) => Ok(FI_MR_SCALABLE),
        (mode, true) => Err(format!("mr_mode {mode:#x} before API 1.5")),
        (mode, false) if mode & v1_0 != 0 => {
            Err(format!("mr_mode {mode:#x}: basic or scalable with other bits"))
        }
        // none of what the application agrees to do is needed
        _ => Ok(0),
    }
}

fn transmit(h: &Hints) -> Result<(), String> {
    let t = &h.tx;
    among(t.caps, TX_CAPS | RX_CAPS | DOMAIN_CAPS, "tx_attr->caps")?;
    among(t.op_flags, TX_FLAGS, "tx_attr->op_flags")?;
    among(t.msg_order, ORDER, "tx_attr->msg_order")?;
    among(t.comp_order, 0, "tx_attr->comp_order")?;
    within(t.inject_size, INJECT_MAX, "inject_size")?;
    within(t.size, QUEUE_MAX, "tx_attr->size")?;
    within(t.iov_limit, IOV_LIMIT, "tx_attr->iov_limit")?;
    within(t.rma_iov_limit, RMA_IOV_LIMIT, "rma_iov_limit")
}

fn receive(h: &Hints) -> Result<(), String> {
    let r = &h.rx;
    among(r.caps, TX_CAPS | RX_CAPS | DOMAIN_CAPS, "rx_attr->caps")?;
    among(r.op_flags, RX_FLAGS, "rx_attr->op_flags")?;
    among(r.msg_order, ORDER, "rx_attr->msg_order")?;
    among(r.comp_order, 0, "rx_attr->comp_order")?;
    within(r.total_buffered_recv, 0, "total_buffered_recv")?;
    within(r.size, QUEUE_MAX, "rx_attr->size")?;
    within(r.iov_limit, IOV_LIMIT, "rx_attr->iov_limit")
}
