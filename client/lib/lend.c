/* client/lib/lend.c - memory of this process that the node may write to: a registration at the registrar,
 * as of an engine with one pool, that is one region (SL_POOL_LENT).
 *
 * Gets use what is lent (sl_stretch_enter); who takes it back waits for them. A node that was started
 * anew is told again by the next get. */
#include "client/lib/lend.h"
#include "cuda/sl_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define END_NS        (1500 * SL_NS_PER_MS)
#define AGAIN_NS      SL_NS_PER_S          /* pause between two tries to tell a node */
#define STRIDE_BYTES  (UINT64_C(64) << 10) /* regions of the fabric end at multiples of it */
#define BUFFERS_MAX   16u
#define NO_ATTACHMENT UINT32_MAX

struct sl_lend {
    struct sl_lend *next;
    uintptr_t from;
    uint64_t length_bytes, offset_bytes; /* in fd's memory */
    uint64_t region_bytes_max;           /* as the node said */
    int fd;
    uint64_t engine_id;  /* 0: the node does not know it */
    uint32_t attachment; /* of the node that knows it */
    uint32_t uses;       /* gets under way */
    bool ending, telling;
    bool handed; /* fd, to the stand-in: */
    struct sl_proc_id handed_to;
    uint64_t tell_again_ns;
};
struct sl_lends {
    pthread_mutex_t lock; /* all below; held for no call to the node */
    pthread_cond_t changed;
    struct sl_lend *first;
    _Atomic uint32_t count;
    struct sl_lent_info info;
};

sl_err sl_lends_open(struct sl_client *client, struct sl_error *why)
{
    client->lends = calloc(1, sizeof *client->lends);
    if (client->lends == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "client: %zu bytes", sizeof *client->lends);
    }
    pthread_mutex_init(&client->lends->lock, NULL);
    pthread_cond_init(&client->lends->changed, NULL);
    return SL_OK;
}

static void lend_free(struct sl_lend *lend)
{
    if (lend->fd >= 0) {
        (void)close(lend->fd);
    }
    free(lend);
}

void sl_lends_close(struct sl_lends **lends)
{
    struct sl_lends *gone = *lends;
    *lends = NULL;
    while (gone != NULL && gone->first != NULL) {
        struct sl_lend *lend = gone->first;
        gone->first = lend->next;
        lend_free(lend);
    }
    if (gone != NULL) {
        pthread_cond_destroy(&gone->changed);
        pthread_mutex_destroy(&gone->lock);
    }
    free(gone);
}

/* ---- the node ---- */

static void registered(void *context, const struct sl_msg *reply)
{
    if (reply->code == SL_OK) {
        *(struct sl_body_engine_register_reply *)context = reply->body.engine_register_reply;
    }
}

/* Its descriptor is the stand-in's, too, while the node knows of it. */
static void lend_hand_back(struct sl_client *client, struct sl_lend *lend)
{
    if (lend->handed) {
        lend->handed = false;
        sl_client_fd_unlend(client, lend->fd, lend->handed_to);
    }
}

static sl_err lend_tell(struct sl_client *client, struct sl_lend *lend, uint64_t deadline_ns,
                        struct sl_body_engine_register_reply *told, struct sl_error *why)
{
    static const struct sl_item_pool pool = {.name = {.at = "buffer", .length = 6},
                                             .kind = SL_POOL_LENT};
    uint64_t stride_bytes = SL_MIN(lend->length_bytes, STRIDE_BYTES);
    struct sl_proc_id self; /* who has it */
    uint64_t number = 0;
    lend_hand_back(client, lend);
    sl_err handed = sl_client_fd_lend(client, lend->fd, &number, &self, why);
    if (handed != SL_OK) {
        return handed;
    }
    lend->handed = true;
    lend->handed_to = self;
    const struct sl_item_region region = {.handle_kind = SL_MEMORY_SHARED_FD,
                                          .pid = self.pid,
                                          .fd = number,
                                          .offset_bytes = lend->offset_bytes,
                                          .length_bytes = lend->length_bytes,
                                          .block_stride_bytes = stride_bytes,
                                          .piece_bytes = stride_bytes,
                                          .block_count = lend->length_bytes / stride_bytes};
    struct sl_client_call call = {
        .to = "registrar", .deadline_ns = deadline_ns, .answered = registered, .context = told};
    call.msg.type = SL_MSG_ENGINE_REGISTER;
    struct sl_body_engine_register *body = &call.msg.body.engine_register;
    body->pid = self.pid;
    body->start_time = self.start_time;
    body->name = sl_text_of(client->name);
    body->model = sl_text_of("00000000000000000000000000000000"); /* of none */
    body->key_format = sl_text_of("none");
    body->block_tokens = 1;
    body->world = 1;
    body->pools.at = &pool;
    body->pools.count = 1;
    body->regions.at = &region;
    body->regions.count = 1;
    sl_err err = sl_client_ask(client, &call, why);
    return err == SL_OK && told->engine_id == 0
               ? sl_fail(why, SL_ERR_PROTOCOL, "registrar gave the buffer no id")
               : err;
}

