/* client/mooncake/daemons/metadata.c - see metadata.h. */
#include "client/mooncake/daemons/metadata.h"
#include "client/mooncake/daemons/http.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEADS 4096u

struct entry {
    struct entry *next;
    size_t key_bytes, value_bytes;
    char bytes[]; /* key, value */
};
struct mc_metadata {
    struct mc_http *http;
    pthread_mutex_t lock; /* of what follows */
    uint64_t used_bytes;
    uint32_t count;
    struct entry *heads[HEADS];
};

static struct entry **entry_find(struct mc_metadata *self, const char *key, size_t key_bytes)
{
    struct entry **at = &self->heads[XXH3_64bits(key, key_bytes) % HEADS];
    while (*at != NULL &&
           ((*at)->key_bytes != key_bytes || memcmp((*at)->bytes, key, key_bytes) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

static uint64_t entry_bytes(const struct entry *entry)
{
    return sizeof *entry + entry->key_bytes + entry->value_bytes;
}

static void entry_remove(struct mc_metadata *self, struct entry **at)
{
    struct entry *gone = *at;
    *at = gone->next;
    self->used_bytes -= entry_bytes(gone);
    self->count--;
    free(gone);
}

static void value_get(struct mc_metadata *self, const char *key, size_t key_bytes,
                      struct mc_answer *answer)
{
    struct entry *entry = *entry_find(self, key, key_bytes);
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
    struct entry **at = entry_find(self, key, key_bytes);
    /* Two processes under one name would take each other's connections. */
    if (*at != NULL && strstr(key, "rpc_meta") != NULL) {
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
    uint64_t freed = *at != NULL ? entry_bytes(*at) : 0;
    if ((*at == NULL && self->count == MC_METADATA_KEYS_MAX) ||
        self->used_bytes - freed + entry_bytes(fresh) > MC_METADATA_BYTES_MAX) {
        free(fresh);
        mc_answer_text(answer, 507, "no room: at most %u keys and %ju bytes\n",
                       MC_METADATA_KEYS_MAX, (uintmax_t)MC_METADATA_BYTES_MAX);
        return;
    }
    if (*at != NULL) {
        entry_remove(self, at);
        at = entry_find(self, key, key_bytes);
    }
    fresh->next = *at;
    *at = fresh;
    self->count++;
    self->used_bytes += entry_bytes(fresh);
    mc_answer_text(answer, 200, "metadata updated\n");
}

static void value_delete(struct mc_metadata *self, const char *key, size_t key_bytes,
                         struct mc_answer *answer)
{
    struct entry **at = entry_find(self, key, key_bytes);
    if (*at == NULL) {
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
    {"/metadata", MC_GET | MC_PUT | MC_DELETE, metadata_answer},
    {"/health", MC_GET, health_answer}};

sl_err mc_metadata_start(int fd, struct mc_metadata **out, struct sl_error *why)
{
    struct mc_metadata *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)close(fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "metadata server");
    }
    pthread_mutex_init(&self->lock, NULL);
    sl_err err = mc_http_start(fd, routes, SL_COUNT(routes), self, &self->http, why);
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
    for (size_t i = 0; i < HEADS; i++) {
        while (gone->heads[i] != NULL) {
            entry_remove(gone, &gone->heads[i]);
        }
    }
    pthread_mutex_destroy(&gone->lock);
    free(gone);
    *metadata = NULL;
}
