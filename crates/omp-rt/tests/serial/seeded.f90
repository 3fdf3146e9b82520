! Numbers that threads draw, as serial code has seeded: the same in each run.
program seeded
   use omp_lib
   implicit none
   integer :: words, thread
   integer, allocatable :: seed(:)
   real(8), allocatable :: drawn(:, :)
   call random_seed(size=words)
   allocate (seed(words), drawn(3, 0:omp_get_max_threads() - 1))
   seed = 42
   call random_seed(put=seed)
   !$omp parallel
   call random_number(drawn(:, omp_get_thread_num()))
   !$omp end parallel
   do thread = 0, omp_get_max_threads() - 1
      print '(3f18.14)', drawn(:, thread)
   end do
end program
