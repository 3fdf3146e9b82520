// Assembler without unwind tables, behind data: nobody can tell whether the atomic instruction is one.
// flags: -s
// expect: refused: neither unwind tables nor symbols tell where functions are
#include <omp.h>
#include <stdio.h>
__asm__(".text\n"
        ".byte 0x06, 0x07, 0xff, 0xff, 0xff\n"
        "add_one: push %rbx\n"
        "mov %rdi, %rbx\n"
        ".rept 12\n mov $1, %eax\n .endr\n"
        "lock xadd %eax, (%rbx)\n"
        "pop %rbx\n"
        ".rept 12\n mov %rsi, %rax\n .endr\n"
        "ret\n"
        ".byte 0x06, 0x07, 0xff, 0xff, 0xff\n");
int main(void) {
    int x = 0;
#pragma omp parallel for
    for (int i = 0; i < 300; i++) {
        void (*add_one)(int *);
        __asm__("lea add_one(%%rip), %0" : "=r"(add_one));
        add_one(&x);
    }
    printf("%d\n", x);
    return 0;
}
