/* client/mooncake/daemons/admin_keys.c - keys: listing, looking up, removing.
 *
 * How keys of tenants, and keys that go by their digest, are named is the store layer's. */
#include "client/mooncake/daemons/admin.h"
#include "client/mooncake/store/names.h"
#include "ipc/sl_index.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_parse.h"

#include <stdlib.h>
#include <string.h>

#define TENANT_BYTES_MAX 255u
#define REMOVE_AT_ONCE   4096u
#define QUERY_KEYS_MAX   4096u
#define ERROR_NOT_FOUND  (-704)
#define ERROR_NOT_READY  (-703)
/* Of a listing's reads together; a reader that takes its time takes none of it. */
#define READS_NS (30 * SL_NS_PER_S)

/* ---- tenants ---- */

struct prefix {
    char text[TENANT_BYTES_MAX + 3];
    size_t length; /* 0: the default tenant */
};

static bool prefix_take(const struct mc_request *request, struct prefix *out,
                        struct mc_answer *answer)
{
    SL_AUTO(free) char *tenant = NULL;
    size_t length = 0;
    const char *raw = mc_request_raw(request, "tenant_id");
    out->length = 0;
    if (raw == NULL || raw[0] == '\0') {
        return true;
    }
    if (!mc_argument(request, "tenant_id", &tenant, &length, answer)) {
        return false;
    }
    if (length > TENANT_BYTES_MAX || memchr(tenant, SL_STORE_TENANT_MARK, length) != NULL) {
        mc_answer_text(answer, 400, "tenant_id: no tenant has such a name\n");
        return false;
    }
    if (strcmp(tenant, "default") != 0) {
        out->length = (size_t)snprintf(out->text, sizeof out->text, "%c%s%c", SL_STORE_TENANT_MARK,
                                       tenant, SL_STORE_TENANT_MARK);
    }
    return true;
}

static struct sl_store_prefix tenant_of(const struct prefix *prefix)
{
    return (struct sl_store_prefix){.at = prefix->text, .length = (uint32_t)prefix->length};
}

/* What the index has for a tenant's key. *head_bytes: in front of its value. False: too long. */
static bool stored_key(const struct prefix *prefix, struct sl_object_key key,
                       char out[SL_KEY_BYTES_MAX + 1], size_t *out_length, uint32_t *head_bytes)
{
    const struct sl_store_prefix tenant = tenant_of(prefix);
    *head_bytes = 0;
    if (key.length == 0 || key.length > SL_STORE_KEY_BYTES_MAX) {
        return false;
    }
    const struct sl_store_prefix own = sl_store_prefix_of(tenant, key);
    if (!sl_store_key_plain(own, key)) {
        *head_bytes = sl_store_head_bytes(key.length);
        *out_length = sl_store_digest_name(tenant, key, out);
        return *out_length != 0;
    }
    memcpy(out, own.at, own.length);
    memcpy(out + own.length, key.at, key.length);
    *out_length = own.length + key.length;
    return true;
}

static uint64_t without_head(uint64_t length_bytes, uint32_t head_bytes)
{
    return length_bytes > head_bytes ? length_bytes - head_bytes : 0;
}

/* ---- listing ---- */

/* A walk through the index, which is read in shared memory: nobody is asked, nothing is kept but
 * one key. Keys that go by their digest are read from in front of their values, where they are to
 * be told. */
struct key_walk {
    struct sl_index_view *view;
    struct prefix prefix;
    uint64_t cursor;
    const char *next; /* what is left to give of a key that was found */
    size_t next_length;
    size_t key_length;
    char key[SL_KEY_BYTES_MAX + 1];
    bool tells;
    char instance[64];
    struct sl_client *client; /* that leases nothing; NULL: not needed yet */
    char *text;               /* of a key that was read */
    uint64_t reads_ns;        /* time that reads took */
    bool failed;              /* a key is there and could not be read: the list is not whole */
};

