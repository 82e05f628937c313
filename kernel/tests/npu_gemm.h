/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * GEMM tasks for the RK3588 NPU by hand: command words, memory layouts and the numbers that must come out, in plain integer
 * arithmetic so that a kernel module and a guest program share one file. It is written against the public register descriptions
 * (Mesa src/gallium/drivers/rocket/registers.xml, the layouts of mtx512/rk3588-npu) and knows nothing of any emitter in this tree: a
 * disagreement between the two is a finding.
 *
 * out[m][n] = sum over k of a[m][k] * b[n][k], m rows, n output channels. Two precisions: int8 in, int32 out; fp16 in, fp32 out. fp16
 * operands are multiples of 1/8 with magnitude at most 4, so that every partial sum is exact in fp32 and the order of summation
 * cannot show.
 *
 * Shapes: m a multiple of 4, k and n multiples of 32, k not 128 for fp16, and everything within the twelve 32 KiB banks of the
 * convolution buffer: npu_gemm_valid() says so.
 */
#ifndef NPUD_NPU_GEMM_H
#define NPUD_NPU_GEMM_H

#include <linux/types.h>

struct npu_gemm {
	__u32 m, k, n;
	__u32 fp16;		/* 0: int8 -> int32, 1: fp16 -> fp32 */
	__u32 seed;		/* names the operands */
	__u32 features;		/* device addresses, 16-byte aligned */
	__u32 weights;
	__u32 out;
};

#define NPU_OP_PC		0x0101u
#define NPU_OP_CNA		0x0201u
#define NPU_OP_CORE		0x0801u
#define NPU_OP_DPU		0x1001u
#define NPU_OP_RDMA		0x2001u
#define NPU_OP_BARRIER		0x0041u
#define NPU_OP_ENABLE		0x0081u

#define NPU_GEMM_BODY_WORDS	120u	/* what regcfg_amount counts */
#define NPU_GEMM_TRAILER_WORDS	4u
#define NPU_GEMM_WORDS		(NPU_GEMM_BODY_WORDS + NPU_GEMM_TRAILER_WORDS)
#define NPU_GEMM_SLOT_BYTES	1024u	/* room for one task's words, keeps each task aligned */
#define NPU_GEMM_INT_MASK	0x300u	/* both ping-pong groups of the DPU */
#define NPU_GEMM_ENABLE_MASK	0x1du
#define NPU_GEMM_TRIGGER	0x1du	/* PC | CNA | DPU | DPU_RDMA */
#define NPU_CBUF_BANKS		12u
#define NPU_CBUF_BANK_BYTES	32768u

static inline __u32 npu_gemm_element_bytes(const struct npu_gemm *g)
{
	return g->fp16 ? 2 : 1;
}

static inline __u32 npu_gemm_feature_bytes(const struct npu_gemm *g)
{
	return g->m * g->k * npu_gemm_element_bytes(g);
}

static inline __u32 npu_gemm_weight_bytes(const struct npu_gemm *g)
{
	return g->n * g->k * npu_gemm_element_bytes(g);
}

static inline __u32 npu_gemm_out_bytes(const struct npu_gemm *g)
{
	return g->m * g->n * 4;
}

static inline __u32 npu_gemm_data_banks(const struct npu_gemm *g)
{
	return (npu_gemm_feature_bytes(g) + NPU_CBUF_BANK_BYTES - 1) / NPU_CBUF_BANK_BYTES;
}

static inline int npu_gemm_valid(const struct npu_gemm *g)
{
	return g->m && g->m % 4 == 0 && g->m < 512 && g->k && g->k % 32 == 0 && g->n && g->n % 32 == 0 && g->n <= 4096 &&
	       !(g->fp16 && g->k == 128) && g->k * npu_gemm_element_bytes(g) <= NPU_CBUF_BANK_BYTES &&
	       npu_gemm_data_banks(g) < NPU_CBUF_BANKS;
}

/* How many pairs of words the PC fetches, minus one: RK3588 fetches two words a unit and the trailer counts. */
static inline __u32 npu_gemm_amount(__u32 body_words)
{
	return (body_words + NPU_GEMM_TRAILER_WORDS + 1) / 2 - 1;
}

