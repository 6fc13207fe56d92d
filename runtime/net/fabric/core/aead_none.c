/* runtime/net/fabric/core/aead_none.c - built without libipsec-mb's header: libcrypto is used. */
#include "runtime/net/fabric/core/aead_fast.h"

struct sl_aead_fast *sl_aead_fast_create(void)
{
    return NULL;
}

void sl_aead_fast_destroy(struct sl_aead_fast **fast)
{
    *fast = NULL;
}

void sl_aead_fast_key(struct sl_aead_fast *fast, const uint8_t key[16])
{
    (void)fast;
    (void)key;
}

void sl_aead_fast_begin(struct sl_aead_fast *fast, const uint8_t nonce[SL_AEAD_NONCE_BYTES],
                        const uint8_t *head, size_t head_bytes)
{
    (void)fast;
    (void)nonce;
    (void)head;
    (void)head_bytes;
}

void sl_aead_fast_part(struct sl_aead_fast *fast, bool seals, void *to, const void *from,
                       size_t length_bytes)
{
    (void)fast;
    (void)seals;
    (void)to;
    (void)from;
    (void)length_bytes;
}

void sl_aead_fast_tag(struct sl_aead_fast *fast, bool seals, uint8_t tag[SL_AEAD_TAG_BYTES])
{
    (void)fast;
    (void)seals;
    (void)tag;
}
