/* client/mooncake/store/names.h - names of the store's keys on a node.
 *
 * A key of the default tenant is its own name, unless it begins with the mark. All others are mark,
 * tenant, mark, key. A tenant's name contains no mark, so keys of different tenants never collide.
 *
 * A key that a node cannot have (longer than 1,024 bytes with its prefix, containing 0, or not
 * UTF-8) is named by its digest: mark, tenant, DIGEST_MARK, SHA-256 in hex, '-', length of the key
 * in bytes. Such a name has no second mark, so it is no plain key. The key is not stored. */
#ifndef SL_CLIENT_MOONCAKE_STORE_NAMES_H
#define SL_CLIENT_MOONCAKE_STORE_NAMES_H

#include "client/include/sluice.h"

#define SL_STORE_TENANT_MARK       '\x01'
#define SL_STORE_DIGEST_MARK       '\x03' /* '\x02': an older form, with the key before the value */
#define SL_STORE_KEY_BYTES_MAX     (1u << 20)
#define SL_STORE_DIGEST_NAME_BYTES 80u /* longest part of a name after the tenant */

/* mark, tenant, mark; length 0: the default tenant. */
struct sl_store_prefix {
    const char *at;
    uint32_t length;
};
/* Returns the prefix of the key's plain name: the tenant's; for the default tenant, two marks if
 * the key begins with the mark, else none. The key must not be empty. */
struct sl_store_prefix sl_store_prefix_of(struct sl_store_prefix tenant, struct sl_object_key key);
/* Whether the name is prefix and key; else it is by digest. */
bool sl_store_key_plain(struct sl_store_prefix prefix, struct sl_object_key key);
/* Writes the name by digest to out, which has the length of the tenant's prefix plus
 * SL_STORE_DIGEST_NAME_BYTES, and returns its length. 0: no memory. */
uint32_t sl_store_digest_name(struct sl_store_prefix tenant, struct sl_object_key key, char *out);
/* Extracts the tenant's key from a name. False: another tenant's name, or one by digest. */
bool sl_store_name_own(struct sl_store_prefix tenant, struct sl_object_key name,
                       struct sl_object_key *own);
/* Whether a name is one by digest of this tenant. */
bool sl_store_name_is_digest(struct sl_store_prefix tenant, struct sl_object_key name);

#endif
