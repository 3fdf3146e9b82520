//! In Fortran.

use std::fmt::Write as _;

use super::{Random, Source};

/// Of the module.
const TYPES: &str = "  type node
    integer(8) :: value
    integer(8), allocatable :: list(:)
    type(node), pointer :: next => null()
  end type
  type pair
    integer(8) :: sum, most
  end type
  integer(8), save :: own
  integer, save :: own_rows(5)
  !$omp threadprivate(own, own_rows)
";

/// What pieces call.
const FUNCTIONS: &str = "
  recursive function fib(m) result(f)
    integer, value :: m
    integer(8) :: f, x, y
    if (m < 2) then
      f = m
      return
    end if
    !$omp task shared(x) if (m > 6)
    x = fib(m - 1)
    !$omp end task
    y = fib(m - 2)
    !$omp taskwait
    f = x + y
  end function
  subroutine share_out(at, k, total)
    integer(8), intent(inout) :: at(:), total
    integer, intent(in) :: k
    integer :: i
    !$omp do schedule(dynamic, 13)
    do i = 1, size(at)
      at(i) = at(i) * k + i
    end do
    !$omp end do
    !$omp single
    total = total + iand(at(size(at) / 2), 1023_8)
    !$omp end single
    !$omp do schedule(static)
    do i = 1, size(at), 50
      !$omp critical (sharing)
      total = total + iand(at(i), 255_8)
      !$omp end critical (sharing)
    end do
    !$omp end do
  end subroutine
  subroutine merge_pairs(into, from)
    type(pair), intent(inout) :: into
    type(pair), intent(in) :: from
    into%sum = into%sum + from%sum
    into%most = max(into%most, from%most)
  end subroutine
";

