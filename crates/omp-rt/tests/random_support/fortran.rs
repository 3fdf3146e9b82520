//! In Fortran.

use std::fmt::Write as _;

use super::{Random, Source};

/// A program from pieces.
pub fn program(random: &mut Random) -> Source {
    let n = [97, 640, 2001][random.below(3)];
    let mut body = String::new();
    for piece in 1..=2 + random.below(5) {
        body.push_str(&one(random, piece));
        writeln!(body, "  call check({piece})").unwrap();
    }
    let text = format!(
        "module shared\n  implicit none\n  integer, parameter :: n = {n}\n  integer(8) :: a(n), b(n)\n  real(8) :: d(n)\n  integer :: c(n)\n\
         contains\n  subroutine check(piece)\n    integer, intent(in) :: piece\n    integer(8) :: h\n    integer :: i\n    h = piece\n    do i = 1, n\n\
         \x20     h = ieor(h * 31_8, a(i) * 7_8 + b(i))\n      h = ieor(h * 33_8, int(d(i), 8) + c(i))\n    end do\n\
         \x20   print '(i0, a, z16.16)', piece, ': ', h\n  end subroutine\nend module\n\
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
    match random.below(11) {
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
