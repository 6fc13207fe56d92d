/* runtime/net/fabric/core/plan.h - where memory is cut into regions. Pure functions. */
#ifndef SL_FABRIC_CORE_PLAN_H
#define SL_FABRIC_CORE_PLAN_H

#include "runtime/base/sl_error.h"

#define SL_MR_BYTES_STANDARD (4 * SL_GIB)
#define SL_MR_BYTES_MIN      (1 * SL_GIB) /* accepted range of MC_MAX_MR_SIZE */
#define SL_MR_BYTES_MAX      (6 * SL_GIB)

struct sl_mr_sources {
    uint64_t setting_bytes;    /* mr_bytes_max; 0: not set. Ours: taken as it is, not clamped */
    const char *variable;      /* text of MC_MAX_MR_SIZE; NULL: not set */
    uint64_t device_bytes_max; /* max_mr_size of the NIC; 0: no NIC */
};
struct sl_mr_limit {
    uint64_t bytes;
    bool clamped; /* the variable was out of range: worth a warning */
};
/* The largest memory region. Errors: SL_ERR_CONFIG (names MC_MAX_MR_SIZE or mr_bytes_max and its
 * value). */
sl_err sl_mr_limit_of(const struct sl_mr_sources *sources, struct sl_mr_limit *out,
                      struct sl_error *why);

struct sl_mr_cut {
    uint64_t offset_bytes;
    uint64_t length_bytes;
};
/* Walks the regions of `total_bytes` in order: *at starts at 0 and is where the next region starts;
 * false at the end.
 *
 * Arena: one region a chunk; a chunk over the limit is cut at whole pages. */
bool sl_mr_next_of_arena(uint64_t total_bytes, uint64_t chunk_bytes, uint64_t limit_bytes,
                         uint64_t *at, struct sl_mr_cut *out);
/* Engine pool: cut at floor(limit / stride) * stride, so that no block straddles two regions; a
 * single block over the limit is cut at whole pages (a transfer may span adjacent regions). */
bool sl_mr_next_of_pool(uint64_t total_bytes, uint64_t stride_bytes, uint64_t limit_bytes,
                        uint64_t *at, struct sl_mr_cut *out);

#endif