/* False: its value has gone, or the walk failed. */
static bool walk_read(struct key_walk *walk, struct sl_object_key name, uint32_t key_bytes)
{
    uint64_t began_ns = sl_clock_monotonic_ns();
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .instance = walk->instance, .timeout_ns = MC_CALL_NS};
    walk->text = walk->text == NULL ? malloc(SL_STORE_KEY_BYTES_MAX) : walk->text;
    if (walk->text == NULL || walk->reads_ns >= READS_NS ||
        (walk->client == NULL && sl_client_open(&options, &walk->client, NULL) != SL_OK)) {
        walk->failed = true;
        return false;
    }
    walk->next = walk->text;
    walk->next_length = key_bytes;
    sl_err err = sl_store_digest_key_read(walk->client, tenant_of(&walk->prefix), name, walk->text,
                                          key_bytes, SL_MIN(MC_CALL_NS, READS_NS - walk->reads_ns));
    walk->reads_ns += sl_clock_monotonic_ns() - began_ns;
    walk->failed = err != SL_OK && err != SL_ERR_NOT_FOUND;
    return err == SL_OK;
}

/* Whether the entry's key is the tenant's. */
static bool walk_take(struct key_walk *walk)
{
    const struct sl_store_prefix tenant = tenant_of(&walk->prefix);
    const struct sl_object_key name = {.at = walk->key, .length = (uint32_t)walk->key_length};
    uint32_t key_bytes = sl_store_digest_key_bytes(tenant, name);
    struct sl_object_key own = name;
    if (key_bytes != 0 && walk->tells) {
        return walk_read(walk, name, key_bytes);
    }
    if (key_bytes == 0 && !sl_store_name_own(tenant, name, &own)) {
        return false;
    }
    walk->next = own.at;
    walk->next_length = own.length;
    return true;
}

static bool walk_step(struct key_walk *walk)
{
    struct sl_entry entry;
    while (!walk->failed && sl_index_scan(walk->view, &walk->cursor, &entry, walk->key)) {
        walk->key_length = entry.key_length;
        if (walk_take(walk)) {
            return true;
        }
        walk->next = NULL;
    }
    return false;
}

/* A key may be larger than the room for it. */
static ssize_t walk_more(void *state, char *out, size_t room)
{
    struct key_walk *walk = state;
    size_t used = 0;
    while (used < room) {
        if (walk->next == NULL && !walk_step(walk)) {
            return used > 0 ? (ssize_t)used : walk->failed ? -2 : -1;
        }
        size_t share = SL_MIN(room - used, walk->next_length);
        memcpy(out + used, walk->next, share);
        walk->next += share;
        walk->next_length -= share;
        used += share;
        if (walk->next_length == 0 && used < room) {
            out[used++] = '\n';
            walk->next = NULL;
        }
    }
    return (ssize_t)used;
}

static void walk_end(void *state)
{
    struct key_walk *walk = state;
    sl_index_view_close(&walk->view);
    sl_client_close(&walk->client);
    free(walk->text);
    free(walk);
}

void mc_get_all_keys(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    struct sl_error why = {0};
    struct prefix prefix;
    if (!prefix_take(request, &prefix, answer)) {
        return;
    }
    if (!mc_node_ready(&admin->paths, admin->disk_count, &why)) {
        mc_answer_text(answer, 503, "node '%s' is not ready: %s\n", admin->instance, why.text);
        return;
    }
    struct key_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    walk->prefix = prefix;
    walk->tells = true;
    (void)snprintf(walk->instance, sizeof walk->instance, "%s", admin->instance);
    if (sl_index_view_open(admin->paths.shm_dir, &walk->view, &why) != SL_OK) {
        free(walk);
        mc_answer_text(answer, 503, "%s\n", why.text);
        return;
    }
    answer->stream = (struct mc_stream){.more = walk_more, .end = walk_end, .state = walk};
}

/* ---- looking up ---- */

static json_t *replica_json(const char *type, const char *endpoint, uint64_t bytes)
{
    return json_pack("{s:s, s:s, s:I, s:i, s:s}", "type", type, "status", "COMPLETE", "size",
                     (json_int_t)bytes, "buffer_address", 0, "transport_endpoint", endpoint);
}