static inline __u64 npu_gemm_word(__u32 op, __u32 reg, __u32 value)
{
	return ((__u64)op << 48) | ((__u64)value << 16) | reg;
}

/*
 * Writes one task's NPU_GEMM_WORDS words. `next`, when not 0, is the device address of the task that follows in the chain.
 */
static inline void npu_gemm_emit(__u64 *words, const struct npu_gemm *g, __u32 next)
{
	const __u32 e = npu_gemm_element_bytes(g);
	const __u32 precision = g->fp16 ? 2 : 0;
	const __u32 banks = npu_gemm_data_banks(g);
	const __u32 width = g->fp16 ? 3 : 7;	/* BS_OW sizes for 32-bit outputs of fp16 and of int8 */
	__u32 i, at = 0;

#define NPU_PUT(op, reg, value) (words[at++] = npu_gemm_word((op), (reg), (value)))
	NPU_PUT(NPU_OP_DPU, 0x4004, 0xe);					/* S_POINTER: ping-pong on */
	NPU_PUT(NPU_OP_CNA, 0x100c, precision << 7 | precision << 4);		/* CONV_CON1: direct */
	NPU_PUT(NPU_OP_CNA, 0x1010, (g->m + 1) << 4);				/* CONV_CON2: feature grains */
	NPU_PUT(NPU_OP_CNA, 0x1014, 1 << 3 | 1);				/* CONV_CON3: strides */
	NPU_PUT(NPU_OP_CNA, 0x1020, 1u << 16 | g->m);				/* DATA_SIZE0: width 1, height m */
	NPU_PUT(NPU_OP_CNA, 0x1024, (g->k - 1) << 16 | g->k);			/* DATA_SIZE1: channels */
	NPU_PUT(NPU_OP_CNA, 0x1028, 1);						/* DATA_SIZE2: output width */
	NPU_PUT(NPU_OP_CNA, 0x102c, g->m);					/* DATA_SIZE3: output atoms */
	NPU_PUT(NPU_OP_CNA, 0x1030, g->n * g->k * e);				/* WEIGHT_SIZE0: bytes */
	NPU_PUT(NPU_OP_CNA, 0x1034, g->k * e);					/* WEIGHT_SIZE1: bytes a kernel */
	NPU_PUT(NPU_OP_CNA, 0x1038, 1u << 24 | 1u << 16 | g->n);		/* WEIGHT_SIZE2: 1x1, kernels */
	NPU_PUT(NPU_OP_CNA, 0x1040, (NPU_CBUF_BANKS - banks) << 4 | banks);	/* CBUF_CON0 */
	NPU_PUT(NPU_OP_CNA, 0x1044, (g->k * e + 63) / 64);			/* CBUF_CON1: 64-byte entries a row */
	NPU_PUT(NPU_OP_CNA, 0x104c, 0xb);					/* CVT_CON0: signed, bypassed */
	for (i = 0; i < 4; i++)
		NPU_PUT(NPU_OP_CNA, 0x1050 + 4 * i, 1u << 16);			/* CVT_CON1..4: scale 1 */
	NPU_PUT(NPU_OP_CNA, 0x1060, 0);						/* FC_CON0 */
	NPU_PUT(NPU_OP_CNA, 0x1064, 0);						/* FC_CON1 */
	NPU_PUT(NPU_OP_CNA, 0x1068, 0);						/* PAD_CON0 */
	NPU_PUT(NPU_OP_CNA, 0x1070, g->features);				/* FEATURE_DATA_ADDR */
	NPU_PUT(NPU_OP_CNA, 0x1074, 0);						/* FC_CON2 */
	NPU_PUT(NPU_OP_CNA, 0x1078, 0xf << 16 | 0xf);				/* DMA_CON0: burst lengths */
	NPU_PUT(NPU_OP_CNA, 0x107c, 4);						/* DMA_CON1: line stride, width * 4 */
	NPU_PUT(NPU_OP_CNA, 0x1080, g->m - 4);					/* DMA_CON2: surface stride less 4 lines */
	NPU_PUT(NPU_OP_CNA, 0x1084, 1u << 16 | g->m);				/* FC_DATA_SIZE0 */
	NPU_PUT(NPU_OP_CNA, 0x1088, g->k);					/* FC_DATA_SIZE1 */
	NPU_PUT(NPU_OP_CNA, 0x1100, 0);						/* DCOMP_CTRL */
	NPU_PUT(NPU_OP_CNA, 0x1104, 0);						/* DCOMP_REGNUM */
	NPU_PUT(NPU_OP_CNA, 0x1110, g->weights);				/* DCOMP_ADDR0: the weights */
	for (i = 0; i < 16; i++)
		NPU_PUT(NPU_OP_CNA, 0x1140 + 4 * i, 0);				/* DCOMP_AMOUNT0..15 */
	NPU_PUT(NPU_OP_CNA, 0x1180, 0);						/* CVT_CON5 */
	NPU_PUT(NPU_OP_CNA, 0x1184, 0);						/* PAD_CON1 */
	NPU_PUT(NPU_OP_CORE, 0x3010, precision << 8 | (g->fp16 ? 1 : 0));	/* MISC_CFG */
	NPU_PUT(NPU_OP_CORE, 0x3014, (g->m - 1) << 16);				/* DATAOUT_SIZE_0 */
	NPU_PUT(NPU_OP_CORE, 0x3018, g->n - 1);					/* DATAOUT_SIZE_1 */
	NPU_PUT(NPU_OP_CORE, 0x301c, 0);					/* CLIP_TRUNCATE */
	NPU_PUT(NPU_OP_CORE, 0x3030, 0);
	NPU_PUT(NPU_OP_DPU, 0x400c, 0xf << 5 | 2 << 1);				/* FEATURE_MODE: burst, to memory */
	NPU_PUT(NPU_OP_DPU, 0x4010, (g->fp16 ? 5u : 4u) << 29 | precision << 26 | precision);	/* DATA_FORMAT */
	NPU_PUT(NPU_OP_DPU, 0x4014, 0);						/* OFFSET_PEND */
	NPU_PUT(NPU_OP_DPU, 0x4020, g->out);					/* DST_BASE_ADDR */
	NPU_PUT(NPU_OP_DPU, 0x4024, g->m << 4);					/* DST_SURF_STRIDE */
	NPU_PUT(NPU_OP_DPU, 0x4030, 0);						/* DATA_CUBE_WIDTH */
	NPU_PUT(NPU_OP_DPU, 0x4034, g->m - 1);					/* DATA_CUBE_HEIGHT */
	NPU_PUT(NPU_OP_DPU, 0x4038, 0);						/* DATA_CUBE_NOTCH */
	NPU_PUT(NPU_OP_DPU, 0x403c, (g->n - 1) << 16 | (g->n - 1));		/* DATA_CUBE_CHANNEL */
	NPU_PUT(NPU_OP_DPU, 0x4040, 0x53);					/* BS_CFG: bypass */
	for (i = 0; i < 3; i++)
		NPU_PUT(NPU_OP_DPU, 0x4044 + 4 * i, 0);				/* BS ALU, MUL, RELUX */
	NPU_PUT(NPU_OP_DPU, 0x4050, width << 8 | width << 5 | width << 2 | 2);	/* BS_OW_CFG */
	NPU_PUT(NPU_OP_DPU, 0x4054, 0);						/* BS_OW_OP */
	NPU_PUT(NPU_OP_DPU, 0x4058, g->n - 1);					/* WDMA_SIZE_0 */
	NPU_PUT(NPU_OP_DPU, 0x405c, (g->m - 1) << 16);				/* WDMA_SIZE_1 */
	NPU_PUT(NPU_OP_DPU, 0x4060, 0x53);					/* BN_CFG: bypass */
	for (i = 0; i < 3; i++)
		NPU_PUT(NPU_OP_DPU, 0x4064 + 4 * i, 0);				/* BN ALU, MUL, RELUX */
	NPU_PUT(NPU_OP_DPU, 0x4070, 0x383);					/* EW_CFG: bypass */
	NPU_PUT(NPU_OP_DPU, 0x4074, 0);						/* EW_CVT_OFFSET */
	NPU_PUT(NPU_OP_DPU, 0x4078, 1);						/* EW_CVT_SCALE */
	NPU_PUT(NPU_OP_DPU, 0x407c, 0);						/* EW_RELUX */
	NPU_PUT(NPU_OP_DPU, 0x4080, 0);						/* OUT_CVT_OFFSET */
	NPU_PUT(NPU_OP_DPU, 0x4084, 1);						/* OUT_CVT_SCALE */
	NPU_PUT(NPU_OP_DPU, 0x4088, 0);						/* OUT_CVT_SHIFT */
	for (i = 0; i < 8; i++)
		NPU_PUT(NPU_OP_DPU, 0x4090 + 4 * i, 0);				/* EW_OP_VALUE_0..7 */
	NPU_PUT(NPU_OP_DPU, 0x40c0, (g->m * (g->fp16 ? 4 : 8)) << 4);		/* SURFACE_ADD */
	NPU_PUT(NPU_OP_DPU, 0x40c4, 0);
	for (i = 0; i < 12; i++)
		NPU_PUT(NPU_OP_DPU, 0x4100 + 4 * i, 0);				/* LUT, unused */
	NPU_PUT(NPU_OP_RDMA, 0x5004, 0xe);					/* S_POINTER: ping-pong on */
	NPU_PUT(NPU_OP_RDMA, 0x500c, 0);					/* DATA_CUBE_WIDTH */
	NPU_PUT(NPU_OP_RDMA, 0x5010, g->m - 1);					/* DATA_CUBE_HEIGHT */
	NPU_PUT(NPU_OP_RDMA, 0x5014, g->n - 1);					/* DATA_CUBE_CHANNEL */
	NPU_PUT(NPU_OP_RDMA, 0x5018, 0);					/* SRC_BASE_ADDR */
	NPU_PUT(NPU_OP_RDMA, 0x501c, 0);					/* BRDMA_CFG: no operand */
	NPU_PUT(NPU_OP_RDMA, 0x5020, 0);					/* BS_BASE_ADDR */
	NPU_PUT(NPU_OP_RDMA, 0x5028, 0);					/* NRDMA_CFG: no operand */
	NPU_PUT(NPU_OP_RDMA, 0x502c, 0);					/* BN_BASE_ADDR */
	NPU_PUT(NPU_OP_RDMA, 0x5034, 1);					/* ERDMA_CFG: off */
	NPU_PUT(NPU_OP_RDMA, 0x5038, 0);					/* EW_BASE_ADDR */
	NPU_PUT(NPU_OP_RDMA, 0x5040, 0);					/* EW_SURF_STRIDE */
	NPU_PUT(NPU_OP_RDMA, 0x5044, precision << 15 | 0xf << 11 | precision << 5 | 1 << 4);	/* FEATURE_MODE: MRDMA off */
	NPU_PUT(NPU_OP_RDMA, 0x5048, 0);					/* SRC_DMA_CFG */
	NPU_PUT(NPU_OP_RDMA, 0x504c, 0);					/* SURF_NOTCH */
	NPU_PUT(NPU_OP_RDMA, 0x506c, 0);					/* EW_SURF_NOTCH */
	/* The trailer: where the next task is and how long, then the barrier and the trigger. */
	words[at++] = next ? npu_gemm_word(NPU_OP_PC, 0x10, next) : 0;
	NPU_PUT(NPU_OP_PC, 0x14, next ? npu_gemm_amount(NPU_GEMM_BODY_WORDS) : 0);
	words[at++] = (__u64)NPU_OP_BARRIER << 48;
	NPU_PUT(NPU_OP_ENABLE, 0x08, NPU_GEMM_TRIGGER);
#undef NPU_PUT
}

