/* runtime/net/fabric/core/blob.c - joins addresses and keys of several rails in one blob. */
#include "runtime/net/fabric/core/tables.h"
#include "runtime/net/fabric/core/wire.h"

#include <string.h>

#define MAGIC_RAILS UINT32_C(0x52544c53) /* "SLTR" */
#define VERSION     2u

static uint32_t plain_write(const struct fabric_blob *blob, void *out)
{
    if (blob->lengths[0] > 0) {
        memcpy(out, blob->parts[0], blob->lengths[0]);
    }
    return blob->lengths[0];
}

uint32_t fabric_blob_write(uint32_t count, const struct fabric_blob *blob, void *out)
{
    unsigned char *at = out;
    uint32_t used = FABRIC_BLOB_HEAD_BYTES + 4 * count; /* reserves all lengths first */
    bool any = false;
    if (count == 1) {
        return plain_write(blob, out);
    }
    memset(at, 0, FABRIC_BLOB_HEAD_BYTES);
    sl_wire_put(at, MAGIC_RAILS, 4);
    sl_wire_put(at + 4, VERSION, 1);
    sl_wire_put(at + 5, blob->dies, 1);
    sl_wire_put(at + 6, count, 1);
    at += FABRIC_BLOB_HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = blob->lengths[i] <= SL_FABRIC_BLOB_MAX - used ? blob->lengths[i] : 0;
        sl_wire_put(at, length, 4);
        if (length > 0) {
            memcpy(at + 4, blob->parts[i], length);
        }
        at += 4 + length;
        used += length;
        any |= length > 0;
    }
    return any ? used : 0;
}

static bool is_of_rails(const unsigned char *bytes, uint32_t length_bytes)
{
    return length_bytes >= FABRIC_BLOB_HEAD_BYTES && sl_wire_get(bytes, 4) == MAGIC_RAILS;
}

sl_err fabric_blob_read(const void *bytes, uint32_t length_bytes, struct fabric_blob *out,
                        struct sl_error *why)
{
    const unsigned char *at = bytes, *end = at + length_bytes;
    if (!is_of_rails(at, length_bytes)) {
        *out = (struct fabric_blob){.parts[0] = bytes, .lengths[0] = length_bytes};
        return SL_OK;
    }
    struct fabric_blob read = {.dies = at[5] == 1};
    uint32_t count = at[6];
    bool any = false;
    if (at[4] != VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "rails: version %u, not %u", at[4], VERSION);
    }
    if (count == 0 || count > FABRIC_RAILS_MAX || at[5] > 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "rails: %u of them, flag %u", count, at[5]);
    }
    at += FABRIC_BLOB_HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t left = (uint64_t)(end - at);
        uint64_t length = left >= 4 ? sl_wire_get(at, 4) : 0;
        if (left < 4 || length > left - 4) {
            return sl_fail(why, SL_ERR_PROTOCOL, "rails: the part of rail %u is incomplete", i);
        }
        read.parts[i] = length > 0 ? at + 4 : NULL;
        read.lengths[i] = (uint32_t)length;
        any |= length > 0;
        at += 4 + length;
    }
    if (at != end || !any) {
        return sl_fail(why, SL_ERR_PROTOCOL, "rails: %zu bytes too many, or no part at all",
                       (size_t)(end - at));
    }
    *out = read;
    return SL_OK;
}