/* Unheard, it ends with this process. */
static sl_err lend_untell(struct sl_client *client, uint64_t engine_id, uint64_t deadline_ns,
                          struct sl_error *why)
{
    struct sl_client_call call = {.to = "registrar", .deadline_ns = deadline_ns};
    call.msg.type = SL_MSG_ENGINE_END;
    call.msg.body.engine_end.engine_id = engine_id;
    return engine_id == 0 ? SL_OK : sl_client_call(client, &call, why);
}

/* ---- lending ---- */

static sl_err lend_check(const struct sl_client *client, const void *at, uint64_t length_bytes,
                         struct sl_error *why)
{
    sl_err err = sl_client_talks(client, why);
    if (err != SL_OK) {
        return err;
    }
    if (at == NULL || length_bytes == 0 || length_bytes > UINTPTR_MAX - (uintptr_t)at) {
        return sl_fail(why, SL_ERR_INVALID, "memory: %" PRIu64 " bytes at %p are none",
                       length_bytes, at);
    }
    if (sl_config_bool(client->config, SL_SET_load_keeps)) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "memory: what comes from other nodes is kept, so it goes by the arena: "
                       "setting load_keeps");
    }
    return SL_OK;
}

static void plain_count(struct sl_client *client, const void *at, const struct sl_error *why)
{
    char text[sizeof why->text + 80];
    pthread_mutex_lock(&client->lends->lock);
    client->lends->info.plain_buffers++;
    pthread_mutex_unlock(&client->lends->lock);
    (void)snprintf(text, sizeof text, "a registered buffer at %p is copied to: %s", at, why->text);
    sl_client_debug(client, text);
}

/* Takes lend if SL_OK. */
static sl_err lend_keep(struct sl_client *client, struct sl_lend *lend, struct sl_error *why)
{
    struct sl_lends *lends = client->lends;
    uint32_t count = 0;
    pthread_mutex_lock(&lends->lock);
    for (const struct sl_lend *at = lends->first; at != NULL; at = at->next) {
        count++;
    }
    if (count < BUFFERS_MAX) {
        lend->next = lends->first;
        lends->first = lend;
        lends->info.region_bytes_max = lend->region_bytes_max;
        lends->info.buffers++;
        lends->info.bytes += lend->length_bytes;
        atomic_fetch_add_explicit(&lends->count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lends->lock);
    return count < BUFFERS_MAX ? SL_OK
                               : sl_fail(why, SL_ERR_LIMIT, "memory: %u buffers are lent", count);
}

/* Keeps lend if SL_OK. */
static sl_err lend_begin(struct sl_client *client, struct sl_lend *lend, uint64_t deadline_ns,
                         struct sl_error *why)
{
    struct sl_body_engine_register_reply told = {0};
    sl_err err = sl_memory_backing((const void *)lend->from, lend->length_bytes, &lend->fd,
                                   &lend->offset_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    lend->attachment = sl_client_life(client);
    err = lend_tell(client, lend, deadline_ns, &told, why);
    if (err != SL_OK) {
        return err;
    }
    lend->engine_id = told.engine_id;
    lend->region_bytes_max = told.region_bytes_max;
    err = lend_keep(client, lend, why);
    if (err != SL_OK) {
        (void)lend_untell(client, told.engine_id, sl_deadline_ns(sl_clock_monotonic_ns(), END_NS),
                          NULL);
    }
    return err;
}

sl_err sl_memory_lend(struct sl_client *client, void *at, uint64_t length_bytes,
                      uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_error reason = {0};
    struct sl_lend *lend = calloc(1, sizeof *lend);
    if (lend == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "memory: %zu bytes", sizeof *lend);
    }
    *lend = (struct sl_lend){.from = (uintptr_t)at, .length_bytes = length_bytes, .fd = -1};
    sl_err err = lend_check(client, at, length_bytes, &reason);
    if (err == SL_OK) {
        err = lend_begin(client, lend, sl_client_deadline(client, timeout_ns), &reason);
    }
    if (err == SL_OK) {
        return SL_OK;
    }
    lend_hand_back(client, lend);
    lend_free(lend);
    if (err == SL_ERR_UNSUPPORTED) {
        plain_count(client, at, &reason);
    }
    if (why != NULL) {
        *why = reason;
    }
    return err;
}

/* Out of the list, when no get uses it any more. NULL: nothing is lent there. */
static struct sl_lend *lend_take(struct sl_lends *lends, uintptr_t from, bool any)
{
    struct sl_lend *lend = NULL;
    pthread_mutex_lock(&lends->lock);
    for (lend = lends->first; lend != NULL && !any && (lend->from != from || lend->ending);) {
        lend = lend->next;
    }
    if (lend != NULL) {
        lend->ending = true;
        while (lend->uses > 0 || lend->telling) { /* gets end by their deadlines */
            pthread_cond_wait(&lends->changed, &lends->lock);
        }
        struct sl_lend **link = &lends->first;
        while (*link != lend) {
            link = &(*link)->next;
        }
        *link = lend->next;
        lends->info.buffers--;
        lends->info.bytes -= lend->length_bytes;
        atomic_fetch_sub_explicit(&lends->count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lends->lock);
    return lend;
}

sl_err sl_memory_reclaim(struct sl_client *client, void *at, uint64_t timeout_ns,
                         struct sl_error *why)
{
    sl_err err = sl_client_talks(client, why);
    struct sl_lend *lend = err == SL_OK ? lend_take(client->lends, (uintptr_t)at, false) : NULL;
    if (err != SL_OK) {
        return err;
    }
    if (lend == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "memory: nothing is lent at %p", at);
    }
    err = lend_untell(client, lend->engine_id, sl_client_deadline(client, timeout_ns), why);
    lend_hand_back(client, lend);
    lend_free(lend);
    return err;
}

void sl_lends_end(struct sl_client *client)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), END_NS);
    while (client->lends != NULL && sl_lends_any(client)) {
        struct sl_lend *lend = lend_take(client->lends, 0, true);
        (void)lend_untell(client, lend->engine_id, deadline_ns, NULL);
        lend_hand_back(client, lend);
        lend_free(lend);
    }
}

