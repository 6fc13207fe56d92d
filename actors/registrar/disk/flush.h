/* actors/registrar/disk/flush.h - FLUSH. */
#ifndef SL_REGISTRAR_DISK_FLUSH_H
#define SL_REGISTRAR_DISK_FLUSH_H

#include "actors/registrar/base/core.h"

struct reg_flush {
    bool used;
    struct sl_return back;
    uint64_t order;
};
struct reg_flushes {
    struct reg_flush *all;
    uint32_t count;
};

extern const struct reg_part reg_flushes_part;

#endif
