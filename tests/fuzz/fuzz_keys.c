/* tests/fuzz/fuzz_keys.c - key derivation from any input: `sluicectl keys` lines, and token
 * sequences with any extras, seed and parent, as the keyer gets them.
 *
 * Input: three bytes of choices, then text: a JSON line, or "extras NUL seed NUL parent NUL
 * tokens". An accepted input gives the right number of keys, the same ones when repeated, and they
 * form a chain: the tail of a sequence gets the same keys from its parent. */
#include "runtime/keys/sl_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define KEYS_MAX  256u
#define TEXTS_MAX 3u

static const char *const formats[] = {
    "fastdeploy",     "fastdeploy-v1",       "vllm-sha256", "vllm-sha256-cbor",
    "vllm-xxhash",    "vllm-xxhash-cbor",    "sglang",      "sglang-bigram",
    "lmcache-sha256", "lmcache-sha256-cbor", "sluice",      "none of them",
};

struct keys {
    char text[KEYS_MAX][SL_KEYS_KEY_BYTES_MAX + 1];
    uint64_t count;
};

static sl_err keep(void *context, uint64_t block, const char *text, uint32_t length)
{
    struct keys *keys = context;
    SL_ASSERT(block == keys->count && block < KEYS_MAX);
    SL_ASSERT(length <= SL_KEYS_KEY_BYTES_MAX && strlen(text) == length && length > 0);
    memcpy(keys->text[keys->count++], text, length + 1);
    return SL_OK;
}

static sl_err derive(struct sl_keys *state, const struct sl_keys_request *request, struct keys *out)
{
    struct sl_error why = {0};
    out->count = 0;
    sl_err err = sl_keys_derive(state, request, keep, out, &why);
    SL_ASSERT(err == SL_OK || (why.code == err && why.text[0] != '\0'));
    return err;
}

/* Derives the blocks from the second on, from the key of the first. */
static void check_chain(struct sl_keys *state, const struct sl_keys_request *request,
                        const struct keys *all)
{
    static struct keys tail;
    bool plain = (request->extras == NULL || request->extras[0] == '\0') && !request->partial;
    if (!plain || all->count < 2) {
        return;
    }
    struct sl_keys_request rest = *request;
    rest.tokens += request->block_tokens;
    rest.token_count -= request->block_tokens;
    rest.parent = all->text[0];
    SL_ASSERT(derive(state, &rest, &tail) == SL_OK && tail.count == all->count - 1);
    for (uint64_t i = 0; i < tail.count; i++) {
        SL_ASSERT(strcmp(tail.text[i], all->text[i + 1]) == 0);
    }
}

static void sequence(struct sl_keys *state, struct sl_keys_request *request, char *text,
                     size_t length)
{
    static struct keys first;
    static struct keys again;
    static uint32_t tokens[KEYS_MAX];
    const char *parts[TEXTS_MAX] = {"", "", ""};
    size_t at = 0;
    for (uint32_t i = 0; i < TEXTS_MAX && at < length; i++) {
        const char *end = memchr(text + at, '\0', length - at);
        parts[i] = text + at;
        at = end == NULL ? length : (size_t)(end - text) + 1;
    }
    request->extras = parts[0];
    request->seed = parts[1];
    request->parent = parts[2];
    request->token_count = SL_MIN((length - at) / sizeof(*tokens), KEYS_MAX);
    memcpy(tokens, text + at, request->token_count * sizeof(*tokens));
    if (request->token_count == 0) { /* some tokens, for inputs that consist only of text */
        request->token_count = request->block_tokens <= 64 ? 3 * request->block_tokens + 1 : 0;
    }
    request->tokens = tokens;
    uint64_t count = 0;
    if (derive(state, request, &first) != SL_OK) {
        return;
    }
    SL_ASSERT(sl_keys_count(request, &count, NULL) == SL_OK && first.count == count);
    SL_ASSERT(derive(state, request, &again) == SL_OK && again.count == count);
    SL_ASSERT(memcmp(first.text, again.text, count * sizeof(first.text[0])) == 0 || count == 0);
    check_chain(state, request, &first);
}

static void line(struct sl_keys *state, const struct sl_keys_request *request, const char *text,
                 size_t length)
{
    char *printed = NULL;
    size_t printed_bytes = 0;
    struct sl_error why = {0};
    FILE *out = open_memstream(&printed, &printed_bytes);
    SL_ASSERT(out != NULL);
    sl_err err = sl_keys_print_json_line(state, request, text, length, out, &why);
    (void)fclose(out);
    SL_ASSERT(err == SL_OK || (printed_bytes == 0 && why.code == err && why.text[0] != '\0'));
    free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static struct sl_keys *state;
    if (state == NULL) {
        SL_ASSERT(sl_keys_create(&state, NULL) == SL_OK);
    }
    if (length_bytes < 3) {
        return 0;
    }
    size_t length = length_bytes - 3;
    char *text = malloc(length + 1);
    SL_ASSERT(text != NULL);
    memcpy(text, bytes + 3, length);
    text[length] = '\0';
    struct sl_keys_request request = {
        .format = formats[bytes[0] % SL_COUNT(formats)],
        .block_tokens = bytes[1] == 255 ? SL_KEYS_BLOCK_TOKENS_MAX : bytes[1],
        .partial = (bytes[2] & 1) != 0,
        .pickle_protocol = (bytes[2] & 2) != 0 ? bytes[2] >> 4 : 0,
    };
    if ((bytes[2] & 4) != 0) {
        line(state, &request, text, length);
    } else {
        sequence(state, &request, text, length);
    }
    free(text);
    return 0;
}