/* --- layouts: element indices, not bytes --------------------------------------------------------------------------------------- */

static inline __u32 npu_gemm_feature_index(const struct npu_gemm *g, __u32 m, __u32 k)
{
	const __u32 c2 = g->fp16 ? 8 : 16;	/* 16 bytes of channels lie together */

	return (k / c2) * g->m * c2 + m * c2 + k % c2;
}

static inline __u32 npu_gemm_weight_index(const struct npu_gemm *g, __u32 n, __u32 k)
{
	const __u32 rows = g->fp16 ? 16 : 32;	/* a tile is rows x 32, tiles run along k, then n */

	return ((n / rows) * (g->k / 32) + k / 32) * rows * 32 + (n % rows) * 32 + k % 32;
}

static inline __u32 npu_gemm_out_index(const struct npu_gemm *g, __u32 m, __u32 n)
{
	return (n / 4) * g->m * 4 + m * 4 + n % 4;
}

/* --- operands and results ------------------------------------------------------------------------------------------------------ */

static inline __u32 npu_gemm_hash(__u32 x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	x ^= x >> 16;
	return x;
}

/* int8: the value itself, -128..127. fp16: in eighths, -32..31. */
static inline int npu_gemm_operand(const struct npu_gemm *g, __u32 which, __u32 row, __u32 k)
{
	const __u32 h = npu_gemm_hash(npu_gemm_hash(g->seed * 2 + which) + row * g->k + k);

	return g->fp16 ? (int)(h % 64) - 32 : (int)(h % 256) - 128;
}

