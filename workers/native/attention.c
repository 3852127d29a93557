/* Attention of bfloat16 numbers on a CPU: blocks of keys that stay in the nearest cache, scores and
 * sums in float32, weights rounded to bfloat16 for their product with the values.
 *
 * A row's largest score so far is taken from its scores, and what was summed before is scaled when
 * a larger one comes ("online softmax", Milakov and Gimelshein 2018; by blocks as in
 * FlashAttention, Dao and others 2022). What a row gives depends on nothing but its own segment.
 */
#include "attention.h"

#include <pthread.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#include "blocks.h"
#include "single.h"

#define MULTIPLICATIONS_PER_THREAD 16e6 /* a thread takes some 20 us to start, these 100 to 200 */
#define MAX_THREADS 256

struct job {
    const struct attention *attention;
    atomic_llong next; /* item that nobody has taken */
};

static int64_t items_of(const struct attention *all, const struct segment *segment)
{
    int64_t rows = segment->num_rows * (all->num_heads / all->num_key_heads);
    return segment->num_rows == 1 ? 1 : (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static void attend_item(const struct attention *all, const struct segment *segment, int64_t head,
                        int64_t item)
{
    if (segment->num_rows == 1)
        attend_single(all, segment, head);
    else
        attend_block(all, segment, head, item * BLOCK_ROWS);
}

/* Take items until none is left: a head's keys, and some of the rows that look at them. */
static void *work(void *handed)
{
    struct job *job = handed;
    const struct attention *all = job->attention;
    int64_t mine = atomic_fetch_add(&job->next, 1), first = 0;
    for (int64_t at = 0; at < all->num_segments; at++) {
        const struct segment *segment = &all->segments[at];
        int64_t per_head = items_of(all, segment), count = per_head * all->num_key_heads;
        for (; mine < first + count; mine = atomic_fetch_add(&job->next, 1))
            attend_item(all, segment, (mine - first) / per_head, (mine - first) % per_head);
        first += count;
    }
    return NULL;
}

static int64_t threads_for(const struct attention *all)
{
    double products = 0;
    for (int64_t at = 0; at < all->num_segments; at++)
        products += (double)all->segments[at].num_rows * (double)all->segments[at].num_keys;
    double worth = 1 + products * 2 * (double)(all->num_heads * all->width) /
                           MULTIPLICATIONS_PER_THREAD;
    int64_t most = all->num_threads < MAX_THREADS ? all->num_threads : MAX_THREADS;
    return worth < (double)most ? (int64_t)worth : most;
}

/* Compute `outputs`. A thread that cannot be had leaves its work to the others. */
void fovea_attend(const struct attention *attention)
{
    struct job job = {.attention = attention};
    pthread_t threads[MAX_THREADS];
    int64_t num_others = threads_for(attention) - 1, started = 0;
    while (started < num_others && !pthread_create(&threads[started], NULL, work, &job))
        started++;
    work(&job);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* Whether this processor has the instructions. */
int fovea_attention_runs_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
}

#else

void fovea_attend(const struct attention *attention)
{
    (void)attention;
}

int fovea_attention_runs_here(void)
{
    return 0;
}

#endif
