/* runtime/fabric/tcp/proof.c - see proof.h. */
#include "runtime/fabric/tcp/proof.h"

#include "runtime/fabric/core/records.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#define TOKEN_AT  40u /* of a request: what is before it is marked */
#define TAG_BYTES 16u

static bool proof_of(const struct sl_proof *proof, const char *what, uint8_t out[32])
{
    const struct iovec parts[] = {
        {.iov_base = (void *)(uintptr_t)what, .iov_len = strlen(what) + 1},
        {.iov_base = (void *)(uintptr_t)proof->id, .iov_len = sizeof(proof->id)},
        {.iov_base = (void *)(uintptr_t)proof->asks, .iov_len = sizeof(proof->asks)},
        {.iov_base = (void *)(uintptr_t)proof->answers, .iov_len = sizeof(proof->answers)},
    };
    return sl_hmac(proof->key, sizeof(proof->key), parts, SL_COUNT(parts), out);
}

bool sl_proof_answering(const struct sl_proof *proof, uint8_t out[SL_WIRE_PROOF_BYTES])
{
    return proof_of(proof, "sluice 2 answers", out);
}

bool sl_proof_asking(const struct sl_proof *proof, uint8_t out[SL_WIRE_TOKEN_BYTES])
{
    uint8_t whole[32];
    bool done = proof_of(proof, "sluice 2 asks", whole);
    memcpy(out, whole, SL_WIRE_TOKEN_BYTES);
    return done;
}

sl_err sl_marker_init(struct sl_marker *marker, const struct sl_proof *proof, struct sl_error *why)
{
    uint8_t key[32];
    *marker = (struct sl_marker){.cipher = EVP_CIPHER_CTX_new()};
    bool done = marker->cipher != NULL && proof_of(proof, "sluice 2 requests", key) &&
                EVP_EncryptInit_ex(marker->cipher, EVP_aes_128_gcm(), NULL, key, NULL) == 1;
    OPENSSL_cleanse(key, sizeof(key));
    if (!done) {
        sl_marker_fini(marker);
        return sl_fail(why, SL_ERR_NO_MEMORY, "libcrypto made no key");
    }
    return SL_OK;
}

void sl_marker_fini(struct sl_marker *marker)
{
    EVP_CIPHER_CTX_free(marker->cipher);
    *marker = (struct sl_marker){0};
}

bool sl_marker_mark(struct sl_marker *marker, const unsigned char request[SL_WIRE_REQUEST_BYTES],
                    const uint8_t token[SL_WIRE_TOKEN_BYTES], uint8_t out[SL_WIRE_TOKEN_BYTES])
{
    uint8_t nonce[12] = {0}, all[TOKEN_AT + SL_WIRE_TOKEN_BYTES];
    int unused = 0;
    sl_wire_put(nonce, marker->count++, 8);
    memcpy(all, request, TOKEN_AT);
    memcpy(all + TOKEN_AT, token, SL_WIRE_TOKEN_BYTES);
    memset(out, 0, SL_WIRE_TOKEN_BYTES);
    return EVP_EncryptInit_ex(marker->cipher, NULL, NULL, NULL, nonce) == 1 &&
           EVP_EncryptUpdate(marker->cipher, NULL, &unused, all, sizeof(all)) == 1 &&
           EVP_EncryptFinal_ex(marker->cipher, nonce, &unused) == 1 &&
           EVP_CIPHER_CTX_ctrl(marker->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out) == 1;
}
