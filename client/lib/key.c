/* client/lib/key.c - validity of keys, and a digest for bytes that are not valid. */
#include "client/lib/internal.h"

#include <inttypes.h>
#include <openssl/evp.h>

bool sl_key_valid(struct sl_object_key key)
{
    return key.at != NULL && key.length >= 1 && key.length <= SL_KEY_BYTES_MAX &&
           sl_text_is_clean(key.at, key.length);
}

sl_err sl_sha256(const void *at, uint64_t length_bytes, unsigned char digest[SL_SHA256_BYTES],
                 struct sl_error *why)
{
    return EVP_Digest(at, length_bytes, digest, NULL, EVP_sha256(), NULL) == 1
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "sha-256 of %" PRIu64 " bytes", length_bytes);
}
