/* client/lib/gpu_pins.h - the parts of arenas that are pinned for the GPUs of this process.
 *
 * Pinning touches every page: with pages of 4 KiB it takes about 2 ms for 8 MiB. No op waits for
 * that. A thread of the library pins what copies need, in steps; until then the copies use the
 * bounce buffer. After a failure it is retried with growing pauses, unless the error is
 * permanent. */
#ifndef SL_CLIENT_LIB_GPU_PINS_H
#define SL_CLIENT_LIB_GPU_PINS_H

#include "cuda/driver.h"
#include "ipc/shm/sl_arena.h"

/* Size of one registration. Small, since the engine's own driver calls wait meanwhile. */
#define SL_GPU_PIN_BYTES (8 * SL_MIB)
/* Pause after a failure; doubled with each further one, up to a minute. */
#define SL_GPU_PIN_RETRY_NS     (100 * SL_NS_PER_MS)
#define SL_GPU_PIN_RETRY_NS_MAX (60 * SL_NS_PER_S)

/* Returns how many bytes from `at` on are pinned in one registration; 0: use the bounce buffer; the
 * memory is then queued for pinning if possible. driver: borrowed until the process ends; device:
 * the thread uses its context. Never waits for the driver. Any thread. */
uint64_t sl_gpu_pins_run(const struct sl_driver *driver, sl_cu_device device,
                         const struct sl_arena *arena, const unsigned char *at,
                         uint64_t length_bytes);
/* Unpins the arena, which is about to be unmapped; waits for the step in progress. NULL: unpins all
 * arenas and ends the thread. If there is a context it is current. keep: a GPU may still use the
 * memory. Then the driver, which would wait for the GPU, is not called, and the pages stay
 * pinned. */
void sl_gpu_pins_forget(const struct sl_arena *arena, bool keep);
/* Whether the arena is known here: it was requested since it was last forgotten. */
bool sl_gpu_pins_know(const struct sl_arena *arena);

#endif
