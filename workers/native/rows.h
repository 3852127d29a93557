/* What the callers of rows.c hand over; workers/native/rows.py has the same in Python. */
#ifndef FOVEA_ROWS_H
#define FOVEA_ROWS_H

#include <stdint.h>

/* Heads of tokens, in bfloat16; the numbers of a head lie together. A plain row is one head. */
struct rows {
    uint16_t *first;
    int64_t num_tokens, token_stride;
    int64_t num_heads, head_stride;
    int64_t width;
};

struct normalising {
    struct rows from, to;   /* alike but for their strides; may be the same */
    const uint16_t *weight; /* [width] */
    float floor;            /* added to the mean of squares */
    int64_t num_threads;
};

struct rotating {
    struct rows rows; /* changed in place */
    const float *cosines, *sines;
    int64_t angle_stride; /* of both, from token to token */
    int64_t num_threads;
};

struct keeping {
    struct rows from;
    uint16_t *store; /* [heads, places, width], contiguous */
    int64_t num_places;
    const int64_t *places; /* of each token */
};

#endif
