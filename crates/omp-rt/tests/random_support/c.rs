//! In C and C++: pieces of programs, each of which leaves what it has computed in arrays that are summed up behind it.

mod constructs;
mod objects;
mod orders;

use std::fmt::Write as _;

use super::{Random, Source};

/// Makes one of a few pieces.
struct Maker<'a> {
    random: &'a mut Random,
    text: String,
    cpp: bool,
    flushes: bool,
    piece: usize,
}

const HEAD: &str = r#"#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>
"#;

const CPP: &str = r#"#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
"#;

const BODY: &str = r#"
static long a[N], b[N];
static int c[N];
static double d[N];
static unsigned char u[N];
static struct { unsigned x : 3, y : 13; short s; } f[N];
static long *heap;
static long own;
#pragma omp threadprivate(own)

static unsigned long mix(unsigned long h, unsigned long v) {
    h ^= v + 0x9e3779b97f4a7c15ul + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdul;
}
static void check(int piece) {
    unsigned long h = piece;
    for (long i = 0; i < N; i++) {
        h = mix(h, a[i]), h = mix(h, b[i]), h = mix(h, c[i]), h = mix(h, (unsigned long)(long)d[i]);
        h = mix(h, u[i]), h = mix(h, f[i].x * 8192 + f[i].y + ((long)f[i].s << 20));
    }
    for (long i = 0; i < M; i++)
        h = mix(h, heap[i]);
    printf("%d: %016lx\n", piece, h);
}
static long fib(int n) {
    if (n < 2)
        return n;
    long x, y;
#pragma omp task shared(x) if (n > 6)
    x = fib(n - 1);
    y = fib(n - 2);
#pragma omp taskwait
    return x + y;
}
struct node { long value; struct node *next; };
"#;

/// A program from pieces.
pub fn program(random: &mut Random, cpp: bool) -> Source {
    let flushes = random.one_in(5);
    let mut maker = Maker { random, text: String::new(), cpp, flushes, piece: 0 };
    let n = [97, 640, 1000, 3001][maker.random.below(4)];
    let m = [1, 1000, 200_000][maker.random.below(3)];
    write!(
        maker.text,
        "{HEAD}{}enum {{ N = {n}, M = {m} }};\n{BODY}{}",
        if cpp { CPP } else { "" },
        constructs::FUNCTIONS
    )
    .unwrap();
    maker.text.push_str("\nint main(void) {\n    heap = (long *)calloc(M, sizeof *heap);\n");
    maker.text.push_str("    for (long i = 0; i < N; i++)\n        a[i] = i * 7 + 1, b[i] = N - i, c[i] = i % 13, d[i] = i, u[i] = i;\n");
    for piece in 0..2 + maker.random.below(6) {
        maker.piece = piece;
        maker.text.push_str("    {\n");
        maker.piece();
        maker.text.push_str("    }\n");
        writeln!(maker.text, "    check({piece});").unwrap();
    }
    maker.text.push_str("    free(heap);\n    return 0;\n}\n");
    Source { text: maker.text, flushes }
}

