//! One HTML file that needs nothing else, and that nothing in it can break out of.

use super::about::About;
use base64::Engine as _;
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write as _;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const CHARTS: &str = include_str!("vendor/echarts.min.js");
/// The page's own code, in the order in which it is run.
const SCRIPTS: [&str; 22] = [
    include_str!("page/figures.js"),
    include_str!("page/elements.js"),
    include_str!("page/colours.js"),
    include_str!("page/address.js"),
    include_str!("page/packed.js"),
    include_str!("page/view.js"),
    include_str!("page/traffic.js"),
    include_str!("page/lanes.js"),
    include_str!("page/arrows.js"),
    include_str!("page/strip.js"),
    include_str!("page/selection.js"),
    include_str!("page/timeline.js"),
    include_str!("page/tcp.js"),
    include_str!("page/connection.js"),
    include_str!("page/table.js"),
    include_str!("page/connections.js"),
    include_str!("page/tables.js"),
    include_str!("page/head.js"),
    include_str!("page/classes.js"),
    include_str!("page/matrix.js"),
    include_str!("page/histograms.js"),
    include_str!("page/main.js"),
];

/// Text in HTML.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

/// JSON in a script element: without what could end the element or start a comment.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Bytes as the page's code unpacks them: zlib, then base 64.
pub(super) fn packed(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(4));
    // writing to memory does not fail
    let _ = encoder.write_all(bytes);
    base64::engine::general_purpose::STANDARD.encode(encoder.finish().unwrap_or_default())
}

/// The page. Each part of the template is replaced once, so that nothing in the data can ask for another replacement.
pub(super) fn page(about: &About, data: &impl serde::Serialize) -> String {
    let data = json(data);
    let mut page = String::with_capacity(CHARTS.len() + data.len() + (1 << 18));
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "title" => page.push_str(&escaped(&about.command)),
            "sentence" => page.push_str(&escaped(&about.sentence)),
            "style" => page.push_str(STYLE),
            "charts" => page.push_str(CHARTS),
            "script" => SCRIPTS.iter().for_each(|script| page.push_str(script)),
            "data" => page.push_str(&data),
            _ => {}
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

    #[test]
    fn what_is_vendored_is_what_its_table_says() {
        assert!(!CHARTS.contains("</script") && !CHARTS.contains("<!--"), "it would end its element");
        let head = CHARTS.find("Licensed to the Apache Software Foundation").unwrap();
        assert!(head < 100);
        let sum = sha2::Sha256::digest(CHARTS);
        let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("vendor/README.md").contains(&hex), "the file's sum is {hex}");
    }

    #[test]
    fn own_scripts_do_not_end_their_element() {
        assert!(SCRIPTS.iter().all(|script| !script.contains("</script") && !script.contains("<!--")));
        assert!(!STYLE.contains("</style"));
    }

    #[test]
    fn hostile_names_stay_text() {
        let evil = "</script><script>alert(1)</script><!-- {{data}} & \u{2028}";
        let about = About {
            command: evil.into(),
            sentence: evil.into(),
            finding: String::new(),
            warnings: vec![],
            notes: vec![],
            keys: vec![],
            names: vec![],
        };
        let page = page(&about, &vec![evil]);
        let scripts = PAGE.matches("<script").count();
        assert_eq!(page.matches("<script").count() - CHARTS.matches("<script").count(), scripts);
        assert_eq!(page.matches("</script").count(), PAGE.matches("</script").count());
        let start = page.find("id=\"data\">").unwrap() + 10;
        let json = &page[start..start + page[start..].find("</script").unwrap()];
        assert_eq!(serde_json::from_str::<Vec<String>>(json).unwrap(), [evil]);
    }

    #[test]
    fn packed_bytes_come_back() {
        let bytes: Vec<u8> = (0..1000u32).flat_map(|n| n.to_le_bytes()).collect();
        let unpacked = base64::engine::general_purpose::STANDARD.decode(packed(&bytes)).unwrap();
        let mut back = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&unpacked[..]), &mut back).unwrap();
        assert_eq!(back, bytes);
    }

    /// The colours of a scheme: those of light, and over them what dark changes.
    fn colours(dark: bool) -> std::collections::HashMap<&'static str, [f64; 3]> {
        let blocks: Vec<&str> =
            STYLE.split(":root {").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
        let declared = blocks[..1 + usize::from(dark)].iter().flat_map(|block| block.split(';'));
        let pairs = declared.filter_map(|one| one.trim().strip_prefix("--")?.split_once(": #"));
        let channel =
            |hex: &str, at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        pairs.map(|(name, hex)| (name, [0, 2, 4].map(|at| channel(hex, at)))).collect()
    }

    /// Relative luminance and contrast as WCAG 2 defines them.
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let light = |c: [f64; 3]| 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_can_be_read_on_every_ground() {
        assert!((contrast([1.0; 3], [0.0; 3]) - 21.0).abs() < 1e-9);
        for dark in [false, true] {
            let colours = colours(dark);
            for ink in ["ink", "soft", "bad"] {
                for ground in ["bg", "card", "fill", "warn-bg", "tip"] {
                    let contrast = contrast(colours[ink], colours[ground]);
                    assert!(contrast >= 4.5, "--{ink} on --{ground}, dark {dark}: {contrast:.2}");
                }
            }
        }
    }
}
