/* Items of a piece of work, spread over the threads that torch computes with.
 *
 * They are those of its OpenMP runtime, found at run time. Threads of our own would meet torch's,
 * which go on spinning for a while after each of its operations, on the same cores.
 */
#ifndef FOVEA_SHARE_H
#define FOVEA_SHARE_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define STEPS_PER_THREAD 250e3 /* register operations, some 100 us; a thread that slept joins in 50 */

typedef void (*compute)(const void *job, int64_t item);
typedef void (*parallel)(void (*work)(void *), void *handed, unsigned num_threads, unsigned flags);

struct shared_work {
    compute item;
    const void *job;
    int64_t num_items;
    atomic_llong next; /* that nobody has taken */
};

static void take_items(void *handed)
{
    struct shared_work *work = handed;
    for (int64_t mine; (mine = atomic_fetch_add(&work->next, 1)) < work->num_items;)
        work->item(work->job, mine);
}

/* Compute all items, in any order, by at most `most` threads, the calling one included; `steps` says
 * how much it is in all. Where torch has another runtime than OpenMP's, by the calling one. */
static void share(compute item, const void *job, int64_t num_items, double steps, int64_t most)
{
    struct shared_work work = {item, job, num_items, 0};
    double worth = 1 + steps / STEPS_PER_THREAD;
    int64_t number = worth < (double)most ? (int64_t)worth : most;
    number = number < num_items ? number : num_items;
    void *symbol = number > 1 ? dlsym(RTLD_DEFAULT, "GOMP_parallel") : NULL;
    parallel run;
    memcpy(&run, &symbol, sizeof(run)); /* C has no cast from data to functions */
    if (symbol)
        run(take_items, &work, (unsigned)number, 0);
    else
        take_items(&work);
}

#endif
