//! Names to socket addresses, in bounded time.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr;
use std::sync::mpsc;
use std::time::Duration;

use crate::address::read_socket;

/// How long a name service may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of the name service.
#[derive(Clone, Debug)]
pub struct Query {
    /// A host's name or IP; none: this host.
    pub node: Option<CString>,
    /// A port's number or name; none: 0.
    pub service: Option<CString>,
    /// The node is an IP.
    pub numeric: bool,
    /// The address is to listen on: no node means all IPs.
    pub passive: bool,
}

impl Query {
    /// The socket addresses, best first: numbers at once, names within some seconds.
    ///
    /// # Errors
    /// Why there is none.
    pub fn resolve(self) -> Result<Vec<SocketAddr>, String> {
        if let Some(at) = self.numbers() {
            return Ok(vec![at]);
        }
        let (done, answer) = mpsc::channel();
        let query = self.clone();
        // The resolver cannot be interrupted: when it takes too long its thread is left to itself. It holds nothing of
        // ours, and the library stays loaded (build.rs).
        let thread = std::thread::Builder::new().name("polyrail-name".into());
        thread.spawn(move || done.send(query.look_up())).map_err(|error| error.to_string())?;
        let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
        let found = answer.recv_timeout(PATIENCE).map_err(late).and_then(|answer| answer);
        found.map_err(|why| format!("{}: {why}", self.name()))
    }

    fn name(&self) -> String {
        let text =
            |part: &Option<CString>| part.as_deref().map_or("*".into(), CStr::to_string_lossy).into_owned();
        format!("{} port {}", text(&self.node), text(&self.service))
    }

    fn numbers(&self) -> Option<SocketAddr> {
        let none = if self.passive { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        let ip = match &self.node {
            Some(node) => node.to_str().ok()?.parse::<IpAddr>().ok()?,
            None => none.into(),
        };
        let port = match &self.service {
            Some(service) => service.to_str().ok()?.parse().ok()?,
            None => 0,
        };
        Some(SocketAddr::new(ip, port))
    }

    fn look_up(&self) -> Result<Vec<SocketAddr>, String> {
        // SAFETY: all fields of this struct may be zero.
        let mut hints = unsafe { std::mem::zeroed::<libc::addrinfo>() };
        hints.ai_socktype = libc::SOCK_STREAM;
        hints.ai_flags = if self.numeric { libc::AI_NUMERICHOST } else { 0 };
        hints.ai_flags |= if self.passive { libc::AI_PASSIVE } else { 0 };
        let text = |part: &Option<CString>| part.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let mut list = ptr::null_mut();
        // SAFETY: C strings or nulls, not both null (`numbers` has answered that), and a place for the list.
        let code = unsafe {
            libc::getaddrinfo(text(&self.node), text(&self.service), &raw const hints, &raw mut list)
        };
        if code != 0 {
            // SAFETY: it takes any number and returns a static C string.
            return Err(unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_string_lossy().into_owned());
        }
        let (mut found, mut at) = (Vec::new(), list);
        // SAFETY: a list that getaddrinfo made, each address with its length.
        while let Some(entry) = unsafe { at.as_ref() } {
            if !entry.ai_addr.is_null() {
                // SAFETY: as above.
                let bytes =
                    unsafe { std::slice::from_raw_parts(entry.ai_addr.cast(), entry.ai_addrlen as usize) };
                found.extend(read_socket(bytes));
            }
            at = entry.ai_next;
        }
        // SAFETY: made by getaddrinfo, used no more.
        unsafe { libc::freeaddrinfo(list) };
        // A listener on all IPs hears both families, one that an IPv6 name was resolved to may not.
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        node: Option<&str>,
        service: Option<&str>,
        numeric: bool,
        passive: bool,
    ) -> Result<Vec<SocketAddr>, String> {
        let text = |part: Option<&str>| part.map(|part| CString::new(part).unwrap());
        Query { node: text(node), service: text(service), numeric, passive }.resolve()
    }

    #[test]
    fn numbers_need_no_service() {
        assert_eq!(ask(Some("10.0.0.1"), Some("80"), false, false), Ok(vec![([10, 0, 0, 1], 80).into()]));
        assert_eq!(ask(Some("::1"), None, true, false), Ok(vec!["[::1]:0".parse().unwrap()]));
        assert_eq!(ask(None, Some("80"), false, true), Ok(vec![([0, 0, 0, 0], 80).into()]));
        assert_eq!(ask(None, Some("80"), false, false), Ok(vec![([127, 0, 0, 1], 80).into()]));
    }

    #[test]
    fn names_are_looked_up() {
        let found = ask(Some("localhost"), Some("80"), false, false).unwrap();
        assert!(found[0].ip().is_loopback() && found[0].port() == 80, "{found:?}");
        let why = ask(Some("localhost"), Some("80"), true, false).unwrap_err();
        assert!(why.starts_with("localhost port 80: "), "{why}");
    }
}
