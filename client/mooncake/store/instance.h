/* client/mooncake/store/instance.h - which node stands behind a master's address, so that daemons
 * and stores mean the same one. */
#ifndef SL_CLIENT_MOONCAKE_STORE_INSTANCE_H
#define SL_CLIENT_MOONCAKE_STORE_INSTANCE_H

#include "runtime/sl_error.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MC_INSTANCE_BYTES 41u
#define MC_HOST_SHOWN     23u

/* The node that a mooncake_master of this machine runs. */
static inline void mc_instance_here(uint32_t port, char out[MC_INSTANCE_BYTES])
{
    (void)snprintf(out, MC_INSTANCE_BYTES, "mooncake-%u", port);
}

/* The node of this machine that joined a master of another one: mooncake-HOST-PORT, long hosts cut
 * and told apart by a hash (FNV-1a, 32 bits). */
static inline void mc_instance_joined(const char *host, uint32_t port, char out[MC_INSTANCE_BYTES])
{
    char shown[MC_HOST_SHOWN + 1];
    size_t length = strlen(host);
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)tolower((unsigned char)host[i])) * UINT32_C(16777619);
    }
    size_t kept = length <= MC_HOST_SHOWN ? length : MC_HOST_SHOWN - 9;
    for (size_t i = 0; i < kept; i++) {
        unsigned char letter = (unsigned char)host[i];
        shown[i] = (char)(isalnum(letter) ? tolower(letter) : '-');
    }
    shown[kept] = '\0';
    if (kept < length) {
        (void)snprintf(shown + kept, sizeof shown - kept, "-%08x", hash);
    }
    (void)snprintf(out, MC_INSTANCE_BYTES, "mooncake-%s-%u", shown, port);
}

/* The node of this machine behind a master's address: the master's own, or the one that joined it.
 * Errors: SL_ERR_CONFIG (no address). instance "": that of the environment. */
sl_err store_instance_of(const char *master, char instance[64], struct sl_error *why);
/* Says what to start when no node runs there. */
void store_instance_advise(const char *master, struct sl_error *why);

#endif
