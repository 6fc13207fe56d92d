/* actors/swapper/exports.h - exports memory: engines' device memory to NICs, by descriptors, and
 * pools made here to engines.
 *
 * The swapper's thread makes the descriptors. Another thread (runtime/base/sl_descriptors.h) hands
 * them out; it uses the table under its lock and never the device. A descriptor has a name and a
 * random life, and is handed out once. It is closed when it was fetched, when its engine ends here,
 * or after some seconds. It keeps the memory, not the mapping. */
#ifndef SL_SWAPPER_EXPORTS_H
#define SL_SWAPPER_EXPORTS_H

#include "cuda/sl_device.h"
#include "ipc/msg/sl_msg.h"

#define SW_EXPORTS_MAX 64u

struct sw_exports; /* opaque */
struct sw_export { /* how to fetch a descriptor */
    uint64_t number, name, life;
};

/* Makes *exports with its thread, if NULL. Errors: those of sl_descriptors_serve. */
sl_err sw_exports_open(struct sw_exports **exports, const struct sl_env *env, struct sl_error *why);
/* Takes dmabuf->fd, also on failure. Errors: those of open; SL_ERR_BUSY (SW_EXPORTS_MAX wait). */
sl_err sw_exports_add(struct sw_exports **exports, const struct sl_env *env,
                      const struct sl_device_dmabuf *dmabuf, uint64_t engine_id,
                      struct sw_export *out, struct sl_error *why);
/* Closes those of the engine; engine_id 0: those not fetched in time. Accepts NULL. Gives when the
 * next is due, or SL_NEVER_NS. */
uint64_t sw_exports_end(struct sw_exports *exports, uint64_t engine_id, uint64_t now_ns);
uint32_t sw_exports_waiting(struct sw_exports *exports); /* accepts NULL */
void sw_exports_close(struct sw_exports **exports);      /* accepts NULL */

#endif
