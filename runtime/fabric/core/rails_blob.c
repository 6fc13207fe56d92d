/* runtime/fabric/core/rails_blob.c - addresses and keys of several rails as one blob. */
#include "runtime/fabric/core/rails.h"
#include "runtime/fabric/core/wire.h"

#include <string.h>

#define MAGIC_RAILS UINT32_C(0x52544c53) /* "SLTR" */
#define VERSION     2u
#define HEAD_BYTES  8u

uint32_t rails_blob_write(const struct rails *rails, bool dies, const void *const parts[RAILS_MAX],
                          const uint32_t lengths[RAILS_MAX], void *out)
{
    unsigned char *at = out;
    uint32_t used = HEAD_BYTES + 4 * rails->count; /* room for every length comes first */
    bool any = false;
    memset(at, 0, HEAD_BYTES);
    sl_wire_put(at, MAGIC_RAILS, 4);
    sl_wire_put(at + 4, VERSION, 1);
    sl_wire_put(at + 5, dies, 1);
    sl_wire_put(at + 6, rails->count, 1);
    at += HEAD_BYTES;
    for (uint32_t i = 0; i < rails->count; i++) {
        uint32_t length = lengths[i] <= SL_FABRIC_BLOB_MAX - used ? lengths[i] : 0;
        sl_wire_put(at, length, 4);
        if (length > 0) {
            memcpy(at + 4, parts[i], length);
        }
        at += 4 + length;
        used += length;
        any |= length > 0;
    }
    return any ? used : 0;
}

static bool is_of_rails(const unsigned char *bytes, uint32_t length_bytes)
{
    return length_bytes >= HEAD_BYTES && sl_wire_get(bytes, 4) == MAGIC_RAILS;
}

sl_err rails_blob_read(const void *blob, uint32_t length_bytes, struct rails_blob *out,
                       struct sl_error *why)
{
    const unsigned char *at = blob, *end = at + length_bytes;
    struct rails_blob read = {0};
    if (!is_of_rails(at, length_bytes)) {
        read.parts[0] = blob;
        read.lengths[0] = length_bytes;
        *out = read;
        return SL_OK;
    }
    uint32_t count = at[6];
    if (at[4] != VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "rails: version %u, not %u", at[4], VERSION);
    }
    if (count == 0 || count > RAILS_MAX || at[5] > 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "rails: %u of them, flag %u", count, at[5]);
    }
    read.dies = at[5] == 1;
    at += HEAD_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t left = (uint64_t)(end - at);
        uint64_t length = left >= 4 ? sl_wire_get(at, 4) : 0;
        if (left < 4 || length > left - 4) {
            return sl_fail(why, SL_ERR_PROTOCOL, "rails: the part of rail %u is cut off", i);
        }
        read.parts[i] = at + 4;
        read.lengths[i] = (uint32_t)length;
        at += 4 + length;
    }
    if (at != end) {
        return sl_fail(why, SL_ERR_PROTOCOL, "rails: %zu bytes too many", (size_t)(end - at));
    }
    *out = read;
    return SL_OK;
}

sl_err fabric_rails_first(const void **blob, uint32_t *length_bytes, struct sl_error *why)
{
    struct rails_blob read = {0};
    sl_err err = rails_blob_read(*blob, *length_bytes, &read, why);
    if (err == SL_OK) {
        *blob = read.parts[0];
        *length_bytes = read.lengths[0];
    }
    return err;
}
