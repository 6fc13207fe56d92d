/* client/mooncake/store/remove.c - removal by key, by pattern, and of values of this process. */
#include "client/mooncake/store/internal.h"
#include "runtime/base/sl_array.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <string.h>

/* A match may start at each byte of a key, so a pattern may scan a long key a few times. */
#define MATCH_STEPS_MIN   100000u
#define MATCH_STEPS_BYTE  4u
#define MATCH_LOOK_STEPS  64u /* steps between two readings of the clock */
#define MATCH_HEAP_KIB    1024u
#define PATTERN_BYTES_MAX 65536u

/* ---- by key ---- */

static void remove_here(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                        bool force, sl_err *errs)
{
    const struct sl_remove_options options = {.respect_leases = !force, .report_busy = true};
    store_errs_open(errs, count);
    store_errs_close(errs, count, sl_remove_batch(client, keys, count, &options, errs, 0, NULL));
}

/* A key counts as removed if this node or a peer had it; a refusal by either has precedence. */
static sl_err removal_merge(sl_err here, sl_err elsewhere)
{
    if (here != SL_OK && here != SL_ERR_NOT_FOUND) {
        return here;
    }
    return elsewhere == SL_ERR_NOT_FOUND ? here : elsewhere;
}

/* Removes the keys on peers as well, if there are any. */
static void remove_elsewhere(struct sl_client *client, const struct sl_object_key *keys,
                             uint32_t count, bool force, sl_err *errs)
{
    SL_AUTO(free)
    sl_err *others = sl_client_has_peers(client) ? store_calloc(count, sizeof *others) : NULL;
    if (others == NULL ||
        sl_remote_remove_batch(client, keys, count, !force, others, 0, NULL) != SL_OK) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        errs[i] = removal_merge(errs[i], others[i]);
    }
}

/* keys: names on the node. Invalid keys get their code here, since a request with one of them would
 * be refused. False: no memory. */
static bool remove_mapped(struct store_base *base, const struct sl_object_key *keys, uint32_t count,
                          bool force, int *codes)
{
    SL_AUTO(free) struct sl_object_key *asked = store_calloc(count, sizeof *asked);
    SL_AUTO(free) uint32_t *places = store_calloc(count, sizeof *places);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    uint32_t asked_count = 0;
    if (asked == NULL || places == NULL || errs == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = store_key_absent(keys[i]);
        if (keys[i].length != 0) {
            asked[asked_count] = keys[i];
            places[asked_count++] = i;
        }
    }
    if (asked_count > 0) {
        remove_here(base->client, asked, asked_count, force, errs);
        remove_elsewhere(base->client, asked, asked_count, force, errs);
    }
    for (uint32_t i = 0; i < asked_count; i++) {
        codes[places[i]] = sl_store_code_of(errs[i]);
    }
    return true;
}

void sl_store_remove(struct sl_store *store, struct sl_object_key *keys, uint32_t count, bool force,
                     int *codes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    if (base == NULL || !store_keys_map(base, keys, count, sizeof *keys, &names) ||
        !remove_mapped(base, keys, count, force, codes)) {
        store_codes_fill(codes, count, base == NULL ? SL_STORE_INVALID : SL_STORE_NO_BUFFER);
    }
}

/* ---- by pattern ---- */

struct pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_match_data *match;
    bool timed;      /* the clock is read during a match */
    uint64_t end_ns; /* latest end of the call */
    uint32_t steps;
};

static void pattern_free(struct pattern *pattern)
{
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->limits);
    pcre2_match_data_free(pattern->match);
}

/* Called by PCRE2 for each item of the pattern that it tries. A limit of steps does not bound the
 * time, since each start in a key has its own steps. */
static int pattern_step(pcre2_callout_block *block, void *context)
{
    struct pattern *pattern = context;
    (void)block;
    bool look = ++pattern->steps % MATCH_LOOK_STEPS == 0;
    return look && sl_clock_monotonic_ns() >= pattern->end_ns ? PCRE2_ERROR_CALLOUT : 0;
}

static pcre2_code *pattern_compile(const struct sl_object_key *text, uint32_t options)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    return pcre2_compile((PCRE2_SPTR)text->at, text->length,
                         PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_ALT_BSUX |
                             PCRE2_ALLOW_EMPTY_CLASS | PCRE2_DOLLAR_ENDONLY |
                             PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C | options,
                         &error, &offset, NULL);
}

