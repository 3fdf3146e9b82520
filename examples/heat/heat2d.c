/* The 2D heat equation over MPI: heat2d GRID.pgm RESULT [STEPS].
 *
 * Rank 0 reads the grid and deals it out in blocks on a 2D grid of processes. Each step exchanges the rims of the
 * blocks with four neighbours (rows are contiguous, columns are a strided datatype) while the inner cells are computed,
 * and every few steps all agree by a reduction whether to stop. Rank 0 gathers and writes the result.
 * Plain MPI: nothing in here knows what carries the messages. */
#include "heat.h"
#include <mpi.h>

enum { TAG_DEAL = 1, TAG_GATHER, TAG_UP, TAG_DOWN, TAG_LEFT, TAG_RIGHT };

struct block {
    int row, col, rows, cols; /* where it lies in the whole grid */
    size_t pitch;             /* cells from one row to the next, with the halo */
};

static struct block block_of(MPI_Comm grid, int rank, const int dims[2], int rows, int cols)
{
    int at[2];
    struct block b;
    MPI_Cart_coords(grid, rank, 2, at);
    b.row = at[0] * rows / dims[0];
    b.col = at[1] * cols / dims[1];
    b.rows = (at[0] + 1) * rows / dims[0] - b.row;
    b.cols = (at[1] + 1) * cols / dims[1] - b.col;
    b.pitch = (size_t)b.cols + 2;
    return b;
}

