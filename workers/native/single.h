/* One token's row of each head, as when decoding: keys are read where they lie, packed by nobody. */
#ifndef FOVEA_SINGLE_H
#define FOVEA_SINGLE_H

#include "blocks.h"

#define SHARED_HEADS 4 /* heads that look at the same keys together, at most */
#define SINGLE_KEYS 64
#define LINE 32 /* numbers of a line of the cache */

struct single {
    const bfloat16 *queries[SHARED_HEADS];
    bfloat16 *outputs[SHARED_HEADS];
    const bfloat16 *keys[SINGLE_KEYS];
    const bfloat16 *values[SINGLE_KEYS];
    float largest[SHARED_HEADS];
    float total[SHARED_HEADS];
    float scores[SHARED_HEADS][SINGLE_KEYS] __attribute__((aligned(64))); /* then weights */
    float sums[SHARED_HEADS][MAX_WIDTH] __attribute__((aligned(64)));
};

/* Where the keys and values [first, first + number) lie; up to a whole register the last again. */
static inline void find_keys(struct single *single, const struct attention *all,
                             const struct segment *segment, int64_t key_head, int64_t first,
                             int64_t number)
{
    for (int64_t at = 0; at < (number + LANES - 1) / LANES * LANES; at++) {
        int64_t place = place_of(all, segment, first + (at < number ? at : number - 1));
        single->keys[at] = all->keys + key_head * all->key_head + place * all->key_row;
        single->values[at] = all->values + key_head * all->value_head + place * all->value_row;
    }
}

/* Have the memory send keys and values [first, first + number), which are wanted soon. Blocks lie
 * anywhere, so the processor cannot guess where the next one is. */
static inline void fetch_keys(const struct attention *all, const struct segment *segment,
                              int64_t key_head, int64_t first, int64_t number)
{
    for (int64_t at = first; at < first + number; at++) {
        int64_t place = place_of(all, segment, at);
        const bfloat16 *key = all->keys + key_head * all->key_head + place * all->key_row;
        const bfloat16 *value = all->values + key_head * all->value_head + place * all->value_row;
        for (int64_t number_at = 0; number_at < all->width; number_at += LINE) {
            _mm_prefetch((const char *)(key + number_at), _MM_HINT_T0);
            _mm_prefetch((const char *)(value + number_at), _MM_HINT_T0);
        }
    }
}

STEP void score_single(struct single *single, int64_t head, int64_t width, int64_t number)
{
    for (int64_t key = 0; key < number; key += LANES) {
        __m512 sums[LANES];
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] = _mm512_setzero_ps();
        for (int64_t at = 0; at < width; at += 32) {
            __mmask32 there = first_numbers(width - at);
            __m512bh query = (__m512bh)_mm512_maskz_loadu_epi16(there, single->queries[head] + at);
            for (int lane = 0; lane < LANES; lane++)
                sums[lane] = _mm512_dpbf16_ps(
                    sums[lane], query,
                    (__m512bh)_mm512_maskz_loadu_epi16(there, single->keys[key + lane] + at));
        }
        _mm512_store_ps(&single->scores[head][key], sum_each(sums));
    }
}

/* Scores of a head -> weights; sums so far are scaled. */
STEP void weigh_single(struct single *single, int64_t head, int64_t width, int64_t number,
                       float scale)
{
    float *scores = single->scores[head], *sums = single->sums[head];
    __m512 total = _mm512_setzero_ps();
    float largest = largest_of(single->largest[head], scores, number);
    __m512 shift = _mm512_set1_ps(largest * scale), factor = _mm512_set1_ps(scale);
    for (int64_t at = 0; at < number; at += LANES) {
        __m512 powers = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + at), factor, shift));
        powers = _mm512_maskz_mov_ps(first_lanes(number - at), powers);
        total = _mm512_add_ps(total, powers);
        _mm512_store_ps(scores + at, powers);
    }
    __m512 by = power_of_two(_mm512_set1_ps((single->largest[head] - largest) * scale));
    for (int64_t at = 0; at < width; at += LANES)
        _mm512_store_ps(sums + at, _mm512_mul_ps(_mm512_load_ps(sums + at), by));
    single->total[head] =
        single->total[head] * _mm512_cvtss_f32(by) + _mm512_reduce_add_ps(total);
    single->largest[head] = largest;
}

