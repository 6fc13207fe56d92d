/* client/mooncake/store/codes.c - libsluice's codes as Mooncake's. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>

int sl_store_code_of(sl_err err)
{
    switch (err) {
    case SL_OK:
        return SL_STORE_OK;
    case SL_ERR_NOT_FOUND:
        return SL_STORE_NOT_FOUND;
    case SL_ERR_EXISTS:
        return SL_STORE_EXISTS;
    case SL_ERR_BUSY:
    case SL_ERR_INCOMPLETE:
        return SL_STORE_NOT_READY;
    case SL_ERR_LIMIT:
    case SL_ERR_INVALID:
    case SL_ERR_CONFIG:
    case SL_ERR_FOREIGN:
        return SL_STORE_INVALID;
    case SL_ERR_TIMEOUT:
        return SL_STORE_RPC_TIMEOUT;
    case SL_ERR_NO_SPACE:
        return SL_STORE_NO_SPACE;
    case SL_ERR_NO_MEMORY:
        return SL_STORE_NO_BUFFER;
    case SL_ERR_UNREACHABLE:
    case SL_ERR_PEER_DIED:
    case SL_ERR_PROTOCOL:
    case SL_ERR_VERSION:
    case SL_ERR_DRAINING:
        return SL_STORE_RPC;
    case SL_ERR_CANCELLED:
    case SL_ERR_STALE:
        return SL_STORE_BAD_WRITE;
    case SL_ERR_PERMISSION:
        return SL_STORE_NOT_NOW;
    case SL_ERR_UNSUPPORTED:
        return SL_STORE_UNSUPPORTED;
    case SL_ERR_CORRUPT:
        return SL_STORE_CORRUPT;
    case SL_ERR_IO:
        return SL_STORE_FILE_READ;
    case SL_ERR_DISK_AWAY: /* the removal is done, but for what is noted for that disk */
        return SL_STORE_FILE_WRITE;
    case SL_ERR_DEVICE:
        return SL_STORE_TRANSFER;
    case SL_ERR_LEASED:
        return SL_STORE_LEASED;
    case SL_ERR_LEASE_OVER:
        return SL_STORE_LEASE_OVER;
    default: /* SL_ERR_OS, SL_ERR_INTERNAL, SL_ERR_HANDOVER */
        return SL_STORE_INTERNAL;
    }
}

void store_codes_fill(int *codes, uint32_t count, int code)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = code;
    }
}

void store_results_fill(int64_t *results, uint32_t count, int code)
{
    for (uint32_t i = 0; i < count; i++) {
        results[i] = code;
    }
}

void *store_room(uint32_t count, size_t item_bytes)
{
    return calloc((size_t)count + 1, item_bytes);
}
