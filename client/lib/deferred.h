/* client/lib/deferred.h - extents that a GPU may still access */
#ifndef SL_CLIENT_LIB_DEFERRED_H
#define SL_CLIENT_LIB_DEFERRED_H

#include "client/lib/gpu.h"

struct sl_client_deferral {
    struct sl_attachment *at;
    sl_pin pin;                 /* of an extent granted in advance, or of a value; 0: none */
    struct sl_item_claim claim; /* ref 0: no claim */
    int gpu;
    uint64_t unfinished_count; /* as in sl_gpu_copies */
};
/* Takes pin and claim until the copies have ended. Then it releases them, the claim with the next
 * call to the registrar. An extent may be in use several times. */
void sl_client_extent_defer(struct sl_client *client, const struct sl_client_deferral *lending);
/* Releases what has ended. Never waits for a GPU. */
void sl_client_deferred_settle(struct sl_client *client);
/* For a client that is being closed: whether copies in this memory have not ended. Then neither
 * pins nor mappings may be removed. */
bool sl_client_deferred_in(const struct sl_client *client, const struct sl_attachment *at);
void sl_client_deferred_free(struct sl_client *client);

#endif