/// Pieces with blocks of their own, `$K` a small number.
const MORE: [&str; 14] = [
    "  block
    integer(8) :: f
    !$omp parallel
    !$omp single
    f = fib(10 + mod($K, 6))
    !$omp end single
    !$omp end parallel
    a(5) = a(5) + f
  end block
",
    "  block
    integer(8) :: total
    total = 0
    !$omp parallel
    call share_out(a, $K, total)
    call share_out(b, 3, total)
    !$omp end parallel
    b(6) = b(6) + total
  end block
",
    "  block
    type(node) :: nodes(40)
    integer :: at
    integer(8) :: total
    !$omp parallel do$SCHEDULE
    do at = 1, 40
      allocate (nodes(at)%list(at))
      nodes(at)%list = at + $K
      nodes(at)%value = sum(nodes(at)%list)
    end do
    !$omp end parallel do
    total = 0
    !$omp parallel do reduction(+ : total)
    do at = 1, 40
      total = total + nodes(at)%value * size(nodes(at)%list)
      deallocate (nodes(at)%list)
    end do
    !$omp end parallel do
    a(7) = a(7) + total
  end block
",
    "  block
    integer(8), allocatable :: sums(:)
    integer :: at
    allocate (sums(9))
    sums = $K
    !$omp parallel do reduction(+ : sums)$SCHEDULE
    do at = 1, n
      sums(mod(at, 9) + 1) = sums(mod(at, 9) + 1) + iand(a(at), 4095_8)
    end do
    !$omp end parallel do
    b(1:9) = b(1:9) + sums
  end block
",
    "  block
    integer(8) :: total
    integer :: at
    own = $K
    own_rows = 2
    total = 0
    !$omp parallel copyin(own, own_rows)
    !$omp do schedule(static)
    do at = 1, n
      own = own + at
      own_rows(mod(at, 5) + 1) = own_rows(mod(at, 5) + 1) + 1
    end do
    !$omp end do
    !$omp critical
    total = total + own + sum(own_rows)
    !$omp end critical
    !$omp end parallel
    !$omp parallel
    !$omp atomic
    total = total + mod(own, 7_8)
    !$omp end parallel
    a(8) = a(8) + total
  end block
",
    "  block
    real(8) :: x(20, 20), y(20, 20)
    !$omp parallel
    !$omp workshare
    x = $K
    y = 2 * x + 1
    where (y > 10) x = x + y
    !$omp end workshare
    !$omp end parallel
    d(9) = d(9) + sum(x) + maxval(y)
  end block
",
    "  block
    integer(omp_lock_kind) :: lock
    integer(8) :: total
    integer :: at
    call omp_init_lock(lock)
    total = 0
    !$omp parallel do$SCHEDULE
    do at = 1, 80
      call omp_set_lock(lock)
      total = total + at * $K
      c(10) = c(10) + 1
      call omp_unset_lock(lock)
    end do
    !$omp end parallel do
    call omp_destroy_lock(lock)
    b(11) = b(11) + total
  end block
",
    "  block
    integer(8) :: slots(100), next, mine
    integer :: at
    next = 0
    slots = 0
    !$omp parallel do private(mine)$SCHEDULE
    do at = 1, 100
      !$omp atomic capture
      next = next + 1
      mine = next
      !$omp end atomic
      slots(mine) = at * $K
    end do
    !$omp end parallel do
    a(12) = a(12) + sum(slots) + next
  end block
",
    "  block
    integer(8) :: got, total
    total = 0
    !$omp parallel private(got)
    !$omp single
    got = $K * 5
    !$omp end single copyprivate(got)
    !$omp atomic
    total = total + got
    !$omp end parallel
    b(13) = b(13) + total / $K
  end block
",
    "  block
    type(pair) :: all
    integer :: at
    !$omp declare reduction(merge : pair : merge_pairs(omp_out, omp_in)) initializer(omp_priv = pair(0_8, -1_8))
    all = pair(3_8, 4_8)
    !$omp parallel do reduction(merge : all)$SCHEDULE
    do at = 1, n
      all%sum = all%sum + iand(b(at), 65535_8)
      all%most = max(all%most, iand(a(at), 65535_8))
    end do
    !$omp end parallel do
    a(14) = a(14) + all%sum + all%most
  end block
",
    "  block
    integer(8) :: g(0:9, 0:9)
    integer :: at, to
    g = $K
    !$omp parallel
    !$omp single
    do to = 1, 6
      do at = 1, 6
        !$omp task depend(in : g(at - 1, to), g(at, to - 1)) depend(out : g(at, to)) firstprivate(at, to)
        g(at, to) = mod(g(at - 1, to) * 3 + g(at, to - 1), 10007_8) + at
        !$omp end task
      end do
    end do
    !$omp end single
    !$omp end parallel
    b(15) = b(15) + g(6, 6)
  end block
",
    "  block
    integer(8) :: part(30), total
    integer :: at
    part = 0
    total = 0
    !$omp parallel
    !$omp single
    !$omp taskloop grainsize(4) shared(part)
    do at = 1, 30
      part(at) = iand(a(at), 255_8) * $K
    end do
    !$omp end taskloop
    !$omp end single
    !$omp end parallel
    total = sum(part)
    a(16) = a(16) + total
  end block
",
    "  block
    type(node), pointer :: head, at, gone
    integer :: k
    nullify (head)
    do k = 1, 12
      allocate (at)
      at%value = k * $K
      at%next => head
      head => at
    end do
    !$omp parallel
    !$omp single
    at => head
    do while (associated(at))
      !$omp task firstprivate(at)
      allocate (at%list(int(mod(at%value, 7_8)) + 1))
      at%list = at%value
      at%value = at%value + sum(at%list)
      !$omp end task
      at => at%next
    end do
    !$omp end single
    !$omp end parallel
    do while (associated(head))
      b(17) = b(17) + head%value
      gone => head
      head => head%next
      deallocate (gone)
    end do
  end block
",
    "  block
    integer(8) :: last, first
    integer :: at, rows(6), two
    first = $K
    rows = 4
    !$omp parallel do firstprivate(first, rows) lastprivate(last, two)$SCHEDULE
    do at = 1, n
      rows(mod(at, 6) + 1) = at
      last = first * at + rows(mod(at, 6) + 1)
      two = at
    end do
    !$omp end parallel do
    a(18) = a(18) + last + two
  end block
",
];

/// A program from pieces.
pub fn program(random: &mut Random) -> Source {
    let n = [97, 640, 2001][random.below(3)];
    let mut body = String::new();
    for piece in 1..=2 + random.below(5) {
        body.push_str(&one(random, piece));
        writeln!(body, "  call check({piece})").unwrap();
    }
    let text = format!(
        "module shared\n  use omp_lib\n  implicit none\n{TYPES}  integer, parameter :: n = {n}\n  integer(8) :: a(n), b(n)\n  real(8) :: d(n)\n  integer :: c(n)\n\
         contains\n  subroutine check(piece)\n    integer, intent(in) :: piece\n    integer(8) :: h\n    integer :: i\n    h = piece\n    do i = 1, n\n\
         \x20     h = ieor(h * 31_8, a(i) * 7_8 + b(i))\n      h = ieor(h * 33_8, int(d(i), 8) + c(i))\n    end do\n\
         \x20   print '(i0, a, z16.16)', piece, ': ', h\n  end subroutine\n{FUNCTIONS}end module\n\
         program main\n  use shared\n  use omp_lib\n  implicit none\n  integer :: i, j, k, lines, next, most\n  integer(8) :: s, count, seen\n  real(8) :: t\n\
         \x20 integer :: h(16)\n  character(len=40) :: text(n)\n  integer(8), allocatable :: mine(:), rows(:, :)\n\
         \x20 do i = 1, n\n    a(i) = i * 7 + 1\n    b(i) = n - i\n    d(i) = i\n    c(i) = mod(i, 13)\n  end do\n{body}end program\n"
    );
    Source { text, flushes: false }
}

