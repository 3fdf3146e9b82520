//! The examples do what they say; they judge their answers themselves.

use std::process::Command;

#[test]
fn poisson_in_step_and_out_of_step() {
    let tests = std::env::current_exe().expect("this program has a place");
    let program = tests.ancestors().nth(2).expect("deps has a place").join("examples/poisson");
    for words in [&[][..], &["async"]] {
        let output = Command::new(&program).args(words).output().expect("cargo test builds examples");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.starts_with("the largest value is 0.07"),
            "{words:?}: {output:?}"
        );
    }
}