void sl_lent(struct sl_client *client, struct sl_lent_info *out)
{
    *out = (struct sl_lent_info){0};
    if (client->lends != NULL) {
        pthread_mutex_lock(&client->lends->lock);
        *out = client->lends->info;
        pthread_mutex_unlock(&client->lends->lock);
    }
}

/* ---- use ---- */

bool sl_lends_any(const struct sl_client *client)
{
    return client->lends != NULL &&
           atomic_load_explicit(&client->lends->count, memory_order_relaxed) > 0;
}

void sl_lends_count(struct sl_client *client, uint64_t values, uint64_t bytes, uint64_t others)
{
    pthread_mutex_lock(&client->lends->lock);
    client->lends->info.straight_values += values;
    client->lends->info.straight_bytes += bytes;
    client->lends->info.copied_values += others;
    pthread_mutex_unlock(&client->lends->lock);
}

/* Under the lock, which is given up meanwhile: a node that was started anew hears of it. */
static void lend_tell_again(struct sl_client *client, struct sl_lend *lend, uint32_t number)
{
    struct sl_lends *lends = client->lends;
    struct sl_body_engine_register_reply told = {0};
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (lend->telling || now_ns < lend->tell_again_ns) {
        return;
    }
    lend->telling = true;
    lend->tell_again_ns = sl_deadline_ns(now_ns, AGAIN_NS);
    pthread_mutex_unlock(&lends->lock);
    sl_err err = lend_tell(client, lend, sl_deadline_ns(now_ns, AGAIN_NS), &told, NULL);
    pthread_mutex_lock(&lends->lock);
    lend->telling = false;
    if (err == SL_OK) {
        lend->engine_id = told.engine_id;
        lend->attachment = number;
    }
    pthread_cond_broadcast(&lends->changed);
}

bool sl_stretch_enter(struct sl_client *client, const void *at, uint64_t length_bytes,
                      struct sl_stretch *out)
{
    struct sl_lends *lends = client->lends;
    uint32_t number = sl_client_life(client);
    uintptr_t from = (uintptr_t)at;
    pthread_mutex_lock(&lends->lock);
    struct sl_lend *lend = lends->first;
    while (lend != NULL &&
           (lend->ending || from < lend->from || length_bytes > lend->length_bytes ||
            from - lend->from > lend->length_bytes - length_bytes)) {
        lend = lend->next;
    }
    if (lend != NULL) {
        lend->uses++; /* it stays in the list */
        if (lend->attachment != number && lend->attachment != NO_ATTACHMENT) {
            lend_tell_again(client, lend, number);
        }
        if (lend->attachment == number && !lend->ending) {
            *out = (struct sl_stretch){
                .lend = lend, .engine_id = lend->engine_id, .offset_bytes = from - lend->from};
        } else {
            lend->uses--;
            pthread_cond_broadcast(&lends->changed);
            lend = NULL;
        }
    }
    pthread_mutex_unlock(&lends->lock);
    return lend != NULL;
}

void sl_stretch_leave(struct sl_client *client, const struct sl_stretch *stretch)
{
    pthread_mutex_lock(&client->lends->lock);
    SL_ASSERT(stretch->lend->uses > 0);
    if (--stretch->lend->uses == 0 && stretch->lend->ending) {
        pthread_cond_broadcast(&client->lends->changed);
    }
    pthread_mutex_unlock(&client->lends->lock);
}

void sl_stretch_moved(struct sl_client *client, const struct sl_stretch *stretch)
{
    pthread_mutex_lock(&client->lends->lock);
    bool first = stretch->lend->attachment != NO_ATTACHMENT;
    stretch->lend->attachment = NO_ATTACHMENT;
    pthread_mutex_unlock(&client->lends->lock);
    if (first) {
        sl_client_warn(client, "a registered buffer was unmapped without being unregistered: what "
                               "is got into its addresses is copied from now on");
    }
}