impl Maker<'_> {
    fn put(&mut self, text: &str) {
        self.text.push_str(text.trim_start_matches('\n'));
    }

    fn schedule(&mut self) -> String {
        let chunk = 1 + self.random.below(40);
        match self.random.below(8) {
            0 => String::new(),
            1 => " schedule(static)".into(),
            2 => format!(" schedule(static, {chunk})"),
            3 => format!(" schedule(dynamic, {chunk})"),
            4 => " schedule(guided)".into(),
            5 => format!(" schedule(guided, {chunk})"),
            6 => " schedule(runtime)".into(),
            _ => " schedule(auto)".into(),
        }
    }

    fn long_array(&mut self) -> &'static str {
        self.random.pick(&["a", "b"])
    }

    /// What memory an atomic operation orders, in words of its own.
    fn order(&mut self) -> &'static str {
        self.random.pick(&["", "", " seq_cst"])
    }

    fn piece(&mut self) {
        let kinds = if self.cpp { 28 } else { 24 };
        let more = Self::CONSTRUCTS + if self.cpp { Self::OBJECTS } else { 0 };
        if let which @ 1.. = self.random.below(kinds + more + 1).saturating_sub(kinds) {
            return match (which - 1).checked_sub(Self::CONSTRUCTS) {
                Some(which) => self.object(which),
                None => self.construct(which - 1),
            };
        }
        let kind = self.random.below(kinds + 2 * usize::from(self.flushes));
        let kind = if kind >= kinds { 100 + kind - kinds } else { kind };
        match kind {
            0 => self.elements(),
            1 => self.reduction(),
            2 => self.array_reduction(),
            3 => self.critical(),
            4 => self.histogram(),
            5 => self.capture(),
            6 => self.ordered(),
            7 => self.single(),
            8 => self.sections(),
            9 => self.tasks(),
            10 => self.taskloop(),
            11 => self.locks(),
            12 => self.threadprivate(),
            13 => self.list(),
            14 => self.strings(),
            15 => self.file(),
            16 => self.stencil(),
            17 => self.privates(),
            18 => self.behind_updates(),
            19 => self.mutex(),
            20 => self.spin(),
            21 => self.large(),
            22 | 23 => self.tree(),
            24 => self.vectors(),
            25 => self.map(),
            26 => self.exceptions(),
            27 => self.cpp_mutex(),
            100 => self.pipeline(),
            _ => self.flags(),
        }
    }

    fn elements(&mut self) {
        let (to, from, schedule) = (self.long_array(), self.long_array(), self.schedule());
        let (k, l) = (1 + self.random.below(9), self.random.below(1000));
        let text = match self.random.below(4) {
            0 => format!(
                "#pragma omp parallel for{schedule}\n        for (long i = 0; i < N; i++)\n            {to}[i] = {from}[i] * {k} + i * {l} % 1009;\n"
            ),
            1 => format!(
                "#pragma omp parallel for collapse(2){schedule}\n        for (int i = 0; i < 7; i++)\n            for (int j = 0; j < N / 7; j++)\n                c[i * (N / 7) + j] = i * {k} + j, u[i * (N / 7) + j] += j;\n"
            ),
            2 => format!(
                "#pragma omp parallel\n        {{\n#pragma omp for nowait{schedule}\n            for (int i = N - 1; i >= 0; i--)\n                f[i].x = i, f[i].y = {from}[i];\n#pragma omp for{schedule}\n            for (unsigned i = 0; i < N; i += {k})\n                d[i] = i + {l};\n        }}\n"
            ),
            _ => format!(
                "#pragma omp parallel for simd{}\n        for (int i = 0; i < N; i++)\n            c[i] ^= i * {k}, u[i] = c[i];\n",
                self.random.pick(&["", " schedule(static)"])
            ),
        };
        self.put(&text);
    }

    fn reduction(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(9));
        let text = format!(
            r#"
        long s = {k}, m = -1, product = 1;
        double t = 0;
        unsigned x = 0;
        int all = 1;
#pragma omp parallel for reduction(+ : s, t) reduction(max : m) reduction(^ : x) reduction(&& : all){schedule}
        for (long i = 0; i < N; i++) {{
            s += a[i] * {k};
            t += (double)(c[i] & 1023);
            m = (a[i] & 0xffff) > m ? (a[i] & 0xffff) : m;
            x ^= (unsigned)b[i] * 2654435761u;
            all = all && i < N;
        }}
#pragma omp parallel for reduction(* : product)
        for (int i = 0; i < 40; i++)
            product *= i % 2 + 1;
        a[0] = s, b[1] = m + product, c[2] = x, d[3] = t + all;
"#
        );
        self.put(&text);
    }

    fn array_reduction(&mut self) {
        let (schedule, array) = (self.schedule(), self.long_array());
        let text = format!(
            r#"
        long h[16] = {{0}};
#pragma omp parallel for reduction(+ : h){schedule}
        for (long i = 0; i < N; i++)
            h[{array}[i] & 15] += i;
        for (int i = 0; i < 16; i++)
            {array}[i] += h[i];
"#
        );
        self.put(&text);
    }

    fn critical(&mut self) {
        let (schedule, k, name) =
            (self.schedule(), 2 + self.random.below(30), self.random.pick(&["", "(one)", "(two)"]));
        let text = format!(
            r#"
        int next = 0, slot[N];
        long sum = 0;
#pragma omp parallel for{schedule}
        for (int i = 0; i < N; i++)
            if (i % {k} == 0) {{
#pragma omp critical{name}
                {{
                    slot[next++] = i;
                    sum += a[i];
                    if (next % 5 == 0)
                        heap[next % M] += 1;
                }}
            }}
        for (int j = 0; j < next; j++)
            b[slot[j]] += 3;
        b[0] += next + sum;
"#
        );
        self.put(&text);
    }

    fn histogram(&mut self) {
        let (schedule, order, kind) = (self.schedule(), self.order(), self.random.below(4));
        let (declare, update, take) = match kind {
            0 => ("int h[16] = {0};", "h[i * 7 & 15]++;", "c[i] += h[i];"),
            1 => ("double h[16] = {0};", "h[i * 7 & 15] += i;", "d[i] += h[i];"),
            2 => ("unsigned char h[16] = {0};", "h[i * 3 & 15] ^= i;", "u[i] += h[i];"),
            _ => ("long h[16] = {0};", "h[i * 5 & 15] -= i;", "a[i] += h[i];"),
        };
        let text = format!(
            r#"
        {declare}
#pragma omp parallel for{schedule}
        for (int i = 0; i < N; i++) {{
#pragma omp atomic{order}
            {update}
        }}
        for (int i = 0; i < 16; i++)
            {take}
"#
        );
        self.put(&text);
    }

    fn capture(&mut self) {
        let (schedule, order) = (self.schedule(), self.order());
        let text = format!(
            r#"
        long next = 0;
        static long slot[N];
#pragma omp parallel for{schedule}
        for (int i = 0; i < N; i++) {{
            long mine;
#pragma omp atomic capture{order}
            {{
                mine = next;
                next += 1;
            }}
            slot[mine] = i * 3;
        }}
        long sum = 0, odd = 0;
        for (int i = 0; i < N; i++)
            sum += slot[i], odd ^= slot[i];
        a[5] = sum, b[6] = odd;
"#
        );
        self.put(&text);
    }

    fn ordered(&mut self) {
        let (chunk, kind) = (1 + self.random.below(4), self.random.pick(&["static", "dynamic"]));
        let print = self.random.one_in(2);
        let text = format!(
            r#"
        unsigned long h = 1;
#pragma omp parallel for ordered schedule({kind}, {chunk})
        for (int i = 0; i < 60; i++) {{
            long w = a[i % N] * i;
#pragma omp ordered
            {{
                h = mix(h, w + c[i]);
                if ({print} && i % 17 == 0)
                    printf("turn %d\n", i);
            }}
        }}
        a[3] = h;
"#,
            print = u8::from(print)
        );
        self.put(&text);
    }

    fn single(&mut self) {
        let k = self.random.below(100);
        let text = format!(
            r#"
        long x = 0, y = 0, z = 0;
#pragma omp parallel
        {{
#pragma omp single
            x = {k};
#pragma omp atomic
            z += x;
#pragma omp barrier
#pragma omp master
            y = z;
            long v = 0;
#pragma omp single copyprivate(v)
            v = {k} * 3;
#pragma omp critical
            x += v;
#pragma omp single nowait
            b[{k} % N] += 5;
        }}
        a[1] = x, b[2] = y, a[4] = z;
"#
        );
        self.put(&text);
    }

    fn sections(&mut self) {
        let array = self.long_array();
        let text = format!(
            r#"
#pragma omp parallel sections
        {{
#pragma omp section
            for (int i = 0; i < N / 3; i++)
                {array}[i] += i;
#pragma omp section
            for (int i = N / 3; i < N / 2; i++)
                {array}[i] -= i;
#pragma omp section
            for (int i = N / 2; i < N; i++)
                {array}[i] ^= i;
        }}
"#
        );
        self.put(&text);
    }

    fn tasks(&mut self) {
        let n = 8 + self.random.below(5);
        let text = format!(
            r#"
        long r = 0, chain = 1;
#pragma omp parallel
#pragma omp single
        {{
            r = fib({n});
            for (int i = 0; i < 10; i++) {{
#pragma omp task depend(inout : chain) shared(chain)
                chain = chain * 3 + i;
            }}
#pragma omp taskwait
#pragma omp taskgroup
            for (int i = 0; i < 8; i++) {{
#pragma omp task firstprivate(i)
                a[i] += i * {n};
            }}
        }}
        b[0] = r + chain;
"#
        );
        self.put(&text);
    }

    fn tree(&mut self) {
        let text = super::tasks::piece(self.random, self.cpp);
        self.put(&text);
    }

    fn taskloop(&mut self) {
        let grain = 1 + self.random.below(50);
        let text = format!(
            r#"
#pragma omp parallel
#pragma omp single
#pragma omp taskloop grainsize({grain})
        for (int i = 0; i < N; i++)
            c[i] += i ^ {grain};
"#
        );
        self.put(&text);
    }

    fn locks(&mut self) {
        let (schedule, count) = (self.schedule(), 1 + self.random.below(7));
        let text = format!(
            r#"
        omp_lock_t locks[{count}];
        omp_nest_lock_t nest;
        long bucket[{count}] = {{0}}, deep = 0;
        for (int i = 0; i < {count}; i++)
            omp_init_lock(&locks[i]);
        omp_init_nest_lock(&nest);
#pragma omp parallel for{schedule}
        for (int i = 0; i < 200; i++) {{
            int k = i % {count};
            if (i % 3)
                omp_set_lock(&locks[k]);
            else
                while (!omp_test_lock(&locks[k]))
                    ;
            bucket[k] = bucket[k] + a[i % N] % 100;
            omp_unset_lock(&locks[k]);
            if (i % 10 == 0) {{
                omp_set_nest_lock(&nest);
                omp_set_nest_lock(&nest);
                deep += i;
                omp_unset_nest_lock(&nest);
                omp_unset_nest_lock(&nest);
            }}
        }}
        for (int i = 0; i < {count}; i++) {{
            b[i] += bucket[i];
            omp_destroy_lock(&locks[i]);
        }}
        omp_destroy_nest_lock(&nest);
        a[9] += deep;
"#
        );
        self.put(&text);
    }

    fn threadprivate(&mut self) {
        let k = self.random.below(50);
        let text = format!(
            r#"
        long total = 0;
        own = {k};
#pragma omp parallel copyin(own)
        {{
#pragma omp for schedule(static)
            for (int i = 0; i < N; i++)
                own += i;
#pragma omp critical
            total += own;
        }}
#pragma omp parallel
        {{
#pragma omp atomic
            total += own % 7;
        }}
        a[7] += total;
"#
        );
        self.put(&text);
    }

    fn list(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(9));
        let text = format!(
            r#"
        struct node *head = NULL;
        long sum = 0;
#pragma omp parallel for{schedule}
        for (int i = 0; i < N / {k}; i++) {{
            struct node *node = (struct node *)malloc(sizeof *node);
            node->value = a[i];
#pragma omp critical(list)
            {{
                node->next = head;
                head = node;
            }}
        }}
        while (head) {{
            struct node *next = head->next;
            sum += head->value;
            free(head);
            head = next;
        }}
        b[8] += sum;
"#
        );
        self.put(&text);
    }

    fn strings(&mut self) {
        let (one, other, k) = (self.schedule(), self.schedule(), self.random.below(100));
        let text = format!(
            r#"
        static char *names[N];
#pragma omp parallel for{one}
        for (int i = 0; i < N; i++) {{
            names[i] = (char *)malloc(12 + i % 30);
            snprintf(names[i], 12, "%d-%d", i, {k});
        }}
#pragma omp parallel for{other}
        for (int i = 0; i < N; i++) {{
            c[i] += strlen(names[i]) + atoi(names[i]);
            if (i % 4 == 0) {{
                names[i] = (char *)realloc(names[i], 4000);
                names[i][3999] = i;
                u[i] = names[i][3999];
            }}
            free(names[i]);
        }}
"#
        );
        self.put(&text);
    }

    fn file(&mut self) {
        let (piece, construct) = (self.piece, self.random.below(2));
        let (on_loop, around) = match construct {
            0 => (" ordered schedule(static, 2)", "ordered"),
            _ => ("", "critical(file)"),
        };
        let text = format!(
            r#"
        FILE *out = fopen("piece{piece}.txt", "w+");
#pragma omp parallel for{on_loop}
        for (int i = 0; i < 50; i++) {{
#pragma omp {around}
            fprintf(out, "%d %ld\n", i, a[i]);
        }}
        rewind(out);
        long value, sum = 0;
        int i, lines = 0;
        while (fscanf(out, "%d %ld", &i, &value) == 2)
            sum += value * (i + 1), lines++;
        fclose(out);
        remove("piece{piece}.txt");
        a[11] = sum + lines;
"#
        );
        self.put(&text);
    }

    fn stencil(&mut self) {
        let (steps, schedule) = (1 + self.random.below(6), self.schedule());
        let text = format!(
            r#"
        long *p = a, *q = b;
#pragma omp parallel
        for (int step = 0; step < {steps}; step++) {{
#pragma omp for{schedule}
            for (int i = 1; i < N - 1; i++)
                q[i] = (p[i - 1] + p[i + 1] + step) & 0xffff;
#pragma omp single
            {{
                long *t = p;
                p = q;
                q = t;
            }}
        }}
"#
        );
        self.put(&text);
    }

    fn privates(&mut self) {
        let k = 1 + self.random.below(20);
        let text = format!(
            r#"
        long x = {k}, last = 0;
        int rows = {k}, vla[rows + 4];
        memset(vla, 0, sizeof vla);
#pragma omp parallel for firstprivate(x) lastprivate(last) schedule(static)
        for (int i = 0; i < N; i++) {{
            long scratch[8];
            for (int j = 0; j < 8; j++)
                scratch[j] = x * i + j;
            last = scratch[i & 7];
            if (i < rows)
                vla[i] = last;
        }}
        for (int i = 0; i < rows; i++)
            c[i] += vla[i];
        a[2] = last + x;
"#
        );
        self.put(&text);
    }

    fn large(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(3));
        let text = format!(
            r#"
#pragma omp parallel for{schedule}
        for (long i = 0; i < M; i++)
            if (i % {k} == 0)
                heap[i] = heap[i] * 3 + i;
        long part = 0;
#pragma omp parallel reduction(+ : part)
        {{
            long *mine = (long *)malloc(80000);
            memset(mine, 1, 80000);
#pragma omp for
            for (long i = 0; i < M; i++)
                part += heap[i] & 0xff;
            part += mine[9999] & 1;
            free(mine);
        }}
        a[14] += part;
"#
        );
        self.put(&text);
    }
}
