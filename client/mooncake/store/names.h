/* client/mooncake/store/names.h - how keys are named on a node, for whoever lists or looks them up.
 *
 * A key of the default tenant is its own name, unless it begins with the mark; all others are mark,
 * tenant, mark, key. A tenant's name has no mark, so no two tenants' keys ever meet.
 *
 * What cannot be a key of the node (longer than 1,024 bytes with its prefix, a 0 in it, no UTF-8)
 * is named by its digest: mark, tenant, DIGEST_MARK, SHA-256 in hex, '-', bytes of the key. There
 * is no second mark in such a name, so it is nobody's plain key. The key itself is kept nowhere. */
#ifndef SL_CLIENT_MOONCAKE_STORE_NAMES_H
#define SL_CLIENT_MOONCAKE_STORE_NAMES_H

#include "client/include/sluice.h"

#define SL_STORE_TENANT_MARK       '\x01'
#define SL_STORE_DIGEST_MARK       '\x03' /* 2: where the key stood before the value */
#define SL_STORE_KEY_BYTES_MAX     (1u << 20)
#define SL_STORE_DIGEST_NAME_BYTES 80u /* most of a name behind the tenant */

/* prefix: mark, tenant, mark; length 0: of the default tenant. */
struct sl_store_prefix {
    const char *at;
    uint32_t length;
};
/* What a key's own name begins with: the prefix, or, of the default tenant, mark and mark for a key
 * that begins with the mark, else nothing. The key is not empty. */
struct sl_store_prefix sl_store_prefix_of(struct sl_store_prefix tenant, struct sl_object_key key);
/* Whether prefix and key are the name; else the digest is. */
bool sl_store_key_plain(struct sl_store_prefix prefix, struct sl_object_key key);
/* Writes the name by the digest; out has the tenant's prefix and SL_STORE_DIGEST_NAME_BYTES. 0: no
 * memory. */
uint32_t sl_store_digest_name(struct sl_store_prefix tenant, struct sl_object_key key, char *out);
/* The part of a name that is the tenant's own key. False: another tenant's, or a digest's. */
bool sl_store_name_own(struct sl_store_prefix tenant, struct sl_object_key name,
                       struct sl_object_key *own);
/* Whether a name is that of a digest of this tenant's. */
bool sl_store_name_is_digest(struct sl_store_prefix tenant, struct sl_object_key name);

#endif
