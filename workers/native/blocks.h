/* Many rows over the same keys: blocks of keys are packed once for up to BLOCK_ROWS rows. */
#ifndef FOVEA_BLOCKS_H
#define FOVEA_BLOCKS_H

#include <math.h>
#include <string.h>

#include "attention.h"
#include "tiles.h"

#define BLOCK_ROWS 120 /* a multiple of TILE_ROWS */
#define BLOCK_KEYS 128
#define KEY_STRIPS (BLOCK_KEYS / STRIP)
#define MAX_STRIPS (MAX_WIDTH / STRIP)

struct block {
    const struct attention *all;
    const struct segment *segment;
    int64_t key_head;
    int64_t num_rows;                   /* a row is a query's head, see `row_of` */
    const bfloat16 *queries[BLOCK_ROWS];
    bfloat16 *outputs[BLOCK_ROWS];
    int64_t num_visible[BLOCK_ROWS];    /* keys of the segment, from the first */
    float largest[BLOCK_ROWS];          /* score so far, before scaling */
    float total[BLOCK_ROWS];            /* of its weights */
    int64_t sum_stride;                 /* numbers from row to row of `sums`: whole registers */
    float sums[BLOCK_ROWS * MAX_WIDTH] __attribute__((aligned(64)));
    bfloat16 keys[KEY_STRIPS][MAX_WIDTH / 2][STRIP][2] __attribute__((aligned(64)));
    bfloat16 values[MAX_STRIPS][BLOCK_KEYS / 2][STRIP][2] __attribute__((aligned(64)));
};

static inline float *sums_of(struct block *block, int64_t row)
{
    return block->sums + row * block->sum_stride;
}

/* Row of the key or value `at` in its store. */
static inline int64_t place_of(const struct attention *all, const struct segment *segment,
                               int64_t at)
{
    if (!segment->blocks)
        return segment->first_key + at;
    return segment->blocks[at / all->block_keys] * all->block_keys + at % all->block_keys;
}

/* Keys [first, first + number) by pairs: [strip][pair][key][2]; keys that are not there are 0. */
STEP void pack_keys(struct block *block, int64_t first, int64_t number)
{
    const struct attention *all = block->all;
    const bfloat16 *keys = all->keys + block->key_head * all->key_head;
    int64_t num_pairs = all->width / 2;
    for (int64_t at = 0; at < number; at += LANES) {
        const bfloat16 *rows[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int64_t key = first + (at + lane < number ? at + lane : 0);
            rows[lane] = keys + place_of(all, block->segment, key) * all->key_row;
        }
        for (int64_t pair = 0; pair < num_pairs; pair += LANES) {
            __m512i pairs[LANES];
            __mmask16 there = first_lanes(num_pairs - pair);
            for (int lane = 0; lane < LANES; lane++)
                pairs[lane] = _mm512_maskz_loadu_epi32(there, rows[lane] + 2 * pair);
            transpose(pairs);
            bfloat16(*to)[STRIP][2] = &block->keys[at / STRIP][pair];
            for (int lane = 0; lane < LANES && pair + lane < num_pairs; lane++)
                _mm512_store_si512(to[lane][at % STRIP], pairs[lane]);
        }
    }
}

/* Values [first, first + number) by pairs of keys: [strip][key pair][number][2]. */
STEP void pack_values(struct block *block, int64_t first, int64_t number)
{
    const struct attention *all = block->all;
    const bfloat16 *values = all->values + block->key_head * all->value_head;
    static const int16_t order[2][32] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    for (int64_t key = 0; key < number; key += 2) {
        const bfloat16 *even = values + place_of(all, block->segment, first + key) * all->value_row;
        const bfloat16 *odd = even;
        __mmask32 has_odd = key + 1 < number ? 0xffffffffu : 0;
        if (has_odd)
            odd = values + place_of(all, block->segment, first + key + 1) * all->value_row;
        for (int64_t at = 0; at < all->width; at += 32) {
            __mmask32 there = first_numbers(all->width - at);
            __m512i one = _mm512_maskz_loadu_epi16(there, even + at);
            __m512i other = _mm512_maskz_loadu_epi16(there & has_odd, odd + at);
            bfloat16(*to)[2] = &block->values[at / STRIP][key / 2][at % STRIP];
            _mm512_store_si512(to, _mm512_permutex2var_epi16(one, low, other));
            _mm512_store_si512(to + LANES, _mm512_permutex2var_epi16(one, high, other));
        }
    }
}

