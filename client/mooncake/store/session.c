/* client/mooncake/store/session.c - sessions: a key is looked up once, and its value is copied in
 * parts. A reading session pins its value, so the bytes never change; it ends with its lease, as
 * engines expect. A writing session holds an sl_put_session. */
#include "client/mooncake/store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADS_MIN 64u

/* ---- the table; all under the store's lock ---- */

static struct store_session *session_find(const struct sl_table *table, struct sl_object_key key)
{
    struct store_session *at =
        SL_TABLE_FIRST(table, store_key_hash(key), struct store_session, node);
    while (at != NULL &&
           (at->key_length != key.length || memcmp(at->key, key.at, key.length) != 0)) {
        at = SL_TABLE_NEXT(at, struct store_session, node);
    }
    return at;
}

/* False: no memory. */
static bool session_add(struct sl_table *table, struct store_session *session)
{
    const struct sl_object_key key = {.at = session->key, .length = session->key_length};
    bool fits = sl_table_reserve(table, SL_MAX(table->count + 1, HEADS_MIN));
    if (fits) {
        sl_table_add(table, &session->node, store_key_hash(key));
    }
    return fits;
}

static struct store_session *session_new(struct store_base *base, struct sl_object_key key)
{
    struct store_session *session = calloc(1, sizeof *session + key.length);
    if (session != NULL) {
        session->base = base;
        session->key_length = key.length;
        memcpy(session->key, key.at, key.length);
        store_hold(base);
    }
    return session;
}

static void session_free(struct store_session *session)
{
    sl_store_buffer_release(&session->value);
    if (session->draft != NULL && session->base->pid == getpid()) { /* else the parent's */
        sl_put_abort(&session->draft);
    }
    store_leave(session->base);
    free(session);
}

/* ---- uses ---- */

static struct store_session *session_enter(struct sl_store *store, struct sl_table *table,
                                           struct sl_object_key key)
{
    pthread_mutex_lock(&store->lock);
    struct store_session *session = session_find(table, key);
    if (session != NULL) {
        session->uses++;
    }
    pthread_mutex_unlock(&store->lock);
    return session;
}

/* drop: ends the session, even if other calls use it. */
static void session_leave(struct sl_store *store, struct sl_table *table,
                          struct store_session *session, bool drop)
{
    pthread_mutex_lock(&store->lock);
    if (drop && !session->over) {
        sl_table_remove(table, &session->node);
        session->over = true;
    }
    session->uses--;
    bool last = session->over && session->uses == 0;
    (void)pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    if (last) {
        session_free(session);
    }
}

/* Removes the session from the table and waits for running copies, which end by themselves. A
 * forked child does not wait, since their threads are in the parent. Called with the lock held; the
 * caller then owns the session. */
static void session_own(struct sl_store *store, struct sl_table *table,
                        struct store_session *session)
{
    sl_table_remove(table, &session->node);
    session->over = true;
    session->uses++; /* so that no other thread frees it */
    while (session->uses > 1 && session->base->pid == getpid()) {
        (void)pthread_cond_wait(&store->changed, &store->lock);
    }
}

static struct store_session *session_take(struct sl_store *store, struct sl_table *table,
                                          struct sl_object_key key)
{
    pthread_mutex_lock(&store->lock);
    struct store_session *session = session_find(table, key);
    if (session != NULL) {
        session_own(store, table, session);
    }
    pthread_mutex_unlock(&store->lock);
    return session;
}

static void table_end(struct sl_store *store, struct sl_table *table)
{
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < table->head_count;) {
        if (table->heads[i] == NULL) {
            i++;
            continue;
        }
        struct store_session *session = SL_TABLE_ITEM(table->heads[i], struct store_session, node);
        session_own(store, table, session);
        pthread_mutex_unlock(&store->lock);
        session_free(session);
        pthread_mutex_lock(&store->lock);
    }
    sl_table_fini(table);
    pthread_mutex_unlock(&store->lock);
}

void store_sessions_end(struct sl_store *store)
{
    table_end(store, &store->gets);
    table_end(store, &store->puts);
}

/* ---- reading ---- */

/* Adds the session to the table and ends an earlier one of the same key. Takes session. */
static int session_install(struct sl_store *store, struct sl_table *table,
                           struct store_session *session)
{
    const struct sl_object_key key = {.at = session->key, .length = session->key_length};
    pthread_mutex_lock(&store->lock);
    struct store_session *old = session_find(table, key);
    if (old != NULL) {
        sl_table_remove(table, &old->node);
        old->over = true;
    }
    bool fine = store->base == session->base && session_add(table, session);
    bool old_unused = old != NULL && old->uses == 0;
    pthread_mutex_unlock(&store->lock);
    if (old_unused) {
        session_free(old);
    }
    if (!fine) {
        session_free(session);
    }
    return fine ? SL_STORE_OK : SL_STORE_NO_BUFFER;
}

