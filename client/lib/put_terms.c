/* client/lib/put_terms.c - checks of a put's input: keys, bundles, sizes, terms. */
#include "client/lib/put.h"
#include "runtime/base/sl_value.h"

#include <inttypes.h>
#include <string.h>

bool sl_put_key_valid(struct sl_object_key key)
{
    return key.at != NULL && key.length >= 1 && key.length <= SL_KEY_BYTES_MAX &&
           memchr(key.at, 0, key.length) == NULL;
}

/* Whether the terms need a RESERVE, so that extents granted in advance cannot be used. */
static bool terms_matter(const struct sl_put_options *terms)
{
    return terms != NULL && (terms->hard_pin || terms->soft_pin_ns != 0 || terms->replace ||
                             terms->contribution_count != 0);
}

sl_err sl_put_take_terms(struct put *put, const struct sl_put_options *terms)
{
    put->terms = terms_matter(terms) ? terms : NULL;
    put->no_wait = terms != NULL && terms->no_wait;
    if (put->terms == NULL) {
        return SL_OK;
    }
    if (terms->contribution_count > SL_TERMS_CONTRIBUTIONS_MAX ||
        (terms->contribution_count > 0 && terms->contributions == NULL)) {
        return sl_fail(put->why, SL_ERR_INVALID, "terms: %u contributions (at most %u)",
                       terms->contribution_count, SL_TERMS_CONTRIBUTIONS_MAX);
    }
    for (uint32_t i = 0; i < terms->contribution_count; i++) {
        const char *name = terms->contributions[i];
        size_t length = name == NULL ? 0 : strnlen(name, SL_TERMS_NAME_BYTES_MAX + 1);
        if (length == 0 || length > SL_TERMS_NAME_BYTES_MAX) {
            return sl_fail(put->why, SL_ERR_INVALID,
                           "terms: a contribution's name has 1 to %u bytes",
                           SL_TERMS_NAME_BYTES_MAX);
        }
        put->contributions[i] = (struct sl_text){.at = name, .length = length};
    }
    return SL_OK;
}

sl_err sl_put_check_names(const struct put *put, uint64_t source)
{
    struct sl_object_key key = put_key(put, source);
    struct sl_object_key bundle = put_bundle(put, source);
    if (!sl_put_key_valid(key)) {
        return sl_fail(put->why, SL_ERR_INVALID, "key: 1 to %u bytes without NUL, not %u",
                       SL_KEY_BYTES_MAX, key.length);
    }
    if (bundle.length > SL_TERMS_NAME_BYTES_MAX || (bundle.length > 0 && bundle.at == NULL)) {
        return sl_fail(put->why, SL_ERR_INVALID, "bundle: at most %u bytes, not %u",
                       SL_TERMS_NAME_BYTES_MAX, bundle.length);
    }
    return SL_OK;
}

sl_err sl_put_check_length(const struct put *put, uint64_t length_bytes)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(put->client);
    const struct sl_arena *arena = atomic_load_explicit(&at->arenas[0], memory_order_acquire);
    uint64_t most = SL_MIN(arena == NULL ? SL_VALUE_BYTES_MAX : sl_arena_chunk_bytes(arena),
                           SL_VALUE_BYTES_MAX);
    return sl_value_check(length_bytes, most, put->why);
}
