// The obstacle problem A of `polyrail solve` by PETSc's solver of variational inequalities: Newton's method on the points that do not touch (SNESVI, reduced space), from the coarsest grid up,
// each step by geometric multigrid. One process (bench/run petsc).
//
//   petsc POINTS TOLERANCE
//
// POINTS in each direction, one less than a power of two. Prints seconds, and the largest difference from the known solution.
#include <petscdmda.h>
#include <petscsnes.h>

#include <math.h>
#include <stdlib.h>

static const double HALF = 2.0, STRAIGHT = 0.9;

static double solution(double square) {
    return square <= 0.5 ? sqrt(1 - square) : 0.5 / sqrt(square);
}

static double obstacle(double square) {
    if (square <= STRAIGHT * STRAIGHT) return sqrt(1 - square);
    double edge = sqrt(1 - STRAIGHT * STRAIGHT);
    return edge - (sqrt(square) - STRAIGHT) * STRAIGHT / edge;
}

typedef struct {
    DMDALocalInfo is;
    double h;
} Grid;

static Grid grid_of(DMDALocalInfo is) {
    return (Grid){is, 2 * HALF / (is.mx - 1)};
}

static double square_at(const Grid *grid, int i, int j, int k) {
    double x = -HALF + i * grid->h, y = -HALF + j * grid->h, z = -HALF + k * grid->h;
    return x * x + y * y + z * z;
}

static int is_edge(const Grid *grid, int i, int j, int k) {
    int last = grid->is.mx - 1;
    return i == 0 || j == 0 || k == 0 || i == last || j == last || k == last;
}

static const int STAR[6][3] = {{-1, 0, 0}, {1, 0, 0}, {0, -1, 0}, {0, 1, 0}, {0, 0, -1}, {0, 0, 1}};

// Times h, as finite elements have it, so that coarser grids are of the same scale.
static PetscErrorCode residual(DMDALocalInfo *is, PetscScalar ***u, PetscScalar ***f, void *unused) {
    (void)unused;
    Grid grid = grid_of(*is);
    for (int k = is->zs; k < is->zs + is->zm; k++)
        for (int j = is->ys; j < is->ys + is->ym; j++)
            for (int i = is->xs; i < is->xs + is->xm; i++) {
                if (is_edge(&grid, i, j, k)) {
                    f[k][j][i] = 6 * grid.h * (u[k][j][i] - solution(square_at(&grid, i, j, k)));
                    continue;
                }
                double sum = 6 * u[k][j][i];
                for (int way = 0; way < 6; way++) {
                    int x = i + STAR[way][0], y = j + STAR[way][1], z = k + STAR[way][2];
                    sum -= is_edge(&grid, x, y, z) ? solution(square_at(&grid, x, y, z)) : u[z][y][x];
                }
                f[k][j][i] = grid.h * sum;
            }
    return PetscLogFlops(13.0 * is->xm * is->ym * is->zm);
}