/* Opens a reading session; takes *value if it is pinned. */
static int get_session_open(struct sl_store *store, struct store_base *base,
                            struct sl_object_key key, struct sl_store_buffer **value,
                            uint64_t lease_end_ns)
{
    struct store_session *session = session_new(base, key);
    if (session == NULL) {
        return SL_STORE_NO_BUFFER;
    }
    session->length_bytes = sl_store_buffer_length(*value);
    session->lease_end_ns = lease_end_ns;
    if (!sl_store_buffer_is_copy(*value)) {
        session->value = SL_TAKE(*value);
    }
    return session_install(store, &store->gets, session);
}

void sl_store_get_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                uint32_t count, int *codes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) struct sl_object_key *mapped = store_calloc(count, sizeof *mapped);
    SL_AUTO(free) struct sl_store_buffer **values = store_calloc(count, sizeof(void *));
    SL_AUTO(free) struct sl_stat *stats = store_calloc(count, sizeof *stats);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    bool usable = base != NULL && !base->dummy;
    store_codes_fill(codes, count, usable ? SL_STORE_NO_BUFFER : SL_STORE_INVALID);
    if (!usable || mapped == NULL || values == NULL || stats == NULL || errs == NULL) {
        return;
    }
    memcpy(mapped, keys, count * sizeof *mapped);
    if (!store_keys_map(base, mapped, count, sizeof *mapped, &names)) {
        return;
    }
    sl_store_hold(store, keys, count, values, codes);
    sl_err err = sl_stat_batch(base->client, mapped, count, stats, errs);
    for (uint32_t i = 0; i < count; i++) {
        bool leased = err == SL_OK && errs[i] == SL_OK; /* else the end of the lease is not known */
        if (codes[i] == SL_STORE_OK) {
            codes[i] = get_session_open(store, base, mapped[i], &values[i],
                                        leased ? stats[i].lease_end_ns : 0);
        }
        sl_store_buffer_release(&values[i]);
    }
}

/* Total bytes of the pieces; -1: a piece is beyond the value. */
static int64_t pieces_bytes(const struct sl_iov_list *item, uint64_t length_bytes)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < item->count; i++) {
        const struct sl_iov *piece = &item->at[i];
        if (piece->at == NULL || piece->offset_bytes > length_bytes ||
            piece->length_bytes > length_bytes - piece->offset_bytes) {
            return -1;
        }
        total += (int64_t)piece->length_bytes;
    }
    return total;
}

/* Whether the bytes came from the pinned value. Its memory is not reused while pinned, so an equal
 * address means the same value. */
static bool session_unchanged(const struct store_session *session)
{
    const struct sl_object_key key = {.at = session->key, .length = session->key_length};
    struct sl_view now = {.at = NULL};
    if (session->value == NULL) {
        return true; /* not pinned: no pins were left */
    }
    if (sl_get_pinned(session->base->client, key, &now, 0, NULL) != SL_OK) {
        return false;
    }
    bool same = now.at == sl_store_buffer_at(session->value);
    sl_view_release(session->base->client, &now);
    return same;
}

/* Returns the result of a read; ends the session if its lease or its value is gone. */
static int64_t get_session_settle(struct sl_store *store, struct store_session *session,
                                  int64_t bytes, sl_err err)
{
    bool over = session->lease_end_ns != 0 && sl_clock_monotonic_ns() > session->lease_end_ns;
    bool gone = !over && (err == SL_ERR_NOT_FOUND || (err == SL_OK && !session_unchanged(session)));
    session_leave(store, &store->gets, session, over || gone);
    if (over) {
        return SL_STORE_LEASE_OVER;
    }
    if (gone) {
        return SL_STORE_NOT_FOUND;
    }
    return bytes < 0 ? SL_STORE_INVALID : err != SL_OK ? sl_store_code_of(err) : bytes;
}

static void get_sessions_read(struct sl_store *store, struct store_base *base,
                              struct sl_iov_list *items, uint32_t count,
                              struct store_session **sessions, uint64_t *lengths, sl_err *errs,
                              int64_t *results)
{
    for (uint32_t i = 0; i < count; i++) {
        sessions[i] = session_enter(store, &store->gets, items[i].key);
        results[i] = sessions[i] == NULL ? -1 : pieces_bytes(&items[i], sessions[i]->length_bytes);
        items[i].count = results[i] < 0 ? 0 : items[i].count;
    }
    store_get_pieces(base, items, count, false, lengths, errs);
    for (uint32_t i = 0; i < count; i++) {
        results[i] = sessions[i] == NULL
                         ? SL_STORE_INVALID
                         : get_session_settle(store, sessions[i], results[i], errs[i]);
    }
}

