/* The 2D heat equation on one core: heat_serial GRID.pgm RESULT [STEPS]. What heat2d.c must agree with, bit by bit. */
#include "heat.h"

int main(int argc, char **argv)
{
    int rows, cols, steps = argc > 3 ? atoi(argv[3]) : 2000, step;
    double *u, *next, largest = 0;
    size_t pitch, cells;
    if (argc < 3) {
        fprintf(stderr, "usage: heat_serial GRID.pgm RESULT [STEPS]\n");
        return 2;
    }
    if (!(u = heat_read(argv[1], &rows, &cols)))
        return 1;
    pitch = (size_t)cols;
    cells = (size_t)rows * pitch;
    next = malloc(cells * sizeof *next);
    memcpy(next, u, cells * sizeof *next); /* the border stays as it is */

    for (step = 1; step <= steps; step++) {
        double *swap;
        largest = 0;
        for (int r = 1; r < rows - 1; r++)
            for (int c = 1; c < cols - 1; c++) {
                size_t i = (size_t)r * pitch + (size_t)c;
                next[i] = heat_cell(u + i, pitch);
                largest = fmax(largest, fabs(next[i] - u[i]));
            }
        swap = u, u = next, next = swap;
        if (step % CHECK_EVERY == 0 && largest < TOLERANCE)
            break;
    }
    printf("%d x %d cells, %d steps, largest last change %.17g\n", rows, cols, step > steps ? steps : step, largest);
    return heat_write(argv[2], u, rows, cols) ? 0 : 1;
}
