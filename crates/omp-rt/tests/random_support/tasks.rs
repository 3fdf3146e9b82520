//! Trees of tasks, in C and C++: what they find on the stacks of those who met them, in copies, on the heap; groups, dependences, atomics, locks.

use std::fmt::Write as _;

use super::Random;

/// Levels inside each other.
const DEEP: usize = 3;
/// Elements of an array that a tree may use.
const ELEMENTS: usize = 30;

struct Tree<'a> {
    random: &'a mut Random,
    text: String,
    cpp: bool,
    variables: usize,
    elements: usize,
    /// What is behind an element's number, where several trees use one array.
    of: &'static str,
}

/// A piece that leaves what it has computed in `a` and `b`.
pub fn piece(random: &mut Random, cpp: bool) -> String {
    let looped = random.one_in(3);
    let (begin, of) = match looped {
        true => (
            "#pragma omp for schedule(dynamic)\n        for (int w = 0; w < 3; w++) {\n        long acc = w;\n",
            " * 3 + w",
        ),
        false => ("#pragma omp single\n        {\n        long acc = 1;\n", ""),
    };
    let mut tree = Tree { random, text: String::new(), cpp, variables: 0, elements: 0, of };
    tree.level(0);
    format!(
        "        long total = 0;\n        omp_lock_t lock;\n        omp_init_lock(&lock);\n#pragma omp parallel shared(total, lock)\n        {begin}{}#pragma omp atomic\n        total += acc;\n        }}\n        omp_destroy_lock(&lock);\n        b[1] += total;\n",
        tree.text
    )
}

impl Tree<'_> {
    fn number(&mut self) -> usize {
        1 + self.random.below(99)
    }

    /// Tasks that are waited for, whose results go into `acc`.
    fn level(&mut self, depth: usize) {
        self.variables += 1;
        let v = format!("v{}", self.variables);
        let begins: Vec<String> = (0..4).map(|_| self.number().to_string()).collect();
        writeln!(self.text, "        long {v}[4] = {{{}}};", begins.join(", ")).unwrap();
        let group = self.random.one_in(4);
        if group {
            self.text.push_str("#pragma omp taskgroup\n        {\n");
        }
        match self.random.below(5) {
            0 => self.chain(&v),
            1 => self.row(&v),
            _ => (0..1 + self.random.below(3)).for_each(|which| self.task(&v, which, depth)),
        }
        if self.random.one_in(3) {
            self.loose();
        }
        self.text.push_str(if group { "        }\n" } else { "#pragma omp taskwait\n" });
        writeln!(self.text, "        acc += {v}[0] * 3 + {v}[1] * 5 + {v}[2] * 7;").unwrap();
    }

    fn task(&mut self, v: &str, which: usize, depth: usize) {
        let k = self.number();
        let clause = self.random.pick(&[
            "",
            "",
            "",
            " untied",
            " if (acc % 3 > 0)",
            " final(acc % 7 == 0)",
            " priority(2)",
        ]);
        let text = format!("string{}", self.variables);
        let string = self.cpp && self.random.one_in(3);
        let copy = if string { format!(", {text}") } else { String::new() };
        if string {
            writeln!(self.text, "        std::string {text}((size_t){k}, 'x');").unwrap();
            self.variables += 1;
        }
        writeln!(
            self.text,
            "#pragma omp task firstprivate(acc{copy}) shared({v}){clause}\n        {{\n        acc += {k};"
        )
        .unwrap();
        writeln!(self.text, "        {v}[{which}] += acc * {k};").unwrap();
        if string {
            writeln!(self.text, "        {text} += \"abc\";\n        {v}[{which}] += (long){text}.size();")
                .unwrap();
        }
        for _ in 0..self.random.below(3) {
            match self.random.below(4) {
                0 => writeln!(self.text, "#pragma omp atomic\n        total += {k};").unwrap(),
                1 => writeln!(self.text, "#pragma omp critical\n        heap[0] += {k};").unwrap(),
                2 => writeln!(
                    self.text,
                    "        {{\n        long *p = (long *)malloc(40 * sizeof *p);\n        for (int i = 0; i < 40; i++) p[i] = acc + i;\n        {v}[{which}] += p[{}];\n        free(p);\n        }}",
                    k % 40
                )
                .unwrap(),
                _ => writeln!(self.text, "        omp_set_lock(&lock);\n        b[2] += {k};\n        omp_unset_lock(&lock);").unwrap(),
            }
        }
        self.element();
        if depth < DEEP && self.random.one_in(2) {
            self.level(depth + 1);
            writeln!(self.text, "        {v}[{which}] += acc;").unwrap();
        }
        self.text.push_str("        }\n");
    }

    /// An element of `a`, which no other task has.
    fn element(&mut self) {
        if self.elements < ELEMENTS && self.random.one_in(2) {
            let at = self.elements;
            self.elements += 1;
            writeln!(self.text, "        a[{at}{of}] = a[{at}{of}] * 3 + acc;", of = self.of).unwrap();
        }
    }

    /// A task that nobody waits for before the group, or the barrier, is over.
    fn loose(&mut self) {
        self.text.push_str("#pragma omp task firstprivate(acc)\n        {\n        acc += 5;\n");
        self.element();
        self.text.push_str("#pragma omp task firstprivate(acc)\n        {\n        acc += 7;\n");
        self.element();
        self.text.push_str("        }\n        }\n");
    }

    /// One after the other.
    fn chain(&mut self, v: &str) {
        let count = 2 + self.random.below(5);
        writeln!(self.text, "        for (int i = 0; i < {count}; i++)\n        {{\n#pragma omp task depend(inout : {v}[0]) shared({v}) firstprivate(i)").unwrap();
        writeln!(self.text, "        {v}[0] = {v}[0] * 3 % 1000003 + i;\n        }}").unwrap();
        if self.random.one_in(2) {
            writeln!(self.text, "#pragma omp task depend(in : {v}[0]) depend(out : {v}[1]) shared({v})\n        {v}[1] = {v}[0] + 1;").unwrap();
        }
    }

    /// Each behind the one before it.
    fn row(&mut self, v: &str) {
        let rounds = 1 + self.random.below(3);
        writeln!(self.text, "        for (int r = 0; r < {rounds}; r++)\n        for (int i = 1; i < 4; i++)\n        {{\n#pragma omp task depend(in : {v}[i - 1]) depend(inout : {v}[i]) shared({v}) firstprivate(i)").unwrap();
        writeln!(self.text, "        {v}[i] = ({v}[i] * 5 + {v}[i - 1]) % 1000003;\n        }}").unwrap();
    }
}