void sl_store_get_session_read(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                               int64_t *results)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) struct store_session **sessions = store_calloc(count, sizeof(void *));
    SL_AUTO(free) uint64_t *lengths = store_calloc(count, sizeof *lengths);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    bool usable = base != NULL && !base->dummy;
    if (!usable || sessions == NULL || lengths == NULL || errs == NULL ||
        !store_keys_map(base, &items->key, count, sizeof *items, &names)) {
        store_results_fill(results, count, usable ? SL_STORE_NO_BUFFER : SL_STORE_INVALID);
        return;
    }
    get_sessions_read(store, base, items, count, sessions, lengths, errs, results);
}

int sl_store_get_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    if (base == NULL || base->dummy) {
        return base == NULL ? SL_STORE_INTERNAL : SL_STORE_INVALID;
    }
    if (!store_keys_map(base, keys, count, sizeof *keys, &names)) {
        return SL_STORE_NO_BUFFER;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct store_session *session = session_take(store, &store->gets, keys[i]);
        if (session != NULL) {
            session_free(session);
        }
    }
    return SL_STORE_OK;
}

/* ---- writing ---- */

/* Opens a writing session for a draft. Takes the draft. */
static int put_session_open(struct sl_store *store, struct store_base *base,
                            struct sl_object_key key, uint64_t length_bytes,
                            struct sl_put_session *draft)
{
    struct store_session *session = session_new(base, key);
    if (session == NULL) {
        sl_put_abort(&draft);
        return SL_STORE_NO_BUFFER;
    }
    session->draft = draft;
    session->length_bytes = length_bytes;
    pthread_mutex_lock(&store->lock);
    bool twice = session_find(&store->puts, key) != NULL;
    bool fine = !twice && store->base == base && session_add(&store->puts, session);
    pthread_mutex_unlock(&store->lock);
    if (!fine) {
        session_free(session);
    }
    return fine ? SL_STORE_OK : twice ? SL_STORE_INVALID : SL_STORE_NO_BUFFER;
}

static int draft_code_of(sl_err err)
{
    switch (err) {
    case SL_ERR_BUSY: /* another writer */
        return SL_STORE_EXISTS;
    case SL_ERR_LIMIT:
        return SL_STORE_NO_SPACE;
    default:
        return sl_store_code_of(err);
    }
}

/* Arrays of the sessions that start. */
struct starting {
    struct sl_object_key *keys, *bundles;
    uint64_t *lengths;
    uint32_t *sources;
    struct sl_put_session **drafts;
    sl_err *errs;
    uint32_t count;
};

/* Selects the items that can start. Sets the code of the others: invalid ones, keys with a session,
 * and all but the last of the same key. */
static void starting_select(struct sl_store *store, struct starting *starting,
                            const struct sl_iov_list *items, const uint64_t *lengths_bytes,
                            uint32_t count, const uint32_t *later, int *codes, struct sl_error *why)
{
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < count; i++) {
        bool fine = items[i].key.length != 0 &&
                    sl_value_check(lengths_bytes[i], SL_VALUE_BYTES_MAX, why) == SL_OK &&
                    (later == NULL || later[i] == i) &&
                    session_find(&store->puts, items[i].key) == NULL;
        codes[i] = fine                       ? SL_STORE_OK
                   : items[i].key.length == 0 ? store_key_code(items[i].key)
                                              : SL_STORE_INVALID;
        if (fine) {
            starting->keys[starting->count] = items[i].key;
            starting->bundles[starting->count] = items[i].bundle;
            starting->lengths[starting->count] = lengths_bytes[i];
            starting->sources[starting->count++] = i;
        }
    }
    pthread_mutex_unlock(&store->lock);
}

static void starting_drafts(struct sl_store *store, struct store_base *base,
                            struct starting *starting, const struct sl_put_options *terms,
                            int *codes, struct sl_error *why)
{
    struct sl_error reason = {.code = SL_OK};
    store_errs_open(starting->errs, starting->count);
    sl_err err =
        sl_put_start(base->client, starting->keys, starting->bundles, starting->lengths,
                     starting->count, terms, 0, starting->drafts, starting->errs, 0, &reason);
    store_errs_close(starting->errs, starting->count, err);
    for (uint32_t i = 0; i < starting->count; i++) {
        uint32_t source = starting->sources[i];
        sl_err one = starting->errs[i];
        if (one == SL_ERR_INVALID && reason.code == one) {
            *why = reason;
        }
        codes[source] = one != SL_OK ? draft_code_of(one)
                                     : put_session_open(store, base, starting->keys[i],
                                                        starting->lengths[i], starting->drafts[i]);
    }
}

