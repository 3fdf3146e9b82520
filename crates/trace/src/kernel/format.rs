//! What the kernel says of its own layouts: `events/header_page` and `events/*/*/format`, texts that list fields with their
//! offsets. Layouts differ between kernels; nothing here is assumed of them but the fields' names.

use std::net::{IpAddr, Ipv6Addr};

use crate::diag::address;

/// Where a field stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the beginning of the event or page.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

impl Field {
    /// Its bytes, where `data` is long enough.
    pub fn bytes(self, data: &[u8]) -> Option<&[u8]> {
        data.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// As a number of 1 to 8 bytes in the machine's order, without a sign.
    pub fn number(self, data: &[u8]) -> Option<u64> {
        let bytes = self.bytes(data)?;
        Some(match bytes.len() {
            1 => bytes[0].into(),
            2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
            4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// As an IP address: `struct sockaddr_in` or `_in6`, or the sixteen bytes of an IPv6 address, mapped or not.
    pub fn ip(self, data: &[u8]) -> Option<IpAddr> {
        let bytes = self.bytes(data)?;
        if let Ok(bytes) = <[u8; 16]>::try_from(bytes) {
            return Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical());
        }
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let from = if i32::from(family) == libc::AF_INET6 { 8 } else { 4 };
        address(family, bytes.get(from..from + 16)?.try_into().ok()?)
    }
}

/// The fields of an event or a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Number of the event, the first two bytes of its data; 0 for a page.
    pub id: u16,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Reads the text; lines that describe no field are passed over.
    pub fn parse(text: &str) -> Format {
        let mut format = Format::default();
        for line in text.lines() {
            let line = line.trim();
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().unwrap_or(0);
            } else if let Some(parsed) = line.strip_prefix("field:").and_then(field) {
                format.fields.push(parsed);
            }
        }
        format
    }

    /// The fields behind the one of this name, in their order.
    pub fn behind(&self, name: &str) -> impl Iterator<Item = Field> {
        self.fields.iter().skip_while(move |(known, _)| known != name).skip(1).map(|(_, field)| *field)
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, field)| *field)
    }
}

/// `__u8 saddr[28]; offset:8; size:28; signed:0;`
fn field(text: &str) -> Option<(String, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?.rsplit([' ', '*']).next()?.split('[').next()?.to_owned();
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            _ => {}
        }
    }
    Some((name, Field { offset: offset?, size: size? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub const TEXT: &str = "name: tcp_probe\nID: 2273\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:__u8 saddr[28];\toffset:8;\tsize:28;\tsigned:0;\n\
        \tfield:const void * skaddr;\toffset:128;\tsize:8;\tsigned:0;\n\nprint fmt: \"family=%s\", REC->family\n";

    #[test]
    fn fields_are_found_by_their_names() {
        let format = Format::parse(TEXT);
        assert_eq!(format.id, 2273);
        assert_eq!(format.field("common_type"), Some(Field { offset: 0, size: 2 }));
        assert_eq!(format.field("saddr"), Some(Field { offset: 8, size: 28 }));
        assert_eq!(format.field("skaddr"), Some(Field { offset: 128, size: 8 }));
        assert_eq!(format.field("family"), None);
    }

    #[test]
    fn addresses_of_all_shapes() {
        let whole = |bytes: &[u8]| Field { offset: 0, size: bytes.len() }.ip(bytes).map(|ip| ip.to_string());
        let mut v4 = [0; 28];
        v4[..8].copy_from_slice(&[2, 0, 0x12, 0x34, 10, 0, 0, 1]);
        assert_eq!(whole(&v4).as_deref(), Some("10.0.0.1"));
        let mut v6 = [0; 28];
        (v6[0], v6[23]) = (10, 1);
        assert_eq!(whole(&v6).as_deref(), Some("::1"));
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2];
        assert_eq!(whole(&mapped).as_deref(), Some("10.0.0.2"));
        assert_eq!(whole(&[0; 28]), None);
    }

    proptest! {
        #[test]
        fn any_text_and_any_field_can_be_read(text in ".*", offset: usize, size in 0usize..40, data: [u8; 32]) {
            Format::parse(&text);
            let field = Field { offset, size };
            prop_assert_eq!(field.number(&data).is_some(), offset <= 32 && [1, 2, 4, 8].contains(&size) && offset + size <= 32);
            field.ip(&data);
        }
    }
}
