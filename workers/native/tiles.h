/* The steps that attention consists of, for processors with AVX-512 and its bfloat16 products.
 *
 * A product instruction takes pairs of bfloat16 and adds both products to one float32. So one side
 * of a product lies by pairs: numbers 2p and 2p + 1 of a column beside each other ("packed").
 */
#ifndef FOVEA_TILES_H
#define FOVEA_TILES_H

#include <immintrin.h>
#include <stdint.h>

typedef uint16_t bfloat16;
typedef int32_t pair_of __attribute__((may_alias, aligned(2))); /* bfloat16 numbers, side by side */

#define LANES 16                /* float32 numbers of a register */
#define TILE_ROWS 6             /* rows that are computed at once: */
#define STRIP_REGISTERS 4       /* 6 * 4 sums, 4 columns and a row's pair fill the registers */
#define STRIP (LANES * STRIP_REGISTERS)
#define LOG2_E 1.4426950408889634

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define STEP TARGET static inline __attribute__((always_inline))

STEP __mmask16 first_lanes(int64_t number)
{
    return number >= LANES ? 0xffff : number <= 0 ? 0 : (__mmask16)((1u << number) - 1);
}

STEP __mmask32 first_numbers(int64_t number)
{
    return number >= 32 ? 0xffffffffu : number <= 0 ? 0 : (__mmask32)((1ull << number) - 1);
}

STEP __m512 load_float(const bfloat16 *numbers, int64_t left)
{
    __m256i short_ones = _mm256_maskz_loadu_epi16(first_lanes(left), numbers);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(short_ones), 16));
}

STEP __m256i round_float(__m512 numbers)
{
    return (__m256i)_mm512_cvtneps_pbh(numbers);
}

STEP void store_rounded(bfloat16 *to, __m512 numbers, int64_t left)
{
    _mm256_mask_storeu_epi16(to, first_lanes(left), round_float(numbers));
}

/* 2 ** x for x <= 0, off by at most 4e-6 of it; below -150 it gives 0. */
STEP __m512 power_of_two(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f));
    __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 rest = _mm512_sub_ps(x, whole);
    __m512 power = _mm512_set1_ps(1.333356e-3f); /* Taylor's terms, from the fifth down */
    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(9.618129e-3f));
    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(5.550411e-2f));
    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(2.402265e-1f));
    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(6.931472e-1f));
    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(power, whole);
}

/* sums[row][register] += rows x columns, over pairs.
 *
 * rows: pairs of each row, one after the other. columns: [pairs][STRIP][2].
 */
STEP void multiply(const bfloat16 *const rows[TILE_ROWS], const bfloat16 *columns,
                   int64_t num_pairs, const int num_registers,
                   __m512 sums[TILE_ROWS][STRIP_REGISTERS])
{
    for (int64_t pair = 0; pair < num_pairs; pair++) {
        __m512i column[STRIP_REGISTERS];
        for (int at = 0; at < num_registers; at++)
            column[at] = _mm512_loadu_si512(columns + (pair * STRIP + at * LANES) * 2);
        for (int row = 0; row < TILE_ROWS; row++) {
            __m512i both = _mm512_set1_epi32(((const pair_of *)rows[row])[pair]);
            for (int at = 0; at < num_registers; at++)
                sums[row][at] = _mm512_dpbf16_ps(sums[row][at], (__m512bh)both,
                                                 (__m512bh)column[at]);
        }
    }
}

/* Turn 16 registers of 16 numbers of 32 bits: register r, lane c goes to register c, lane r. */
STEP void transpose(__m512i rows[LANES])
{
    __m512i half[LANES];
    for (int at = 0; at < LANES; at += 2) {
        half[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        half[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    for (int at = 0; at < LANES; at += 4) {
        rows[at] = _mm512_unpacklo_epi64(half[at], half[at + 2]);
        rows[at + 1] = _mm512_unpackhi_epi64(half[at], half[at + 2]);
        rows[at + 2] = _mm512_unpacklo_epi64(half[at + 1], half[at + 3]);
        rows[at + 3] = _mm512_unpackhi_epi64(half[at + 1], half[at + 3]);
    }
    for (int at = 0; at < 4; at++) {
        __m512i low = _mm512_shuffle_i32x4(rows[at], rows[at + 4], 0x88);
        __m512i high = _mm512_shuffle_i32x4(rows[at], rows[at + 4], 0xdd);
        __m512i low_after = _mm512_shuffle_i32x4(rows[at + 8], rows[at + 12], 0x88);
        __m512i high_after = _mm512_shuffle_i32x4(rows[at + 8], rows[at + 12], 0xdd);
        half[at] = _mm512_shuffle_i32x4(low, low_after, 0x88);
        half[at + 4] = _mm512_shuffle_i32x4(high, high_after, 0x88);
        half[at + 8] = _mm512_shuffle_i32x4(low, low_after, 0xdd);
        half[at + 12] = _mm512_shuffle_i32x4(high, high_after, 0xdd);
    }
    for (int at = 0; at < LANES; at++)
        rows[at] = half[at];
}

/* The sum of each of 16 registers, in order. */
STEP __m512 sum_each(__m512 of[LANES])
{
    __m512i bits[LANES];
    for (int at = 0; at < LANES; at++)
        bits[at] = _mm512_castps_si512(of[at]);
    transpose(bits);
    __m512 total = _mm512_castsi512_ps(bits[0]);
    for (int at = 1; at < LANES; at++)
        total = _mm512_add_ps(total, _mm512_castsi512_ps(bits[at]));
    return total;
}

#endif
