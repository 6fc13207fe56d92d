/* runtime/base/sl_backoff.c - pauses between retries. */
#include "runtime/base/sl_backoff.h"

uint64_t sl_backoff_ns(uint64_t min_ns, uint64_t max_ns, uint32_t failures, uint64_t random)
{
    uint64_t wait_ns = SL_MIN(min_ns, max_ns);
    for (uint32_t i = 0; i < failures && wait_ns < max_ns; i++) {
        wait_ns = wait_ns > max_ns / 2 ? max_ns : wait_ns * 2;
    }
    return wait_ns / 2 + (wait_ns == 0 ? 0 : random % (wait_ns - wait_ns / 2 + 1));
}
