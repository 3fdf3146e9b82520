//! Constructs that the first pieces leave out: dependences of loops, reductions that programs declare, regions inside regions, worksharing in functions, groups that reduce.

use super::Maker;

impl Maker<'_> {
    /// As many pieces as [`Maker::construct`] has.
    pub(super) const CONSTRUCTS: usize = 13;

    pub(super) fn construct(&mut self, which: usize) {
        match which {
            0 => self.doacross(),
            1 => self.declared_reduction(),
            2 => self.sizes(),
            3 => self.nested(),
            4 => self.orphaned(),
            5 => self.nested_lock(),
            6 => self.group_reduction(),
            7 => self.taskloop_reduction(),
            8 => self.last_section(),
            9 => self.without_waiting(),
            10 => self.wavefront(),
            11 => self.triangle(),
            _ => self.sorted(),
        }
    }

    fn doacross(&mut self) {
        let (k, array) = (1 + self.random.below(50), self.long_array());
        let text = format!(
            r#"
        static long w[20][16];
        memset(w, 0, sizeof w);
#pragma omp parallel for ordered(2) schedule(static, 1)
        for (int i = 1; i < 20; i++)
            for (int j = 1; j < 16; j++) {{
                long mine = {array}[(i * 16 + j) % N] & 255;
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
                w[i][j] = (w[i - 1][j] + w[i][j - 1] * 3 + mine + {k}) & 0xffff;
#pragma omp ordered depend(source)
            }}
        a[18] += w[19][15];
"#
        );
        self.put(&text);
    }

    fn declared_reduction(&mut self) {
        let (schedule, array) = (self.schedule(), self.long_array());
        let text = format!(
            r#"
        struct both {{ long sum, most; }};
#pragma omp declare reduction(merge : struct both : omp_out.sum += omp_in.sum, omp_out.most = omp_in.most > omp_out.most ? omp_in.most : omp_out.most) initializer(omp_priv = {{0, -1}})
        struct both all = {{5, 7}};
#pragma omp parallel for reduction(merge : all){schedule}
        for (int i = 0; i < N; i++) {{
            long x = {array}[i] & 0xfffff;
            all.sum += x;
            if (x > all.most)
                all.most = x;
        }}
        a[19] += all.sum;
        b[20] += all.most;
"#
        );
        self.put(&text);
    }

    fn sizes(&mut self) {
        let (k, l) = (1 + self.random.below(3), 1 + self.random.below(4));
        let text = format!(
            r#"
        long s = 0;
        int before = omp_get_max_threads();
        omp_set_num_threads({k});
#pragma omp parallel reduction(+ : s)
        {{
#pragma omp for schedule(dynamic, 5)
            for (int i = 0; i < N; i++)
                s += b[i];
#pragma omp single
            heap[0] += 3;
        }}
#pragma omp parallel num_threads({l}) reduction(+ : s)
        {{
#pragma omp for
            for (int i = 0; i < N; i++)
                s += a[i] & 255;
        }}
#pragma omp parallel if (s < 0) reduction(+ : s)
        s += omp_get_num_threads();
        omp_set_num_threads(before);
        b[21] += s;
"#
        );
        self.put(&text);
    }

    fn nested(&mut self) {
        let (schedule, k) = (self.schedule(), 2 + self.random.below(20));
        let text = format!(
            r#"
        long deep = 0;
#pragma omp parallel for{schedule} reduction(+ : deep)
        for (int i = 0; i < 24; i++) {{
            long inner = 0, levels = 0;
#pragma omp parallel for reduction(+ : inner)
            for (int j = 0; j < {k}; j++)
                inner += i * j + (a[j] & 15);
#pragma omp parallel shared(levels)
            {{
#pragma omp single
                levels = omp_get_level();
#pragma omp critical(inside)
                inner += levels;
            }}
            b[i] += inner;
            deep += levels;
        }}
        a[22] += deep;
"#
        );
        self.put(&text);
    }

    fn orphaned(&mut self) {
        let (k, array) = (1 + self.random.below(9), self.long_array());
        let text = format!(
            r#"
        long total = 0;
        share_out({array}, {k}, &total);
#pragma omp parallel
        {{
            share_out({array}, {k} + 1, &total);
            share_out(heap == 0 ? 0 : a, 2, &total);
        }}
        b[23] += total;
"#
        );
        self.put(&text);
    }

    fn nested_lock(&mut self) {
        let k = 2 + self.random.below(9);
        let text = format!(
            r#"
        omp_nest_lock_t lock;
        omp_init_nest_lock(&lock);
        long depth = 0;
#pragma omp parallel for
        for (int i = 0; i < 60; i++) {{
            omp_set_nest_lock(&lock);
            omp_set_nest_lock(&lock);
            depth += i % {k};
            if (i % 3 == 0) {{
                int got = omp_test_nest_lock(&lock);
                heap[0] += got;
                if (got)
                    omp_unset_nest_lock(&lock);
            }}
            omp_unset_nest_lock(&lock);
            a[24] += i;
            omp_unset_nest_lock(&lock);
        }}
        omp_destroy_nest_lock(&lock);
        b[25] += depth;
"#
        );
        self.put(&text);
    }

    fn group_reduction(&mut self) {
        let (k, array) = (5 + self.random.below(30), self.long_array());
        let text = format!(
            r#"
        long s = 1, most = 0;
#pragma omp parallel
#pragma omp single
        {{
#pragma omp taskgroup task_reduction(+ : s) task_reduction(max : most)
            for (int i = 0; i < {k}; i++) {{
#pragma omp task in_reduction(+ : s) in_reduction(max : most) firstprivate(i)
                {{
                    s += {array}[i % N] + i;
                    most = {array}[i % N] > most ? {array}[i % N] : most;
                }}
            }}
            s += 7;
        }}
        a[26] += s + most;
"#
        );
        self.put(&text);
    }

    fn taskloop_reduction(&mut self) {
        let grain = 1 + self.random.below(60);
        let more = self.random.pick(&["", " collapse(2)"]);
        let text = format!(
            r#"
        long s = 0;
#pragma omp parallel
#pragma omp single
#pragma omp taskloop grainsize({grain}) reduction(+ : s){more}
        for (int i = 0; i < 20; i++)
            for (int j = 0; j < 5; j++)
                s += (a[i] & 255) * j + i;
        b[27] += s;
"#
        );
        self.put(&text);
    }

    fn last_section(&mut self) {
        let k = self.random.below(1000);
        let text = format!(
            r#"
        long last = 3, s = 0, first = {k};
#pragma omp parallel sections firstprivate(first) lastprivate(last) reduction(+ : s)
        {{
#pragma omp section
            {{
                s += first;
                last = 1;
            }}
#pragma omp section
            {{
                for (int i = 0; i < N; i++)
                    s += c[i];
                last = 2;
            }}
#pragma omp section
            {{
                last = first * 2;
                u[5] += 4;
            }}
        }}
        a[28] += last + s;
"#
        );
        self.put(&text);
    }

    fn without_waiting(&mut self) {
        let (k, chunk) = (1 + self.random.below(9), 1 + self.random.below(30));
        let schedule = match self.random.below(2) {
            0 => "schedule(static)".to_owned(),
            _ => format!("schedule(static, {chunk})"),
        };
        let text = format!(
            r#"
#pragma omp parallel
        {{
#pragma omp for {schedule} nowait
            for (int i = 0; i < N; i++)
                a[i] = a[i] * {k} + i;
#pragma omp for {schedule} nowait
            for (int i = 0; i < N; i++)
                b[i] += a[i] & 0xffff;
#pragma omp for {schedule}
            for (int i = 0; i < N; i++)
                d[i] += b[i] & 255;
#pragma omp master
            c[6] += (int)d[N - 1];
        }}
"#
        );
        self.put(&text);
    }

    fn wavefront(&mut self) {
        let (size, k) = (3 + self.random.below(5), 1 + self.random.below(99));
        let text = format!(
            r#"
        static long g[9][9];
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 9; j++)
                g[i][j] = i * j + {k};
#pragma omp parallel
#pragma omp single
        for (int i = 1; i <= {size}; i++)
            for (int j = 1; j <= {size}; j++) {{
#pragma omp task depend(in : g[i - 1][j], g[i][j - 1]) depend(out : g[i][j]) firstprivate(i, j)
                g[i][j] = (g[i - 1][j] * 3 + g[i][j - 1]) % 10007 + i;
            }}
        for (int i = 0; i < 9; i++)
            a[i] += g[{size}][i], b[i] ^= g[i][{size}];
"#
        );
        self.put(&text);
    }

    fn triangle(&mut self) {
        let k = 1 + self.random.below(9);
        let text = format!(
            r#"
        static unsigned char t[40][40];
        memset(t, 1, sizeof t);
#pragma omp parallel for collapse(2)
        for (int i = 0; i < 40; i++)
            for (int j = 0; j < i; j++)
                t[i][j] = i * {k} + j;
        long s = 0;
#pragma omp parallel for reduction(+ : s)
        for (int i = 0; i < 40; i++)
            for (int j = 0; j < 40; j++)
                s += t[i][j] * (j + 1);
        a[29] += s;
"#
        );
        self.put(&text);
    }

    fn sorted(&mut self) {
        let (parts, k) = (2 + self.random.below(5), 1 + self.random.below(1000));
        let text = format!(
            r#"
        long *all = (long *)malloc(N * sizeof *all);
        char (*names)[24] = (char (*)[24])malloc(N * sizeof *names);
#pragma omp parallel for
        for (int i = 0; i < N; i++) {{
            all[i] = (b[i] * 2654435761u + {k}) % 100003;
            snprintf(names[i], sizeof names[i], "%ld.%d", all[i], i % 10);
        }}
#pragma omp parallel for schedule(dynamic)
        for (int part = 0; part < {parts}; part++)
            qsort(all + part * (N / {parts}), N / {parts}, sizeof *all, by_value);
        double sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (int i = 0; i < N; i++)
            sum += (long)(strtod(names[i], NULL) * 16);
        for (int i = 0; i < N; i++)
            a[i] += all[i] * (i & 7);
        d[7] += sum;
        free(names);
        free(all);
"#
        );
        self.put(&text);
    }
}

/// Functions that pieces call.
pub(super) const FUNCTIONS: &str = r#"
static int by_value(const void *one, const void *other) {
    long x = *(const long *)one, y = *(const long *)other;
    return (x > y) - (x < y);
}
static void share_out(long *at, int k, long *total) {
#pragma omp for schedule(dynamic, 13)
    for (int i = 0; i < N; i++)
        at[i] = at[i] * k + i;
#pragma omp single
    *total += at[N / 2] & 1023;
#pragma omp for schedule(static) nowait
    for (int i = 0; i < N; i++)
        if (i % 50 == 0) {
#pragma omp critical(sharing)
            *total += at[i] & 255;
        }
#pragma omp barrier
}
"#;
