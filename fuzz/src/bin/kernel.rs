//! What the kernel says: pages of its trace ring, and answers of inet_diag. The first byte decides which.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_trace::diag::replies;
use polyrail_trace::kernel::{Format, Layout};

const HEADER: &str = "field: u64 timestamp; offset:0; size:8;
field: local_t commit; offset:8; size:8;
field: char data; offset:16; size:4080;";

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    match which % 3 {
        0 => {
            let layout = Layout::parse(HEADER).expect("a layout");
            let read: usize = layout.events(data).map(|(_, event)| event.len() + 4).sum();
            assert!(read <= data.len());
            layout.missed(data);
        }
        1 => assert!(replies(data).count() <= data.len()),
        _ => {
            if let Ok(text) = std::str::from_utf8(data) {
                let format = Format::parse(text);
                if let Some(layout) = Layout::parse(text) {
                    layout.events(data).for_each(|(_, event)| {
                        format.behind("commit").for_each(|field| {
                            field.number(event);
                            field.ip(event);
                        });
                    });
                }
            }
        }
    }
});
