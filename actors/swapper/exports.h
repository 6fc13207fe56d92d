/* actors/swapper/exports.h - memory handed out: to NICs engines' device memory, by descriptors that
 * are made on the swapper's own thread and wait for whom they were made for; to engines pools that
 * were made here.
 *
 * The thread that hands them out (runtime/base/sl_descriptors.h) sees the table under its lock, and
 * never the device. Each has a name and a random life, goes out once, and is closed when it was
 * fetched, when its engine ends here, or after some seconds. The descriptor keeps the memory, not
 * the mapping. */
#ifndef SL_SWAPPER_EXPORTS_H
#define SL_SWAPPER_EXPORTS_H

#include "cuda/sl_device.h"
#include "ipc/msg/sl_msg.h"

#define SW_EXPORTS_MAX 64u

struct sw_exports; /* opaque */
struct sw_export { /* how to fetch one */
    uint64_t number, name, life;
};

/* Makes *exports unless it is there, with its thread. Errors: those of sl_descriptors_serve. */
sl_err sw_exports_open(struct sw_exports **exports, const struct sl_env *env, struct sl_error *why);
/* Takes dmabuf->fd, also on failure. Errors: those of open; SL_ERR_BUSY (as many wait to be
 * fetched). */
sl_err sw_exports_add(struct sw_exports **exports, const struct sl_env *env,
                      const struct sl_device_dmabuf *dmabuf, uint64_t engine_id,
                      struct sw_export *out, struct sl_error *why);
/* The engine's go; engine_id 0: those that nobody fetched in time. Accepts NULL. Gives when the
 * next is due, or SL_NEVER_NS. */
uint64_t sw_exports_end(struct sw_exports *exports, uint64_t engine_id, uint64_t now_ns);
uint32_t sw_exports_waiting(struct sw_exports *exports); /* accepts NULL */
void sw_exports_close(struct sw_exports **exports);      /* accepts NULL */

#endif
