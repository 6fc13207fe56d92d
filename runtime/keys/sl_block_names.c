/* runtime/keys/sl_block_names.c - see sl_block_names.h. */
#include "runtime/keys/sl_block_names.h"
#include "runtime/base/sl_hex.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEX_DIGITS_MIN    8u /* of a hash in a key; LMCache's integers have no leading zeros */
#define SGLANG_HEX_DIGITS 64u
#define TIER_GROUP_DIGITS 8u
#define TENANT_MARK       '\x01' /* as in client/mooncake/store/names.h */

struct span {
    const char *at;
    uint32_t length;
};

static struct span span_of(const char *begin, const char *end)
{
    return (struct span){.at = begin, .length = (uint32_t)(end - begin)};
}

static bool span_begins(struct span span, const char *text)
{
    size_t length = strlen(text);
    return span.length >= length && memcmp(span.at, text, length) == 0;
}

static bool span_ends(struct span span, const char *text)
{
    size_t length = strlen(text);
    return span.length >= length && memcmp(span.at + span.length - length, text, length) == 0;
}

static const char *span_find(struct span span, const char *text)
{
    return memmem(span.at, span.length, text, strlen(text));
}

static const char *span_last(struct span span, char sign)
{
    return memrchr(span.at, sign, span.length);
}

static bool is_digits(struct span span)
{
    for (uint32_t i = 0; i < span.length; i++) {
        if (!isdigit((unsigned char)span.at[i])) {
            return false;
        }
    }
    return span.length > 0;
}

static uint32_t hex_digits(const char *at, const char *end)
{
    const char *begin = at;
    while (at < end && isxdigit((unsigned char)*at)) {
        at++;
    }
    return (uint32_t)(at - begin);
}

static bool is_hex(struct span span)
{
    return span.length >= HEX_DIGITS_MIN &&
           hex_digits(span.at, span.at + span.length) == span.length;
}

/* ---- fields of the result ---- */

/* Sets the hash. Text that is longer than the field is replaced by its digest. */
static void hash_set(struct sl_block_name *out, struct span span)
{
    uint32_t odd = span.length % 2;
    out->named = false;
    if (is_hex(span) && (span.length + odd) / 2 <= SL_BLOCK_HASH_BYTES) {
        out->hash_length = (span.length + odd) / 2;
        memset(out->hash, 0, sizeof(out->hash));
        for (uint32_t i = 0; i < span.length; i++) {
            uint32_t place = i + odd;
            out->hash[place / 2] |=
                (uint8_t)((unsigned)sl_hex_digit(span.at[i]) << (place % 2 == 0 ? 4 : 0));
        }
        return;
    }
    out->named = span.length != 16 && span.length != 32; /* 16 or 32 bytes are a raw digest */
    if (span.length <= SL_BLOCK_HASH_BYTES) {
        out->hash_length = span.length;
        memcpy(out->hash, span.at, span.length);
        return;
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(span.at, span.length));
    out->hash_length = sizeof(digest.digest);
    memcpy(out->hash, digest.digest, sizeof(digest.digest));
}

static void model_set(struct sl_block_name *out, struct span model)
{
    out->model = model.at;
    out->model_length = model.length;
}

/* Joins spans, each after a byte that no key contains, so that different lists never look alike. */
static void join(char *out, size_t room, uint32_t *length, const struct span *spans, uint32_t count)
{
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (at + 1 + spans[i].length > room) {
            break; /* a key is shorter than the room */
        }
        out[at++] = '\x1f';
        if (spans[i].length > 0) {
            memcpy(out + at, spans[i].at, spans[i].length);
        }
        at += spans[i].length;
    }
    *length = (uint32_t)at;
}

#define FAMILY(out, ...)                                              \
    join((out)->family, sizeof((out)->family), &(out)->family_length, \
         (const struct span[]){__VA_ARGS__},                          \
         (uint32_t)(sizeof((const struct span[]){__VA_ARGS__}) / sizeof(struct span)))
