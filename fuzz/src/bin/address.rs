//! Addresses, as bytes and as text.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::wire::Address;

fuzz_target!(|data: &[u8]| {
    if let Ok(address) = Address::parse(data) {
        assert_eq!(address.to_bytes(), data);
        assert_eq!(address.expose().parse(), Ok(address));
        let shown = format!("{address} {address:?} {:?}", address.sockets().collect::<Vec<_>>());
        let key: String = data[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!shown.contains(&key));
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = text.parse::<Address>()
    {
        assert_eq!(Address::parse(&address.to_bytes()), Ok(address));
    }
});
