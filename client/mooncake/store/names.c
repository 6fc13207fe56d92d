/* client/mooncake/store/names.c - names of the store's keys on a node. */
#include "client/mooncake/store/names.h"
#include "runtime/base/sl_hex.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES_MAX 1024u /* of libsluice's keys */
#define HEX_BYTES      (2 * SL_SHA256_BYTES)

static const char mark[] = {SL_STORE_TENANT_MARK, SL_STORE_TENANT_MARK};

/* The tenant's prefix; for the default tenant two marks. */
static struct sl_store_prefix prefix_full(struct sl_store_prefix tenant)
{
    return tenant.length != 0 ? tenant : (struct sl_store_prefix){.at = mark, .length = 2};
}

struct sl_store_prefix sl_store_prefix_of(struct sl_store_prefix tenant, struct sl_object_key key)
{
    return tenant.length == 0 && key.at[0] == SL_STORE_TENANT_MARK ? prefix_full(tenant) : tenant;
}

bool sl_store_key_plain(struct sl_store_prefix prefix, struct sl_object_key key)
{
    return key.length <= NAME_BYTES_MAX - prefix.length && sl_key_valid(key);
}

uint32_t sl_store_digest_name(struct sl_store_prefix tenant, struct sl_object_key key, char *out)
{
    unsigned char digest[SL_SHA256_BYTES];
    const struct sl_store_prefix prefix = prefix_full(tenant);
    if (sl_sha256(key.at, key.length, digest, NULL) != SL_OK) {
        return 0;
    }
    char *to = out + prefix.length;
    memcpy(out, prefix.at, prefix.length);
    to[-1] = SL_STORE_DIGEST_MARK; /* replaces the second mark */
    sl_hex_write(to, digest, SL_SHA256_BYTES);
    to += HEX_BYTES;
    char number[16];
    int length = snprintf(number, sizeof number, "-%u", key.length);
    memcpy(to, number, (size_t)length);
    return prefix.length + HEX_BYTES + (uint32_t)length;
}

bool sl_store_name_own(struct sl_store_prefix tenant, struct sl_object_key name,
                       struct sl_object_key *own)
{
    *own = name;
    if (tenant.length == 0 && name.at[0] != SL_STORE_TENANT_MARK) {
        return true;
    }
    const struct sl_store_prefix prefix = prefix_full(tenant);
    if (name.length <= prefix.length || memcmp(name.at, prefix.at, prefix.length) != 0) {
        return false;
    }
    own->at += prefix.length;
    own->length -= prefix.length;
    return true;
}

bool sl_store_name_is_digest(struct sl_store_prefix tenant, struct sl_object_key name)
{
    const struct sl_store_prefix prefix = prefix_full(tenant);
    bool is = name.length > prefix.length && memcmp(name.at, prefix.at, prefix.length - 1) == 0 &&
              name.at[prefix.length - 1] == SL_STORE_DIGEST_MARK;
    /* Else it is a plain name of a tenant whose name contains the mark of digests. */
    for (uint32_t i = prefix.length; is && i < name.length; i++) {
        is = name.at[i] != '\0' && strchr("0123456789abcdef-", name.at[i]) != NULL;
    }
    return is;
}
