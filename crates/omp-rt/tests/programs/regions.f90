! Fortran: numbers, sections, critical, threadprivate common blocks, copyin, copyprivate, locks, tasks, atomics, output.
module shared_state
  implicit none
  integer :: counter = 4
  real(8) :: weights(10) = 1.0d0
  !$omp threadprivate(counter, weights)
end module
recursive integer function fib(n) result(f)
  implicit none
  integer, intent(in) :: n
  integer :: a, b
  if (n < 2) then
    f = n
    return
  end if
  !$omp task shared(a) firstprivate(n)
  a = fib_of(n - 1)
  !$omp end task
  !$omp task shared(b) firstprivate(n)
  b = fib_of(n - 2)
  !$omp end task
  !$omp taskwait
  f = a + b
contains
  integer function fib_of(m)
    integer, intent(in) :: m
    integer, external :: fib
    fib_of = fib(m)
  end function
end function
program regions
  use omp_lib
  use shared_state
  implicit none
  integer :: n, s, i, wrong, parts(3), value, tickets, mine, got
  integer, external :: fib
  integer :: local(50)
  integer(omp_lock_kind) :: lock
  integer(omp_nest_lock_kind) :: nest
  integer(omp_sched_kind) :: kind
  common /block/ value
  !$omp threadprivate(/block/)
  n = 0; wrong = 0; s = 0; parts = 0; tickets = 0
  call omp_init_lock(lock)
  call omp_init_nest_lock(nest)
  value = 12
  counter = 9
  !$omp parallel copyin(value, counter) reduction(+:wrong) private(mine, got, local)
  if (value /= 12 .or. counter /= 9) wrong = wrong + 1
  !$omp master
  n = omp_get_num_threads()
  !$omp end master
  !$omp sections
  parts(1) = parts(1) + 1
  !$omp section
  parts(2) = parts(2) + 2
  !$omp section
  parts(3) = parts(3) + 3
  !$omp end sections
  !$omp critical (name)
  s = s + 1
  !$omp end critical (name)
  call omp_set_lock(lock)
  s = s + 10
  call omp_unset_lock(lock)
  call omp_set_nest_lock(nest)
  call omp_set_nest_lock(nest)
  s = s + 100
  call omp_unset_nest_lock(nest)
  call omp_unset_nest_lock(nest)
  !$omp atomic
  tickets = tickets + 1
  got = -1
  local = 0
  !$omp single
  got = 55
  local = 7
  !$omp end single copyprivate(got, local)
  if (got /= 55 .or. sum(local) /= 350) wrong = wrong + 1
  value = omp_get_thread_num()
  weights(3) = value
  !$omp barrier
  if (value /= omp_get_thread_num()) wrong = wrong + 1
  !$omp end parallel
  print '(a,5i6)', 'wrong, sums ', wrong, s/n, tickets/n, sum(parts), value
  !$omp parallel
  !$omp single
  i = fib(12)
  !$omp end single
  !$omp end parallel
  print '(a,i6)', 'fib ', i
  s = 0
  !$omp parallel
  !$omp single
  !$omp taskloop shared(s) num_tasks(4)
  do i = 1, 40
    !$omp atomic
    s = s + i
  end do
  !$omp end taskloop
  !$omp end single
  !$omp end parallel
  call omp_set_schedule(omp_sched_static, 2)
  call omp_get_schedule(kind, i)
  print '(a,3i6)', 'taskloop ', s, kind, i
  call omp_set_num_threads(3)
  print '(a,i4,l2,l2)', 'max ', omp_get_max_threads(), omp_in_parallel(), omp_get_wtime() > 0
  !$omp parallel
  !$omp critical
  write (*, '(a)') 'a line of each'
  !$omp end critical
  !$omp end parallel
  call omp_destroy_lock(lock)
  call omp_destroy_nest_lock(nest)
end program
