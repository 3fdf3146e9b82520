! Units that threads open themselves, in this region and in the next; variables as files; standard output.
program units
   use omp_lib
   implicit none
   integer :: i, unit, number, bad
   character(20) :: text
   bad = 0
   !$omp parallel private(unit, number, text) reduction(+:bad)
   open (newunit=unit, status='scratch')
   write (unit, *) omp_get_thread_num()
   rewind (unit)
   read (unit, *) number
   if (number /= omp_get_thread_num()) bad = bad + 1
   close (unit)
   open (20 + omp_get_thread_num(), status='scratch', form='unformatted')
   write (20 + omp_get_thread_num()) 7*omp_get_thread_num()
   write (text, '(i4)') omp_get_thread_num()
   read (text, *) number
   if (number /= omp_get_thread_num()) bad = bad + 1
   !$omp end parallel
   !$omp parallel private(number) reduction(+:bad)
   rewind (20 + omp_get_thread_num())
   read (20 + omp_get_thread_num()) number
   if (number /= 7*omp_get_thread_num()) bad = bad + 1
   close (20 + omp_get_thread_num())
   !$omp end parallel
   !$omp parallel do ordered schedule(static, 1) private(unit)
   do i = 1, 4
      !$omp ordered
      open (newunit=unit, status='scratch')
      write (unit, *) i
      close (unit)
      print '(a, i3)', 'turn', i
      !$omp end ordered
   end do
   print *, bad, 'bad'
end program
