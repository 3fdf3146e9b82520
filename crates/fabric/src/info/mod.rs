//! `fi_getinfo`: what an application may have.
//!
//! Files: `hints` what it asks for, read from C; `offer` the answer, decided; `fill` the answer, as C wants it; `resolve` names to
//! addresses.

mod fill;
pub mod hints;
pub mod offer;
mod resolve;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString, c_char, c_int};

use crate::address::{Format, Source};
use crate::ffi::*;
use crate::log::{host, log};
use crate::registry;
use hints::Hints;
pub use resolve::Query;

/// The source and destination of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Ends {
    src: Vec<u8>,
    dest: Option<Vec<u8>>,
}

/// `fi_provider::getinfo`: one `fi_info`, or -FI_ENODATA and a line in the log (`FI_LOG_LEVEL=info`) that says what was asked too
/// much.
///
/// # Safety
/// As libfabric calls it: C strings or nulls, hints or null, and a place for the answer.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: a C string or null, by the caller's promise.
    let text = |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned());
    let (node, service) = (text(node), text(service));
    if flags & FI_SOURCE != 0 && node.is_none() && service.is_none() {
        return -FI_EINVAL;
    }
    // SAFETY: by the caller's promise.
    let hints = unsafe { Hints::read(hints) };
    let answer = offer::offer(version, flags, hints.as_ref()).and_then(|mut offer| {
        let open = registry::open_domain(hints.as_ref().map_or(0, |h| h.domain.domain))?;
        let ends = ends(&mut offer.format, node, service, flags, hints.as_ref())?;
        Ok((offer, ends, open))
    });
    let (offer, ends, open) = match answer {
        Ok(answer) => answer,
        Err(why) => {
            log!(FI_LOG_INFO, FI_LOG_FABRIC, "fi_getinfo: no: {why}");
            return -FI_ENODATA;
        }
    };
    let Some(filled) = host().and_then(|host| fill::fill(host.host(), version, &offer, &ends, open)) else {
        return -FI_ENOMEM;
    };
    // SAFETY: a place for the answer.
    unsafe { info.write(filled.as_ptr()) };
    FI_SUCCESS
}

/// Where the endpoint is, and whom it is to talk to. `node` and `service` say the one or the other; hints what they do not.
/// Narrows the format to the family of the addresses.
fn ends(
    format: &mut Format,
    node: Option<CString>,
    service: Option<CString>,
    flags: u64,
    hints: Option<&Hints>,
) -> Result<Ends, String> {
    let passive = flags & FI_SOURCE != 0;
    let asked = node.is_some() || service.is_some();
    let mut src = hints.and_then(|h| h.src_addr.clone()).filter(|_| !passive);
    let mut dest = hints.and_then(|h| h.dest_addr.clone()).filter(|_| passive || !asked);
    let any_family = hints.is_some_and(|h| matches!(h.addr_format, FI_SOCKADDR | FI_SOCKADDR_IP));
    if any_family {
        let given = src.as_deref().or(dest.as_deref()).and_then(crate::address::read_socket);
        *format = if given.is_some_and(|at| at.is_ipv6()) { Format::V6 } else { Format::V4 };
    }
    if asked {
        let own =
            node.as_ref().and_then(|node| node.to_str().ok()?.parse::<polyrail_core::wire::Address>().ok());
        if let (Some(address), Format::Own, None, false) = (&own, *format, &service, passive) {
            dest = Some(address.to_bytes().to_vec());
        } else {
            let found = Query { node, service, numeric: flags & FI_NUMERICHOST != 0, passive }.resolve()?;
            let fits = |at: &&std::net::SocketAddr| {
                any_family || *format == Format::Own || at.is_ipv4() == (*format == Format::V4)
            };
            let at = *found.iter().find(fits).ok_or("no address of this family")?;
            if any_family {
                *format = if at.is_ipv4() { Format::V4 } else { Format::V6 };
            }
            match (passive, *format) {
                (true, _) => src = Some(Source::At(at).write(*format)),
                (false, Format::Own) => {
                    let peer = polyrail_rails::named::named_address(at).map_err(|why| why.to_string())?;
                    dest = Some(peer.to_bytes().to_vec());
                }
                (false, _) => dest = Some(crate::address::write_socket(at)),
            }
        }
    }
    let src = src.unwrap_or_else(|| Source::Anywhere.write(*format));
    Source::read(*format, &src).ok_or("src_addr is not of this format")?;
    if let Some(dest) = &dest {
        let fits = *format != Format::Own && Source::read(*format, dest).is_some();
        if !fits {
            format.peer(dest).map_err(|why| format!("dest_addr: {why}"))?;
        }
    }
    Ok(Ends { src, dest })
}
