/* runtime/keys/keys.c - the table of formats, and the chain of hashes over a request's blocks. */
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_hex.h"
#include "runtime/keys/keys_encode.h"
#include "runtime/keys/keys_prompt.h"
#include "runtime/keys/sl_keys.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Tokens are hashed as stored in memory. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens must be little-endian in memory");

#define KEYS_DIGEST_BYTES_MAX 32u
#define KEYS_SEED_DEFAULT     "vllm-none-hash"

enum keys_family { KEYS_FASTDEPLOY, KEYS_FASTDEPLOY_V1, KEYS_VLLM, KEYS_SGLANG, KEYS_SLUICE };
enum keys_hash { KEYS_SHA256, KEYS_XXH3 };
enum keys_last { KEYS_LAST_NONE, KEYS_LAST_PLAIN, KEYS_LAST_MARKED };

struct keys_format {
    const char *name;
    enum keys_family family;
    enum keys_hash hash;
    enum keys_last last; /* key of an incomplete last block */
    enum keys_extras_taken extras;
    uint32_t pickle_protocol; /* 0: cbor or raw */
    bool bigram;
};

static const struct keys_format formats[] = {
    {"fastdeploy", KEYS_FASTDEPLOY, KEYS_SHA256, KEYS_LAST_MARKED, KEYS_EXTRAS_OBJECTS, 4, false},
    {"fastdeploy-v1", KEYS_FASTDEPLOY_V1, KEYS_SHA256, KEYS_LAST_NONE, KEYS_EXTRAS_OBJECTS, 4,
     false},
    {"vllm-sha256", KEYS_VLLM, KEYS_SHA256, KEYS_LAST_NONE, KEYS_EXTRAS_OBJECTS, 5, false},
    {"vllm-sha256-cbor", KEYS_VLLM, KEYS_SHA256, KEYS_LAST_NONE, KEYS_EXTRAS_OBJECTS, 0, false},
    {"vllm-xxhash", KEYS_VLLM, KEYS_XXH3, KEYS_LAST_NONE, KEYS_EXTRAS_OBJECTS, 5, false},
    {"vllm-xxhash-cbor", KEYS_VLLM, KEYS_XXH3, KEYS_LAST_NONE, KEYS_EXTRAS_OBJECTS, 0, false},
    {"sglang", KEYS_SGLANG, KEYS_SHA256, KEYS_LAST_NONE, KEYS_EXTRAS_NAMESPACE, 0, false},
    {"sglang-bigram", KEYS_SGLANG, KEYS_SHA256, KEYS_LAST_NONE, KEYS_EXTRAS_NAMESPACE, 0, true},
    {"lmcache-sha256", KEYS_VLLM, KEYS_SHA256, KEYS_LAST_PLAIN, KEYS_EXTRAS_NONE, 5, false},
    {"lmcache-sha256-cbor", KEYS_VLLM, KEYS_SHA256, KEYS_LAST_PLAIN, KEYS_EXTRAS_NONE, 0, false},
    {"sluice", KEYS_SLUICE, KEYS_SHA256, KEYS_LAST_MARKED, KEYS_EXTRAS_NAMED, 0, false},
};

struct keys_digest {
    unsigned char at[KEYS_DIGEST_BYTES_MAX];
    uint32_t length; /* 0: none */
};

struct sl_keys {
    EVP_MD *sha256; /* fetched once: an implicit fetch costs more than hashing a block */
    EVP_MD_CTX *context;
    struct keys_buffer stream;
    struct keys_extras extras;
    struct sl_keys_prompt prompt; /* of a line */
};

/* A request being processed. */
struct keys_run {
    struct sl_keys *keys;
    const struct keys_format *format;
    const struct sl_keys_request *request;
    struct keys_digest parent;
    char parent_hex[2 * KEYS_DIGEST_BYTES_MAX + 1]; /* for formats that hash it as text */
    uint32_t pickle_protocol;
    bool failed; /* the crypto library failed; checked once per block */
};

