// Standard input that threads of regions read by turns: lines, numbers, letters, all that is left; and serial code in between.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    char line[100];
    long lines = 0, numbers = 0, letters = 0, rest = 0;
    if (fgets(line, sizeof line, stdin)) printf("first %s", line);
#pragma omp parallel private(line)
    {
#pragma omp for reduction(+ : lines)
        for (int i = 0; i < 299; i++)
#pragma omp critical
            lines += fgets(line, sizeof line, stdin) ? atol(line) : 0;
#pragma omp for reduction(+ : numbers)
        for (int i = 0; i < 300; i++)
#pragma omp critical
        {
            int number;
            numbers += scanf("%d", &number) == 1 ? number : 0;
        }
        // the end of the last number's line counts as one
#pragma omp for reduction(+ : letters)
        for (int i = 0; i < 300; i++)
#pragma omp critical
        {
            long number = 0;
            int letter;
            while ((letter = getchar()) != '\n' && letter != EOF) number = number * 10 + letter - '0';
            letters += number;
        }
    }
    printf("%ld %ld %ld\n", lines, numbers, letters);
    if (fgets(line, sizeof line, stdin)) printf("then %s", line);
#pragma omp parallel private(line) reduction(+ : rest)
    for (;;) {
        int is_there;
#pragma omp critical
        is_there = fgets(line, sizeof line, stdin) != NULL;
        if (!is_there) break;
        rest += atol(line);
    }
    printf("%ld, over %d\n", rest, feof(stdin) != 0);
    return 0;
}
