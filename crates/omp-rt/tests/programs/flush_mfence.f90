! A flag and flush, which gfortran makes a fence of another kind where it optimizes for size.
! flags: -Os
! each: one
program flush_mfence
  use omp_lib
  implicit none
  integer :: thread, threads, arrived, i
  integer, save :: count = 0
  real(8), save :: data(64), total = -1
  !$omp parallel private(thread, threads, arrived, i)
  thread = omp_get_thread_num()
  threads = omp_get_num_threads()
  data(thread + 1) = thread + 1
  !$omp flush
  !$omp atomic capture
  count = count + 1
  arrived = count
  !$omp end atomic
  !$omp flush
  if (arrived == threads) then
    total = 0
    do i = 1, threads
      total = total + data(i)
    end do
  end if
  !$omp end parallel
  print '(f6.1)', total
end program
