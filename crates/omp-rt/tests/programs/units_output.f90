! Standard output has become a file: other ranks' libraries would write to the terminal.
! ranks: refused
! serial: right
! expect: refused: write of Fortran's unit 6 in a parallel region
program units_output
   implicit none
   character(40) :: name
   integer :: i
   character(20) :: line
   write (name, '(a, i0)') '/tmp/polyrail-omp-unit-', getpid()
   open (6, file=name)
   !$omp parallel do ordered schedule(static, 1)
   do i = 1, 8
      !$omp ordered
      write (6, '(a, i3)') 'line', i
      !$omp end ordered
   end do
   rewind (6)
   do i = 1, 8
      read (6, '(a)') line
      write (0, '(a)') line
   end do
   close (6, status='delete')
end program
