/* actors/registrar/records/seen.h - adds the keys of committed units to the filter of known keys
 * (ipc/shm/sl_seen.h), which estimates the hit rate of unlimited memory. */
#ifndef SL_REGISTRAR_RECORDS_SEEN_H
#define SL_REGISTRAR_RECORDS_SEEN_H

#include "actors/registrar/base/core.h"

struct reg_seen {
    struct sl_seen *filter; /* NULL: it could not be made, nothing is added */
};
/* Another process cut the filter's file short: starts a new one. */
void reg_seen_renew(struct registrar *self);

extern const struct reg_part reg_seen_part;

#endif
