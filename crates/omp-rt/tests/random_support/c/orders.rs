//! What orders memory besides barriers: atomic operations, mutexes, locks and flags of the program's own.

use super::Maker;

impl Maker<'_> {
    /// What others have updated, plainly read behind all of that.
    pub(super) fn behind_updates(&mut self) {
        let (order, turns) = (self.order(), self.random.one_in(2));
        let text = match turns {
            true => format!(
                r#"
        long count = 0, seen = 0;
#pragma omp parallel for ordered schedule(static, 1)
        for (int i = 0; i < 12; i++) {{
#pragma omp atomic update{order}
            count += i + 1;
#pragma omp ordered
            seen += count >= (i + 1) * (i + 2) / 2;
        }}
        a[0] += seen;
"#
            ),
            false => format!(
                r#"
        long count = 0, seen = 0;
        int come = 0;
#pragma omp parallel
        {{
#pragma omp atomic update{order}
            count += omp_get_thread_num() + 1;
#pragma omp critical(come)
            if (++come == omp_get_num_threads())
                seen = count;
        }}
        a[0] += seen;
"#
            ),
        };
        self.put(&text);
    }

    pub(super) fn mutex(&mut self) {
        let schedule = self.schedule();
        let text = format!(
            r#"
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static long sum, most;
#pragma omp parallel for{schedule}
        for (int i = 0; i < 100; i++) {{
            pthread_mutex_lock(&mutex);
            sum += i;
            most = i > most ? i : most;
            pthread_mutex_unlock(&mutex);
        }}
        a[12] += sum + most;
"#
        );
        self.put(&text);
    }

    pub(super) fn spin(&mut self) {
        let (schedule, kind) = (self.schedule(), self.random.below(3));
        let (take, give) = match kind {
            0 => (
                "while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE))",
                "__atomic_store_n(&taken, 0, __ATOMIC_RELEASE);",
            ),
            1 => ("while (__sync_lock_test_and_set(&taken, 1))", "__sync_lock_release(&taken);"),
            _ => (
                "for (int free = 0; !__atomic_compare_exchange_n(&taken, &free, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED); free = 0)",
                "__atomic_exchange_n(&taken, 0, __ATOMIC_RELEASE);",
            ),
        };
        let text = format!(
            r#"
        static int taken;
        static long inside, sum;
#pragma omp parallel for{schedule}
        for (int i = 0; i < 60; i++) {{
            {take}
                ;
            sum += b[i];
            inside++;
            {give}
        }}
        a[13] += sum + inside;
"#
        );
        self.put(&text);
    }

    /// Each thread waits for the one before it by a flag between flushes.
    pub(super) fn pipeline(&mut self) {
        let k = 1 + self.random.below(5);
        let text = format!(
            r#"
        static int stage[64];
        static long value[64];
        memset(stage, 0, sizeof stage);
#pragma omp parallel
        {{
            int me = omp_get_thread_num();
            for (int step = 1; step <= {k}; step++) {{
                if (me > 0)
                    for (;;) {{
#pragma omp flush
                        int now;
#pragma omp atomic read
                        now = stage[me - 1];
                        if (now >= step)
                            break;
                        usleep(20);
                    }}
#pragma omp flush
                value[me] = (me ? value[me - 1] : 1) * 3 + step;
#pragma omp flush
#pragma omp atomic write
                stage[me] = step;
#pragma omp flush
                if (me + 1 < omp_get_num_threads())
                    for (;;) {{
#pragma omp flush
                        int now;
#pragma omp atomic read
                        now = stage[me + 1];
                        if (now >= step)
                            break;
                        usleep(20);
                    }}
            }}
        }}
        for (int i = 0; i < 64; i++)
            c[i] += value[i] & 0xffff;
"#
        );
        self.put(&text);
    }

    /// One thread says that something is there; the others wait for it, by loads that acquire.
    pub(super) fn flags(&mut self) {
        let text = r#"
        static int ready;
        static long box;
        __atomic_store_n(&ready, 0, __ATOMIC_RELAXED);
        long sum = 0;
#pragma omp parallel
        {
            long got;
            if (omp_get_thread_num() == omp_get_num_threads() - 1) {
                box = a[3] + 7;
                __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
                got = box;
            } else {
                while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
                    usleep(20);
                got = box;
            }
#pragma omp critical
            sum += got;
        }
        b[10] += sum;
"#;
        self.put(text);
    }
}