#define PART(out, ...)                                          \
    join((out)->part, sizeof((out)->part), &(out)->part_length, \
         (const struct span[]){__VA_ARGS__},                    \
         (uint32_t)(sizeof((const struct span[]){__VA_ARGS__}) / sizeof(struct span)))
#define TEXT(text) ((struct span){.at = (text), .length = sizeof(text) - 1})

/* ---- formats ---- */

static bool block_parse(struct span key, uint32_t block_length, struct sl_block_name *out)
{
    const char *slash = memchr(key.at, '/', block_length);
    if (slash == NULL || block_length + 1 >= key.length) {
        return false;
    }
    struct span model = span_of(key.at, slash);
    struct span hash = span_of(slash + 1, key.at + block_length);
    if (hash.length == 0 || span_find(hash, ":partial:") != NULL) {
        return false;
    }
    model_set(out, model);
    hash_set(out, hash);
    FAMILY(out, TEXT("block"), model);
    PART(out, span_of(key.at + block_length + 1, key.at + key.length));
    return true;
}

static bool vllm_parse(struct span key, struct sl_block_name *out)
{
    const char *rank = span_find(key, "@tp_rank:");
    const char *end = key.at + key.length;
    const char *last = span_last(key, '@');
    if (rank == NULL || rank == key.at || last <= rank || !is_hex(span_of(last + 1, end))) {
        return false;
    }
    struct span middle = span_of(rank, last);
    const char *group = span_find(middle, "@group:");
    struct span group_text = TEXT("");
    if (group != NULL) {
        group_text = span_of(group + 7, last);
        middle = span_of(rank, group);
        if (!is_digits(group_text) || group_text.length > 6) {
            return false;
        }
        out->group_index = 0;
        for (uint32_t i = 0; i < group_text.length; i++) {
            out->group_index = out->group_index * 10 + (uint32_t)(group_text.at[i] - '0');
        }
    }
    model_set(out, span_of(key.at, rank));
    hash_set(out, span_of(last + 1, end));
    FAMILY(out, TEXT("vllm"), span_of(key.at, rank), group_text);
    PART(out, middle);
    return true;
}

/* Whether this can follow the hash in an SGLang key: _T_k, _T_Q_v, __k. */
static bool sglang_rest(struct span rest)
{
    if ((!span_ends(rest, "_k") && !span_ends(rest, "_v")) || rest.length < 3) {
        return false;
    }
    for (uint32_t i = 0; i < rest.length - 2; i++) {
        if (!isdigit((unsigned char)rest.at[i]) && rest.at[i] != '_') {
            return false;
        }
    }
    return rest.at[0] == '_';
}

static bool sglang_parse(struct span key, struct sl_block_name *out)
{
    const char *end = key.at + key.length;
    for (const char *at = key.at; end - at > (ptrdiff_t)SGLANG_HEX_DIGITS;) {
        if (hex_digits(at, end) == SGLANG_HEX_DIGITS &&
            sglang_rest(span_of(at + SGLANG_HEX_DIGITS, end))) {
            struct span before = span_of(key.at, at);
            model_set(out, span_of(key.at, at > key.at ? at - 1 : at));
            hash_set(out, span_of(at, at + SGLANG_HEX_DIGITS));
            FAMILY(out, TEXT("sglang"), before);
            PART(out, span_of(at + SGLANG_HEX_DIGITS, end));
            out->sglang = true;
            return true;
        }
        const char *next = memchr(at, '_', (size_t)(end - at));
        if (next == NULL) {
            return false;
        }
        at = next + 1;
    }
    return false;
}

