! As units_of_serial, read by turns, by the number that the library gave.
! ranks: refused
! serial: refused
! expect: refused: read of Fortran's unit -10 in a parallel region
program units_read
   implicit none
   character(40) :: name
   integer :: i, unit, sum
   integer :: number
   write (name, '(a, i0)') '/tmp/polyrail-omp-unit-', getpid()
   open (newunit=unit, file=name)
   do i = 1, 40
      write (unit, *) i
   end do
   rewind (unit)
   sum = 0
   !$omp parallel do ordered schedule(static, 1) private(number)
   do i = 1, 30
      !$omp ordered
      read (unit, *) number
      if (number == i) sum = sum + 1
      !$omp end ordered
   end do
   read (unit, *) number
   print *, sum, number
   close (unit, status='delete')
end program
