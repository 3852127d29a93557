/* Items of a piece of work, spread over threads that live as long as it. */
#ifndef FOVEA_SHARE_H
#define FOVEA_SHARE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define STEPS_PER_THREAD 250e3 /* register operations; a thread takes some 20 us to start, these 100 */
#define MAX_THREADS 256

typedef void (*compute)(const void *job, int64_t item);

struct shared_work {
    compute item;
    const void *job;
    int64_t num_items;
    atomic_llong next; /* that nobody has taken */
};

static void *take_items(void *handed)
{
    struct shared_work *work = handed;
    for (int64_t mine; (mine = atomic_fetch_add(&work->next, 1)) < work->num_items;)
        work->item(work->job, mine);
    return NULL;
}

/* Compute all items, in any order, by at most `most` threads, the calling one included; `steps` says
 * how much it is in all. A thread that cannot be had leaves its part to the others. */
static void share(compute item, const void *job, int64_t num_items, double steps, int64_t most)
{
    struct shared_work work = {item, job, num_items, 0};
    pthread_t threads[MAX_THREADS];
    double worth = 1 + steps / STEPS_PER_THREAD;
    int64_t started = 0, limit = most < MAX_THREADS ? most : MAX_THREADS;
    while (started + 1 < limit && (double)(started + 1) < worth && started + 1 < num_items &&
           !pthread_create(&threads[started], NULL, take_items, &work))
        started++;
    take_items(&work);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

#endif
