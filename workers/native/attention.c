/* Attention of bfloat16 numbers on a CPU: blocks of keys that stay in the nearest cache, scores and
 * sums in float32, weights rounded to bfloat16 for their product with the values.
 *
 * A row's largest score so far is taken from its scores, and what was summed before is scaled when
 * a larger one comes ("online softmax", Milakov and Gimelshein 2018; by blocks as in
 * FlashAttention, Dao and others 2022). What a row gives depends on nothing but its own segment.
 */
#include "attention.h"

#if defined(__x86_64__)
#include "blocks.h"
#include "share.h"
#include "single.h"

static int64_t items_of(const struct attention *all, const struct segment *segment)
{
    int64_t rows = segment->num_rows * (all->num_heads / all->num_key_heads);
    int64_t per_head = segment->num_rows == 1 ? 1 : (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    return per_head * all->num_key_heads;
}

struct job {
    const struct attention *all;
    const int64_t *ends; /* items of each segment and all before it */
};

/* An item is a head's keys, and some of the rows of a segment that look at them. */
static void attend_item(const void *handed, int64_t item)
{
    const struct job *job = handed;
    const struct attention *all = job->all;
    int64_t low = 0, high = all->num_segments - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (item < job->ends[middle])
            high = middle;
        else
            low = middle + 1;
    }
    const struct segment *segment = &all->segments[low];
    int64_t within = item - (low ? job->ends[low - 1] : 0);
    int64_t head = within % all->num_key_heads, part = within / all->num_key_heads;
    if (segment->num_rows == 1)
        attend_single(all, segment, head);
    else
        attend_block(all, segment, head, part * BLOCK_ROWS);
}

/* Compute `outputs`; `ends` is room for a number per segment. */
void fovea_attend(const struct attention *all, int64_t *ends)
{
    int64_t num_items = 0;
    double products = 0;
    for (int64_t at = 0; at < all->num_segments; at++) {
        ends[at] = num_items += items_of(all, &all->segments[at]);
        products += (double)all->segments[at].num_rows * (double)all->segments[at].num_keys;
    }
    struct job job = {all, ends};
    double steps = products * (double)(all->num_heads * all->width) / LANES;
    share(attend_item, &job, num_items, steps, all->num_threads);
}

/* Whether this processor has the instructions. */
int fovea_runs_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

#else

void fovea_attend(const struct attention *all, int64_t *ends)
{
    (void)all;
    (void)ends;
}

int fovea_runs_here(void)
{
    return 0;
}

#endif
