! Tasks in Fortran: recursion by reference, arrays, dependences, a task loop with what is left of it.
! env: POLYRAIL_OMP_TASKS=always
module work
contains
  recursive subroutine fib(n, out)
    integer, value :: n
    integer(8), intent(out) :: out
    integer(8) :: a, b
    if (n < 2) then
      out = n
      return
    end if
    !$omp task shared(a)
    call fib(n - 1, a)
    !$omp end task
    !$omp task shared(b)
    call fib(n - 2, b)
    !$omp end task
    !$omp taskwait
    out = a + b
  end subroutine
  recursive subroutine total(x, low, high, out)
    real(8), intent(in) :: x(:)
    integer, value :: low, high
    real(8), intent(out) :: out
    real(8) :: halves(2)
    integer :: middle
    if (high - low < 16) then
      out = sum(x(low:high))
      return
    end if
    middle = (low + high) / 2
    !$omp task shared(halves, x)
    call total(x, low, middle, halves(1))
    !$omp end task
    !$omp task shared(halves, x)
    call total(x, middle + 1, high, halves(2))
    !$omp end task
    !$omp taskwait
    out = halves(1) + halves(2)
  end subroutine
end module
program tasks
  use work
  implicit none
  integer(8) :: f
  integer :: i, chain, last, cells(30)
  real(8) :: x(500), t
  real(8), allocatable :: grown(:)
  chain = 1
  cells = 0
  do i = 1, 500
    x(i) = i * 0.5d0
  end do
  allocate (grown(100))
  grown = 0
  !$omp parallel
  !$omp single
  call fib(12, f)
  call total(x, 1, 500, t)
  do i = 1, 6
    !$omp task depend(inout: chain) firstprivate(i)
    chain = chain * 2 + i
    !$omp end task
  end do
  do i = 1, 100
    !$omp task firstprivate(i) shared(grown)
    grown(i) = grown(i) + i * i
    !$omp end task
  end do
  !$omp taskwait
  !$omp taskloop lastprivate(last) shared(cells) num_tasks(7)
  do i = 1, 30
    cells(i) = cells(i) + i
    last = i
  end do
  !$omp end taskloop
  !$omp end single
  !$omp end parallel
  print '(a,i0,a,f10.2,a,i0,a,i0,a,i0,a,f10.1)', 'fib ', f, ' total ', t, ' chain ', chain, ' last ', last, ' cells ', sum(cells), &
    ' grown ', sum(grown)
end program
