/* tests/sim/sim_putter.c - see sim_putter.h.
 *
 * Each put takes a grant, pins it, writes one half, waits, writes the other half, publishes. What
 * is visible is compared with its digest by the run's own checks: who writes into an extent that is
 * another's by now is caught there. */
#include "tests/sim/sim_putter.h"

#include "ipc/sl_index.h"
#include "ipc/sl_pins.h"

#include <stdio.h>
#include <string.h>

#define KEYS          24u /* few, so that many are there already, and memory keeps room */
#define VALUE_BYTES   3000u
#define STOCK_MAX     4u
#define ANSWER_NS     (500 * SL_NS_PER_MS)
#define PAUSE_NS_MAX  (8 * SL_NS_PER_MS)
#define FILL_NS_MAX   (20 * SL_NS_PER_MS)
#define LONG_FILL_NS  (3 * SL_NS_PER_S) /* longer than a grant lasts */
#define LONG_FILL_ODD 200u

enum phase { PHASE_PAUSE, PHASE_FILL, PHASE_ANSWER };

struct putter {
    struct sl_env *env;
    struct workload *work;
    struct sl_calls *calls;
    struct sl_index_view *view;
    struct sl_arena *arena;
    struct sl_pins *pins;
    enum phase phase;
    uint64_t next_ns;
    struct sl_item_grant stock[STOCK_MAX];
    uint32_t stock_count;
    /* of the put at work */
    struct sl_item_grant grant;
    sl_pin pin;
    char key[16];
    uint64_t salt;
    unsigned char *value;
};

static sl_err putter_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct putter *self = state;
    char segment[64];
    self->env = env;
    self->work = sim_context(env);
    (void)snprintf(segment, sizeof(segment), "pins.%s", env->name);
    const struct sl_pins_options pins = {.shm_dir = env->paths->shm_dir,
                                         .name = segment,
                                         .slot_count = 16,
                                         .access_count = 16,
                                         .self = env->self,
                                         .pinned_bytes_max = SL_MIB};
    sl_err err = sl_index_view_open(env->paths->shm_dir, &self->view, why);
    err = err == SL_OK ? sl_arena_attach(env->paths->shm_dir, 0, true, &self->arena, why) : err;
    err = err == SL_OK ? sl_pins_create(&pins, &self->pins, why) : err;
    err = err == SL_OK ? sl_calls_create(env, 16, &self->calls, why) : err;
    env->ops->wake_at(env, env->now_ns + SL_NS_PER_MS);
    return err;
}

static void putter_wait(struct putter *self, enum phase phase, uint64_t ns_max)
{
    self->phase = phase;
    self->next_ns = self->env->now_ns + 1 + sim_random_below(sim_of(self->env), ns_max);
    self->env->ops->wake_at(self->env, self->next_ns);
}