sl_err sl_keys_create(struct sl_keys **out, struct sl_error *why)
{
    struct sl_keys *keys = calloc(1, sizeof(*keys));
    if (keys == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a key deriver");
    }
    keys->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    keys->context = EVP_MD_CTX_new();
    if (keys->sha256 == NULL || keys->context == NULL) {
        sl_keys_destroy(&keys);
        return sl_fail(why, SL_ERR_UNSUPPORTED, "the crypto library has no SHA-256");
    }
    *out = keys;
    return SL_OK;
}

void sl_keys_destroy(struct sl_keys **keys)
{
    if (keys == NULL || *keys == NULL) {
        return;
    }
    EVP_MD_CTX_free((*keys)->context);
    EVP_MD_free((*keys)->sha256);
    keys_buffer_fini(&(*keys)->stream);
    keys_extras_fini(&(*keys)->extras);
    keys_prompt_clear(&(*keys)->prompt);
    free(*keys);
    *keys = NULL;
}

/* ---- arguments ---- */

static const struct keys_format *format_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < SL_COUNT(formats); i++) {
        if (strcmp(name, formats[i].name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

sl_err sl_keys_format_check(const char *format, struct sl_error *why)
{
    if (format_find(format) != NULL) {
        return SL_OK;
    }
    char known[SL_ERROR_TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < SL_COUNT(formats); i++) {
        int more = snprintf(known + used, sizeof(known) - used, " %s", formats[i].name);
        used = SL_MIN(used + (size_t)more, sizeof(known) - 1);
    }
    return sl_fail(why, SL_ERR_INVALID, "format: '%.31s' is not one of%s",
                   format == NULL ? "" : format, known);
}

/* Number of units that are cut into blocks: tokens, or pairs of neighbours. */
static uint64_t unit_count(const struct keys_format *format, uint64_t token_count)
{
    return format->bigram && token_count > 0 ? token_count - 1 : token_count;
}

sl_err sl_keys_count(const struct sl_keys_request *request, uint64_t *count, struct sl_error *why)
{
    sl_err err = sl_keys_format_check(request->format, why);
    if (err != SL_OK) {
        return err;
    }
    if (request->block_tokens < 1 || request->block_tokens > SL_KEYS_BLOCK_TOKENS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "block_tokens: %u is not in 1..%u",
                       request->block_tokens, SL_KEYS_BLOCK_TOKENS_MAX);
    }
    const struct keys_format *format = format_find(request->format);
    uint64_t units = unit_count(format, request->token_count);
    bool last =
        request->partial && format->last != KEYS_LAST_NONE && units % request->block_tokens != 0;
    *count = units / request->block_tokens + (last ? 1 : 0);
    return SL_OK;
}

static sl_err parent_parse(const char *hex, uint32_t digest_bytes, struct keys_digest *out,
                           struct sl_error *why)
{
    size_t length = strlen(hex);
    if (length != 2 * digest_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "parent: %zu characters, the format's keys have %u hex digits", length,
                       2 * digest_bytes);
    }
    size_t taken = sl_hex_read(out->at, hex, digest_bytes);
    if (taken < length) {
        return sl_fail(why, SL_ERR_INVALID, "parent: character %zu is no hex digit", taken);
    }
    out->length = digest_bytes;
    return SL_OK;
}

/* ---- hashing ---- */

static void hash_start(struct keys_run *run)
{
    run->failed |= EVP_DigestInit_ex2(run->keys->context, run->keys->sha256, NULL) != 1;
}

static void hash_feed(struct keys_run *run, const void *bytes, size_t length)
{
    if (length == 0) {
        return;
    }
    run->failed |= EVP_DigestUpdate(run->keys->context, bytes, length) != 1;
}

static void hash_finish(struct keys_run *run, struct keys_digest *out)
{
    unsigned length = 0;
    run->failed |= EVP_DigestFinal_ex(run->keys->context, out->at, &length) != 1;
    out->length = KEYS_DIGEST_BYTES_MAX;
}

/* Hashes the contents of the stream buffer. */
static void hash_stream(struct keys_run *run, struct keys_digest *out)
{
    const struct keys_buffer *stream = &run->keys->stream;
    if (stream->failed) {
        run->failed = true;
        return;
    }
    if (run->format->hash == KEYS_XXH3) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits(stream->at, stream->length));
        memcpy(out->at, canonical.digest, sizeof(canonical.digest));
        out->length = sizeof(canonical.digest);
        return;
    }
    hash_start(run);
    hash_feed(run, stream->at, stream->length);
    hash_finish(run, out);
}