void sl_store_put_session_start(struct sl_store *store, const struct sl_object_key *keys,
                                const uint64_t *lengths_bytes, uint32_t count,
                                const struct sl_store_terms *terms, int *codes,
                                struct sl_error *why)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(batch) struct store_batch batch = {.later = NULL};
    SL_AUTO(free) struct sl_iov_list *items = store_calloc(count, sizeof *items);
    SL_AUTO(free) struct sl_object_key *chosen = store_calloc(count, sizeof *chosen);
    SL_AUTO(free) struct sl_object_key *bundles = store_calloc(count, sizeof *bundles);
    SL_AUTO(free) uint64_t *lengths = store_calloc(count, sizeof *lengths);
    SL_AUTO(free) uint32_t *sources = store_calloc(count, sizeof *sources);
    SL_AUTO(free) struct sl_put_session **drafts = store_calloc(count, sizeof(void *));
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    struct starting starting = {chosen, bundles, lengths, sources, drafts, errs, 0};
    struct store_terms made;
    int code = base == NULL || base->dummy
                   ? SL_STORE_INVALID
                   : store_terms_make(terms, SL_STORE_SAME_NODE, count, &made);
    for (uint32_t i = 0; items != NULL && i < count; i++) {
        items[i].key = keys[i];
    }
    if (code == SL_STORE_OK &&
        (items == NULL || chosen == NULL || bundles == NULL || lengths == NULL || sources == NULL ||
         drafts == NULL || errs == NULL || !store_batch_map(base, items, count, terms, &batch))) {
        code = SL_STORE_NO_BUFFER;
    }
    if (code != SL_STORE_OK) {
        store_codes_fill(codes, count, code);
        return;
    }
    starting_select(store, &starting, items, lengths_bytes, count, batch.later, codes, why);
    if (starting.count > 0) {
        starting_drafts(store, base, &starting, &made.terms, codes, why);
    }
}

static int64_t put_session_item(struct sl_store *store, const struct sl_iov_list *item)
{
    struct store_session *session = session_enter(store, &store->puts, item->key);
    if (session == NULL) {
        return SL_STORE_INVALID;
    }
    int64_t bytes = pieces_bytes(item, session->length_bytes);
    sl_err err = bytes > 0 ? sl_put_write(session->draft, item->at, item->count, NULL) : SL_OK;
    session_leave(store, &store->puts, session, false);
    return bytes < 0 ? SL_STORE_INVALID : err != SL_OK ? sl_store_code_of(err) : bytes;
}

void sl_store_put_session_write(struct sl_store *store, struct sl_iov_list *items, uint32_t count,
                                int64_t *results)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    bool usable = base != NULL && !base->dummy;
    if (!usable || !store_keys_map(base, &items->key, count, sizeof *items, &names)) {
        store_results_fill(results, count, usable ? SL_STORE_NO_BUFFER : SL_STORE_INVALID);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        results[i] = put_session_item(store, &items[i]);
    }
}

void sl_store_put_session_end(struct sl_store *store, struct sl_object_key *keys, uint32_t count,
                              bool commit, int *codes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    SL_AUTO(free) char *names = NULL;
    SL_AUTO(free) struct sl_put_session **drafts = store_calloc(count, sizeof(void *));
    SL_AUTO(free) uint32_t *sources = store_calloc(count, sizeof *sources);
    SL_AUTO(free) sl_err *errs = store_calloc(count, sizeof *errs);
    bool usable = base != NULL && !base->dummy;
    uint32_t ended = 0;
    if (!usable || drafts == NULL || sources == NULL || errs == NULL ||
        !store_keys_map(base, keys, count, sizeof *keys, &names)) {
        store_codes_fill(codes, count, usable ? SL_STORE_NO_BUFFER : SL_STORE_INVALID);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct store_session *session = session_take(store, &store->puts, keys[i]);
        codes[i] = session == NULL ? SL_STORE_INVALID : SL_STORE_OK;
        if (session == NULL) {
            continue;
        }
        if (commit) {
            sources[ended] = i;
            drafts[ended++] = SL_TAKE(session->draft);
        }
        session_free(session);
    }
    if (ended == 0) {
        return;
    }
    store_errs_open(errs, ended);
    store_errs_close(errs, ended, sl_put_end(base->client, drafts, ended, errs, 0, NULL));
    for (uint32_t i = 0; i < ended; i++) {
        codes[sources[i]] = sl_store_code_of(errs[i]);
        if (drafts[i] != NULL) {
            sl_put_abort(&drafts[i]);
        }
    }
}
