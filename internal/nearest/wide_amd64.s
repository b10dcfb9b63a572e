#include "textflag.h"

DATA half<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL half<>(SB), RODATA|NOPTR, $32

// COLUMN adds to the bytes of Y6 and Y7 what eight dimensions of 64 slots add: 64 bytes at off(SI), two tables at tab(DX).
#define COLUMN(off, tab) \
	VBROADCASTI128 tab(DX), Y0       \
	VBROADCASTI128 (tab+16)(DX), Y1  \
	VMOVDQU        off(SI), Y2       \
	VMOVDQU        (off+32)(SI), Y4  \
	VPSRLW         $4, Y2, Y3        \
	VPSRLW         $4, Y4, Y5        \
	VPAND          Y14, Y2, Y2       \
	VPAND          Y14, Y3, Y3       \
	VPAND          Y14, Y4, Y4       \
	VPAND          Y14, Y5, Y5       \
	VPSHUFB        Y2, Y0, Y2        \
	VPSHUFB        Y3, Y1, Y3        \
	VPSHUFB        Y4, Y0, Y4        \
	VPSHUFB        Y5, Y1, Y5        \
	VPADDB         Y2, Y6, Y6        \
	VPADDB         Y4, Y7, Y7        \
	VPADDB         Y3, Y6, Y6        \
	VPADDB         Y5, Y7, Y7

// WIDEN adds bytes to two sums of words: of slots 0-7 and 16-23, and of 8-15 and 24-31.
#define WIDEN(bytes, low, high) \
	VPUNPCKLBW Y13, bytes, Y0 \
	VPUNPCKHBW Y13, bytes, Y1 \
	VPADDW     Y0, low, low   \
	VPADDW     Y1, high, high

// GIVE stores the words of 32 slots in their order, and a bit for each that is below Y15.
#define GIVE(low, high, out, near) \
	VPERM2I128 $0x20, high, low, Y0 \
	VPERM2I128 $0x31, high, low, Y1 \
	VMOVDQU    Y0, out(DI)          \
	VMOVDQU    Y1, (out+32)(DI)     \
	VPCMPGTW   low, Y15, Y0         \
	VPCMPGTW   high, Y15, Y1        \
	VPACKSSWB  Y1, Y0, Y0           \
	VPMOVMSKB  Y0, AX               \
	MOVL       AX, near(R10)

// func awayBlocks(lanes, tables *byte, columns, beyond int, out *uint16, near *uint64, n int)
TEXT ·awayBlocks(SB), NOSPLIT, $0-56
	MOVQ         lanes+0(FP), SI
	MOVQ         tables+8(FP), R8
	MOVQ         columns+16(FP), R9
	MOVQ         beyond+24(FP), AX
	MOVQ         out+32(FP), DI
	MOVQ         near+40(FP), R10
	MOVQ         n+48(FP), CX
	VMOVD        AX, X15
	VPBROADCASTW X15, Y15
	VMOVDQU      half<>(SB), Y14
	VPXOR        Y13, Y13, Y13

loop:
	MOVQ  R8, DX
	MOVQ  R9, BX
	VPXOR Y8, Y8, Y8
	VPXOR Y9, Y9, Y9
	VPXOR Y10, Y10, Y10
	VPXOR Y11, Y11, Y11

four:
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	COLUMN(0, 0)
	COLUMN(64, 32)
	COLUMN(128, 64)
	COLUMN(192, 96)
	WIDEN(Y6, Y8, Y9)
	WIDEN(Y7, Y10, Y11)
	ADDQ  $256, SI
	ADDQ  $128, DX
	SUBQ  $4, BX
	JNZ   four
	GIVE(Y8, Y9, 0, 0)
	GIVE(Y10, Y11, 64, 4)
	ADDQ  $128, DI
	ADDQ  $8, R10
	DECQ  CX
	JNZ   loop
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

DATA sizes<>+0(SB)/8, $0x7fffffff7fffffff
GLOBL sizes<>(SB), RODATA|NOPTR, $8

// func largestBits(v *float32, n int) uint32
TEXT ·largestBits(SB), NOSPLIT, $0-20
	MOVQ         v+0(FP), SI
	MOVQ         n+8(FP), CX
	VPBROADCASTQ sizes<>(SB), Y15
	VPXOR        Y0, Y0, Y0
	VPXOR        Y1, Y1, Y1

sixteen:
	VPAND   (SI), Y15, Y2
	VPAND   32(SI), Y15, Y3
	VPMAXUD Y2, Y0, Y0
	VPMAXUD Y3, Y1, Y1
	ADDQ    $64, SI
	DECQ    CX
	JNZ     sixteen
	VPMAXUD      Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD      X1, X0, X0
	VPSHUFD      $0x4e, X0, X1
	VPMAXUD      X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPMAXUD      X1, X0, X0
	VMOVD        X0, AX
	MOVL         AX, ret+16(FP)
	VZEROUPPER
	RET

// FOUR makes integers of four numbers, times Y15; of two as near it takes the even one.
#define FOUR(off, out, low) \
	VCVTPS2PD  off(SI), out    \
	VMULPD     Y15, out, out   \
	VCVTPD2DQY out, low

// func quantiseSixteens(v *float32, small *int8, unit float64, n int) int32
TEXT ·quantiseSixteens(SB), NOSPLIT, $0-36
	MOVQ         v+0(FP), SI
	MOVQ         small+8(FP), DI
	VBROADCASTSD unit+16(FP), Y15
	MOVQ         n+24(FP), CX
	VPXOR        Y8, Y8, Y8

numbers:
	FOUR(0, Y0, X0)
	FOUR(16, Y1, X1)
	FOUR(32, Y2, X2)
	FOUR(48, Y3, X3)
	VPACKSSDW X1, X0, X0
	VPACKSSDW X3, X2, X2
	VPMADDWD  X0, X0, X4
	VPMADDWD  X2, X2, X5
	VPADDD    X4, X8, X8
	VPADDD    X5, X8, X8
	VPACKSSWB X2, X0, X0
	VMOVDQU   X0, (DI)
	ADDQ      $64, SI
	ADDQ      $16, DI
	DECQ      CX
	JNZ       numbers
	VPSHUFD   $0x4e, X8, X1
	VPADDD    X1, X8, X8
	VPSHUFD   $0xb1, X8, X1
	VPADDD    X1, X8, X8
	VMOVD     X8, AX
	MOVL      AX, ret+32(FP)
	VZEROUPPER
	RET

// func fillHalves(small *int8, signs, great *uint64, limit, n int)
TEXT ·fillHalves(SB), NOSPLIT, $0-40
	MOVQ         small+0(FP), SI
	MOVQ         signs+8(FP), DI
	MOVQ         great+16(FP), DX
	MOVQ         limit+24(FP), AX
	MOVQ         n+32(FP), CX
	VMOVD        AX, X15
	VPBROADCASTB X15, Y15
	VPXOR        Y14, Y14, Y14

halves:
	VMOVDQU   (SI), Y0
	VPCMPGTB  Y14, Y0, Y1
	VPMOVMSKB Y1, AX
	MOVL      AX, (DI)
	VPABSB    Y0, Y0
	VPCMPGTB  Y15, Y0, Y0
	VPMOVMSKB Y0, AX
	MOVL      AX, (DX)
	ADDQ      $32, SI
	ADDQ      $4, DI
	ADDQ      $4, DX
	DECQ      CX
	JNZ       halves
	VZEROUPPER
	RET
