/* heat_compare A B: the largest difference of two results; exit status 0 only if they are equal. */
#include "heat.h"

static double *load(const char *path, int *rows, int *cols)
{
    FILE *f = fopen(path, "rb");
    double *grid = NULL;
    if (!f) {
        perror(path);
        return NULL;
    }
    if (fscanf(f, "heat %9d %9d", rows, cols) == 2 && fgetc(f) == '\n' && *rows > 0 && *cols > 0) {
        size_t cells = (size_t)*rows * (size_t)*cols;
        grid = malloc(cells * sizeof *grid);
        if (!grid || fread(grid, sizeof *grid, cells, f) != cells) {
            free(grid);
            grid = NULL;
        }
    }
    if (!grid)
        fprintf(stderr, "%s: not a result, or cut short\n", path);
    fclose(f);
    return grid;
}

int main(int argc, char **argv)
{
    int rows[2], cols[2];
    double *grid[2], largest = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: heat_compare RESULT RESULT\n");
        return 2;
    }
    for (int i = 0; i < 2; i++)
        if (!(grid[i] = load(argv[i + 1], &rows[i], &cols[i])))
            return 2;
    if (rows[0] != rows[1] || cols[0] != cols[1]) {
        printf("%d x %d cells against %d x %d\n", rows[0], cols[0], rows[1], cols[1]);
        return 1;
    }
    for (size_t i = 0; i < (size_t)rows[0] * (size_t)cols[0]; i++)
        /* a NaN must count as a difference */
        if (!(fabs(grid[0][i] - grid[1][i]) <= largest))
            largest = fabs(grid[0][i] - grid[1][i]);
    printf("largest difference %g\n", largest);
    return largest == 0 ? 0 : 1;
}
