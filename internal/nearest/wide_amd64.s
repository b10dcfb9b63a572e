#include "textflag.h"

// Bits set in a half byte, and twice as many.
DATA ones<>+0(SB)/8, $0x0302020102010100
DATA ones<>+8(SB)/8, $0x0403030203020201
DATA ones<>+16(SB)/8, $0x0302020102010100
DATA ones<>+24(SB)/8, $0x0403030203020201
GLOBL ones<>(SB), RODATA|NOPTR, $32

DATA half<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL half<>(SB), RODATA|NOPTR, $32

// COUNT sums, in each of four words at off(SI), the bits that differ from signs, those of great three times.
#define COUNT(off, signs, great, sum) \
	VPXOR   off(SI), signs, Y0 \
	VPAND   great, Y0, Y1      \
	VPAND   Y15, Y0, Y2        \
	VPSRLW  $4, Y0, Y0         \
	VPAND   Y15, Y0, Y0        \
	VPSHUFB Y2, Y14, Y2        \
	VPSHUFB Y0, Y14, Y0        \
	VPADDB  Y0, Y2, Y2         \
	VPAND   Y15, Y1, Y0        \
	VPSRLW  $4, Y1, Y1         \
	VPAND   Y15, Y1, Y1        \
	VPSHUFB Y0, Y7, Y0         \
	VPSHUFB Y1, Y7, Y1         \
	VPADDB  Y0, Y2, Y2         \
	VPADDB  Y1, Y2, Y2         \
	VPSADBW Y6, Y2, sum

// func differingPairs(signs *uint64, q *pairs, out *uint16, n int)
TEXT ·differingPairs(SB), NOSPLIT, $0-32
	MOVQ    signs+0(FP), SI
	MOVQ    q+8(FP), DX
	MOVQ    out+16(FP), DI
	MOVQ    n+24(FP), CX
	VMOVDQU (DX), Y8
	VMOVDQU 32(DX), Y9
	VMOVDQU 64(DX), Y10
	VMOVDQU 96(DX), Y11
	VMOVDQU 128(DX), Y12
	VMOVDQU 160(DX), Y13
	VMOVDQU ones<>(SB), Y14
	VMOVDQU half<>(SB), Y15
	VPADDB  Y14, Y14, Y7
	VPXOR   Y6, Y6, Y6

loop:
	TESTQ CX, CX
	JZ    done
	COUNT(0, Y8, Y11, Y3)
	COUNT(32, Y9, Y12, Y4)
	COUNT(64, Y10, Y13, Y5)

	// The first slot has all of Y3 and the lower half of Y4, the second the rest.
	VPERM2I128   $0x20, Y5, Y3, Y0
	VPERM2I128   $0x31, Y5, Y3, Y1
	VPADDQ       Y0, Y1, Y0
	VPADDQ       Y4, Y0, Y0
	VPSRLDQ      $8, Y0, Y1
	VPADDQ       Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPUNPCKLWD   X1, X0, X0
	VMOVD        X0, (DI)
	ADDQ         $96, SI
	ADDQ         $4, DI
	DECQ         CX
	JMP          loop

done:
	VZEROUPPER
	RET

// func dotSixteens(a *int16, b *int8, n int) int32
TEXT ·dotSixteens(SB), NOSPLIT, $0-28
	MOVQ  a+0(FP), SI
	MOVQ  b+8(FP), DI
	MOVQ  n+16(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1

two:
	CMPQ      CX, $2
	JLT       one
	VPMOVSXBW (DI), Y2
	VPMOVSXBW 16(DI), Y3
	VPMADDWD  (SI), Y2, Y2
	VPMADDWD  32(SI), Y3, Y3
	VPADDD    Y2, Y0, Y0
	VPADDD    Y3, Y1, Y1
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $2, CX
	JMP       two

one:
	TESTQ     CX, CX
	JZ        sum
	VPMOVSXBW (DI), Y2
	VPMADDWD  (SI), Y2, Y2
	VPADDD    Y2, Y0, Y0

sum:
	VPADDD       Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0x4e, X0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPADDD       X1, X0, X0
	VMOVD        X0, AX
	MOVL         AX, ret+24(FP)
	VZEROUPPER
	RET
