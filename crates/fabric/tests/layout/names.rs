//! Every struct and constant of `ffi`, by name: Rust's values for them, to be compared with C's.
//!
//! What follows a `;` came after 1.17: headers older than 2.5 may lack it.

use polyrail_fi::ffi::*;

pub struct Struct {
    pub name: &'static str,
    pub size: usize,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub late: bool,
}

pub struct Const {
    pub name: &'static str,
    pub value: u64,
    pub late: bool,
}

macro_rules! structs {
    ($($name:ident { $($field:ident),* $(; $($late:ident),+)? })*) => {
        pub fn structs() -> Vec<Struct> {
            vec![$(Struct {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: vec![
                    $(field(stringify!($field), std::mem::offset_of!($name, $field), false),)*
                    $($(field(stringify!($late), std::mem::offset_of!($name, $late), true),)+)?
                ],
            }),*]
        }
    };
}

fn field(name: &'static str, offset: usize, late: bool) -> Field {
    Field { name: name.trim_start_matches("r#"), offset, late }
}

macro_rules! consts {
    ($($name:ident)*; $($late:ident)*) => {
        #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "as C converts them")]
        pub fn consts() -> Vec<Const> {
            vec![
                $(Const { name: stringify!($name), value: $name as u64, late: false },)*
                $(Const { name: stringify!($late), value: $late as u64, late: true },)*
            ]
        }
    };
}

