/* Small steps on rows of bfloat16 numbers, each in one pass over memory; computed in float32. */
#include "rows.h"

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "share.h"
#include "tiles.h"

#define TOKENS_PER_ITEM 16

static bfloat16 *row_of(const struct rows *rows, int64_t token, int64_t head)
{
    return rows->first + token * rows->token_stride + head * rows->head_stride;
}

static int64_t items_of(const struct rows *rows)
{
    return (rows->num_tokens + TOKENS_PER_ITEM - 1) / TOKENS_PER_ITEM;
}

static int64_t end_of(const struct rows *rows, int64_t item)
{
    int64_t end = (item + 1) * TOKENS_PER_ITEM;
    return end < rows->num_tokens ? end : rows->num_tokens;
}

static double steps_of(const struct rows *rows)
{
    return (double)(rows->num_tokens * rows->num_heads * rows->width) / LANES * 4;
}

/* to = from / sqrt(mean of squares + floor) * weight */
STEP void normalise(const struct normalising *job, const bfloat16 *from, bfloat16 *to)
{
    int64_t width = job->from.width;
    __m512 squares = _mm512_setzero_ps();
    for (int64_t at = 0; at < width; at += LANES) {
        __m512 numbers = load_float(from + at, width - at);
        squares = _mm512_fmadd_ps(numbers, numbers, squares);
    }
    float mean = _mm512_reduce_add_ps(squares) / (float)width;
    __m512 scale = _mm512_set1_ps(1.0f / sqrtf(mean + job->floor));
    for (int64_t at = 0; at < width; at += LANES) {
        __m512 numbers = _mm512_mul_ps(load_float(from + at, width - at), scale);
        __m512 weight = load_float(job->weight + at, width - at);
        store_rounded(to + at, _mm512_mul_ps(numbers, weight), width - at);
    }
}

TARGET static void normalise_item(const void *handed, int64_t item)
{
    const struct normalising *job = handed;
    for (int64_t token = item * TOKENS_PER_ITEM; token < end_of(&job->from, item); token++)
        for (int64_t head = 0; head < job->from.num_heads; head++)
            normalise(job, row_of(&job->from, token, head), row_of(&job->to, token, head));
}

void fovea_normalise(const struct normalising *job)
{
    share(normalise_item, job, items_of(&job->from), steps_of(&job->from), job->num_threads);
}

/* Turn each number with the one half a head on: (a, b) -> (a cos - b sin, b cos + a sin). */
STEP void rotate(bfloat16 *row, int64_t half, const float *cosines, const float *sines)
{
    for (int64_t at = 0; at < half; at += LANES) {
        __mmask16 there = first_lanes(half - at);
        __m512 first = load_float(row + at, half - at);
        __m512 second = load_float(row + half + at, half - at);
        __m512 cosine = _mm512_maskz_loadu_ps(there, cosines + at);
        __m512 sine = _mm512_maskz_loadu_ps(there, sines + at);
        __m512 across = _mm512_mul_ps(first, sine);
        first = _mm512_fmsub_ps(first, cosine, _mm512_mul_ps(second, sine));
        store_rounded(row + at, first, half - at);
        store_rounded(row + half + at, _mm512_fmadd_ps(second, cosine, across), half - at);
    }
}

TARGET static void rotate_item(const void *handed, int64_t item)
{
    const struct rotating *job = handed;
    for (int64_t token = item * TOKENS_PER_ITEM; token < end_of(&job->rows, item); token++)
        for (int64_t head = 0; head < job->rows.num_heads; head++)
            rotate(row_of(&job->rows, token, head), job->rows.width / 2,
                   job->cosines + token * job->angle_stride,
                   job->sines + token * job->angle_stride);
}

void fovea_rotate(const struct rotating *job)
{
    share(rotate_item, job, items_of(&job->rows), steps_of(&job->rows), job->num_threads);
}

/* Copy the rows of each token to its place in a store. */
void fovea_keep(const struct keeping *job)
{
    int64_t width = job->from.width;
    for (int64_t token = 0; token < job->from.num_tokens; token++)
        for (int64_t head = 0; head < job->from.num_heads; head++) {
            int64_t place = head * job->num_places + job->places[token];
            memcpy(job->store + place * width, row_of(&job->from, token, head),
                   (size_t)width * sizeof(bfloat16));
        }
}

#else

void fovea_normalise(const struct normalising *job) { (void)job; }
void fovea_rotate(const struct rotating *job) { (void)job; }
void fovea_keep(const struct keeping *job) { (void)job; }

#endif