static bool fastdeploy_parse(struct span key, struct sl_block_name *out)
{
    static const char *const kinds[] = {"_key", "_value", "_key_scale", "_value_scale"};
    struct span kind = {0};
    for (uint32_t i = 0; i < SL_COUNT(kinds); i++) {
        if (span_ends(key, kinds[i])) {
            kind = span_of(key.at + key.length - strlen(kinds[i]), key.at + key.length);
        }
    }
    if (kind.length == 0 || !span_begins(key, "prefix")) {
        return false;
    }
    struct span rest = span_of(key.at, kind.at);
    const char *rank = span_last(rest, '_');
    if (rank == NULL || !is_digits(span_of(rank + 1, kind.at))) {
        return false;
    }
    rest = span_of(key.at, rank);
    const char *hash = span_last(rest, '_');
    if (hash == NULL || !is_hex(span_of(hash + 1, rank))) {
        return false; /* also an incomplete block */
    }
    model_set(out, span_of(key.at, hash));
    hash_set(out, span_of(hash + 1, rank));
    FAMILY(out, TEXT("fastdeploy"), span_of(key.at, hash));
    PART(out, span_of(rank, key.at + key.length));
    return true;
}

/* Fields are separated by @: the model, then WORLD, WORKER and HASH in a row, then the type, an
 * optional numeric layer, and tags. */
#define LMCACHE_FIELDS_MAX 24u
static bool lmcache_parse(struct span before, struct span key, struct sl_block_name *out)
{
    struct span fields[LMCACHE_FIELDS_MAX];
    uint32_t count = 0;
    const char *end = key.at + key.length;
    for (const char *at = key.at; at <= end && count < LMCACHE_FIELDS_MAX;) {
        const char *next = memchr(at, '@', (size_t)(end - at));
        next = next != NULL ? next : end;
        fields[count++] = span_of(at, next);
        at = next + 1;
    }
    for (uint32_t i = 1; i + 2 < count; i++) {
        if (!is_digits(fields[i]) || !is_digits(fields[i + 1]) || !is_hex(fields[i + 2])) {
            continue;
        }
        struct span layer = TEXT("");
        struct span after = span_of(fields[i + 2].at + fields[i + 2].length, end);
        struct span tags = TEXT("");
        if (i + 4 < count && is_digits(fields[i + 4])) {
            layer = fields[i + 4];
            after.length = (uint32_t)(layer.at - 1 - after.at);
            tags = span_of(layer.at + layer.length, end);
        }
        model_set(out, span_of(key.at, fields[i].at - 1));
        hash_set(out, fields[i + 2]);
        FAMILY(out, TEXT("lmcache"), before, span_of(key.at, fields[i + 1].at), after, tags);
        PART(out, fields[i + 1], layer);
        return true;
    }
    return false;
}

/* Parses a key that a connector passed to Mooncake's API. */
static bool connector_parse(struct span key, struct sl_block_name *out)
{
    return vllm_parse(key, out) || fastdeploy_parse(key, out) || sglang_parse(key, out) ||
           lmcache_parse(TEXT(""), key, out);
}

/* sglang/IDENTITY/HASH/PART: the parts of K and V are ranges of heads, or there is one part. */
static bool sglang_own_parse(struct span key, struct sl_block_name *out)
{
    const char *identity = key.at + sizeof("sglang/") - 1;
    const char *end = key.at + key.length;
    const char *slash = memchr(identity, '/', (size_t)(end - identity));
    if (slash == NULL) {
        return false;
    }
    uint32_t digits = hex_digits(slash + 1, end);
    const char *rest = slash + 1 + digits;
    if (digits < HEX_DIGITS_MIN || (rest < end && *rest != '/')) {
        return false;
    }
    model_set(out, span_of(identity, slash));
    hash_set(out, span_of(slash + 1, rest));
    FAMILY(out, TEXT("sglang/"), span_of(identity, slash));
    PART(out, span_of(rest, end));
    out->sglang = true;
    return true;
}

static bool lmcache_own_parse(struct span key, struct sl_block_name *out)
{
    const char *layout = key.at + sizeof("lmcache/") - 1;
    const char *end = key.at + key.length;
    const char *slash = memchr(layout, '/', (size_t)(end - layout));
    return slash != NULL && lmcache_parse(span_of(key.at, slash + 1), span_of(slash + 1, end), out);
}