/* Callouts to read the clock make a compiled pattern larger. A pattern that is too large with them
 * is matched without, in fewer steps. */
static int pattern_make(struct pattern *pattern, const struct sl_object_key *text)
{
    if (text->length > PATTERN_BYTES_MAX) {
        return SL_STORE_INVALID;
    }
    pattern->code = pattern_compile(text, PCRE2_AUTO_CALLOUT);
    pattern->timed = pattern->code != NULL;
    pattern->code = pattern->timed ? pattern->code : pattern_compile(text, 0);
    if (pattern->code == NULL) {
        return SL_STORE_INVALID;
    }
    pattern->limits = pcre2_match_context_create(NULL);
    pattern->match = pcre2_match_data_create(1, NULL);
    if (pattern->limits == NULL || pattern->match == NULL) {
        return SL_STORE_NO_BUFFER;
    }
    (void)pcre2_set_callout(pattern->limits, pattern_step, pattern);
    (void)pcre2_set_heap_limit(pattern->limits, MATCH_HEAP_KIB);
    return SL_STORE_OK;
}

/* Keys of the node, their texts one after the other. */
struct key_list {
    char *text;
    size_t text_bytes, text_room;
    struct sl_object_key *keys; /* `at` is set by list_settle */
    uint32_t count, room;
};

static bool list_add(struct key_list *list, struct sl_object_key key)
{
    if (!SL_ARRAY_ROOM(list->keys, list->room, list->count + 1) ||
        !SL_ARRAY_ROOM(list->text, list->text_room, list->text_bytes + key.length)) {
        return false;
    }
    memcpy(list->text + list->text_bytes, key.at, key.length);
    list->keys[list->count++] = (struct sl_object_key){.length = key.length};
    list->text_bytes += key.length;
    return true;
}

static void list_settle(struct key_list *list)
{
    const char *at = list->text;
    for (uint32_t i = 0; i < list->count; i++) {
        list->keys[i].at = at;
        at += list->keys[i].length;
    }
}

static void list_free(struct key_list *list)
{
    free(list->text);
    free(list->keys);
}

struct matching {
    struct store_base *base;
    const struct pattern *pattern; /* NULL: matches all */
    struct key_list found;
    uint64_t end_ns;
    int code;
};

/* Whether the pattern matches in the key. Sets a code that ends the walk if the call's time is
 * over, or if the pattern takes too many steps for one key. */
static bool matching_test(struct matching *matching, struct sl_object_key own)
{
    if (matching->pattern == NULL) {
        return true;
    }
    uint32_t steps = matching->pattern->timed
                         ? SL_MAX(MATCH_STEPS_MIN, MATCH_STEPS_BYTE * own.length)
                         : MATCH_STEPS_MIN;
    (void)pcre2_set_match_limit(matching->pattern->limits, steps);
    int found = pcre2_match(matching->pattern->code, (PCRE2_SPTR)own.at, own.length, 0, 0,
                            matching->pattern->match, matching->pattern->limits);
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
        found == PCRE2_ERROR_HEAPLIMIT) {
        matching->code = SL_STORE_INVALID;
    }
    if (found == PCRE2_ERROR_CALLOUT || sl_clock_monotonic_ns() >= matching->end_ns) {
        matching->code = SL_STORE_RPC_TIMEOUT;
    }
    return found >= 0;
}

static bool matching_each(void *context, const struct sl_object_info *info)
{
    struct matching *matching = context;
    const struct sl_store_prefix tenant = store_tenant(matching->base);
    struct sl_object_key own;
    bool found = sl_store_name_own(tenant, info->key, &own)
                     ? matching_test(matching, own)
                     : matching->pattern == NULL && sl_store_name_is_digest(tenant, info->key);
    if (found && matching->code == SL_STORE_OK && !list_add(&matching->found, info->key)) {
        matching->code = SL_STORE_NO_BUFFER;
    }
    return matching->code == SL_STORE_OK;
}