/* Writes bytes from .. to of the value. */
static void value_write(struct putter *self, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        self->value[i] = (unsigned char)((self->salt + i * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
    }
}

static struct sl_digest value_digest(const struct putter *self)
{
    struct putter copy = *self;
    unsigned char bytes[VALUE_BYTES];
    copy.value = bytes;
    value_write(&copy, 0, VALUE_BYTES);
    return sl_digest_of(bytes, VALUE_BYTES);
}

/* items: 0 or 1 values; asks for what the stock lacks. */
static void publish_send(struct putter *self, uint32_t items)
{
    struct sl_digest digest = value_digest(self);
    const struct sl_item_publication item = {.key = sl_text_of(self->key),
                                             .length_bytes = VALUE_BYTES,
                                             .ref = self->grant.ref,
                                             .generation = self->grant.generation,
                                             .digest_low = digest.low,
                                             .digest_high = digest.high};
    struct sl_msg msg = {.type = SL_MSG_PUBLISH};
    msg.body.publish.ahead_count = STOCK_MAX - self->stock_count;
    msg.body.publish.ahead_bytes = VALUE_BYTES;
    msg.body.publish.items.at = &item;
    msg.body.publish.items.count = items;
    self->phase = PHASE_ANSWER;
    SIM_CHECK(sl_calls_send(self->calls, "registrar", &msg, self->env->now_ns + ANSWER_NS, items,
                            NULL) == SL_OK,
              "publish was not taken");
}

static void put_begin(struct putter *self)
{
    struct sim *sim = sim_of(self->env);
    while (self->stock_count > 0) {
        self->grant = self->stock[--self->stock_count];
        sl_err err = sl_pins_take_grant(self->pins, self->view, (sl_ref)self->grant.ref,
                                        self->grant.generation, VALUE_BYTES, &self->pin);
        if (err == SL_ERR_STALE) {
            continue; /* taken back meanwhile */
        }
        SIM_CHECK(err == SL_OK, "pin of a grant: %s", sl_err_name(err));
        self->value = sl_arena_at(self->arena, self->grant.offset_bytes, VALUE_BYTES);
        SIM_CHECK(self->value != NULL, "a grant outside of the arena");
        self->salt = sim_random(sim);
        (void)snprintf(self->key, sizeof(self->key), "put/%u",
                       (uint32_t)sim_random_below(sim, KEYS));
        value_write(self, 0, VALUE_BYTES / 2);
        putter_wait(self, PHASE_FILL,
                    sim_random_below(sim, LONG_FILL_ODD) == 0 ? LONG_FILL_NS : FILL_NS_MAX);
        return;
    }
    publish_send(self, 0);
}

static void remove_send(struct putter *self)
{
    char key[16];
    (void)snprintf(key, sizeof(key), "put/%u", (uint32_t)sim_random_below(sim_of(self->env), KEYS));
    const struct sl_text text = sl_text_of(key);
    struct sl_msg msg = {.type = SL_MSG_REMOVE};
    msg.body.remove.keys = (struct sl_texts){.at = &text, .count = 1};
    self->phase = PHASE_ANSWER;
    SIM_CHECK(sl_calls_send(self->calls, "registrar", &msg, self->env->now_ns + ANSWER_NS, 0,
                            NULL) == SL_OK,
              "remove was not taken");
}

/* The put is over: code as answered, or SL_ERR_TIMEOUT. */
static void put_end(struct putter *self, sl_err code)
{
    struct sl_entry entry;
    bool open = code == SL_ERR_EXISTS || code == SL_ERR_BUSY;
    SIM_CHECK(code == SL_OK || open || code == SL_ERR_STALE || code == SL_ERR_TIMEOUT,
              "publish of %s: %s", self->key, sl_err_name(code));
    if (code == SL_OK && self->work->nothing_is_lost) {
        SIM_CHECK(sl_index_find(self->view, self->key, (uint32_t)strlen(self->key), &entry) ==
                      SL_OK,
                  "%s was published and is not there", self->key);
    }
    sl_pins_give(self->pins, self->pin);
    self->pin = 0;
    if (open && self->stock_count < STOCK_MAX) {
        self->stock[self->stock_count++] = self->grant;
    }
    self->work->published += code == SL_OK;
    self->work->publish_late += code == SL_ERR_STALE;
}

static void publish_ended(struct putter *self, const struct sl_msg *reply, bool with_item)
{
    const struct sl_body_publish_reply *body = &reply->body.publish_reply;
    if (with_item) {
        bool whole = reply->code == SL_OK && body->codes.count == 1;
        SIM_CHECK(whole || reply->code != SL_OK, "%llu codes for one value",
                  (unsigned long long)body->codes.count);
        put_end(self, whole ? (sl_err)body->codes.at[0] : SL_ERR_TIMEOUT);
    }
    for (uint64_t i = 0; i < body->ahead.count && self->stock_count < STOCK_MAX; i++) {
        self->stock[self->stock_count++] = body->ahead.at[i];
    }
    if (with_item && sim_random_below(sim_of(self->env), 2) == 0) {
        remove_send(self);
    } else {
        putter_wait(self, PHASE_PAUSE, PAUSE_NS_MAX);
    }
}

static sl_err putter_handle(void *state, const struct sl_msg *msg)
{
    struct putter *self = state;
    struct sl_call call;
    if (!SL_MSG_IS_REPLY(msg->type) || !sl_calls_match(self->calls, msg, &call)) {
        return SL_OK;
    }
    if (call.type == SL_MSG_PUBLISH) {
        publish_ended(self, msg, call.cookie != 0);
    } else {
        putter_wait(self, PHASE_PAUSE, PAUSE_NS_MAX);
    }
    return SL_OK;
}

static sl_err putter_tick(void *state, uint64_t now_ns)
{
    struct putter *self = state;
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        if (call.type == SL_MSG_PUBLISH && call.cookie != 0) {
            put_end(self, SL_ERR_TIMEOUT);
        }
        putter_wait(self, PHASE_PAUSE, PAUSE_NS_MAX);
    }
    if (self->phase == PHASE_ANSWER || now_ns < self->next_ns) {
        if (self->phase != PHASE_ANSWER) {
            self->env->ops->wake_at(self->env, self->next_ns);
        }
        return SL_OK;
    }
    if (self->phase == PHASE_FILL) {
        value_write(self, VALUE_BYTES / 2, VALUE_BYTES);
        publish_send(self, 1);
    } else if (self->work->quiet) {
        self->env->ops->wake_at(self->env, now_ns + 100 * SL_NS_PER_MS);
    } else {
        put_begin(self);
    }
    return SL_OK;
}

static void putter_drain(void *state)
{
    (void)state;
}

static void putter_fini(void *state)
{
    (void)state; /* it only ever dies */
}

const struct sl_actor putter_client = {
    .role = "client",
    .state_bytes = sizeof(struct putter),
    .init = putter_init,
    .handle = putter_handle,
    .tick = putter_tick,
    .drain = putter_drain,
    .fini = putter_fini,
};