/* One descriptor for each contribution that is charged, and one for the disk. */
static json_t *replicas_json(const struct mc_admin *admin, const struct sl_stat *stat,
                             const struct sl_contribution_info *infos, uint32_t count)
{
    json_t *list = json_array();
    bool named = false;
    for (uint32_t i = 0; stat->in_memory && i < count; i++) {
        if ((stat->contributions >> infos[i].number & 1) != 0) {
            (void)json_array_append_new(list,
                                        replica_json("memory", infos[i].name, stat->length_bytes));
            named = true;
        }
    }
    if (stat->in_memory && !named) {
        (void)json_array_append_new(list,
                                    replica_json("memory", admin->instance, stat->length_bytes));
    }
    if (stat->on_disk) {
        (void)json_array_append_new(
            list, replica_json("local_disk", admin->instance, stat->length_bytes));
    }
    return list;
}

static const char *miss_text(sl_err code)
{
    return code == SL_ERR_BUSY ? "object is not ready" : "object not found";
}

static void key_answer(struct mc_admin *admin, const struct prefix *prefix,
                       struct sl_object_key key, struct sl_contribution_info *infos,
                       struct mc_answer *answer)
{
    char stored[SL_KEY_BYTES_MAX + 1];
    size_t stored_length = 0;
    uint32_t head_bytes = 0;
    sl_err code = SL_ERR_NOT_FOUND;
    struct sl_stat stat = {0};
    uint32_t count = 0;
    if (!mc_segments(admin, infos, &count, answer)) {
        return;
    }
    struct sl_client *client = mc_admin_client(admin, answer);
    if (client == NULL) {
        return;
    }
    if (stored_key(prefix, key, stored, &stored_length, &head_bytes)) {
        struct sl_object_key object = {.at = stored, .length = (uint32_t)stored_length};
        (void)sl_stat_batch(client, &object, 1, &stat, &code);
        stat.length_bytes = without_head(stat.length_bytes, head_bytes);
    }
    mc_admin_client_return(admin);
    if (code != SL_OK) {
        mc_answer_json(answer, code == SL_ERR_BUSY ? 503 : 404,
                       json_pack("{s:b, s:o, s:i, s:s}", "success", 0, "key",
                                 mc_json_text(key.at, key.length), "error_code",
                                 code == SL_ERR_BUSY ? ERROR_NOT_READY : ERROR_NOT_FOUND,
                                 "error_message", miss_text(code)));
        return;
    }
    mc_answer_json(answer, 200,
                   json_pack("{s:b, s:o, s:I, s:o}", "success", 1, "key",
                             mc_json_text(key.at, key.length), "size",
                             (json_int_t)stat.length_bytes, "data",
                             replicas_json(admin, &stat, infos, count)));
}

void mc_query_key(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct prefix prefix;
    char *key = NULL;
    size_t length = 0;
    if (!prefix_take(request, &prefix, answer) ||
        !mc_argument(request, "key", &key, &length, answer)) {
        return;
    }
    struct sl_contribution_info *infos = calloc(SL_CONTRIBUTIONS_MAX, sizeof *infos);
    if (infos != NULL) {
        const struct sl_object_key object = {.at = key, .length = (uint32_t)length};
        key_answer(context, &prefix, object, infos, answer);
    } else {
        mc_answer_text(answer, 500, "out of memory\n");
    }
    free(infos);
    free(key);
}

/* Splits raw at commas before it is decoded, so that a key may have one as %2C. Fills keys (at most
 * QUERY_KEYS_MAX, in text, decoded) and their number; false: the answer says why. */
static bool keys_split(const char *raw, char *text, struct sl_object_key *keys, uint32_t *count,
                       struct mc_answer *answer)
{
    *count = 0;
    for (const char *at = raw; *at != '\0'; at += *at == ',' ? 1 : 0) {
        size_t length = strcspn(at, ",");
        if (*count == QUERY_KEYS_MAX) {
            mc_answer_text(answer, 400, "at most %u keys\n", QUERY_KEYS_MAX);
            return false;
        }
        ssize_t got = mc_unescape(at, length, text);
        if (got < 0) {
            mc_answer_text(answer, 400, "the argument 'keys' is malformed\n");
            return false;
        }
        if (got > 0) {
            keys[(*count)++] = (struct sl_object_key){.at = text, .length = (uint32_t)got};
        }
        text += got + 1;
        at += length;
    }
    if (*count == 0) {
        mc_answer_text(answer, 400, "the argument 'keys' is empty\n");
    }
    return *count > 0;
}

