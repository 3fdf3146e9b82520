/* What the serial and the MPI program share: the grid files, the formula and the rule when to stop. */
#ifndef HEAT_H
#define HEAT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_EVERY = 50 };              /* steps between two looks at the largest change */
static const double TOLERANCE = 1e-3;   /* stop when no cell changes by more in a step */
static const double DIFFUSION = 0.2;    /* diffusivity * dt / dx^2; stable below 0.25 */

/* One explicit Euler step of a cell: u and its four neighbours, rows `pitch` apart. */
static inline double heat_cell(const double *u, size_t pitch)
{
    return *u + DIFFUSION * ((*(u - pitch) + *(u + pitch)) + (*(u - 1) + *(u + 1)) - 4.0 * *u);
}

static inline int pgm_number(FILE *f)
{
    int value, c;
    while ((c = fgetc(f)) == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '#')
        if (c == '#')
            while ((c = fgetc(f)) != '\n' && c != EOF)
                ;
    ungetc(c, f);
    return fscanf(f, "%9d", &value) == 1 && value > 0 ? value : -1;
}

/* Reads a binary PGM (8 or 16 bits per cell). NULL, with a message, if it is none. */
static inline double *heat_read(const char *path, int *rows, int *cols)
{
    FILE *f = fopen(path, "rb");
    double *grid = NULL;
    int max = -1;
    if (!f) {
        perror(path);
        return NULL;
    }
    if (fgetc(f) == 'P' && fgetc(f) == '5') {
        *cols = pgm_number(f);
        *rows = pgm_number(f);
        max = pgm_number(f);
        fgetc(f);
    }
    if (max > 0 && max < 65536 && *rows > 2 && *cols > 2 && *rows < 32768 && *cols < 32768) {
        size_t cells = (size_t)*rows * (size_t)*cols, width = max > 255 ? 2 : 1;
        unsigned char *raw = malloc(cells * width);
        grid = malloc(cells * sizeof *grid);
        if (raw && grid && fread(raw, width, cells, f) == cells) {
            for (size_t i = 0; i < cells; i++)
                grid[i] = width == 1 ? raw[i] : raw[2 * i] * 256 + raw[2 * i + 1];
        } else {
            free(grid);
            grid = NULL;
        }
        free(raw);
    }
    if (!grid)
        fprintf(stderr, "%s: not a binary PGM grid, or cut short\n", path);
    fclose(f);
    return grid;
}

/* A result is a line `heat ROWS COLS` and the cells as doubles of this machine, so that results compare bit by bit. */
static inline int heat_write(const char *path, const double *grid, int rows, int cols)
{
    size_t cells = (size_t)rows * (size_t)cols;
    FILE *f = fopen(path, "wb");
    int ok = f && fprintf(f, "heat %d %d\n", rows, cols) > 0 && fwrite(grid, sizeof *grid, cells, f) == cells;
    if (f && fclose(f) != 0)
        ok = 0;
    if (!ok)
        perror(path);
    return ok;
}

#endif
