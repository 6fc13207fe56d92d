/* client/lib/gpu_pins.h - arenas as far as they are pinned for the GPUs of this process.
 *
 * Pinning looks up every page: of 4 KiB pages 8 MiB take some 2 ms. No op pays for that. What
 * copies touch is asked for, and a thread of the library pins it in steps; until then the copies go
 * through the bounce buffer. What could not be pinned is tried again, with growing pauses, unless
 * the driver's error says that it never can be. */
#ifndef SL_CLIENT_LIB_GPU_PINS_H
#define SL_CLIENT_LIB_GPU_PINS_H

#include "cuda/driver.h"
#include "ipc/shm/sl_arena.h"

/* One registration. Small, since the engine's own calls of the driver wait meanwhile. */
#define SL_GPU_PIN_BYTES (8 * SL_MIB)
/* After a failure; doubled with each that follows, up to a minute. */
#define SL_GPU_PIN_RETRY_NS     (100 * SL_NS_PER_MS)
#define SL_GPU_PIN_RETRY_NS_MAX (60 * SL_NS_PER_S)

/* How much of [at, +length_bytes) of the arena is pinned in one registration, from `at` on; 0: it
 * has to be bounced, and is pinned for later where that is possible. driver: borrowed to the end of
 * the process; device: whose context the thread takes. Never waits for the driver. Any thread. */
uint64_t sl_gpu_pins_run(const struct sl_driver *driver, sl_cu_device device,
                         const struct sl_arena *arena, const unsigned char *at,
                         uint64_t length_bytes);
/* Lets go of what is pinned of the arena, which is about to be unmapped; waits for the step that is
 * in progress. NULL: of all, and the thread has ended. Where there is a context it is current.
 * keep: a GPU may still use it. Then the driver is not asked, since it would wait for that, and the
 * pages stay pinned. */
void sl_gpu_pins_forget(const struct sl_arena *arena, bool keep);
/* Whether the arena is known here: it was asked for since it was forgotten. */
bool sl_gpu_pins_know(const struct sl_arena *arena);

#endif