/* Memory of one batch of look-ups. */
struct queries {
    struct sl_object_key keys[QUERY_KEYS_MAX];   /* as asked */
    struct sl_object_key stored[QUERY_KEYS_MAX]; /* as the index has them; length 0: it cannot */
    struct sl_stat stats[QUERY_KEYS_MAX];
    sl_err codes[QUERY_KEYS_MAX];
    struct sl_contribution_info infos[SL_CONTRIBUTIONS_MAX];
    uint32_t count, info_count;
    char *text;        /* owned: of keys */
    char *stored_text; /* owned: of stored */
};

static void queries_free(struct queries *queries)
{
    if (queries != NULL) {
        free(queries->text);
        free(queries->stored_text);
        free(queries);
    }
}

static struct queries *queries_make(const char *raw)
{
    struct queries *queries = calloc(1, sizeof *queries);
    if (queries != NULL) {
        queries->text = malloc(2 * strlen(raw) + 2);
        queries->stored_text =
            malloc(QUERY_KEYS_MAX * (size_t)(TENANT_BYTES_MAX + 3 + SL_STORE_DIGEST_NAME_BYTES) +
                   strlen(raw) + 1);
    }
    if (queries == NULL || queries->text == NULL || queries->stored_text == NULL) {
        queries_free(queries);
        return NULL;
    }
    return queries;
}

/* Keys that cannot be there are left as not found. */
static void queries_run(struct queries *queries, const struct prefix *prefix,
                        struct sl_client *client)
{
    char *to = queries->stored_text;
    uint32_t used = 0;
    static const uint32_t none = UINT32_MAX;
    uint32_t places[QUERY_KEYS_MAX] = {0}, heads[QUERY_KEYS_MAX] = {0};
    for (uint32_t i = 0; i < queries->count; i++) {
        char stored[SL_KEY_BYTES_MAX + 1];
        size_t length = 0;
        places[i] = none;
        if (stored_key(prefix, queries->keys[i], stored, &length, &heads[i])) {
            memcpy(to, stored, length);
            queries->stored[used] = (struct sl_object_key){.at = to, .length = (uint32_t)length};
            places[i] = used++;
            to += length;
        }
    }
    if (used > 0) {
        (void)sl_stat_batch(client, queries->stored, used, queries->stats, queries->codes);
    }
    for (uint32_t i = queries->count;
         i-- > 0;) { /* places[i] <= i: what is read is not moved yet */
        queries->codes[i] = places[i] == none ? SL_ERR_NOT_FOUND : queries->codes[places[i]];
        if (places[i] != none) {
            queries->stats[i] = queries->stats[places[i]];
            queries->stats[i].length_bytes = without_head(queries->stats[i].length_bytes, heads[i]);
        }
    }
}

static json_t *query_json(const struct mc_admin *admin, const struct queries *queries, uint32_t i)
{
    if (queries->codes[i] != SL_OK) {
        return json_pack("{s:b, s:i, s:s}", "ok", 0, "error_code",
                         queries->codes[i] == SL_ERR_BUSY ? ERROR_NOT_READY : ERROR_NOT_FOUND,
                         "error", miss_text(queries->codes[i]));
    }
    return json_pack("{s:b, s:I, s:o}", "ok", 1, "size", (json_int_t)queries->stats[i].length_bytes,
                     "values",
                     replicas_json(admin, &queries->stats[i], queries->infos, queries->info_count));
}