static PetscErrorCode jacobian(DMDALocalInfo *is, PetscScalar ***u, Mat whole, Mat matrix, void *unused) {
    (void)u;
    (void)unused;
    Grid grid = grid_of(*is);
    PetscFunctionBeginUser;
    for (int k = is->zs; k < is->zs + is->zm; k++)
        for (int j = is->ys; j < is->ys + is->ym; j++)
            for (int i = is->xs; i < is->xs + is->xm; i++) {
                MatStencil row = {.i = i, .j = j, .k = k}, of[7] = {row};
                PetscScalar value[7] = {6 * grid.h};
                int count = 1;
                for (int way = 0; way < 6 && !is_edge(&grid, i, j, k); way++) {
                    int x = i + STAR[way][0], y = j + STAR[way][1], z = k + STAR[way][2];
                    if (is_edge(&grid, x, y, z)) continue;
                    of[count] = (MatStencil){.i = x, .j = y, .k = z};
                    value[count++] = -grid.h;
                }
                PetscCall(MatSetValuesStencil(matrix, 1, &row, count, of, value, INSERT_VALUES));
            }
    PetscCall(MatAssemblyBegin(matrix, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(matrix, MAT_FINAL_ASSEMBLY));
    if (whole != matrix) {
        PetscCall(MatAssemblyBegin(whole, MAT_FINAL_ASSEMBLY));
        PetscCall(MatAssemblyEnd(whole, MAT_FINAL_ASSEMBLY));
    }
    PetscFunctionReturn(0);
}

// Each point of a vector, by how far it is from the middle.
static PetscErrorCode fill(DM dm, Vec vector, double (*value)(double)) {
    DMDALocalInfo is;
    PetscScalar ***at;
    PetscFunctionBeginUser;
    PetscCall(DMDAGetLocalInfo(dm, &is));
    Grid grid = grid_of(is);
    PetscCall(DMDAVecGetArray(dm, vector, &at));
    for (int k = is.zs; k < is.zs + is.zm; k++)
        for (int j = is.ys; j < is.ys + is.ym; j++)
            for (int i = is.xs; i < is.xs + is.xm; i++) at[k][j][i] = value(square_at(&grid, i, j, k));
    PetscCall(DMDAVecRestoreArray(dm, vector, &at));
    PetscFunctionReturn(0);
}

static double first(double square) {
    return fmax(obstacle(square), 0);
}

static PetscErrorCode bounds(SNES snes, Vec least, Vec most) {
    DM dm;
    PetscFunctionBeginUser;
    PetscCall(SNESGetDM(snes, &dm));
    PetscCall(fill(dm, least, obstacle));
    PetscCall(VecSet(most, PETSC_INFINITY));
    PetscFunctionReturn(0);
}

int main(int count, char **words) {
    int points = count > 2 ? atoi(words[1]) : 0, halvings = 0;
    while (points + 1 > 4 << halvings) halvings++;
    if (points < 3 || points + 1 != 4 << halvings) {
        fprintf(stderr, "petsc POINTS TOLERANCE: points are 3, 7, 15, 31 and so on\n");
        return 2;
    }
    char levels[16];
    snprintf(levels, sizeof levels, "%d", halvings);
    PetscCall(PetscInitialize(NULL, NULL, NULL, NULL));
    const char *options[][2] = {{"-snes_grid_sequence", levels}, {"-snes_type", "vinewtonrsls"}, {"-snes_rtol", words[2]}, {"-pc_type", "mg"}, {"-ksp_type", "cg"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) PetscCall(PetscOptionsSetValue(NULL, options[i][0], options[i][1]));
    DM dm;
    SNES snes;
    Vec start, found, known;
    PetscLogDouble begin, end;
    PetscCall(PetscTime(&begin));
    PetscCall(DMDACreate3d(PETSC_COMM_SELF, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 5, 5, 5, 1, 1, 1, 1, 1, NULL, NULL, NULL, &dm));
    PetscCall(DMSetUp(dm));
    PetscCall(DMDASNESSetFunctionLocal(dm, INSERT_VALUES, (PetscErrorCode (*)(DMDALocalInfo *, void *, void *, void *))residual, NULL));
    PetscCall(DMDASNESSetJacobianLocal(dm, (PetscErrorCode (*)(DMDALocalInfo *, void *, Mat, Mat, void *))jacobian, NULL));
    PetscCall(SNESCreate(PETSC_COMM_SELF, &snes));
    PetscCall(SNESSetDM(snes, dm));
    PetscCall(SNESVISetComputeVariableBounds(snes, bounds));
    PetscCall(SNESSetFromOptions(snes));
    PetscCall(DMCreateGlobalVector(dm, &start));
    PetscCall(fill(dm, start, first));
    PetscCall(SNESSolve(snes, NULL, start));
    PetscCall(PetscTime(&end));
    SNESConvergedReason why;
    PetscCall(SNESGetConvergedReason(snes, &why));
    if (why <= 0) {
        fprintf(stderr, "it does not converge: %s\n", SNESConvergedReasons[why]);
        return 1;
    }
    DM finest;
    DMDALocalInfo is;
    PetscReal off;
    PetscCall(SNESGetSolution(snes, &found));
    PetscCall(SNESGetDM(snes, &finest));
    PetscCall(DMDAGetLocalInfo(finest, &is));
    if (is.mx != points + 2) {
        fprintf(stderr, "the finest grid has %d points\n", (int)is.mx);
        return 1;
    }
    PetscCall(VecDuplicate(found, &known));
    PetscCall(fill(finest, known, solution));
    PetscCall(VecAXPY(known, -1, found));
    PetscCall(VecNorm(known, NORM_INFINITY, &off));
    printf("%.3f %.6e\n", end - begin, (double)off);
    return 0;
}
