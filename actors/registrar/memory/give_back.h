/* actors/registrar/memory/give_back.h - what was contributed and is not any more goes back to the
 * system. */
#ifndef SL_REGISTRAR_MEMORY_GIVE_BACK_H
#define SL_REGISTRAR_MEMORY_GIVE_BACK_H

#include "actors/registrar/base/core.h"

/* So long nothing in it must have been in use. Whoever looked a value up just before it went has
 * copied it by then, or finds zeros and looks again. */
#define REG_GIVE_BACK_AFTER_NS (5 * SL_NS_PER_S)

struct reg_give_back {
    bool able;          /* by the settings: no actor registers the arena */
    uint64_t next_ns;   /* of the next step, or look */
    uint64_t end_bytes; /* behind it nothing is in use, since: */
    uint64_t quiet_ns;
    struct {
        sl_metric given_back_bytes;
    } metric;
};

extern const struct reg_part reg_give_back_part;

#endif
