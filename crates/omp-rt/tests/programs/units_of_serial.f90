! A unit that serial code has opened, of which other ranks' libraries know nothing unless they run serial code, too.
! ranks: refused
! serial: right
! expect: refused: write of Fortran's unit 10 in a parallel region
program units_of_serial
   implicit none
   character(40) :: name
   integer :: i, status
   character(20) :: line
   write (name, '(a, i0)') '/tmp/polyrail-omp-unit-', getpid()
   open (10, file=name)
   write (10, '(a)') 'before'
   !$omp parallel do ordered schedule(static, 1)
   do i = 1, 8
      !$omp ordered
      write (10, '(a, i3)') 'line', i
      !$omp end ordered
   end do
   write (10, '(a)') 'behind'
   rewind (10)
   do
      read (10, '(a)', iostat=status) line
      if (status /= 0) exit
      print '(a)', trim(line)
   end do
   close (10, status='delete')
end program
