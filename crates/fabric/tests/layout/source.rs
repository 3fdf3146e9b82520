//! Reads the declarations in `ffi`'s source: what there is to compare, and each field's type as C spells it.

use std::collections::BTreeMap;

const SOURCES: [&str; 12] = [
    include_str!("../../src/ffi/atomic.rs"),
    include_str!("../../src/ffi/base.rs"),
    include_str!("../../src/ffi/caps.rs"),
    include_str!("../../src/ffi/collective.rs"),
    include_str!("../../src/ffi/domain.rs"),
    include_str!("../../src/ffi/endpoint.rs"),
    include_str!("../../src/ffi/eq.rs"),
    include_str!("../../src/ffi/errno.rs"),
    include_str!("../../src/ffi/info.rs"),
    include_str!("../../src/ffi/mr.rs"),
    include_str!("../../src/ffi/provider.rs"),
    include_str!("../../src/ffi/mod.rs"),
];

/// The declarations, with their types in Rust's spelling.
pub struct Source {
    /// By struct: its public fields in order.
    pub structs: BTreeMap<String, Vec<(String, String)>>,
    pub consts: Vec<String>,
    aliases: BTreeMap<String, String>,
}

impl Source {
    pub fn read() -> Self {
        let mut source = Self { structs: BTreeMap::new(), consts: Vec::new(), aliases: BTreeMap::new() };
        for text in SOURCES {
            let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
            source.add(&code.join(" "));
        }
        source
    }

    fn add(&mut self, code: &str) {
        for item in code.split("pub ") {
            if let Some(rest) = item.strip_prefix("type ")
                && let Some((name, target)) = rest.split_once('=')
            {
                let target = target.split(';').next().unwrap_or_default();
                self.aliases.insert(name.trim().into(), target.trim().into());
            } else if let Some(rest) = item.strip_prefix("const ")
                && let Some((name, _)) = rest.split_once(':')
                && name.starts_with("FI_")
            {
                self.consts.push(name.into());
            }
        }
        for item in code.split("pub struct ").skip(1) {
            let (name, rest) = item.split_once('{').expect("a struct has a body");
            let body = rest.split_once('}').expect("a body ends").0;
            let fields = body.split("pub ").skip(1).map(|field| {
                let (name, r#type) = field.split_once(':').expect("a field has a type");
                (name.trim_start_matches("r#").into(), r#type.trim().trim_end_matches(',').into())
            });
            let fields: Vec<_> = fields.collect();
            // A struct without public fields is only pointed to.
            if !fields.is_empty() {
                self.structs.insert(name.trim().into(), fields);
            }
        }
    }

    /// A type in C's spelling; the `static` tables' pointers lose their `const`, which C has not.
    pub fn c_type(&self, rust: &str) -> String {
        let rust = rust.trim().trim_end_matches(',').trim();
        if let Some(inner) = rust.strip_prefix("Option<") {
            return self.c_type(inner.strip_suffix('>').expect("an Option is closed"));
        }
        if let Some(function) = rust.strip_prefix("unsafe extern \"C\" fn(") {
            let (args, result) = function.split_once(')').expect("arguments end");
            let args: Vec<_> = args.split(',').map(str::trim).filter(|arg| !arg.is_empty()).collect();
            let args = args.iter().map(|arg| self.c_type(arg.split_once(':').expect("a name and a type").1));
            let args = args.collect::<Vec<_>>().join(", ");
            let result = result.trim().strip_prefix("->").map_or("void".into(), |result| self.c_type(result));
            return format!("{result} (*)({})", if args.is_empty() { "void" } else { &args });
        }
        if let Some(target) = rust.strip_prefix("*const ") {
            let constant = if target.starts_with("fi_ops") { "" } else { " const" };
            return format!("{}{constant} *", self.c_type(target));
        }
        if let Some(target) = rust.strip_prefix("*mut ") {
            return format!("{} *", self.c_type(target));
        }
        if let Some(array) = rust.strip_prefix('[') {
            let (element, count) =
                array.trim_end_matches(']').split_once(';').expect("an array has a length");
            let count = count.trim();
            return format!("{} [{}]", self.c_type(element), if count == "0" { "" } else { count });
        }
        match rust.rsplit("::").next().unwrap_or(rust) {
            "c_int" => "int".into(),
            "c_char" => "char".into(),
            "c_void" => "void".into(),
            "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &rust[1..]),
            "usize" => "size_t".into(),
            "isize" => "ssize_t".into(),
            name @ ("fi_addr_t" | "fid_t") => name.into(),
            name => match self.aliases.get(name).map(String::as_str) {
                None => format!("struct {name}"),
                Some("u32") => format!("enum {name}"),
                Some(target) => self.c_type(target),
            },
        }
    }
}