void mc_batch_query_keys(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    struct prefix prefix;
    const char *raw = mc_request_raw(request, "keys");
    if (!prefix_take(request, &prefix, answer)) {
        return;
    }
    struct queries *queries = queries_make(raw != NULL ? raw : "");
    if (queries == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    struct sl_client *client = NULL;
    if (keys_split(raw != NULL ? raw : "", queries->text, queries->keys, &queries->count, answer) &&
        mc_segments(admin, queries->infos, &queries->info_count, answer)) {
        client = mc_admin_client(admin, answer);
    }
    if (client != NULL) {
        json_t *data = json_object();
        queries_run(queries, &prefix, client);
        mc_admin_client_return(admin);
        for (uint32_t i = 0; i < queries->count; i++) {
            const struct sl_object_key *key = &queries->keys[i];
            /* Decoded keys are ended by a zero. What is no UTF-8 cannot be told apart in JSON. */
            if (json_object_set_new(data, key->at, query_json(admin, queries, i)) != 0) {
                (void)json_object_set_new(data, "?", query_json(admin, queries, i));
            }
        }
        mc_answer_json(answer, 200, json_pack("{s:b, s:o}", "success", 1, "data", data));
    }
    queries_free(queries);
}

/* ---- removing ---- */

struct removal {
    struct sl_object_key keys[REMOVE_AT_ONCE];
    sl_err codes[REMOVE_AT_ONCE];
    uint32_t count;
    uint64_t removed, skipped;
    char text[REMOVE_AT_ONCE * SL_KEY_BYTES_MAX];
};

/* Removes what has been gathered. */
static sl_err removal_flush(struct removal *removal, struct sl_client *client, bool force,
                            struct sl_error *why)
{
    sl_err err = removal->count == 0
                     ? SL_OK
                     : sl_remove_batch_heeding(client, removal->keys, removal->count, !force,
                                               removal->codes, MC_CALL_NS, why);
    for (uint32_t i = 0; err == SL_OK && i < removal->count; i++) {
        removal->removed += removal->codes[i] == SL_OK;
        removal->skipped += removal->codes[i] == SL_ERR_LEASED || removal->codes[i] == SL_ERR_BUSY;
    }
    removal->count = 0;
    return err;
}

/* Walks as for a listing, a batch at a time: what is put meanwhile may stay. */
static sl_err removal_run(struct removal *removal, struct key_walk *walk, struct sl_client *client,
                          bool force, struct sl_error *why)
{
    sl_err err = SL_OK;
    size_t used = 0;
    while (err == SL_OK && walk_step(walk)) {
        memcpy(removal->text + used, walk->key, walk->key_length); /* as stored */
        removal->keys[removal->count++] = (struct sl_object_key){
            .at = removal->text + used, .length = (uint32_t)walk->key_length};
        used += walk->key_length;
        if (removal->count == REMOVE_AT_ONCE) {
            err = removal_flush(removal, client, force, why);
            used = 0;
        }
    }
    return err == SL_OK ? removal_flush(removal, client, force, why) : err;
}

static bool force_take(const struct mc_request *request, bool *out, struct mc_answer *answer)
{
    const char *raw = mc_request_raw(request, "force");
    *out = false;
    if (raw == NULL || raw[0] == '\0' || sl_parse_bool(raw, out, NULL) == SL_OK) {
        return true;
    }
    mc_answer_text(answer, 400, "force: '%.40s' is not true or false\n", raw);
    return false;
}

/* walk and removal arrive zeroed. */
static void remove_answer(struct mc_admin *admin, struct key_walk *walk, struct removal *removal,
                          bool force, struct mc_answer *answer)
{
    struct sl_error why = {0};
    struct sl_client *client = mc_admin_client(admin, answer);
    if (client == NULL) {
        return;
    }
    sl_err err = sl_index_view_open(admin->paths.shm_dir, &walk->view, &why);
    err = err == SL_OK ? removal_run(removal, walk, client, force, &why) : err;
    sl_index_view_close(&walk->view);
    mc_admin_client_return(admin);
    if (err != SL_OK) {
        mc_answer_failed(answer, &why);
        return;
    }
    mc_answer_json(answer, 200,
                   json_pack("{s:b, s:I, s:I}", "success", 1, "removed_count",
                             (json_int_t)removal->removed, "skipped_count",
                             (json_int_t)removal->skipped));
}

void mc_remove_all(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct prefix prefix;
    bool force = false;
    if (!prefix_take(request, &prefix, answer) || !force_take(request, &force, answer)) {
        return;
    }
    struct key_walk *walk = calloc(1, sizeof *walk);
    struct removal *removal = calloc(1, sizeof *removal);
    if (walk != NULL && removal != NULL) {
        walk->prefix = prefix;
        remove_answer(context, walk, removal, force, answer);
    } else {
        mc_answer_text(answer, 500, "out of memory\n");
    }
    free(walk);
    free(removal);
}
