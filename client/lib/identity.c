/* client/lib/identity.c - the model identity: a hash of what gives a block's bytes their
 * meaning. */
#include "client/lib/internal.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdarg.h>
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

/* The length precedes the text, so that different lists of fields never give the same bytes. */
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
    bool ranked = false; /* some pool has one part per rank */
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
        if (pool->part_count != 0) { /* a rank's layers do not matter: the model's strings do */
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

/* ---- the same for people ---- */

static void fact_add(struct sl_identity_facts *facts, const char *name, const char *format, ...)
    SL_PRINTF(3, 4);
static void fact_add(struct sl_identity_facts *facts, const char *name, const char *format, ...)
{
    char value[256];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(value, sizeof value, format, list);
    va_end(list);
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    while (!sl_text_is_clean(value, value_bytes - 1)) { /* remove a character that was cut */
        value[--value_bytes - 1] = '\0';
    }
    if (facts->count == SL_COUNT(facts->items) ||
        facts->used + name_bytes + value_bytes > sizeof facts->text) {
        return;
    }
    char *at = facts->text + facts->used;
    memcpy(at, name, name_bytes);
    memcpy(at + name_bytes, value, value_bytes);
    facts->items[facts->count++] =
        (struct sl_item_fact){.name = {.at = at, .length = name_bytes - 1},
                              .value = {.at = at + name_bytes, .length = value_bytes - 1}};
    facts->used += name_bytes + value_bytes;
}

static void pool_fact_add(struct sl_identity_facts *facts, const struct sl_engine_pool *pool)
{
    char name[32];
    uint64_t bytes = 0;
    (void)snprintf(name, sizeof name, "pool %.26s", pool->name);
    for (uint32_t l = 0; l < pool->layer_count; l++) {
        bytes += pool->layers[l].piece_bytes;
    }
    if (pool->part_count != 0) {
        fact_add(facts, name, "kind %" PRIu32 ", %" PRIu32 " parts", (uint32_t)pool->kind,
                 pool->part_count);
    } else {
        fact_add(facts, name, "kind %" PRIu32 ", %" PRIu32 " layers, %" PRIu64 " bytes a block",
                 (uint32_t)pool->kind, pool->layer_count, bytes);
    }
}

void sl_identity_facts(const struct sl_engine_options *options, struct sl_identity_facts *facts)
{
    const struct sl_model *model = &options->model;
    const struct {
        const char *name, *text;
    } texts[] = {
        {"name", model->name},
        {"revision", model->revision},
        {"dtype", model->dtype},
        {"layout", model->layout},
        {"rope", model->rope},
        {"lora", model->lora},
        {"quantisation", model->quantisation},
        {"key_format", options->key_format},
        {"seed", options->seed},
    };
    *facts = (struct sl_identity_facts){.count = 0};
    for (size_t i = 0; i < SL_COUNT(texts); i++) {
        fact_add(facts, texts[i].name, "%s", texts[i].text == NULL ? "" : texts[i].text);
    }
    fact_add(facts, "block_tokens", "%" PRIu32, options->block_tokens);
    bool ranked = false;
    for (uint32_t p = 0; p < options->pool_count; p++) {
        ranked |= options->pools[p].part_count == 0;
    }
    if (ranked) {
        fact_add(facts, "ranks", "%" PRIu32, options->world);
    }
    for (uint32_t p = 0; p < options->pool_count; p++) {
        pool_fact_add(facts, &options->pools[p]);
    }
}
