/* runtime/net/fabric/core/aead.c - see aead.h: ciphers of TLS records, by two libraries. */
#include "runtime/net/fabric/core/aead.h"
#include "runtime/net/fabric/core/aead_fast.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

#define LIBCRYPTO_FAST 0x30100000UL /* 3.1 is fast itself */
#define CHECKED_BYTES  1000u

/* ---- which library ---- */

static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static bool fast_is_used;

static bool sealed_by(struct sl_aead *aead, unsigned char *to)
{
    static const uint8_t key[16] = "any key", nonce[SL_AEAD_NONCE_BYTES] = "any nonce";
    static const uint8_t plain[CHECKED_BYTES] = "any text";
    return sl_aead_key(aead, key) && sl_aead_begin(aead, nonce, nonce, 5) &&
           sl_aead_part(aead, to, plain, 300) &&
           sl_aead_part(aead, to + 300, plain + 300, CHECKED_BYTES - 300) &&
           sl_aead_seal_end(aead, to + CHECKED_BYTES);
}

/* Uses libipsec-mb only if it seals the same bytes as libcrypto. */
static void choose(void)
{
    unsigned char ours[CHECKED_BYTES + SL_AEAD_TAG_BYTES], theirs[sizeof(ours)];
    struct sl_aead slow = {
        .cipher = EVP_CIPHER_CTX_new(), .suite = SL_SUITE_AES_128_GCM, .seals = true};
    struct sl_aead fast = {.suite = SL_SUITE_AES_128_GCM, .seals = true};
    if (OpenSSL_version_num() < LIBCRYPTO_FAST) {
        fast.fast = sl_aead_fast_create();
    }
    fast_is_used = fast.fast != NULL && slow.cipher != NULL && sealed_by(&slow, ours) &&
                   sealed_by(&fast, theirs) && memcmp(ours, theirs, sizeof(ours)) == 0;
    sl_aead_fini(&slow);
    sl_aead_fini(&fast);
}

static bool fast_wanted(enum sl_aead_by by)
{
    (void)pthread_once(&chosen, choose);
    return by == SL_AEAD_BEST && fast_is_used;
}

const char *sl_aead_library(enum sl_aead_by by)
{
    return fast_wanted(by) ? "libipsec-mb" : "libcrypto";
}

/* ---- life ---- */

uint32_t sl_aead_key_bytes(uint16_t suite)
{
    return suite == SL_SUITE_AES_128_GCM ? 16 : 32;
}

sl_err sl_aead_init(struct sl_aead *aead, uint16_t suite, bool seals, enum sl_aead_by by,
                    struct sl_error *why)
{
    *aead = (struct sl_aead){.suite = suite, .seals = seals};
    if (suite != SL_SUITE_AES_128_GCM && suite != SL_SUITE_CHACHA20_POLY1305) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "cipher suite 0x%04x", suite);
    }
    if (suite == SL_SUITE_AES_128_GCM && fast_wanted(by)) {
        aead->fast = sl_aead_fast_create();
    }
    if (aead->fast == NULL) {
        aead->cipher = EVP_CIPHER_CTX_new();
    }
    if (aead->fast == NULL && aead->cipher == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a cipher");
    }
    return SL_OK;
}

void sl_aead_fini(struct sl_aead *aead)
{
    sl_aead_fast_destroy(&aead->fast);
    EVP_CIPHER_CTX_free(aead->cipher);
    *aead = (struct sl_aead){0};
}

bool sl_aead_key(struct sl_aead *aead, const uint8_t *key)
{
    static const uint8_t no_nonce[SL_AEAD_NONCE_BYTES];
    if (aead->fast != NULL) {
        sl_aead_fast_key(aead->fast, key);
        return true;
    }
    const EVP_CIPHER *cipher =
        aead->suite == SL_SUITE_AES_128_GCM ? EVP_aes_128_gcm() : EVP_chacha20_poly1305();
    return EVP_CipherInit_ex(aead->cipher, cipher, NULL, key, no_nonce, aead->seals ? 1 : 0) == 1;
}

/* ---- a record ---- */

bool sl_aead_begin(struct sl_aead *aead, const uint8_t nonce[SL_AEAD_NONCE_BYTES],
                   const uint8_t *head, size_t head_bytes)
{
    int unused = 0;
    if (aead->fast != NULL) {
        sl_aead_fast_begin(aead->fast, nonce, head, head_bytes);
        return true;
    }
    return EVP_CipherInit_ex(aead->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(aead->cipher, NULL, &unused, head, (int)head_bytes) == 1;
}

bool sl_aead_part(struct sl_aead *aead, void *to, const void *from, size_t length_bytes)
{
    int done = 0;
    if (aead->fast != NULL) {
        sl_aead_fast_part(aead->fast, aead->seals, to, from, length_bytes);
        return true;
    }
    return EVP_CipherUpdate(aead->cipher, to, &done, from, (int)length_bytes) == 1 &&
           (size_t)done == length_bytes;
}

bool sl_aead_seal_end(struct sl_aead *aead, uint8_t tag[SL_AEAD_TAG_BYTES])
{
    uint8_t rest[16];
    int rest_bytes = 0;
    if (aead->fast != NULL) {
        sl_aead_fast_tag(aead->fast, true, tag);
        return true;
    }
    return EVP_CipherFinal_ex(aead->cipher, rest, &rest_bytes) == 1 &&
           EVP_CIPHER_CTX_ctrl(aead->cipher, EVP_CTRL_AEAD_GET_TAG, SL_AEAD_TAG_BYTES, tag) == 1;
}

bool sl_aead_open_end(struct sl_aead *aead, const uint8_t tag[SL_AEAD_TAG_BYTES])
{
    uint8_t rest[16], want[SL_AEAD_TAG_BYTES];
    int rest_bytes = 0;
    if (aead->fast != NULL) {
        sl_aead_fast_tag(aead->fast, false, want);
        bool same = CRYPTO_memcmp(tag, want, sizeof(want)) == 0;
        OPENSSL_cleanse(want, sizeof(want)); /* for forged input this would be a valid tag */
        return same;
    }
    return EVP_CIPHER_CTX_ctrl(aead->cipher, EVP_CTRL_AEAD_SET_TAG, SL_AEAD_TAG_BYTES,
                               (void *)(uintptr_t)tag) == 1 &&
           EVP_CipherFinal_ex(aead->cipher, rest, &rest_bytes) == 1;
}