/* Scores of a tile's rows and one strip of keys. */
STEP void score(const struct block *block, int64_t first_row, int64_t strip,
                float scores[TILE_ROWS][BLOCK_KEYS])
{
    __m512 sums[TILE_ROWS][STRIP_REGISTERS];
    for (int row = 0; row < TILE_ROWS; row++)
        for (int at = 0; at < STRIP_REGISTERS; at++)
            sums[row][at] = _mm512_setzero_ps();
    multiply(block->queries + first_row, block->keys[strip][0][0], block->all->width / 2,
             STRIP_REGISTERS, sums);
    for (int row = 0; row < TILE_ROWS; row++)
        for (int at = 0; at < STRIP_REGISTERS; at++)
            _mm512_store_ps(&scores[row][strip * STRIP + at * LANES], sums[row][at]);
}

/* The largest of a row's scores so far and of the first `number`. */
STEP float largest_of(float so_far, const float *scores, int64_t number)
{
    __m512 most = _mm512_set1_ps(so_far);
    int64_t at = 0;
    for (; at + LANES <= number; at += LANES)
        most = _mm512_max_ps(most, _mm512_load_ps(scores + at));
    if (at < number)
        most = _mm512_mask_max_ps(most, first_lanes(number - at), most,
                                  _mm512_load_ps(scores + at));
    return _mm512_reduce_max_ps(most);
}

/* Scores of one row -> weights, of `number` keys whose first `num_visible` count; what was summed
 * before is to be scaled by the result. */
STEP float weigh(struct block *block, int64_t row, const float *scores, int64_t num_visible,
                 int64_t number, bfloat16 *weights)
{
    float scale = (float)(block->all->scale * LOG2_E), before = block->largest[row];
    float largest = largest_of(before, scores, num_visible);
    __m512 shift = _mm512_set1_ps(largest * scale), factor = _mm512_set1_ps(scale);
    __m512 total = _mm512_setzero_ps();
    int64_t at = 0;
    for (; at + LANES <= num_visible; at += LANES) {
        __m512 powers = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + at), factor, shift));
        total = _mm512_add_ps(total, powers);
        _mm256_store_si256((__m256i *)(weights + at), round_float(powers));
    }
    for (; at < number; at += LANES) {
        __m512 powers = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + at), factor, shift));
        powers = _mm512_maskz_mov_ps(first_lanes(num_visible - at), powers);
        total = _mm512_add_ps(total, powers);
        _mm256_store_si256((__m256i *)(weights + at), round_float(powers));
    }
    float by = 1.0f;
    if (before != largest)
        by = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps((before - largest) * scale)));
    block->total[row] = block->total[row] * by + _mm512_reduce_add_ps(total);
    block->largest[row] = largest;
    return by;
}

/* sums = sums * by + weights x values, for one strip of numbers. */
STEP void mix(struct block *block, int64_t first_row, int64_t strip, int64_t number,
              bfloat16 weights[TILE_ROWS][BLOCK_KEYS], const float by[TILE_ROWS],
              const int num_registers)
{
    const bfloat16 *rows[TILE_ROWS];
    __m512 sums[TILE_ROWS][STRIP_REGISTERS];
    for (int row = 0; row < TILE_ROWS; row++) {
        rows[row] = weights[row];
        for (int at = 0; at < num_registers; at++)
            sums[row][at] = _mm512_mul_ps(
                _mm512_load_ps(sums_of(block, first_row + row) + strip * STRIP + at * LANES),
                _mm512_set1_ps(by[row]));
    }
    multiply(rows, block->values[strip][0][0], (number + 1) / 2, num_registers, sums);
    for (int row = 0; row < TILE_ROWS; row++)
        for (int at = 0; at < num_registers; at++)
            _mm512_store_ps(sums_of(block, first_row + row) + strip * STRIP + at * LANES,
                            sums[row][at]);
}

