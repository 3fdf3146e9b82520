! Fortran: loops, reductions, workshare, allocatable arrays, lastprivate, schedules, collapse.
program loops
  use omp_lib
  implicit none
  integer :: i, j, n, last, biggest
  integer(8) :: total
  integer(2) :: k
  real(8) :: s, pi
  real(8), allocatable :: a(:), b(:, :)
  logical :: all_right
  complex(8) :: z
  n = 500
  allocate (a(n), b(20, 30))
  s = 0
  total = 0
  !$omp parallel do reduction(+:s) schedule(static)
  do i = 1, n
    a(i) = i*0.5d0
    s = s + a(i)
  end do
  !$omp end parallel do
  print '(a,f12.3)', 'sum ', s
  !$omp parallel do collapse(2) lastprivate(last) schedule(dynamic, 5)
  do j = 1, 30
    do i = 1, 20
      b(i, j) = i + 100*j
      last = i*j
    end do
  end do
  print '(a,f12.1,i6)', 'grid ', sum(b), last
  !$omp parallel workshare
  a = a*2
  a(1:10) = a(1:10) + 1
  s = sum(a)
  where (a > 400) a = 0
  !$omp end parallel workshare
  print '(a,2f14.3)', 'workshare ', s, sum(a)
  biggest = -1
  all_right = .true.
  z = (0, 0)
  !$omp parallel do reduction(max:biggest) reduction(.and.:all_right) reduction(+:total, z) schedule(guided)
  do i = n, 1, -3
    biggest = max(biggest, mod(i*31, 701))
    all_right = all_right .and. i > 0
    total = total + i
    z = z + cmplx(i, -i, 8)
  end do
  print '(a,i6,l2,i10,2f10.1)', 'reductions ', biggest, all_right, total, z
  !$omp parallel do
  do k = 1, 100_2
    a(k) = k
  end do
  print '(a,f10.1)', 'short ', sum(a(1:100))
  pi = 0
  !$omp parallel private(i, j)
  !$omp do reduction(+:pi)
  do i = 0, 9999
    pi = pi + (-1)**i*4.0d0/(2*i + 1)
  end do
  !$omp end do
  !$omp do ordered schedule(dynamic)
  do i = 1, 6
    !$omp ordered
    write (*, '(a,i0)', advance='no') ' ordered ', i
    !$omp end ordered
  end do
  !$omp single
  write (*, *)
  !$omp end single
  !$omp end parallel
  print '(a,f12.8)', 'pi ', pi
  a = 0
  !$omp parallel do reduction(+:a)
  do i = 1, 1000
    a(mod(i, n) + 1) = a(mod(i, n) + 1) + i
  end do
  print '(a,f14.1)', 'array ', sum(a)
  deallocate (a, b)
end program
