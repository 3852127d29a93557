/* Products of bfloat16 rows with a packed weight, summed in float32 in one order whatever the number
 * of rows: what a row gives does not depend on the rows that come along. */
#include "products.h"

#if defined(__x86_64__)
#include "share.h"
#include "tiles.h"

#define PRODUCT_ROWS 8    /* 8 * 3 sums, 3 columns and a row's pair fill the registers */
#define ROWS_PER_ITEM 128 /* a multiple of PRODUCT_ROWS; so many rows stay in the second cache */

STEP __m512 silu(__m512 x)
{
    __m512 power = power_of_two(_mm512_mul_ps(x, _mm512_set1_ps((float)-LOG2_E)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), power));
}

STEP void finish(const struct product *job, int64_t row, int64_t column, __m512 sum)
{
    int64_t left = job->num_out - column;
    const bfloat16 *other = job->other + row * job->other_stride + column;
    if (left <= 0)
        return;
    if (job->bias)
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(job->bias + column));
    if (job->next_step == SILU)
        sum = silu(sum);
    else if (job->next_step == TIMES)
        sum = _mm512_mul_ps(sum, load_float(other, left));
    else if (job->next_step == PLUS)
        sum = _mm512_add_ps(sum, load_float(other, left));
    store_rounded(job->outputs + row * job->num_out + column, sum, left);
}

STEP void multiply_rows(const struct product *job, int64_t strip, int64_t first,
                        const int num_rows)
{
    const bfloat16 *columns = job->weight + strip * job->num_in * COLUMNS;
    const bfloat16 *rows = job->rows + first * job->row_stride;
    __m512 sums[PRODUCT_ROWS][COLUMN_REGISTERS];
    for (int row = 0; row < num_rows; row++)
        for (int at = 0; at < COLUMN_REGISTERS; at++)
            sums[row][at] = _mm512_setzero_ps();
    for (int64_t pair = 0; pair < job->num_in / 2; pair++) {
        __m512i column[COLUMN_REGISTERS];
        for (int at = 0; at < COLUMN_REGISTERS; at++)
            column[at] = _mm512_loadu_si512(columns + (pair * COLUMNS + at * LANES) * 2);
        for (int row = 0; row < num_rows; row++) {
            const pair_of *pairs = (const pair_of *)(rows + row * job->row_stride);
            __m512i both = _mm512_set1_epi32(pairs[pair]);
            for (int at = 0; at < COLUMN_REGISTERS; at++)
                sums[row][at] = _mm512_dpbf16_ps(sums[row][at], (__m512bh)both,
                                                 (__m512bh)column[at]);
        }
    }
    for (int row = 0; row < num_rows; row++)
        for (int at = 0; at < COLUMN_REGISTERS; at++)
            finish(job, first + row, strip * COLUMNS + at * LANES, sums[row][at]);
}

static int64_t strips_of(const struct product *job)
{
    return (job->num_out + COLUMNS - 1) / COLUMNS;
}

STEP void multiply_strip(const struct product *job, int64_t strip, int64_t row, int64_t end)
{
    for (; end - row >= PRODUCT_ROWS; row += PRODUCT_ROWS)
        multiply_rows(job, strip, row, PRODUCT_ROWS);
    for (; end - row >= 4; row += 4)
        multiply_rows(job, strip, row, 4);
    for (; end - row >= 2; row += 2)
        multiply_rows(job, strip, row, 2);
    if (row < end)
        multiply_rows(job, strip, row, 1);
}

/* All columns of some rows: threads that write to different rows do not disturb each other. */
TARGET static void multiply_some_rows(const void *handed, int64_t item)
{
    const struct product *job = handed;
    int64_t row = item * ROWS_PER_ITEM, end = row + ROWS_PER_ITEM;
    for (int64_t strip = 0; strip < strips_of(job); strip++)
        multiply_strip(job, strip, row, end < job->num_rows ? end : job->num_rows);
}

/* Some columns of all rows: the weight, which takes longest with few rows, is read once. */
TARGET static void multiply_some_columns(const void *handed, int64_t strip)
{
    const struct product *job = handed;
    multiply_strip(job, strip, 0, job->num_rows);
}

/* Compute `outputs`. */
void fovea_multiply(const struct product *job)
{
    double steps = (double)job->num_rows * (double)(job->num_in * job->num_out) / (2 * LANES);
    int64_t row_items = (job->num_rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
    if (row_items >= 2 * job->num_threads)
        share(multiply_some_rows, job, row_items, steps, job->num_threads);
    else
        share(multiply_some_columns, job, strips_of(job), steps, job->num_threads);
}

#else

void fovea_multiply(const struct product *job) { (void)job; }

#endif
