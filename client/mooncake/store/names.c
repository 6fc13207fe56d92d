/* client/mooncake/store/names.c - see names.h. */
#include "client/mooncake/store/names.h"
#include "runtime/sl_hex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 1024u /* libsluice's keys */
#define HEX_BYTES      (2 * SL_SHA256_BYTES)

static const char mark[] = {SL_STORE_TENANT_MARK, SL_STORE_TENANT_MARK};

/* The tenant's, with the two marks that the default one has in full. */
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
    return key.length <= NAME_BYTES_MAX - prefix.length && sl_key_fine(key);
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
    to[-1] = SL_STORE_DIGEST_MARK; /* in place of the second mark */
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

static bool is_hex(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

uint32_t sl_store_digest_key_bytes(struct sl_store_prefix tenant, struct sl_object_key name)
{
    const struct sl_store_prefix prefix = prefix_full(tenant);
    uint32_t start = prefix.length + HEX_BYTES + 1; /* of the number */
    uint64_t number = 0;
    if (name.length <= start || name.length > prefix.length + SL_STORE_DIGEST_NAME_BYTES ||
        memcmp(name.at, prefix.at, prefix.length - 1) != 0 ||
        name.at[prefix.length - 1] != SL_STORE_DIGEST_MARK || name.at[start - 1] != '-' ||
        name.at[start] == '0') {
        return 0;
    }
    for (uint32_t i = prefix.length; i < start - 1; i++) {
        if (!is_hex(name.at[i])) {
            return 0;
        }
    }
    for (uint32_t i = start; i < name.length; i++) {
        if (name.at[i] < '0' || name.at[i] > '9') {
            return 0;
        }
        number = number * 10 + (uint64_t)(name.at[i] - '0');
    }
    return number <= SL_STORE_KEY_BYTES_MAX ? (uint32_t)number : 0;
}

uint32_t sl_store_head_bytes(uint32_t key_bytes)
{
    return (key_bytes + SL_STORE_HEAD_ALIGN - 1) & ~(SL_STORE_HEAD_ALIGN - 1);
}

sl_err sl_store_digest_key_read(struct sl_client *client, struct sl_store_prefix tenant,
                                struct sl_object_key name, char *at, uint32_t key_bytes,
                                uint64_t timeout_ns)
{
    const struct sl_piece piece = {.at = at, .length_bytes = key_bytes};
    const struct sl_pieces item = {.key = name, .at = &piece, .count = 1};
    uint64_t length_bytes = 0;
    sl_err code = SL_ERR_COUNT; /* not answered */
    sl_err err = sl_get_pieces(client, &item, 1, false, &length_bytes, &code, timeout_ns, NULL);
    err = code == SL_ERR_COUNT ? err : code;
    if (err != SL_OK) {
        return err;
    }
    if (length_bytes <= sl_store_head_bytes(key_bytes)) {
        return SL_ERR_NOT_FOUND;
    }
    char *again = malloc((size_t)tenant.length + 2 + SL_STORE_DIGEST_NAME_BYTES);
    const struct sl_object_key key = {.at = at, .length = key_bytes};
    uint32_t again_length = again == NULL ? 0 : sl_store_digest_name(tenant, key, again);
    bool same =
        again != NULL && again_length == name.length && memcmp(again, name.at, name.length) == 0;
    free(again);
    return same ? SL_OK : again_length == 0 ? SL_ERR_NO_MEMORY : SL_ERR_NOT_FOUND;
}