static void put_word(unsigned char *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

/* "sluice" tag version block_tokens token_count */
#define SLUICE_HEADER_BYTES 16u
static void sluice_header(unsigned char *out, char tag, uint32_t block_tokens, uint32_t token_count)
{
    static const unsigned char domain[6] = {'s', 'l', 'u', 'i', 'c', 'e'};
    memcpy(out, domain, sizeof(domain));
    out[6] = (unsigned char)tag;
    out[7] = 1;
    put_word(out + 8, block_tokens, 4);
    put_word(out + 12, token_count, 4);
}

static void hash_counted(struct keys_run *run, const void *bytes, size_t length)
{
    unsigned char count[8];
    put_word(count, length, sizeof(count));
    hash_feed(run, count, sizeof(count));
    hash_feed(run, bytes, length);
}

static void sluice_block(struct keys_run *run, const struct keys_block *block,
                         struct keys_digest *out)
{
    /* All before the extras is fed at once: for small blocks a call costs as much as hashing. */
    unsigned char start[SLUICE_HEADER_BYTES + KEYS_DIGEST_BYTES_MAX + 8];
    struct keys_buffer *stream = &run->keys->stream;
    bool whole = block->token_count == run->request->block_tokens;
    stream->length = 0;
    stream->failed = false;
    keys_tagged_extras(stream, block);
    run->failed |= stream->failed;
    sluice_header(start, whole ? 'B' : 'P', run->request->block_tokens,
                  (uint32_t)block->token_count);
    memcpy(start + SLUICE_HEADER_BYTES, run->parent.at, KEYS_DIGEST_BYTES_MAX);
    put_word(start + SLUICE_HEADER_BYTES + KEYS_DIGEST_BYTES_MAX, stream->length, 8);
    hash_start(run);
    hash_feed(run, start, sizeof(start));
    hash_feed(run, stream->at, stream->length);
    hash_feed(run, block->tokens, block->token_count * sizeof(*block->tokens));
    hash_finish(run, out);
}

/* block->tokens has token_count + 1 entries for bigrams. */
static void sglang_block(struct keys_run *run, const struct keys_block *block,
                         struct keys_digest *out)
{
    const uint32_t *tokens = block->tokens;
    hash_start(run);
    hash_feed(run, run->parent.at, run->parent.length);
    if (!run->format->bigram) {
        hash_feed(run, tokens, block->token_count * sizeof(*tokens));
    } else {
        uint32_t pairs[256];
        for (size_t i = 0; i < block->token_count;) {
            size_t used = 0;
            for (; used < SL_COUNT(pairs) && i < block->token_count; i++, used += 2) {
                pairs[used] = tokens[i];
                pairs[used + 1] = tokens[i + 1];
            }
            hash_feed(run, pairs, used * sizeof(*pairs));
        }
    }
    hash_finish(run, out);
}

static void hex_of(const struct keys_digest *digest, char *out)
{
    sl_hex_write(out, digest->at, digest->length);
    out[2 * digest->length] = '\0';
}

static void hash_block(struct keys_run *run, struct keys_block *block, struct keys_digest *out)
{
    struct keys_buffer *stream = &run->keys->stream;
    switch (run->format->family) {
    case KEYS_FASTDEPLOY:
    case KEYS_FASTDEPLOY_V1:
        hex_of(&run->parent, run->parent_hex);
        block->parent = run->parent_hex;
        block->parent_length = 2 * run->parent.length;
        block->parent_is_text = true;
        if (run->format->family == KEYS_FASTDEPLOY) {
            keys_pickle_lists(stream, run->pickle_protocol, block);
        } else {
            keys_pickle_triple(stream, run->pickle_protocol, block);
        }
        hash_stream(run, out);
        break;
    case KEYS_VLLM:
        block->parent = run->parent.at;
        block->parent_length = run->parent.length;
        if (run->pickle_protocol != 0) {
            keys_pickle_triple(stream, run->pickle_protocol, block);
        } else {
            keys_cbor_triple(stream, block);
        }
        hash_stream(run, out);
        break;
    case KEYS_SGLANG:
        sglang_block(run, block, out);
        break;
    case KEYS_SLUICE:
        sluice_block(run, block, out);
        break;
    }
}

/* SHA-256("sglang-cache-namespace-v1" enc(extra_key) enc(cache_salt)), if either is given. */
static void sglang_root(struct keys_run *run)
{
    static const char domain[] = "sglang-cache-namespace-v1";
    static const unsigned char absent = 0, present = 1;
    struct keys_span span = keys_extras_of(&run->keys->extras, 0);
    const struct keys_node *nodes = run->keys->extras.nodes;
    bool given = false;
    for (uint32_t i = 0; i < span.count; i++) {
        given |= nodes[span.first + i].kind == KEYS_NODE_TEXT;
    }
    if (!given) {
        return;
    }
    hash_start(run);
    hash_feed(run, domain, sizeof(domain) - 1);
    for (uint32_t i = 0; i < span.count; i++) {
        const struct keys_node *node = &nodes[span.first + i];
        hash_feed(run, node->kind == KEYS_NODE_TEXT ? &present : &absent, 1);
        if (node->kind == KEYS_NODE_TEXT) {
            hash_counted(run, node->at, node->length);
        }
    }
    hash_finish(run, &run->parent);
}

/* Computes the parent of block 0 if the request gives none. */
static void root_of(struct keys_run *run, const char *seed)
{
    unsigned char header[SLUICE_HEADER_BYTES];
    size_t length = seed == NULL ? 0 : strlen(seed);
    switch (run->format->family) {
    case KEYS_VLLM:
        if (length == 0) {
            seed = KEYS_SEED_DEFAULT;
            length = sizeof(KEYS_SEED_DEFAULT) - 1;
        }
        if (run->pickle_protocol != 0) {
            keys_pickle_text(&run->keys->stream, run->pickle_protocol, seed, length);
        } else {
            keys_cbor_text(&run->keys->stream, seed, length);
        }
        hash_stream(run, &run->parent);
        break;
    case KEYS_SGLANG:
        sglang_root(run);
        break;
    case KEYS_SLUICE:
        hash_start(run);
        sluice_header(header, 'R', 0, 0);
        hash_feed(run, header, sizeof(header));
        hash_counted(run, length == 0 ? "" : seed, length);
        hash_finish(run, &run->parent);
        break;
    case KEYS_FASTDEPLOY:
    case KEYS_FASTDEPLOY_V1:
        break;
    }
}

/* ---- a run ---- */

static sl_err run_check(struct keys_run *run, struct sl_error *why)
{
    const struct sl_keys_request *request = run->request;
    if (request->token_count > 0 && request->tokens == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "tokens: missing");
    }
    if (request->seed != NULL &&
        strnlen(request->seed, SL_KEYS_SEED_BYTES_MAX + 1) > SL_KEYS_SEED_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "seed: longer than %u bytes", SL_KEYS_SEED_BYTES_MAX);
    }
    if (request->pickle_protocol != 0 && request->pickle_protocol != 4 &&
        request->pickle_protocol != 5) {
        return sl_fail(why, SL_ERR_INVALID, "pickle_protocol: %u is neither 4 nor 5",
                       request->pickle_protocol);
    }
    run->pickle_protocol = run->format->pickle_protocol;
    if (run->pickle_protocol != 0 && request->pickle_protocol != 0) {
        run->pickle_protocol = request->pickle_protocol;
    }
    return SL_OK;
}