/* Finds the last _rNUMBER followed by a slash; NULL: none. */
static const char *rank_find(struct span text)
{
    for (uint32_t i = text.length; i-- > 0;) {
        uint32_t at = i;
        while (at > 0 && text.at[i] == '/' && isdigit((unsigned char)text.at[at - 1])) {
            at--;
        }
        if (at < i && at >= 2 && text.at[at - 1] == 'r' && text.at[at - 2] == '_') {
            return text.at + at - 2;
        }
    }
    return NULL;
}

/* vllm-tier/NAME_rRANK/LAYOUT/HASH, whose last eight digits are the group. */
static bool tier_parse(struct span key, struct sl_block_name *out)
{
    const char *end = key.at + key.length;
    const char *last = span_last(key, '/');
    struct span hash = span_of(last + 1, end);
    const char *rank = rank_find(span_of(key.at, last + 1));
    if (rank == NULL || !is_hex(hash) || hash.length < HEX_DIGITS_MIN + TIER_GROUP_DIGITS) {
        return false;
    }
    const char *after = memchr(rank, '/', (size_t)(end - rank));
    struct span group = span_of(end - TIER_GROUP_DIGITS, end);
    out->group_index = 0;
    for (uint32_t i = 0; i < group.length; i++) {
        out->group_index = out->group_index << 4 | (uint32_t)sl_hex_digit(group.at[i]);
    }
    hash.length -= TIER_GROUP_DIGITS;
    model_set(out, span_of(key.at + sizeof("vllm-tier/") - 1, rank));
    hash_set(out, hash);
    FAMILY(out, TEXT("vllm-tier"), span_of(key.at, rank), span_of(after, last + 1), group);
    PART(out, span_of(rank, after));
    return true;
}

/* A mark, the tenant, a mark, and a connector's key: the tenant is added to the model's name. */
static bool tenant_parse(struct span key, struct sl_block_name *out)
{
    const char *end = key.at + key.length;
    const char *mark = memchr(key.at + 1, TENANT_MARK, key.length - 1);
    if (mark == NULL || !connector_parse(span_of(mark + 1, end), out) ||
        out->family_length + (size_t)(mark - key.at) > sizeof(out->family)) {
        return false;
    }
    bool alone = out->model_length == 0; /* the tenant is the whole name */
    out->model_length += (uint32_t)(mark - key.at) - (alone ? 1 : 0);
    out->model = key.at + 1; /* a connector's key begins with its model */
    memcpy(out->family + out->family_length, key.at, (size_t)(mark - key.at));
    out->family_length += (uint32_t)(mark - key.at);
    return true;
}

bool sl_block_name_parse(const char *key, uint32_t key_length, uint32_t block_length,
                         struct sl_block_name *out)
{
    struct span span = {.at = key, .length = key_length};
    out->group_index = SL_BLOCK_NO_GROUP;
    out->sglang = out->named = false;
    if (block_length > 0) {
        return block_length < key_length && block_parse(span, block_length, out);
    }
    if (key_length > 0 && key[0] == TENANT_MARK) {
        return tenant_parse(span, out);
    }
    if (span_begins(span, "sglang/")) {
        return sglang_own_parse(span, out);
    }
    if (span_begins(span, "lmcache/")) {
        return lmcache_own_parse(span, out);
    }
    if (span_begins(span, "vllm-tier/")) {
        return tier_parse(span, out);
    }
    return connector_parse(span, out);
}

uint64_t sl_block_name_number(const struct sl_block_name *name, bool *is_signed)
{
    uint64_t number = 0;
    *is_signed = name->sglang;
    if (name->named) {
        return XXH3_64bits(name->hash, name->hash_length);
    }
    uint32_t count = SL_MIN(name->hash_length, 8u);
    const uint8_t *at = name->sglang ? name->hash : name->hash + name->hash_length - count;
    for (uint32_t i = 0; i < count; i++) {
        number = number << 8 | at[i];
    }
    return number;
}