/* A part of a larger array, as a datatype. */
static MPI_Datatype part_of(int rows, int cols, int row, int col, int part_rows, int part_cols)
{
    MPI_Datatype type;
    MPI_Type_create_subarray(2, (int[]){rows, cols}, (int[]){part_rows, part_cols}, (int[]){row, col}, MPI_ORDER_C,
                             MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Moves blocks between `whole` on rank 0 and `mine` on every rank: out to the ranks, or back. */
static void deal(MPI_Comm grid, const int dims[2], int rows, int cols, double *whole, double *mine, int out)
{
    int rank, size, tag = out ? TAG_DEAL : TAG_GATHER, count = 0;
    MPI_Comm_rank(grid, &rank);
    MPI_Comm_size(grid, &size);
    MPI_Request *requests = malloc((size_t)(size + 1) * sizeof *requests);
    MPI_Datatype *types = malloc((size_t)(size + 1) * sizeof *types);

    struct block b = block_of(grid, rank, dims, rows, cols);
    types[count] = part_of(b.rows + 2, b.cols + 2, 1, 1, b.rows, b.cols);
    if (out)
        MPI_Irecv(mine, 1, types[count], 0, tag, grid, &requests[count]);
    else
        MPI_Isend(mine, 1, types[count], 0, tag, grid, &requests[count]);
    count++;
    for (int peer = 0; rank == 0 && peer < size; peer++, count++) {
        struct block p = block_of(grid, peer, dims, rows, cols);
        types[count] = part_of(rows, cols, p.row, p.col, p.rows, p.cols);
        if (out)
            MPI_Isend(whole, 1, types[count], peer, tag, grid, &requests[count]);
        else
            MPI_Irecv(whole, 1, types[count], peer, tag, grid, &requests[count]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    while (count > 0)
        MPI_Type_free(&types[--count]);
    free(types);
    free(requests);
}

/* Computes rows [r0, r1) and columns [c0, c1) of the block; returns the largest change. */
static double sweep(const double *u, double *next, size_t pitch, int r0, int r1, int c0, int c1)
{
    double largest = 0;
    for (int r = r0; r < r1; r++)
        for (int c = c0; c < c1; c++) {
            size_t i = (size_t)r * pitch + (size_t)c;
            next[i] = heat_cell(u + i, pitch);
            largest = fmax(largest, fabs(next[i] - u[i]));
        }
    return largest;
}

int main(int argc, char **argv)
{
    int rank, size, dims[2] = {0, 0}, shape[2] = {0, 0}, step, steps = argc > 3 ? atoi(argv[3]) : 2000;
    double *whole = NULL, largest = 0;
    MPI_Comm grid;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, (int[]){0, 0}, 1, &grid);
    MPI_Comm_rank(grid, &rank);

    if (rank == 0) {
        if (argc < 3)
            fprintf(stderr, "usage: heat2d GRID.pgm RESULT [STEPS]\n");
        else
            whole = heat_read(argv[1], &shape[0], &shape[1]);
        if (!whole)
            shape[0] = 0;
    }
    MPI_Bcast(shape, 2, MPI_INT, 0, grid);
    if (shape[0] < dims[0] || shape[1] < dims[1]) {
        if (rank == 0 && shape[0])
            fprintf(stderr, "heat2d: %d x %d cells are too few for %d x %d processes\n", shape[0], shape[1], dims[0],
                    dims[1]);
        MPI_Finalize();
        return 1;
    }

    struct block b = block_of(grid, rank, dims, shape[0], shape[1]);
    size_t cells = (size_t)(b.rows + 2) * b.pitch;
    double *u = calloc(cells, sizeof *u), *next = malloc(cells * sizeof *next);
    deal(grid, dims, shape[0], shape[1], whole, u, 1);
    memcpy(next, u, cells * sizeof *next); /* the border of the whole grid stays as it is */

    int up, down, left, right;
    MPI_Cart_shift(grid, 0, 1, &up, &down);
    MPI_Cart_shift(grid, 1, 1, &left, &right);
    MPI_Datatype column;
    MPI_Type_vector(b.rows, 1, (int)b.pitch, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);

    /* The cells to compute, halo rows and columns counted: all but those on the border of the whole grid. */
    int r0 = 1 + (b.row == 0), r1 = 1 + b.rows - (b.row + b.rows == shape[0]);
    int c0 = 1 + (b.col == 0), c1 = 1 + b.cols - (b.col + b.cols == shape[1]);

    for (step = 1; step <= steps; step++) {
        MPI_Request halo[8];
        double *row1 = u + b.pitch, *last = u + (size_t)b.rows * b.pitch, *swap;
        MPI_Irecv(u + 1, b.cols, MPI_DOUBLE, up, TAG_DOWN, grid, &halo[0]);
        MPI_Irecv(last + b.pitch + 1, b.cols, MPI_DOUBLE, down, TAG_UP, grid, &halo[1]);
        MPI_Irecv(row1, 1, column, left, TAG_RIGHT, grid, &halo[2]);
        MPI_Irecv(row1 + b.cols + 1, 1, column, right, TAG_LEFT, grid, &halo[3]);
        MPI_Isend(row1 + 1, b.cols, MPI_DOUBLE, up, TAG_UP, grid, &halo[4]);
        MPI_Isend(last + 1, b.cols, MPI_DOUBLE, down, TAG_DOWN, grid, &halo[5]);
        MPI_Isend(row1 + 1, 1, column, left, TAG_LEFT, grid, &halo[6]);
        MPI_Isend(row1 + b.cols, 1, column, right, TAG_RIGHT, grid, &halo[7]);

        /* First what needs no halo, then the rim: rows 1 and b.rows, columns 1 and b.cols. */
        int inner0 = 2, inner1 = b.rows, left_end = c0 < 2 && c1 > 1 ? 2 : c0, right_begin = c1 > b.cols ? b.cols : c1;
        largest = sweep(u, next, b.pitch, inner0, inner1, left_end, right_begin);
        MPI_Waitall(8, halo, MPI_STATUSES_IGNORE);
        if (r0 == 1 && r1 > 1)
            largest = fmax(largest, sweep(u, next, b.pitch, 1, 2, c0, c1));
        if (r1 == b.rows + 1 && b.rows > 1)
            largest = fmax(largest, sweep(u, next, b.pitch, b.rows, b.rows + 1, c0, c1));
        largest = fmax(largest, sweep(u, next, b.pitch, inner0, inner1, c0, left_end));
        if (right_begin >= left_end)
            largest = fmax(largest, sweep(u, next, b.pitch, inner0, inner1, right_begin, c1));

        swap = u, u = next, next = swap;
        if (step % CHECK_EVERY == 0 || step == steps) {
            MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, grid);
            if (step < steps && largest < TOLERANCE)
                break;
        }
    }

    deal(grid, dims, shape[0], shape[1], whole, u, 0);
    int ok = 1;
    if (rank == 0) {
        printf("%d x %d cells, %d steps, largest last change %.17g\n", shape[0], shape[1],
               step > steps ? steps : step, largest);
        ok = heat_write(argv[2], whole, shape[0], shape[1]);
    }
    MPI_Bcast(&ok, 1, MPI_INT, 0, grid);

    MPI_Type_free(&column);
    MPI_Comm_free(&grid);
    free(u);
    free(next);
    free(whole);
    MPI_Finalize();
    return ok ? 0 : 1;
}