static sl_err run_block(struct keys_run *run, uint64_t block_index, uint64_t units,
                        sl_keys_each_fn each, void *context, struct sl_error *why)
{
    const struct keys_format *format = run->format;
    uint64_t first = block_index * run->request->block_tokens;
    struct keys_block block = {
        .tokens = run->request->tokens + first,
        .token_count = (size_t)SL_MIN(units - first, run->request->block_tokens),
        .all_nodes = run->keys->extras.nodes,
        .span = keys_extras_of(&run->keys->extras, block_index),
    };
    bool whole = block.token_count == run->request->block_tokens;
    if (!whole && format->family == KEYS_FASTDEPLOY) {
        block.span = (struct keys_span){0};
    }
    block.nodes =
        run->keys->extras.nodes == NULL ? NULL : run->keys->extras.nodes + block.span.first;
    struct keys_digest digest = {0};
    hash_block(run, &block, &digest);
    if (run->failed) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "block %" PRIu64 ": no memory to hash it",
                       block_index);
    }
    char text[SL_KEYS_KEY_BYTES_MAX];
    hex_of(&digest, text);
    uint32_t length = 2 * digest.length;
    if (!whole && format->last == KEYS_LAST_MARKED) {
        length += (uint32_t)snprintf(text + length, sizeof(text) - length, ":partial:%zu",
                                     block.token_count);
    }
    run->parent = digest;
    return each(context, block_index, text, length);
}

