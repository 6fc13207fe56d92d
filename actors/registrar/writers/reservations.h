/* actors/registrar/writers/reservations.h - the ends of a reservation. */
#ifndef SL_REGISTRAR_WRITERS_RESERVATIONS_H
#define SL_REGISTRAR_WRITERS_RESERVATIONS_H

#include "actors/registrar/base/core.h"

struct reg_reservations {
    struct {
        sl_metric commit_count, stale_count, abort_count, replaced_count;
    } metric;
};

extern const struct reg_part reg_reservations_part;

#endif
