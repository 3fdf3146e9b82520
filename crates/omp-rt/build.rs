//! Writes an entry point that refuses for each line of `entries.txt` that says so.
use std::fmt::Write;

fn main() {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../omp/src/entries.txt");
    println!("cargo:rerun-if-changed={list}");
    let text = std::fs::read_to_string(list).expect("the list of entry points");
    let (mut stubs, mut reasons) = (String::new(), String::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, state, why] = fields[..] else { panic!("not `name, state, reason`: {line}") };
        if state == "refused" {
            writeln!(stubs, "    {name}").unwrap();
            writeln!(reasons, "    ({name:?}, {why:?}),").unwrap();
        } else {
            assert_eq!(state, "works", "{line}");
        }
    }
    let out =
        std::path::PathBuf::from(std::env::var("OUT_DIR").expect("cargo says where")).join("refused.rs");
    let code = format!("stubs! {{\n{stubs}}}\nconst REASONS: &[(&str, &str)] = &[\n{reasons}];\n");
    std::fs::write(out, code).expect("the generated code");
}
