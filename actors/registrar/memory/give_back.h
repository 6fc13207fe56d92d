/* actors/registrar/memory/give_back.h - returns memory to the system after contributions ended. */
#ifndef SL_REGISTRAR_MEMORY_GIVE_BACK_H
#define SL_REGISTRAR_MEMORY_GIVE_BACK_H

#include "actors/registrar/base/core.h"

/* Memory is returned when it has been unused for this long. A reader that looked a value up just
 * before it left has copied it by then, or finds zeros and looks it up again. */
#define REG_GIVE_BACK_AFTER_NS (5 * SL_NS_PER_S)

struct reg_give_back {
    bool able;          /* the settings allow it: no actor registers the arena */
    uint64_t next_ns;   /* next step or check */
    uint64_t end_bytes; /* nothing beyond is in use, since quiet_ns */
    uint64_t quiet_ns;
    struct {
        sl_metric given_back_bytes;
    } metric;
};

extern const struct reg_part reg_give_back_part;

#endif