static inline int npu_gemm_a(const struct npu_gemm *g, __u32 m, __u32 k)
{
	return npu_gemm_operand(g, 0, m, k);
}

static inline int npu_gemm_b(const struct npu_gemm *g, __u32 n, __u32 k)
{
	return npu_gemm_operand(g, 1, n, k);
}

/* value / 2^scale as IEEE bits with the given field sizes; exact for every value used here. */
static inline __u32 npu_gemm_float_bits(int value, int scale, int exponent_bits, int mantissa_bits)
{
	const __u32 sign = value < 0;
	__u32 magnitude = sign ? (__u32)-value : (__u32)value;
	int top = 31;

	if (!magnitude)
		return 0;
	while (!(magnitude >> top))
		top--;
	magnitude ^= 1u << top;
	magnitude = top <= mantissa_bits ? magnitude << (mantissa_bits - top) : magnitude >> (top - mantissa_bits);
	return sign << (exponent_bits + mantissa_bits) |
	       (__u32)(top - scale + (1 << (exponent_bits - 1)) - 1) << mantissa_bits | magnitude;
}

static inline void npu_gemm_fill(const struct npu_gemm *g, void *features, void *weights)
{
	__u32 row, k;

	for (row = 0; row < g->m; row++) {
		for (k = 0; k < g->k; k++) {
			const int v = npu_gemm_a(g, row, k);

			if (g->fp16)
				((__u16 *)features)[npu_gemm_feature_index(g, row, k)] =
					(__u16)npu_gemm_float_bits(v, 3, 5, 10);
			else
				((__s8 *)features)[npu_gemm_feature_index(g, row, k)] = (__s8)v;
		}
	}
	for (row = 0; row < g->n; row++) {
		for (k = 0; k < g->k; k++) {
			const int v = npu_gemm_b(g, row, k);

			if (g->fp16)
				((__u16 *)weights)[npu_gemm_weight_index(g, row, k)] = (__u16)npu_gemm_float_bits(v, 3, 5, 10);
			else
				((__s8 *)weights)[npu_gemm_weight_index(g, row, k)] = (__s8)v;
		}
	}
}

/* The 32 bits that out[m][n] must hold: an int32, or an fp32 (products are in 64ths). */
static inline __u32 npu_gemm_expected(const struct npu_gemm *g, __u32 m, __u32 n)
{
	int sum = 0;
	__u32 k;

	for (k = 0; k < g->k; k++)
		sum += npu_gemm_a(g, m, k) * npu_gemm_b(g, n, k);
	return g->fp16 ? npu_gemm_float_bits(sum, 6, 8, 23) : (__u32)sum;
}

/* How many of the m * n results are wrong. */
static inline __u32 npu_gemm_wrong(const struct npu_gemm *g, const __u32 *out)
{
	__u32 m, n, wrong = 0;

	for (m = 0; m < g->m; m++)
		for (n = 0; n < g->n; n++)
			wrong += out[npu_gemm_out_index(g, m, n)] != npu_gemm_expected(g, m, n);
	return wrong;
}

#endif