fn schedule(random: &mut Random) -> String {
    let chunk = 1 + random.below(30);
    match random.below(5) {
        0 => String::new(),
        1 => " schedule(static)".into(),
        2 => format!(" schedule(static, {chunk})"),
        3 => format!(" schedule(dynamic, {chunk})"),
        _ => " schedule(guided)".into(),
    }
}

fn one(random: &mut Random, piece: usize) -> String {
    let (schedule, k) = (schedule(random), 2 + random.below(20));
    match random.below(11 + MORE.len()) {
        more @ 11.. => MORE[more - 11].replace("$SCHEDULE", &schedule).replace("$K", &k.to_string()),
        0 => format!(
            "  !$omp parallel do{schedule}\n  do i = 1, n\n    a(i) = b(i) * {k} + mod(i * {piece}, 1009)\n  end do\n  !$omp end parallel do\n"
        ),
        1 => format!(
            "  s = {k}\n  t = 0\n  most = 0\n  !$omp parallel do reduction(+ : s, t) reduction(max : most){schedule}\n  do i = 1, n\n    s = s + a(i)\n    t = t + mod(c(i), 100)\n    \
             most = max(most, c(i))\n  end do\n  !$omp end parallel do\n  a(1) = s\n  d(2) = t\n  c(3) = most\n"
        ),
        2 => format!(
            "  h = 0\n  !$omp parallel do reduction(+ : h){schedule}\n  do i = 1, n\n    h(mod(i, 16) + 1) = h(mod(i, 16) + 1) + c(i)\n  end do\n  !$omp end parallel do\n  c(1:16) = c(1:16) + h\n"
        ),
        3 => format!(
            "  s = 0\n  next = 0\n  !$omp parallel do{schedule}\n  do i = 1, n\n    if (mod(i, {k}) == 0) then\n      !$omp critical\n      next = next + 1\n      s = s + b(i)\n      \
             !$omp end critical\n    end if\n  end do\n  !$omp end parallel do\n  b(1) = s + next\n"
        ),
        4 => format!(
            "  h = 0\n  !$omp parallel do{schedule}\n  do i = 1, n\n    !$omp atomic\n    h(mod(i * 7, 16) + 1) = h(mod(i * 7, 16) + 1) + 1\n  end do\n  !$omp end parallel do\n  c(1:16) = c(1:16) + h\n"
        ),
        5 => "  s = 1\n  !$omp parallel do ordered schedule(static, 2)\n  do i = 1, 50\n    !$omp ordered\n    s = s * 3 + a(i)\n    if (mod(i, 20) == 0) print '(a, i0)', 'turn ', i\n    !$omp end ordered\n  end do\n  !$omp end parallel do\n  a(2) = s\n".into(),
        6 => format!(
            "  !$omp parallel do{schedule}\n  do i = 1, n\n    write (text(i), '(i0, a, i0)') i, '-', c(i)\n  end do\n  !$omp end parallel do\n  \
             do i = 1, n\n    c(i) = c(i) + len_trim(text(i))\n  end do\n"
        ),
        7 => format!(
            "  !$omp parallel private(mine, j)\n  allocate (mine({k}))\n  mine = 1\n  !$omp do{schedule}\n  do i = 1, n\n    do j = 1, {k}\n      mine(j) = mine(j) + i\n    end do\n    \
             a(i) = a(i) + sum(mine) * 0 + i\n  end do\n  !$omp end do\n  deallocate (mine)\n  !$omp end parallel\n"
        ),
        8 => format!(
            "  allocate (rows({k}, 30))\n  !$omp parallel do collapse(2){schedule}\n  do j = 1, 30\n    do i = 1, {k}\n      rows(i, j) = i * j\n    end do\n  end do\n  !$omp end parallel do\n  \
             b(3) = sum(rows)\n  deallocate (rows)\n"
        ),
        9 => format!(
            "  !$omp parallel sections\n  !$omp section\n  a(1:n / 2) = a(1:n / 2) + {k}\n  !$omp section\n  a(n / 2 + 1:n) = a(n / 2 + 1:n) * 3\n  !$omp end parallel sections\n"
        ),
        _ => "  count = 0\n  seen = 0\n  lines = 0\n  !$omp parallel\n  !$omp atomic\n  count = count + omp_get_thread_num() + 1\n  !$omp critical\n  lines = lines + 1\n  \
             if (lines == omp_get_num_threads()) seen = count\n  !$omp end critical\n  !$omp single\n  k = 5\n  !$omp end single\n  !$omp end parallel\n  b(4) = seen + k\n".into(),
    }
}
