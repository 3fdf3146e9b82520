! Internal units, which the Fortran library has for itself.
program p
 implicit none
 character(len=20) :: s(20)
 integer :: i
 !$omp parallel do
 do i=1,20
  write(s(i),'(a,i4)') 'row',i
 end do
 do i=1,20
  print *, s(i)
 end do
end program
