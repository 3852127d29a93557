/* What the callers of products.c hand over; workers/native/products.py has the same in Python. */
#ifndef FOVEA_PRODUCTS_H
#define FOVEA_PRODUCTS_H

#include <stdint.h>

#define COLUMN_REGISTERS 3
#define COLUMNS (16 * COLUMN_REGISTERS) /* numbers of a row that are computed at once */

enum next_step { ALONE, SILU, TIMES, PLUS };

/* Rows x weight + bias, and the step after it; all bfloat16 but for the bias. */
struct product {
    const uint16_t *rows;
    int64_t num_rows, row_stride, num_in; /* num_in is even */
    const uint16_t *weight;               /* [strips of COLUMNS][num_in / 2][COLUMNS][2] */
    const float *bias;                    /* of all strips; may be NULL */
    const uint16_t *other;                /* [num_rows], for TIMES and PLUS */
    int64_t other_stride;
    uint16_t *outputs; /* [num_rows, num_out] */
    int64_t num_out;
    int64_t next_step;
    int64_t num_threads; /* at most */
};

#endif
