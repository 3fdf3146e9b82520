! A flush in Fortran, whose library sets handlers for most signals; in serial code as well.
! each: one
program flush_it
    integer :: i, total
    total = 0
    !$omp flush
    !$omp parallel private(i)
    !$omp single
    do i = 1, 10
        !$omp flush
        total = total + i
        !$omp flush
    end do
    !$omp end single
    !$omp end parallel
    !$omp flush
    print *, total
end program
