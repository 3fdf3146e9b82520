! What a Fortran program may have between two regions: units that are being written and read, allocated arrays, saved variables, threads' own data, a row of random numbers.
program units
    use omp_lib
    implicit none
    integer :: rounds, round, i, status
    character(len=400) :: word, path, line
    real(8), allocatable :: field(:), list(:)
    real(8) :: x, sum, total
    integer, save :: mine = 0
    !$omp threadprivate(mine)
    integer :: seed(8)
    call get_command_argument(1, word)
    read (word, *) rounds
    call get_command_argument(2, path)
    open (unit=10, file=trim(path), status='replace', action='write')
    open (unit=11, file=trim(path)//'.in', status='replace', form='formatted')
    open (unit=12, file=trim(path)//'.direct', status='replace', access='direct', form='unformatted', recl=8)
    do i = 1, 500
        write (11, '(i0,a)') i, ' line'
        write (12, rec=i) real(i, 8)
    end do
    rewind (11)
    seed = 5
    call random_seed(put=seed)
    allocate (field(20000))
    field = 1
    sum = 0
    do round = 1, rounds
        !$omp parallel
        mine = mine + 1
        !$omp do
        do i = 1, 20000
            field(i) = field(i)*0.999d0 + mod(i, 7)
        end do
        !$omp end parallel
        call random_number(x)
        if (allocated(list)) deallocate (list)
        allocate (list(round))
        list = x
        sum = sum + list(round)*field(mod(round, 20000) + 1)
        read (11, '(a)', iostat=status) line
        if (status /= 0) rewind (11)
        if (status == 0) sum = sum + len_trim(line)
        read (12, rec=mod(round, 500) + 1) x
        write (12, rec=mod(round, 500) + 1) x + 1
        write (10, '(i6,1x,es24.16,1x,es24.16)') round, sum, x
        call usleep(500)
    end do
    total = 0
    !$omp parallel reduction(+:total)
    total = total + mine
    !$omp end parallel
    do i = 1, 500
        read (12, rec=i) x
        sum = sum + x
    end do
    print '(es24.16,1x,f10.1)', sum, total
contains
    subroutine usleep(n)
        use iso_c_binding
        integer, intent(in) :: n
        interface
            integer(c_int) function c_usleep(us) bind(c, name='usleep')
                import
                integer(c_int32_t), value :: us
            end function
        end interface
        i = c_usleep(int(n, c_int32_t))
    end subroutine
end program
