/* client/mooncake/daemons/metadata.c - see metadata.h. */
#include "client/mooncake/daemons/metadata.h"
#include "client/mooncake/daemons/http.h"
#include "runtime/sl_table.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct entry {
    struct sl_table_node node;
    size_t key_bytes, value_bytes;
    char bytes[]; /* key, value */
};
struct mc_metadata {
    struct mc_http *http;
    pthread_mutex_t lock; /* of what follows */
    uint64_t used_bytes, bytes_max;
    struct sl_table by_key;
};

static struct entry *entry_find(const struct mc_metadata *self, const char *key, size_t key_bytes)
{
    struct entry *at =
        SL_TABLE_FIRST(&self->by_key, XXH3_64bits(key, key_bytes), struct entry, node);
    while (at != NULL && (at->key_bytes != key_bytes || memcmp(at->bytes, key, key_bytes) != 0)) {
        at = SL_TABLE_NEXT(at, struct entry, node);
    }
    return at;
}

static uint64_t entry_bytes(const struct entry *entry)
{
    return sizeof *entry + entry->key_bytes + entry->value_bytes;
}

static void entry_remove(struct mc_metadata *self, struct entry *gone)
{
    sl_table_remove(&self->by_key, &gone->node);
    self->used_bytes -= entry_bytes(gone);
    free(gone);
}

static void value_get(struct mc_metadata *self, const char *key, size_t key_bytes,
                      struct mc_answer *answer)
{
    const struct entry *entry = entry_find(self, key, key_bytes);
    if (entry == NULL) {
        mc_answer_text(answer, 404, "metadata not found\n");
        return;
    }
    char *text = malloc(entry->value_bytes + 1);
    if (text == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    memcpy(text, entry->bytes + entry->key_bytes, entry->value_bytes);
    answer->type = "application/json";
    answer->text = text;
    answer->length_bytes = entry->value_bytes;
}

static void value_put(struct mc_metadata *self, const char *key, size_t key_bytes,
                      const char *value, size_t value_bytes, struct mc_answer *answer)
{
    struct entry *old = entry_find(self, key, key_bytes);
    /* Two processes under one name would take each other's connections. */
    if (old != NULL && strstr(key, "rpc_meta") != NULL) {
        mc_answer_text(answer, 400, "this rpc_meta key is there already\n");
        return;
    }
    struct entry *fresh = malloc(sizeof *fresh + key_bytes + value_bytes);
    if (fresh == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    *fresh = (struct entry){.key_bytes = key_bytes, .value_bytes = value_bytes};
    memcpy(fresh->bytes, key, key_bytes);
    memcpy(fresh->bytes + key_bytes, value, value_bytes);
    uint64_t freed = old != NULL ? entry_bytes(old) : 0;
    if ((old == NULL && self->by_key.count == MC_METADATA_KEYS_MAX) ||
        self->used_bytes - freed + entry_bytes(fresh) > self->bytes_max) {
        free(fresh);
        mc_answer_text(answer, 507, "no room: at most %u keys and %" PRIu64 " bytes\n",
                       MC_METADATA_KEYS_MAX, self->bytes_max);
        return;
    }
    if (old != NULL) {
        entry_remove(self, old);
    }
    sl_table_add(&self->by_key, &fresh->node, XXH3_64bits(key, key_bytes));
    self->used_bytes += entry_bytes(fresh);
    mc_answer_text(answer, 200, "metadata updated\n");
}

static void value_delete(struct mc_metadata *self, const char *key, size_t key_bytes,
                         struct mc_answer *answer)
{
    struct entry *at = entry_find(self, key, key_bytes);
    if (at == NULL) {
        mc_answer_text(answer, 404, "metadata not found\n");
        return;
    }
    entry_remove(self, at);
    mc_answer_text(answer, 200, "metadata deleted\n");
}

static void metadata_answer(void *context, const struct mc_request *request,
                            struct mc_answer *answer)
{
    static const char blanks[] = " \t\r\n";
    struct mc_metadata *self = context;
    const char *raw = mc_request_raw(request, "key");
    size_t raw_bytes = raw != NULL ? strlen(raw) : 0;
    size_t value_bytes = 0;
    char text[MC_METADATA_KEY_BYTES + 1];
    const char *value = mc_request_body(request, &value_bytes);
    ssize_t got = raw_bytes > MC_METADATA_KEY_BYTES ? -1 : mc_unescape(raw, raw_bytes, text);
    const char *key = text + (got >= 0 ? strspn(text, blanks) : 0);
    size_t key_bytes = got >= 0 ? strlen(key) : 0;
    while (key_bytes > 0 && strchr(blanks, key[key_bytes - 1]) != NULL) {
        key_bytes--;
    }
    if (key_bytes == 0) {
        mc_answer_text(answer, 400, "the argument 'key' is missing, blank or malformed\n");
        return;
    }
    text[(size_t)(key - text) + key_bytes] = '\0';
    pthread_mutex_lock(&self->lock);
    switch (mc_request_method(request)) {
    case MC_GET:
        value_get(self, key, key_bytes, answer);
        break;
    case MC_PUT:
        value_put(self, key, key_bytes, value, value_bytes, answer);
        break;
    default:
        value_delete(self, key, key_bytes, answer);
        break;
    }
    pthread_mutex_unlock(&self->lock);
}

static void health_answer(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    (void)context;
    (void)request;
    mc_answer_text(answer, 200, "ok\n");
}

static const struct mc_route routes[] = {
    {"/metadata", MC_GET | MC_PUT | MC_DELETE, metadata_answer, MC_PUT | MC_DELETE},
    {"/health", MC_GET, health_answer, 0}};

sl_err mc_metadata_start(int fd, uint64_t bytes_max, const struct mc_http_guard *guard,
                         struct mc_metadata **out, struct sl_error *why)
{
    struct mc_metadata *self = calloc(1, sizeof *self);
    if (self == NULL || !sl_table_reserve(&self->by_key, MC_METADATA_KEYS_MAX)) {
        (void)close(fd);
        free(self);
        return sl_fail(why, SL_ERR_NO_MEMORY, "metadata server");
    }
    self->bytes_max = bytes_max;
    pthread_mutex_init(&self->lock, NULL);
    sl_err err = mc_http_start(fd, routes, SL_COUNT(routes), guard, self, &self->http, why);
    if (err != SL_OK) {
        mc_metadata_stop(&self);
        return err;
    }
    *out = self;
    return SL_OK;
}

void mc_metadata_tend(struct mc_metadata *metadata, uint64_t now_ns)
{
    if (metadata != NULL) {
        mc_http_tend(metadata->http, now_ns);
    }
}

void mc_metadata_stop(struct mc_metadata **metadata)
{
    struct mc_metadata *gone = *metadata;
    if (gone == NULL) {
        return;
    }
    mc_http_stop(&gone->http);
    for (uint32_t i = 0; i < gone->by_key.head_count; i++) {
        struct entry *at = SL_TABLE_ITEM(gone->by_key.heads[i], struct entry, node);
        while (at != NULL) {
            struct entry *next = SL_TABLE_ITEM(at->node.next, struct entry, node);
            free(at);
            at = next;
        }
    }
    sl_table_fini(&gone->by_key);
    pthread_mutex_destroy(&gone->lock);
    free(gone);
    *metadata = NULL;
}
