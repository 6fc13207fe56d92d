/* client/mooncake/store/codes.c - translates libsluice's codes to Mooncake's. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>

int sl_store_code_of(sl_err err)
{
    static const int codes[SL_ERR_COUNT] = {
        /* 0: internal */
        [SL_ERR_NOT_FOUND] = SL_STORE_NOT_FOUND,   [SL_ERR_EXISTS] = SL_STORE_EXISTS,
        [SL_ERR_BUSY] = SL_STORE_NOT_READY,        [SL_ERR_INCOMPLETE] = SL_STORE_NOT_READY,
        [SL_ERR_LIMIT] = SL_STORE_INVALID,         [SL_ERR_INVALID] = SL_STORE_INVALID,
        [SL_ERR_CONFIG] = SL_STORE_INVALID,        [SL_ERR_FOREIGN] = SL_STORE_INVALID,
        [SL_ERR_TIMEOUT] = SL_STORE_RPC_TIMEOUT,   [SL_ERR_NO_SPACE] = SL_STORE_NO_SPACE,
        [SL_ERR_NO_MEMORY] = SL_STORE_NO_BUFFER,   [SL_ERR_UNREACHABLE] = SL_STORE_RPC,
        [SL_ERR_PEER_DIED] = SL_STORE_RPC,         [SL_ERR_PROTOCOL] = SL_STORE_RPC,
        [SL_ERR_VERSION] = SL_STORE_RPC,           [SL_ERR_DRAINING] = SL_STORE_RPC,
        [SL_ERR_CANCELLED] = SL_STORE_BAD_WRITE,   [SL_ERR_STALE] = SL_STORE_BAD_WRITE,
        [SL_ERR_PERMISSION] = SL_STORE_NOT_NOW,    [SL_ERR_UNSUPPORTED] = SL_STORE_UNSUPPORTED,
        [SL_ERR_CORRUPT] = SL_STORE_CORRUPT,       [SL_ERR_IO] = SL_STORE_FILE_READ,
        [SL_ERR_DISK_AWAY] = SL_STORE_FILE_WRITE, /* removed, but that disk lacks the tombstone */
        [SL_ERR_DEVICE] = SL_STORE_TRANSFER,       [SL_ERR_LEASED] = SL_STORE_LEASED,
        [SL_ERR_LEASE_OVER] = SL_STORE_LEASE_OVER,
    };
    return err == SL_OK                                       ? SL_STORE_OK
           : err > 0 && err < SL_ERR_COUNT && codes[err] != 0 ? codes[err]
                                                              : SL_STORE_INTERNAL;
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

void *store_calloc(uint32_t count, size_t item_bytes)
{
    return calloc((size_t)count + 1, item_bytes);
}