/* sums += weights x values, in float32, for the numbers from `first` on that a strip has. */
STEP void mix_single(struct single *single, const int num_heads, int64_t width, int64_t first,
                     int64_t number)
{
    __m512 sums[SHARED_HEADS][STRIP_REGISTERS];
    for (int head = 0; head < num_heads; head++)
        for (int at = 0; at < STRIP_REGISTERS; at++)
            sums[head][at] = _mm512_load_ps(&single->sums[head][first + at * LANES]);
    for (int64_t key = 0; key < number; key++) {
        __m512 value[STRIP_REGISTERS];
        for (int at = 0; at < STRIP_REGISTERS; at++)
            value[at] = load_float(single->values[key] + first + at * LANES,
                                   width - first - at * LANES);
        for (int head = 0; head < num_heads; head++) {
            __m512 weight = _mm512_set1_ps(single->scores[head][key]);
            for (int at = 0; at < STRIP_REGISTERS; at++)
                sums[head][at] = _mm512_fmadd_ps(weight, value[at], sums[head][at]);
        }
    }
    for (int head = 0; head < num_heads; head++)
        for (int at = 0; at < STRIP_REGISTERS; at++)
            _mm512_store_ps(&single->sums[head][first + at * LANES], sums[head][at]);
}

STEP void store_single(const struct single *single, const int num_heads, int64_t width)
{
    for (int head = 0; head < num_heads; head++) {
        __m512 share = _mm512_set1_ps(1.0f / single->total[head]);
        for (int64_t at = 0; at < width; at += LANES)
            store_rounded(single->outputs[head] + at,
                          _mm512_mul_ps(_mm512_load_ps(&single->sums[head][at]), share),
                          width - at);
    }
}

STEP void start_single(struct single *single, const struct attention *all,
                       const struct segment *segment, int64_t first_head, const int num_heads)
{
    memset(single->sums, 0, sizeof(single->sums));
    for (int head = 0; head < num_heads; head++) {
        int64_t in_all = segment->first_row * all->num_heads + first_head + head;
        single->queries[head] = all->queries + (first_head + head) * all->query_head +
                                segment->first_row * all->query_row;
        single->outputs[head] = all->outputs + in_all * all->width;
        single->largest[head] = -INFINITY;
        single->total[head] = 0;
    }
}

STEP void attend_heads(const struct attention *all, const struct segment *segment,
                       int64_t first_head, const int num_heads)
{
    struct single single;
    int64_t key_head = first_head / (all->num_heads / all->num_key_heads);
    start_single(&single, all, segment, first_head, num_heads);
    for (int64_t key = 0; key < segment->num_keys; key += SINGLE_KEYS) {
        int64_t left = segment->num_keys - key, number = left < SINGLE_KEYS ? left : SINGLE_KEYS;
        int64_t after = left - number < SINGLE_KEYS ? left - number : SINGLE_KEYS;
        find_keys(&single, all, segment, key_head, key, number);
        fetch_keys(all, segment, key_head, key + number, after);
        for (int head = 0; head < num_heads; head++) {
            score_single(&single, head, all->width, number);
            weigh_single(&single, head, all->width, number, (float)(all->scale * LOG2_E));
        }
        for (int64_t at = 0; at < all->width; at += STRIP)
            mix_single(&single, num_heads, all->width, at, number);
    }
    store_single(&single, num_heads, all->width);
}

/* The only row of a segment, which sees all of its keys: the heads of one key head. */
TARGET static void attend_single(const struct attention *all, const struct segment *segment,
                                 int64_t key_head)
{
    int64_t shared = all->num_heads / all->num_key_heads, first = key_head * shared;
    int64_t end = first + shared;
    for (; end - first >= SHARED_HEADS; first += SHARED_HEADS)
        attend_heads(all, segment, first, SHARED_HEADS);
    for (; end - first >= 2; first += 2)
        attend_heads(all, segment, first, 2);
    if (first < end)
        attend_heads(all, segment, first, 1);
}

#endif