/* Takes extras (may be NULL), also on failure. */
static sl_err run_derive(struct sl_keys *keys, const struct sl_keys_request *request,
                         json_t *extras, size_t extras_bytes, sl_keys_each_fn each, void *context,
                         struct sl_error *why)
{
    struct keys_run run = {
        .keys = keys, .request = request, .format = format_find(request->format)};
    uint64_t count = 0;
    sl_err err = sl_keys_count(request, &count, why);
    if (err == SL_OK) {
        err = run_check(&run, why);
    }
    if (err == SL_OK && request->parent != NULL && request->parent[0] != '\0') {
        err = parent_parse(request->parent, run.format->hash == KEYS_XXH3 ? 16 : 32, &run.parent,
                           why);
    }
    if (err != SL_OK) {
        json_decref(extras);
        return err;
    }
    uint64_t units = unit_count(run.format, request->token_count);
    /* There may be an entry for an incomplete block that gets no key. */
    uint64_t blocks = (units + request->block_tokens - 1) / request->block_tokens;
    err = keys_extras_parse(&keys->extras, extras, extras_bytes, blocks, run.format->extras, why);
    if (err == SL_OK && run.parent.length == 0) {
        root_of(&run, request->seed);
    }
    for (uint64_t i = 0; err == SL_OK && i < count; i++) {
        err = run_block(&run, i, units, each, context, why);
    }
    keys_extras_reset(&keys->extras);
    return err;
}

sl_err sl_keys_derive(struct sl_keys *keys, const struct sl_keys_request *request,
                      sl_keys_each_fn each, void *context, struct sl_error *why)
{
    json_t *extras = NULL;
    size_t length = request->extras == NULL ? 0 : strlen(request->extras);
    if (length > SL_KEYS_EXTRAS_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "extras: longer than %u bytes",
                       SL_KEYS_EXTRAS_BYTES_MAX);
    }
    if (length > 0) {
        json_error_t error;
        extras = json_loadb(request->extras, length, KEYS_JSON_FLAGS | JSON_DECODE_ANY, &error);
        if (extras == NULL) {
            return keys_json_failed(why, "extras", &error);
        }
    }
    return run_derive(keys, request, extras, length, each, context, why);
}

/* ---- one JSON object per line ---- */

static sl_err line_print(void *context, uint64_t block, const char *text, uint32_t length)
{
    (void)block;
    (void)length;
    FILE *out = context;
    return fprintf(out, "%s\n", text) < 0 ? SL_ERR_IO : SL_OK;
}

sl_err sl_keys_print_json_line(struct sl_keys *keys, const struct sl_keys_request *form,
                               const char *line, uint64_t length_bytes, FILE *out,
                               struct sl_error *why)
{
    struct sl_keys_request request = {.format = form->format,
                                      .block_tokens = form->block_tokens,
                                      .pickle_protocol = form->pickle_protocol,
                                      .partial = form->partial};
    struct sl_keys_prompt *prompt = &keys->prompt;
    sl_err err = keys_prompt_json(prompt, line, length_bytes, why);
    if (err == SL_OK) {
        request.tokens = prompt->tokens;
        request.token_count = prompt->token_count;
        request.seed = prompt->seed;
        request.parent = prompt->parent;
        json_t *extras = json_incref(json_object_get(prompt->json, "extras"));
        err = run_derive(keys, &request, extras, (size_t)length_bytes, line_print, out, why);
        if (err == SL_ERR_IO) {
            (void)sl_fail(why, err, "could not write a key");
        }
    }
    return err;
}
