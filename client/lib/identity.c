/* client/lib/identity.c - the model identity: a fingerprint of everything that gives a block's
 * bytes their meaning. */
#include "client/lib/internal.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define IDENTITY_VERSION 1u

static void feed_u64(EVP_MD_CTX *hash, uint64_t value)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    (void)EVP_DigestUpdate(hash, bytes, sizeof bytes);
}

/* Length first: no two lists of fields give the same bytes. */
static void feed_text(EVP_MD_CTX *hash, const char *text)
{
    size_t length = text == NULL ? 0 : strlen(text);
    feed_u64(hash, length);
    (void)EVP_DigestUpdate(hash, text == NULL ? "" : text, length);
}

void sl_model_identity(const struct sl_engine_options *options, char out[33])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    SL_ASSERT(hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1);
    const struct sl_model *model = &options->model;
    const char *const texts[] = {model->name,         model->revision,    model->dtype,
                                 model->layout,       model->rope,        model->lora,
                                 model->quantisation, options->key_format};
    feed_text(hash, "sluice-model");
    feed_u64(hash, IDENTITY_VERSION);
    for (size_t i = 0; i < SL_COUNT(texts); i++) {
        feed_text(hash, texts[i]);
    }
    bool ranked = false; /* a part is what a rank has */
    for (uint32_t p = 0; p < options->pool_count; p++) {
        ranked |= options->pools[p].part_count == 0;
    }
    feed_u64(hash, options->block_tokens);
    feed_u64(hash, ranked ? options->world : 0);
    feed_u64(hash, options->pool_count);
    for (uint32_t p = 0; p < options->pool_count; p++) {
        const struct sl_engine_pool *pool = &options->pools[p];
        feed_text(hash, pool->name);
        feed_u64(hash, pool->kind);
        if (pool->part_count != 0) { /* what a rank has of it says nothing: the model's texts do */
            feed_u64(hash, UINT64_MAX);
            feed_u64(hash, pool->part_count);
            continue;
        }
        feed_u64(hash, pool->layer_count);
        for (uint32_t l = 0; l < pool->layer_count; l++) {
            feed_u64(hash, pool->layers[l].piece_bytes);
        }
    }
    (void)EVP_DigestFinal_ex(hash, digest, NULL);
    EVP_MD_CTX_free(hash);
    for (unsigned i = 0; i < 16; i++) {
        (void)snprintf(&out[2 * i], 3, "%02x", digest[i]);
    }
}