STEP void mix_all(struct block *block, int64_t first_row, int64_t number,
                  bfloat16 weights[TILE_ROWS][BLOCK_KEYS], const float by[TILE_ROWS])
{
    int64_t num_registers = (block->all->width + LANES - 1) / LANES, strip = 0;
    for (; num_registers >= STRIP_REGISTERS; num_registers -= STRIP_REGISTERS)
        mix(block, first_row, strip++, number, weights, by, STRIP_REGISTERS);
    if (num_registers == 3)
        mix(block, first_row, strip, number, weights, by, 3);
    else if (num_registers == 2)
        mix(block, first_row, strip, number, weights, by, 2);
    else if (num_registers == 1)
        mix(block, first_row, strip, number, weights, by, 1);
}

/* One tile's rows over the packed keys [first, first + number). */
STEP void attend_tile(struct block *block, int64_t first_row, int64_t first, int64_t number)
{
    float scores[TILE_ROWS][BLOCK_KEYS] __attribute__((aligned(64)));
    bfloat16 weights[TILE_ROWS][BLOCK_KEYS] __attribute__((aligned(64)));
    float by[TILE_ROWS];
    for (int64_t strip = 0; strip * STRIP < number; strip++)
        score(block, first_row, strip, scores);
    for (int row = 0; row < TILE_ROWS; row++) {
        int64_t visible = block->num_visible[first_row + row] - first;
        visible = visible < 0 ? 0 : visible < number ? visible : number;
        by[row] = weigh(block, first_row + row, scores[row], visible, number, weights[row]);
    }
    mix_all(block, first_row, number, weights, by);
}

/* Rows of a block: the queries of all heads that share a key head, query by query. Places that are
 * left over in the last tile repeat its last row, and nobody reads them. */
static inline void lay_out_rows(struct block *block, int64_t first)
{
    const struct attention *all = block->all;
    int64_t shared = all->num_heads / all->num_key_heads;
    int64_t left = block->segment->num_rows * shared - first;
    block->num_rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;
    block->sum_stride = (all->width + LANES - 1) / LANES * LANES;
    int64_t num_places = (block->num_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    memset(block->sums, 0, (size_t)(num_places * block->sum_stride) * sizeof(float));
    for (int64_t place = 0; place < num_places; place++) {
        int64_t row = first + (place < block->num_rows ? place : block->num_rows - 1);
        int64_t query = row / shared, head = block->key_head * shared + row % shared;
        int64_t in_all = block->segment->first_row + query;
        block->queries[place] = all->queries + head * all->query_head + in_all * all->query_row;
        block->outputs[place] = all->outputs + (in_all * all->num_heads + head) * all->width;
        block->num_visible[place] = block->segment->num_seen + query;
        block->largest[place] = -INFINITY;
        block->total[place] = 0;
    }
}

STEP void store_rows(struct block *block)
{
    int64_t width = block->all->width;
    for (int64_t row = 0; row < block->num_rows; row++) {
        __m512 share = _mm512_set1_ps(1.0f / block->total[row]);
        for (int64_t at = 0; at < width; at += LANES) {
            __m512 mean = _mm512_mul_ps(_mm512_load_ps(sums_of(block, row) + at), share);
            store_rounded(block->outputs[row] + at, mean, width - at);
        }
    }
}

/* Rows [first, first + BLOCK_ROWS) of one segment and key head; see `lay_out_rows`. */
TARGET static void attend_block(const struct attention *all, const struct segment *segment,
                                int64_t key_head, int64_t first)
{
    struct block block;
    block.all = all;
    block.segment = segment;
    block.key_head = key_head;
    lay_out_rows(&block, first);
    int64_t num_keys = block.num_visible[block.num_rows - 1];
    num_keys = num_keys < segment->num_keys ? num_keys : segment->num_keys;
    for (int64_t key = 0; key < num_keys; key += BLOCK_KEYS) {
        int64_t number = num_keys - key < BLOCK_KEYS ? num_keys - key : BLOCK_KEYS;
        pack_keys(&block, key, number);
        pack_values(&block, key, number);
        for (int64_t row = 0; row < block.num_rows; row += TILE_ROWS)
            attend_tile(&block, row, key, number);
    }
    store_rows(&block);
}

#endif
