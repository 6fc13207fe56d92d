/* runtime/fabric/core/cover.h - which bytes of a part have arrived. */
#ifndef SL_FABRIC_CORE_COVER_H
#define SL_FABRIC_CORE_COVER_H

#include "runtime/sl_error.h"

#define SL_COVER_RANGES_MAX 2048u /* apart from each other; a part has at most 4096 layers */

struct sl_cover_range {
    uint64_t from, end;
};
struct sl_cover {                  /* zeroed: nothing */
    struct sl_cover_range *ranges; /* sorted, apart */
    uint32_t count, capacity;
};
/* Adds [from, from + length), which may overlap what is there; the caller has checked that it is
 * within the part. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err sl_cover_add(struct sl_cover *cover, uint64_t from, uint64_t length_bytes);
/* How much of [from, from + length) is there. */
uint64_t sl_cover_within(const struct sl_cover *cover, uint64_t from, uint64_t length_bytes);
/* Whether all of [0, length) is there. */
bool sl_cover_whole(const struct sl_cover *cover, uint64_t length_bytes);
uint64_t sl_cover_bytes(const struct sl_cover *cover);
void sl_cover_fini(struct sl_cover *cover);

#endif
