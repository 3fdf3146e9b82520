//! Objects of C++: containers, locks, copies that are counted, reductions that programs declare for them, iterators, what is called through pointers, what throws.

use super::Maker;

impl Maker<'_> {
    /// As many pieces as [`Maker::object`] has.
    pub(super) const OBJECTS: usize = 8;

    pub(super) fn object(&mut self, which: usize) {
        match which {
            0 => self.counted(),
            1 => self.joined(),
            2 => self.iterators(),
            3 => self.functions(),
            4 => self.pointers(),
            5 => self.thrown_by_tasks(),
            6 => self.virtuals(),
            _ => self.streams(),
        }
    }

    pub(super) fn vectors(&mut self) {
        let k = 1 + self.random.below(20);
        let text = format!(
            r#"
        typedef std::vector<long> Longs;
#pragma omp declare reduction(join : Longs : omp_out.insert(omp_out.end(), omp_in.begin(), omp_in.end()))
        Longs all;
#pragma omp parallel for reduction(join : all)
        for (int i = 0; i < N; i++)
            if (i % {k} == 0)
                all.push_back(a[i]);
        std::sort(all.begin(), all.end());
        for (size_t i = 0; i < all.size(); i++)
            b[i] += all[i] % 1000;
"#
        );
        self.put(&text);
    }

    pub(super) fn map(&mut self) {
        let (schedule, k) = (self.schedule(), 2 + self.random.below(20));
        let text = format!(
            r#"
        std::map<std::string, long> counts;
#pragma omp parallel for{schedule}
        for (int i = 0; i < 200; i++) {{
            std::string key = "key " + std::to_string(i % {k}) + std::string(i % 3 * 20, 'x');
#pragma omp critical(map)
            counts[key] += i;
        }}
        long sum = 0;
        for (std::map<std::string, long>::iterator at = counts.begin(); at != counts.end(); ++at)
            sum = sum * 31 + at->second + at->first.size();
        a[15] = sum;
"#
        );
        self.put(&text);
    }

    pub(super) fn exceptions(&mut self) {
        let (schedule, k) = (self.schedule(), 2 + self.random.below(20));
        let text = format!(
            r#"
        long caught = 0;
#pragma omp parallel for reduction(+ : caught){schedule}
        for (int i = 0; i < 120; i++)
            try {{
                if (i % {k} == 0)
                    throw std::runtime_error(std::to_string(i));
                c[i % N] += 0 * i;
            }} catch (const std::exception &error) {{
                caught += atoi(error.what());
            }}
        a[16] += caught;
"#
        );
        self.put(&text);
    }

    pub(super) fn cpp_mutex(&mut self) {
        let schedule = self.schedule();
        let text = format!(
            r#"
        static std::mutex mutex;
        static std::vector<long> found;
        found.clear();
#pragma omp parallel for{schedule}
        for (int i = 0; i < 150; i++)
            if (b[i % N] % 3 == 0) {{
                std::lock_guard<std::mutex> guard(mutex);
                found.push_back(i);
            }}
        long sum = 0;
        for (size_t i = 0; i < found.size(); i++)
            sum += found[i];
        a[17] += sum + found.size();
"#
        );
        self.put(&text);
    }

    fn counted(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(9));
        let text = format!(
            r#"
        static long live;
        live = 0;
        struct Counted {{
            long value;
            explicit Counted(long value = 0) : value(value) {{ change(1); }}
            Counted(const Counted &other) : value(other.value) {{ change(1); }}
            ~Counted() {{ change(-1); }}
            static void change(long by) {{
#pragma omp atomic
                live += by;
            }}
        }};
        long sum = 0;
        {{
            Counted one({k});
            long last = 0;
#pragma omp parallel for firstprivate(one) lastprivate(last) reduction(+ : sum){schedule}
            for (int i = 0; i < 90; i++) {{
                Counted inner(one);
                inner.value += i;
                sum += inner.value;
                last = inner.value;
            }}
#pragma omp parallel
#pragma omp single
            for (int i = 0; i < 6; i++) {{
#pragma omp task firstprivate(one) shared(sum)
                {{
                    one.value += i;
#pragma omp atomic
                    sum += one.value;
                }}
            }}
            a[18] += last;
        }}
        b[19] += sum + live * 1000;
"#
        );
        self.put(&text);
    }

    fn joined(&mut self) {
        let (schedule, k) = (self.schedule(), 2 + self.random.below(9));
        let text = format!(
            r#"
#pragma omp declare reduction(join : std::vector<long> : omp_out.insert(omp_out.end(), omp_in.begin(), omp_in.end()))
        std::vector<long> all(3, 1);
#pragma omp parallel for reduction(join : all){schedule}
        for (int i = 0; i < N; i++)
            if ((b[i] + i) % {k} == 0)
                all.push_back(i * 3);
        std::sort(all.begin(), all.end());
        long h = all.size();
        for (size_t i = 0; i < all.size(); i++)
            h = h * 31 % 1000003 + all[i];
        a[20] += h;
"#
        );
        self.put(&text);
    }

    fn iterators(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(9));
        let text = format!(
            r#"
        std::vector<long> all(a, a + N);
        std::vector<std::string> names(N);
#pragma omp parallel for{schedule}
        for (auto at = all.begin(); at < all.end(); ++at)
            *at = *at * {k} + (at - all.begin());
#pragma omp parallel for{schedule}
        for (size_t i = 0; i < names.size(); i++)
            names[i] = std::to_string(all[i]) + std::string(i % 40, '-');
        long length = 0;
        for (const auto &name : names)
            length += name.size();
        std::copy(all.begin(), all.end(), b);
        b[21] += length;
"#
        );
        self.put(&text);
    }

    fn functions(&mut self) {
        let k = 2 + self.random.below(9);
        let text = format!(
            r#"
        std::vector<std::function<long(long)>> steps;
        for (long i = 0; i < {k}; i++)
            steps.push_back([i](long x) {{ return x * (i + 2) % 10007 + i; }});
        std::vector<long> results(40);
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 40; i++) {{
#pragma omp task firstprivate(i) shared(results, steps)
            {{
                long x = i;
                for (const auto &step : steps)
                    x = step(x);
                results[i] = x;
            }}
        }}
        auto total = [&results] {{
            long sum = 0;
#pragma omp parallel for reduction(+ : sum)
            for (int i = 0; i < 40; i++)
                sum += results[i] * i;
            return sum;
        }};
        a[22] += total();
"#
        );
        self.put(&text);
    }

    fn pointers(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(30));
        let text = format!(
            r#"
        auto shared = std::make_shared<std::vector<long>>(50, {k});
        std::vector<std::unique_ptr<std::string>> kept(60);
#pragma omp parallel for firstprivate(shared){schedule}
        for (int i = 0; i < 60; i++) {{
            auto mine = shared;
            kept[i].reset(new std::string(std::to_string((*mine)[i % 50] + i)));
        }}
        b[23] += shared.use_count();
        long sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (int i = 0; i < 60; i++) {{
            sum += std::stol(*kept[i]);
            kept[i].reset();
        }}
        a[23] += sum;
"#
        );
        self.put(&text);
    }

    fn thrown_by_tasks(&mut self) {
        let k = 2 + self.random.below(6);
        let text = format!(
            r#"
        long caught = 0, passed = 0;
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 30; i++) {{
#pragma omp task firstprivate(i) shared(caught, passed)
            try {{
                std::vector<long> mine(i + 1, i);
                if (i % {k} == 0)
                    throw std::out_of_range(std::to_string(mine.size()));
#pragma omp atomic
                passed += mine[i];
            }} catch (const std::logic_error &error) {{
                long size = std::stol(error.what());
#pragma omp critical(catching)
                caught += size;
            }}
        }}
        b[24] += caught * 3 + passed;
"#
        );
        self.put(&text);
    }

    fn virtuals(&mut self) {
        let (schedule, k) = (self.schedule(), 2 + self.random.below(5));
        let text = format!(
            r#"
        struct Shape {{
            virtual ~Shape() {{}}
            virtual long area() const = 0;
        }};
        struct Square : Shape {{
            long side;
            explicit Square(long side) : side(side) {{}}
            long area() const override {{ return side * side; }}
        }};
        struct Named : Square {{
            std::string name;
            explicit Named(long side) : Square(side), name(side, 'n') {{}}
            long area() const override {{ return Square::area() + name.size(); }}
        }};
        std::vector<Shape *> shapes(50);
#pragma omp parallel for{schedule}
        for (int i = 0; i < 50; i++)
            shapes[i] = i % {k} ? static_cast<Shape *>(new Named(i)) : new Square(i);
        long sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 3)
        for (int i = 49; i >= 0; i--) {{
            sum += shapes[i]->area() * i;
            delete shapes[i];
        }}
        a[25] += sum;
"#
        );
        self.put(&text);
    }

    fn streams(&mut self) {
        let (schedule, k) = (self.schedule(), 1 + self.random.below(99));
        let text = format!(
            r#"
        std::vector<std::string> lines(30);
#pragma omp parallel for{schedule}
        for (int i = 0; i < 30; i++) {{
            std::ostringstream out;
            out << i * {k} << ' ' << std::hex << a[i % N] << ' ' << i / 4.0;
            lines[i] = out.str();
        }}
        long sum = 0;
#pragma omp parallel for reduction(+ : sum) ordered
        for (int i = 0; i < 30; i++) {{
            std::istringstream in(lines[i]);
            long number = 0;
            in >> number;
            sum += number + lines[i].size();
#pragma omp ordered
            if (i % 10 == 0)
                std::cout << lines[i] << '\n';
        }}
        std::cout.flush();
        b[26] += sum;
"#
        );
        self.put(&text);
    }
}
