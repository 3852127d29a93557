/* What the callers of attention.c hand over; workers/native/attention.py has the same in Python. */
#ifndef FOVEA_ATTENTION_H
#define FOVEA_ATTENTION_H

#include <stdint.h>

/* Rows of one sequence, or patches of one image, and what they may see. */
struct segment {
    int64_t first_row;     /* of its queries and outputs */
    int64_t num_rows;
    int64_t num_keys;      /* that it has */
    int64_t num_seen;      /* keys that its first row sees; each further row sees one more */
    int64_t first_key;     /* row of its first key, where the others follow; with no blocks */
    const int64_t *blocks; /* which blocks its keys lie in, in order; may be NULL */
};

/* Attention of many segments. All numbers are bfloat16; strides count numbers, those of heads and
 * of rows; the numbers of one head and row lie together. */
struct attention {
    const uint16_t *queries;
    int64_t query_head, query_row;
    const uint16_t *keys;
    int64_t key_head, key_row;
    const uint16_t *values;
    int64_t value_head, value_row;
    uint16_t *outputs; /* [rows, heads, width] */
    int64_t num_heads;
    int64_t num_key_heads; /* divides num_heads; so many neighbours share one */
    int64_t width;         /* of a head; even, at most MAX_WIDTH */
    int64_t block_keys;    /* keys of a block */
    const struct segment *segments;
    int64_t num_segments;
    int64_t num_threads; /* at most */
    double scale;        /* of a score, positive */
};

#define MAX_WIDTH 256

#endif