structs! {
    fi_atomic_attr { count, size }
    fi_ioc { addr, count }
    fi_rma_ioc { addr, count, key }
    fi_msg_atomic { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data }
    fi_msg_fetch { msg_iov, desc, iov_count }
    fi_msg_compare { msg_iov, desc, iov_count }
    fi_ops_atomic {
        size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg, compwrite, compwritev,
        compwritemsg, writevalid, readwritevalid, compwritevalid
    }
    fid { fclass, context, ops }
    fi_ops { size, close, bind, control, ops_open, tostr, ops_set }
    fi_alias { fid, flags }
    fi_fid_var { name, val }
    fi_fid_export { fid, flags, context }
    fi_context { internal }
    fi_context2 { internal }
    fi_ops_av_set { size, set_union, intersect, diff, insert, remove, addr }
    fid_av_set { fid, ops }
    fi_collective_attr { op, datatype, datatype_attr, max_members, mode }
    fi_collective_addr { set, coll_addr }
    fi_msg_collective { msg_iov, desc, iov_count, coll_addr, root_addr, coll, datatype, op, context }
    fi_ops_collective {
        size, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather,
        msg, barrier2
    }
    fi_ops_fabric { size, domain, passive_ep, eq_open, wait_open, trywait, domain2 }
    fid_fabric { fid, ops, api_version }
    fi_ops_domain {
        size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx, srx_ctx, query_atomic,
        query_collective, endpoint2
    }
    fid_domain { fid, ops, mr }
    fi_av_attr { r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
    fi_av_set_attr { count, start_addr, end_addr, stride, comm_key_size, comm_key, flags }
    fi_ops_av {
        size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set; insert_auth_key, lookup_auth_key,
        set_user_id
    }
    fid_av { fid, ops }
    fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective }
    fid_pep { fid, ops, cm }
    fid_stx { fid, ops }
    fid_mc { fid, fi_addr }
    fi_ops_ep { size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
    fi_ops_cm { size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join }
    fi_msg { msg_iov, desc, iov_count, addr, context, data }
    fi_ops_msg { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
    fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
    fi_ops_tagged { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
    fi_rma_iov { addr, len, key }
    fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
    fi_ops_rma { size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata }
    fi_wait_attr { wait_obj, flags }
    fi_wait_pollfd { change_index, nfds, fd }
    fi_poll_attr { flags }
    fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set }
    fi_eq_entry { fid, context, data }
    fi_eq_err_entry { fid, context, data, err, prov_errno, err_data, err_data_size }
    fi_eq_cm_entry { fid, info, data }
    fi_ops_eq { size, read, readerr, write, sread, strerror }
    fid_eq { fid, ops }
    fi_cq_entry { op_context }
    fi_cq_msg_entry { op_context, flags, len }
    fi_cq_data_entry { op_context, flags, len, buf, data }
    fi_cq_tagged_entry { op_context, flags, len, buf, data, tag }
    fi_cq_err_entry {
        op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size; src_addr
    }
    fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
    fi_ops_cq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
    fid_cq { fid, ops }
    fi_cntr_attr { events, wait_obj, wait_set, flags }
    fi_ops_cntr { size, read, readerr, add, set, wait, adderr, seterr }
    fid_cntr { fid, ops }
    fi_info {
        next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr,
        rx_attr, ep_attr, domain_attr, fabric_attr, nic
    }
    fi_tx_attr {
        caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass
    }
    fi_rx_attr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit }
    fi_ep_attr {
        r#type, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
        max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size,
        auth_key
    }
    fi_domain_attr {
        domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode,
        mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx,
        max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size,
        max_err_data, mr_cnt, tclass; max_ep_auth_key, max_group_id, max_cntr_value, max_err_cntr_value
    }
    fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
    fid_nic { fid, device_attr, bus_attr, link_attr, prov_attr }
    fi_device_attr { name, device_id, device_version, vendor_id, driver, firmware }
    fi_pci_attr { domain_id, bus_id, device_id, function_id }
    fi_bus_attr { bus_type, attr }
    fi_link_attr { address, mtu, speed, state, network_type }
    fid_mr { fid, mem_desc, key }
    fi_mr_dmabuf { ; fd, offset, len, base_addr }
    fi_mr_auth_key { ; av, src_addr }
    fi_mr_attr {
        mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key, iface, device;
        hmem_data, page_size, base_mr, sub_mr_cnt
    }
    fi_mr_modify { flags, attr }
    fi_mr_raw_attr { flags, base_addr, raw_key, key_size }
    fi_mr_map_raw { flags, base_addr, raw_key, key_size, key }
    fi_ops_mr { size, reg, regv, regattr }
    fi_provider { version, fi_version, context, name, getinfo, fabric, cleanup }
}

consts! {
    FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_FLOAT FI_DOUBLE
    FI_FLOAT_COMPLEX FI_DOUBLE_COMPLEX FI_LONG_DOUBLE FI_LONG_DOUBLE_COMPLEX FI_INT128 FI_UINT128 FI_VOID
    FI_DATATYPE_LAST FI_MIN FI_MAX FI_SUM FI_PROD FI_LOR FI_LAND FI_BOR FI_BAND FI_LXOR FI_BXOR FI_ATOMIC_READ
    FI_ATOMIC_WRITE FI_CSWAP FI_CSWAP_NE FI_CSWAP_LE FI_CSWAP_LT FI_CSWAP_GE FI_CSWAP_GT FI_MSWAP FI_NOOP
    FI_ATOMIC_OP_LAST FI_NAME_MAX FI_ADDR_UNSPEC FI_ADDR_NOTAVAIL FI_KEY_NOTAVAIL FI_SHARED_CONTEXT
    FI_CLASS_UNSPEC FI_CLASS_FABRIC FI_CLASS_DOMAIN FI_CLASS_EP FI_CLASS_SEP FI_CLASS_RX_CTX FI_CLASS_SRX_CTX
    FI_CLASS_TX_CTX FI_CLASS_STX_CTX FI_CLASS_PEP FI_CLASS_INTERFACE FI_CLASS_AV FI_CLASS_MR FI_CLASS_EQ
    FI_CLASS_CQ FI_CLASS_CNTR FI_CLASS_WAIT FI_CLASS_POLL FI_CLASS_CONNREQ FI_CLASS_MC FI_CLASS_NIC
    FI_CLASS_AV_SET FI_CLASS_MR_CACHE FI_CLASS_MEM_MONITOR FI_CLASS_PEER_CQ FI_CLASS_PEER_SRX FI_CLASS_LOG
    FI_CLASS_PEER_AV FI_CLASS_PEER_AV_SET FI_GETFIDFLAG FI_SETFIDFLAG FI_GETOPSFLAG FI_SETOPSFLAG FI_ALIAS
    FI_GETWAIT FI_ENABLE FI_BACKLOG FI_GET_RAW_MR FI_MAP_RAW_MR FI_UNMAP_KEY FI_QUEUE_WORK FI_CANCEL_WORK
    FI_FLUSH_WORK FI_REFRESH FI_DUP FI_GETWAITOBJ FI_GET_VAL FI_SET_VAL FI_EXPORT_FID FI_MSG FI_RMA FI_TAGGED
    FI_ATOMIC FI_MULTICAST FI_COLLECTIVE FI_READ FI_WRITE FI_RECV FI_SEND FI_TRANSMIT FI_REMOTE_READ
    FI_REMOTE_WRITE FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_MORE FI_PEEK FI_TRIGGER FI_FENCE FI_COMPLETION FI_EVENT
    FI_INJECT FI_INJECT_COMPLETE FI_TRANSMIT_COMPLETE FI_DELIVERY_COMPLETE FI_AFFINITY FI_COMMIT_COMPLETE
    FI_MATCH_COMPLETE FI_DISCARD FI_CLAIM FI_FETCH_ATOMIC FI_COMPARE_ATOMIC FI_PEER_TRANSFER FI_AV_USER_ID
    FI_PEER FI_HMEM FI_RMA_PMEM FI_SOURCE_ERR FI_LOCAL_COMM FI_REMOTE_COMM FI_SHARED_AV FI_PROV_ATTR_ONLY
    FI_NUMERICHOST FI_RMA_EVENT FI_SOURCE FI_NAMED_RX_CTX FI_DIRECTED_RECV FI_SELECTIVE_COMPLETION FI_REG_MR
    FI_SYMMETRIC FI_SYNC_ERR FI_UNIVERSE FI_BARRIER_SET FI_BROADCAST_SET FI_ALLTOALL_SET FI_ALLREDUCE_SET
    FI_ALLGATHER_SET FI_REDUCE_SCATTER_SET FI_REDUCE_SET FI_SCATTER_SET FI_GATHER_SET FI_HMEM_HOST_ALLOC
    FI_HMEM_DEVICE_ONLY FI_CONTEXT FI_MSG_PREFIX FI_ASYNC_IOV FI_RX_CQ_DATA FI_LOCAL_MR FI_CONTEXT2
    FI_ORDER_NONE FI_ORDER_RAR FI_ORDER_RAW FI_ORDER_RAS FI_ORDER_WAR FI_ORDER_WAW FI_ORDER_WAS FI_ORDER_SAR
    FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_STRICT FI_ORDER_DATA FI_ORDER_RMA_RAR FI_ORDER_RMA_RAW FI_ORDER_RMA_WAR
    FI_ORDER_RMA_WAW FI_ORDER_ATOMIC_RAR FI_ORDER_ATOMIC_RAW FI_ORDER_ATOMIC_WAR FI_ORDER_ATOMIC_WAW
    FI_BARRIER FI_BROADCAST FI_ALLTOALL FI_ALLREDUCE FI_ALLGATHER FI_REDUCE_SCATTER FI_REDUCE FI_SCATTER
    FI_GATHER FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE FI_OPT_ENDPOINT FI_OPT_MIN_MULTI_RECV FI_OPT_CM_DATA_SIZE
    FI_OPT_BUFFERED_MIN FI_OPT_BUFFERED_LIMIT FI_OPT_SEND_BUF_SIZE FI_OPT_RECV_BUF_SIZE FI_OPT_TX_SIZE
    FI_OPT_RX_SIZE FI_OPT_FI_HMEM_P2P FI_OPT_XPU_TRIGGER FI_HMEM_P2P_ENABLED FI_HMEM_P2P_REQUIRED
    FI_HMEM_P2P_PREFERRED FI_HMEM_P2P_DISABLED FI_WAIT_NONE FI_WAIT_UNSPEC FI_WAIT_SET FI_WAIT_FD
    FI_WAIT_MUTEX_COND FI_WAIT_YIELD FI_WAIT_POLLFD FI_NOTIFY FI_CONNREQ FI_CONNECTED FI_SHUTDOWN
    FI_MR_COMPLETE FI_AV_COMPLETE FI_JOIN_COMPLETE FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG
    FI_CQ_FORMAT_DATA FI_CQ_FORMAT_TAGGED FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD FI_CNTR_EVENTS_COMP FI_SUCCESS
    FI_EPERM FI_ENOENT FI_EINTR FI_EIO FI_E2BIG FI_EBADF FI_EAGAIN FI_ENOMEM FI_EACCES FI_EFAULT FI_EBUSY
    FI_ENODEV FI_EINVAL FI_EMFILE FI_ENOSPC FI_ENOSYS FI_EWOULDBLOCK FI_ENOMSG FI_ENODATA FI_EOVERFLOW
    FI_EMSGSIZE FI_ENOPROTOOPT FI_EOPNOTSUPP FI_EADDRINUSE FI_EADDRNOTAVAIL FI_ENETDOWN FI_ENETUNREACH
    FI_ECONNABORTED FI_ECONNRESET FI_ENOBUFS FI_EISCONN FI_ENOTCONN FI_ESHUTDOWN FI_ETIMEDOUT FI_ECONNREFUSED
    FI_EHOSTDOWN FI_EHOSTUNREACH FI_EALREADY FI_EINPROGRESS FI_EREMOTEIO FI_ECANCELED FI_EKEYREJECTED
    FI_ERRNO_OFFSET FI_EOTHER FI_ETOOSMALL FI_EOPBADSTATE FI_EAVAIL FI_EBADFLAGS FI_ENOEQ FI_EDOMAIN FI_ENOCQ
    FI_ECRC FI_ETRUNC FI_ENOKEY FI_ENOAV FI_EOVERRUN FI_ENORX FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN
    FI_SOCKADDR_IN6 FI_SOCKADDR_IB FI_ADDR_PSMX FI_ADDR_GNI FI_ADDR_BGQ FI_ADDR_MLX FI_ADDR_STR FI_ADDR_PSMX2
    FI_ADDR_IB_UD FI_ADDR_EFA FI_ADDR_PSMX3 FI_ADDR_OPX FI_ADDR_CXI FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO
    FI_PROGRESS_MANUAL FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_FID FI_THREAD_DOMAIN FI_THREAD_COMPLETION
    FI_THREAD_ENDPOINT FI_RM_UNSPEC FI_RM_DISABLED FI_RM_ENABLED FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM FI_EP_RDM
    FI_PROTO_UNSPEC FI_PROTO_RDMA_CM_IB_RC FI_PROTO_IWARP FI_PROTO_IB_UD FI_PROTO_PSMX FI_PROTO_UDP
    FI_PROTO_SOCK_TCP FI_PROTO_MXM FI_PROTO_IWARP_RDM FI_PROTO_IB_RDM FI_PROTO_GNI FI_PROTO_RXM FI_PROTO_RXD
    FI_PROTO_MLX FI_PROTO_NETWORKDIRECT FI_PROTO_PSMX2 FI_PROTO_SHM FI_PROTO_MRAIL FI_PROTO_RSTREAM
    FI_PROTO_RDMA_CM_IB_XRC FI_PROTO_EFA FI_PROTO_PSMX3 FI_PROTO_RXM_TCP FI_PROTO_OPX FI_PROTO_CXI
    FI_PROTO_XNET FI_TC_UNSPEC FI_TC_DSCP FI_TC_LABEL FI_TC_BEST_EFFORT FI_TC_LOW_LATENCY
    FI_TC_DEDICATED_ACCESS FI_TC_BULK_DATA FI_TC_SCAVENGER FI_TC_NETWORK_CTRL FI_MR_UNSPEC FI_MR_BASIC
    FI_MR_SCALABLE FI_MR_LOCAL FI_MR_RAW FI_MR_VIRT_ADDR FI_MR_ALLOCATED FI_MR_PROV_KEY FI_MR_MMU_NOTIFY
    FI_MR_RMA_EVENT FI_MR_ENDPOINT FI_MR_HMEM FI_MR_COLLECTIVE FI_BUS_UNSPEC FI_BUS_UNKNOWN FI_BUS_PCI
    FI_LINK_UNKNOWN FI_LINK_DOWN FI_LINK_UP FI_HMEM_SYSTEM FI_HMEM_CUDA FI_HMEM_ROCR FI_HMEM_ZE FI_HMEM_NEURON
    FI_HMEM_SYNAPSEAI FI_LOG_CORE FI_LOG_FABRIC FI_LOG_DOMAIN FI_LOG_EP_CTRL FI_LOG_EP_DATA FI_LOG_AV
    FI_LOG_CQ FI_LOG_EQ FI_LOG_MR FI_LOG_CNTR FI_LOG_WARN FI_LOG_TRACE FI_LOG_INFO FI_LOG_DEBUG
    FI_PARAM_STRING FI_PARAM_INT FI_PARAM_BOOL FI_PARAM_SIZE_T
    ;
    FI_FLOAT16 FI_BFLOAT16 FI_FLOAT8_E4M3 FI_FLOAT8_E5M2 FI_DIFF FI_AV_AUTH_KEY FI_CLASS_PEER_CNTR
    FI_CLASS_PROFILE FI_GET_FD FI_AUTH_KEY FI_RESCAN FI_FIREWALL_ADDR FI_TAGGED_DIRECTED_RECV
    FI_TAGGED_MULTI_RECV FI_EXACT_DIRECTED_RECV FI_MR_DMABUF FI_MR_SINGLE_USE FI_MPI_IGNORE_TAG
    FI_MPI_IGNORE_PAYLOAD FI_OPT_CUDA_API_PERMITTED FI_OPT_SHARED_MEMORY_PERMITTED FI_OPT_MAX_MSG_SIZE
    FI_OPT_MAX_TAGGED_SIZE FI_OPT_MAX_RMA_SIZE FI_OPT_MAX_ATOMIC_SIZE FI_OPT_INJECT_MSG_SIZE
    FI_OPT_INJECT_TAGGED_SIZE FI_OPT_INJECT_RMA_SIZE FI_OPT_INJECT_ATOMIC_SIZE FI_OPT_FIREWALL_ADDR
    FI_CNTR_EVENTS_BYTES FI_EPROTO FI_ENOMR FI_EFIREWALLADDR FI_ADDR_UCX FI_SOCKADDR_IP
    FI_PROGRESS_CONTROL_UNIFIED FI_PROTO_COLL FI_PROTO_UCX FI_PROTO_SM2 FI_PROTO_CXI_RNR FI_PROTO_LPP
    FI_PROTO_LNX FI_TAG_BITS FI_TAG_MPI FI_TAG_CCL FI_TAG_MAX_FORMAT
}