static int64_t matching_remove(struct store_base *base, struct key_list *list, bool force)
{
    int64_t removed = 0;
    int failed = SL_STORE_OK;
    SL_AUTO(free) int *codes = store_calloc(list->count, sizeof *codes);
    list_settle(list);
    for (uint32_t first = 0; first < list->count; first += SL_STORE_BATCH_MAX) {
        uint32_t share = SL_MIN(list->count - first, SL_STORE_BATCH_MAX);
        if (codes == NULL || !remove_mapped(base, list->keys + first, share, force, codes)) {
            return SL_STORE_NO_BUFFER;
        }
        for (uint32_t i = 0; i < share; i++) {
            removed += codes[i] == SL_STORE_OK ? 1 : 0;
            if (codes[i] == SL_STORE_RPC || codes[i] == SL_STORE_RPC_TIMEOUT) {
                failed = codes[i];
            }
        }
    }
    return removed == 0 && failed != SL_STORE_OK ? failed : removed;
}

static int64_t remove_listed(struct store_base *base, struct pattern *pattern, bool force)
{
    struct matching matching = {
        .base = base, .pattern = pattern, .end_ns = store_ceiling_ns(base, 0)};
    if (pattern != NULL) {
        pattern->end_ns = matching.end_ns;
    }
    char prefix[STORE_PREFIX_BYTES + 1]; /* without the second mark, which names by digest lack */
    (void)snprintf(prefix, sizeof prefix, "%.*s",
                   base->prefix_length == 0 ? 0 : (int)base->prefix_length - 1, base->prefix);
    sl_err err = sl_list(base->client, prefix, matching_each, &matching, NULL);
    int64_t result = err != SL_OK                   ? sl_store_code_of(err)
                     : matching.code != SL_STORE_OK ? matching.code
                                                    : matching_remove(base, &matching.found, force);
    list_free(&matching.found);
    return result;
}

int64_t sl_store_remove_matching(struct sl_store *store, const struct sl_object_key *pattern,
                                 bool force)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    struct pattern compiled = {0};
    if (base == NULL) {
        return SL_STORE_INVALID;
    }
    int64_t result = pattern == NULL ? SL_STORE_OK : pattern_make(&compiled, pattern);
    if (result == SL_STORE_OK) {
        result = remove_listed(base, pattern == NULL ? NULL : &compiled, force);
    }
    pattern_free(&compiled);
    return result;
}

/* ---- values that this process put ---- */

/* Returns a bit for each contribution of a host's segment; 0: no such segment. */
static uint64_t segment_find(struct sl_client *client, const char *segment)
{
    SL_AUTO(free)
    struct sl_segment_info *infos = store_calloc(SL_CONTRIBUTIONS_MAX, sizeof *infos);
    uint32_t count = infos == NULL ? 0 : store_contributions(client, infos);
    uint64_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t length = segment_host_length(infos[i].name);
        if (infos[i].number < SL_CONTRIBUTIONS_MAX && length == strlen(segment) &&
            memcmp(infos[i].name, segment, length) == 0) {
            found |= UINT64_C(1) << infos[i].number;
        }
    }
    return found;
}

void sl_store_replica_clear(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                            const char *segment, bool *cleared)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) struct sl_stat *stats = store_calloc(count, sizeof *stats);
    SL_AUTO(free) struct sl_object_key *mine = store_calloc(count, sizeof *mine);
    SL_AUTO(free) uint32_t *places = store_calloc(count, sizeof *places);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    memset(cleared, 0, count * sizeof *cleared);
    struct sl_client *quiet =
        base == NULL ? NULL : store_quiet_client(base); /* the lookup must not lease */
    if (quiet == NULL || stats == NULL || mine == NULL || places == NULL || errs == NULL ||
        !store_keys_map(base, keys, count, sizeof *keys, &names) ||
        sl_stat_batch(quiet, keys, count, stats, errs) != SL_OK) {
        return;
    }
    uint64_t there = segment[0] == '\0' ? 0 : segment_find(quiet, segment);
    uint32_t mine_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].length != 0 && errs[i] == SL_OK && stats[i].ours &&
            (segment[0] == '\0' || (stats[i].contributions & there) != 0)) {
            mine[mine_count] = keys[i];
            places[mine_count++] = i;
        }
    }
    remove_here(quiet, mine, mine_count, false, errs);
    for (uint32_t i = 0; i < mine_count; i++) {
        cleared[places[i]] = errs[i] == SL_OK;
    }
}
