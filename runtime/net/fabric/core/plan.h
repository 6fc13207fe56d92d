/* runtime/net/fabric/core/plan.h - cuts memory into regions. Pure functions. */
#ifndef SL_FABRIC_CORE_PLAN_H
#define SL_FABRIC_CORE_PLAN_H

#include "runtime/base/sl_error.h"

#define SL_MR_BYTES_STANDARD (4 * SL_GIB)
#define SL_MR_BYTES_MIN      (1 * SL_GIB) /* accepted range of MC_MAX_MR_SIZE */
#define SL_MR_BYTES_MAX      (6 * SL_GIB)

struct sl_mr_sources {
    uint64_t setting_bytes;    /* mr_bytes_max; 0: not set. Not clamped */
    const char *variable;      /* MC_MAX_MR_SIZE; NULL: not set */
    uint64_t device_bytes_max; /* max_mr_size of the NIC; 0: no NIC */
};
struct sl_mr_limit {
    uint64_t bytes;
    bool clamped; /* the variable was out of range: warn */
};
/* Gives the maximum region size. Errors: SL_ERR_CONFIG (names MC_MAX_MR_SIZE or mr_bytes_max and
 * its value). */
sl_err sl_mr_limit_of(const struct sl_mr_sources *sources, struct sl_mr_limit *out,
                      struct sl_error *why);

struct sl_mr_cut {
    uint64_t offset_bytes;
    uint64_t length_bytes;
};
/* Iterate over the regions of `total_bytes`: *at starts at 0 and is the start of the next region;
 * false: the end.
 *
 * Arena: one region a chunk; a chunk over the limit is cut at whole pages. */
bool sl_mr_next_of_arena(uint64_t total_bytes, uint64_t chunk_bytes, uint64_t limit_bytes,
                         uint64_t *at, struct sl_mr_cut *out);
/* Engine pool: cut at floor(limit / stride) * stride, so that no block crosses a region. A block
 * over the limit is cut at whole pages, since a transfer may span adjacent regions. */
bool sl_mr_next_of_pool(uint64_t total_bytes, uint64_t stride_bytes, uint64_t limit_bytes,
                        uint64_t *at, struct sl_mr_cut *out);

#endif
