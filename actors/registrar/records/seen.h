/* actors/registrar/records/seen.h - notes the keys of what becomes visible in the filter of keys
 * that were here (ipc/shm/sl_seen.h), for the hit rate that unlimited memory would have. */
#ifndef SL_REGISTRAR_RECORDS_SEEN_H
#define SL_REGISTRAR_RECORDS_SEEN_H

#include "actors/registrar/base/core.h"

struct reg_seen {
    struct sl_seen *filter; /* NULL: it could not be made, and nothing is noted */
};
/* Another process cut its file short: it begins anew. */
void reg_seen_renew(struct registrar *self);

extern const struct reg_part reg_seen_part;

#endif
