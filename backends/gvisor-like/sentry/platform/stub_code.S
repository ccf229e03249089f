/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stub_code - what a stub has of its own: position independent, no stack, no data.
 * Guests can jump into it. That gains them nothing: while a thread runs guest code, each of its system calls stops before
 * the host sees it, and an int3 is a trap of the guest's.
 */
    .section .rodata
    .globl stub_code, stub_code_pause, stub_code_exit, stub_code_begin, stub_code_batch
    .globl stub_code_batch_end, stub_code_clone, stub_code_clone_end, stub_code_end
    .hidden stub_code, stub_code_pause, stub_code_exit, stub_code_begin, stub_code_batch
    .hidden stub_code_batch_end, stub_code_clone, stub_code_clone_end, stub_code_end
    .balign 16
stub_code:
stub_code_pause:
    movl $34, %eax /* pause */
    syscall
    jmp stub_code_pause

stub_code_exit:
    movl $60, %eax /* exit */
    xorl %edi, %edi
    syscall
    hlt

/* The first stub: rdi, rsi: what lies below us; r12, r13: what lies above. */
stub_code_begin:
    movl $11, %eax /* munmap */
    syscall
    testq %rax, %rax
    jnz stub_code_batch_end - 1
    movl $11, %eax
    movq %r12, %rdi
    movq %r13, %rsi
    syscall
    jmp stub_code_batch_end - 1

stub_code_batch:
    movq 0(%rbx), %rax
    movq 8(%rbx), %rdi
    movq 16(%rbx), %rsi
    movq 24(%rbx), %rdx
    movq 32(%rbx), %r10
    movq 40(%rbx), %r8
    movq 48(%rbx), %r9
    syscall
    cmpq $-4096, %rax
    ja 1f
    addq $56, %rbx
    decq %rbp
    jnz stub_code_batch
1:  int3
stub_code_batch_end:

stub_code_clone:
    syscall
    testq %rax, %rax
    jz stub_code_pause
    int3
stub_code_clone_end:
    hlt
stub_code_end:
    .section .note.GNU-stack, "", @progbits
