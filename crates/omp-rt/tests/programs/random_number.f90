! Each thread has a row of random numbers of its own, as many ranks as there are; and `rand` and `irand`, which are one row for all.
program random_number_of_threads
   use omp_lib
   implicit none
   integer, parameter :: each = 5
   integer :: words, i, equal
   integer, allocatable :: seed(:)
   real(8), allocatable :: drawn(:, :)
   real(8) :: first, again, sum
   allocate (drawn(each, 0:omp_get_max_threads() - 1))
   call random_number(first)
   !$omp parallel private(i)
   do i = 1, each - 2
      call random_number(drawn(i, omp_get_thread_num()))
   end do
   call random_number(drawn(each - 1:, omp_get_thread_num()))
   !$omp end parallel
   print *, count_equal(reshape(drawn, [size(drawn)])), 'equal'
   ! seeded, the first numbers of threads are others again
   call random_seed(size=words)
   allocate (seed(words))
   seed = 7
   call random_seed(put=seed)
   call random_number(first)
   call random_seed(put=seed)
   call random_number(again)
   !$omp parallel private(i)
   do i = 1, each
      call random_number(drawn(i, omp_get_thread_num()))
   end do
   !$omp end parallel
   print *, count_equal(reshape(drawn, [size(drawn)])), 'equal', first == again
   ! threads that seed themselves
   equal = 0
   !$omp parallel private(i, seed) reduction(+:equal)
   seed = [(i + 100*omp_get_thread_num(), i=1, words)]
   call random_seed(put=seed)
   call random_number(drawn(1, omp_get_thread_num()))
   call random_seed(put=seed)
   call random_number(drawn(2, omp_get_thread_num()))
   if (drawn(1, omp_get_thread_num()) == drawn(2, omp_get_thread_num())) equal = equal + 1
   !$omp end parallel
   print *, equal == omp_get_max_threads(), count_equal(drawn(1, :))
   call srand(5)
   sum = 0
   !$omp parallel do ordered schedule(static, 1)
   do i = 1, 20
      !$omp ordered
      sum = sum*0.7d0 + rand(0) + modulo(irand(0), 100)
      !$omp end ordered
   end do
   print '(f10.4, i12)', sum, irand(0)
contains
   integer function count_equal(all)
      real(8), intent(in) :: all(:)
      integer :: at
      count_equal = 0
      do at = 1, size(all) - 1
         if (any(all(at + 1:) == all(at))) count_equal = count_equal + 1
      end do
   end function
end program
