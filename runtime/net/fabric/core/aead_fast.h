/* runtime/net/fabric/core/aead_fast.h - AES-128-GCM by libipsec-mb, for aead.c only. Unavailable if
 * it was built without the header, or if the library, the right version, or VAES and AVX-512 are
 * missing. */
#ifndef SL_FABRIC_CORE_AEAD_FAST_H
#define SL_FABRIC_CORE_AEAD_FAST_H

#include "runtime/net/fabric/core/aead.h"

/* NULL: unavailable, or no memory. destroy accepts NULL, and erases the key. */
struct sl_aead_fast *sl_aead_fast_create(void);
void sl_aead_fast_destroy(struct sl_aead_fast **fast);
void sl_aead_fast_key(struct sl_aead_fast *fast, const uint8_t key[16]);
void sl_aead_fast_begin(struct sl_aead_fast *fast, const uint8_t nonce[SL_AEAD_NONCE_BYTES],
                        const uint8_t *head, size_t head_bytes);
void sl_aead_fast_part(struct sl_aead_fast *fast, bool seals, void *to, const void *from,
                       size_t length_bytes);
void sl_aead_fast_tag(struct sl_aead_fast *fast, bool seals, uint8_t tag[SL_AEAD_TAG_BYTES]);

#endif
