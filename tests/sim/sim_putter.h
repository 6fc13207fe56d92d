/* tests/sim/sim_putter.h - a client that puts objects into extents granted ahead of use, slowly
 * enough to be killed, stopped and overtaken by the end of its grants while it writes. */
#ifndef SL_TEST_SIM_PUTTER_H
#define SL_TEST_SIM_PUTTER_H

#include "tests/sim/sim_workload.h"

extern const struct sl_actor putter_client; /* its context is the struct workload */
#endif
