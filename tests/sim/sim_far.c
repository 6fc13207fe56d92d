/* tests/sim/sim_far.c - see the header. */
#include "tests/sim/sim_far.h"

#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES_MAX 70000u
#define HELD_MAX        2u
#define BATCH_KEYS_MAX  5u
#define MARGIN_NS       (10 * SL_NS_PER_MS)
#define EXCUSE_NS       (4 * SL_NS_PER_S)    /* how long a disturbance excuses a host's failures */
#define KNOWN_NS        (800 * SL_NS_PER_MS) /* by then no node believes that it lacks the key */
#define PAUSE_NS        (30 * SL_NS_PER_MS)
#define PAUSE_NS_LONG   (400 * SL_NS_PER_MS)
#define VERIFY_TRIES    60u

struct held {
    struct sl_view view;
    uint32_t key;
    bool used;
};

struct worker {
    struct far *all;
    struct sl_client *client;
    uint32_t host, slot;
    struct held held[HELD_MAX];
    unsigned char *values[BATCH_KEYS_MAX]; /* VALUE_BYTES_MAX each */
    uint64_t started_ns, stalled_ns, timeout_ns, took_ns;
};

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t value_bytes(uint32_t key)
{
    static const uint32_t sizes[] = {100, 700, 4096, 5000, 12288, 40000, VALUE_BYTES_MAX};
    return sizes[mix(key + 1u) % SL_COUNT(sizes)];
}

static void value_fill(unsigned char *out, uint32_t key)
{
    uint64_t bytes = value_bytes(key);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = mix((uint64_t)(key + 1) << 32 | at >> 3);
        memcpy(out + at, &word, SL_MIN(sizeof(word), bytes - at));
    }
}

static void value_check(uint32_t host, uint32_t key, const void *bytes, uint64_t length_bytes)
{
    static unsigned char want[VALUE_BYTES_MAX];
    value_fill(want, key);
    SIM_CHECK(length_bytes == value_bytes(key) && memcmp(bytes, want, length_bytes) == 0,
              "wrong bytes: key %u at host %u: %llu bytes, %llu were put", key, host,
              (unsigned long long)length_bytes, (unsigned long long)value_bytes(key));
}

static struct sl_object_key key_name(uint32_t key, char text[16])
{
    return (struct sl_object_key){.at = text,
                                  .length = (uint32_t)snprintf(text, 16, "far.%u", key)};
}

/* ---- the oracle ---- */

void far_init(struct far *far, struct sim *sim, uint32_t host_count)
{
    far->sim = sim;
    far->host_count = host_count;
    for (uint32_t host = 0; host < host_count; host++) {
        far->disturbed_ns[host] = sim_now_ns(sim); /* it starts */
        for (uint32_t i = 0; i < FAR_SLOTS; i++) {
            far->slots[host][i] = (struct far_slot){far, host, i};
        }
    }
}

static void know(struct worker *self, uint32_t key, bool present)
{
    struct far_key *known = &self->all->keys[self->host][key];
    present = present && !known->doubt && !self->all->warming[self->host];
    if (known->present != present) {
        known->since_ns = sim_now_ns(self->all->sim);
    }
    known->present = present;
    known->changes += present ? 0 : 1;
}

void far_excuse_until(struct far *far, uint32_t host, uint64_t until_ns)
{
    far->disturbed_ns[host] = SL_MAX(far->disturbed_ns[host], until_ns);
}

void far_memory_lost(struct far *far, uint32_t host)
{
    for (uint32_t key = 0; key < FAR_KEYS; key++) {
        far->keys[host][key].present = far->keys[host][key].doubt = false;
        far->keys[host][key].putting = false;
        far->keys[host][key].changes++;
    }
}

static bool is_manager(const struct worker *self, uint32_t key)
{
    return key % FAR_SLOTS == self->slot;
}

/* ---- one call ---- */

static void call_begin(struct worker *self)
{
    static const uint64_t timeouts[] = {50 * SL_NS_PER_MS, 400 * SL_NS_PER_MS, 2 * SL_NS_PER_S};
    self->timeout_ns = timeouts[sim_random_below(self->all->sim, SL_COUNT(timeouts))];
    self->started_ns = sim_now_ns(self->all->sim);
    self->stalled_ns = sim_stalled_ns();
}

static void call_ended(struct worker *self, const char *what)
{
    uint64_t took_ns = sim_now_ns(self->all->sim) - self->started_ns;
    took_ns -= SL_MIN(sim_stalled_ns() - self->stalled_ns, took_ns);
    self->took_ns = took_ns;
    self->all->slowest_ns = SL_MAX(self->all->slowest_ns, took_ns);
    SIM_CHECK(took_ns <= self->timeout_ns + MARGIN_NS, "a %s at host %u with %llu ms took %llu ms",
              what, self->host, (unsigned long long)(self->timeout_ns / SL_NS_PER_MS),
              (unsigned long long)(took_ns / SL_NS_PER_MS));
}

/* Disturbances of other hosts, and of links, are no excuse here. */
static bool excused(const struct worker *self)
{
    uint64_t short_ns = self->all->late ? SL_NS_PER_S : 100 * SL_NS_PER_MS;
    return self->timeout_ns < short_ns || sim_stalled_ns() != self->stalled_ns ||
           self->all->disturbed_ns[self->host] + EXCUSE_NS >= self->started_ns;
}

static void call_failed(const struct worker *self, const char *what, uint32_t key, sl_err code)
{
    SIM_CHECK(excused(self) || !self->all->ample,
              "%s of key %u failed although nothing happened to host %u: %s", what, key, self->host,
              sl_err_name(code));
}

/* ---- put, remove ---- */

static void do_put(struct worker *self)
{
    struct far *all = self->all;
    uint32_t key =
        (uint32_t)sim_random_below(all->sim, FAR_KEYS / FAR_SLOTS) * FAR_SLOTS + self->slot;
    char text[16];
    value_fill(self->values[0], key);
    call_begin(self);
    all->keys[self->host][key].putting = true;
    sl_err err = sl_put(self->client, key_name(key, text), self->values[0], value_bytes(key),
                        self->timeout_ns, NULL);
    call_ended(self, "put");
    all->keys[self->host][key].putting = false;
    sim_log(all->sim, "host %u: put of key %u: %s", self->host, key, sl_err_name(err));
    all->puts++;
    if (err == SL_OK) {
        know(self, key, true);
    } else { /* SL_ERR_BUSY: a get brings it in */
        all->put_failed++;
        if (err != SL_ERR_BUSY) {
            call_failed(self, "put", key, err);
        }
    }
}

static void do_remove(struct worker *self)
{
    struct far *all = self->all;
    uint32_t key =
        (uint32_t)sim_random_below(all->sim, FAR_KEYS / FAR_SLOTS) * FAR_SLOTS + self->slot;
    char text[16];
    know(self, key, false);
    call_begin(self);
    sl_err err = sl_remove(self->client, key_name(key, text), self->timeout_ns, NULL);
    call_ended(self, "remove");
    sim_log(all->sim, "host %u: remove of key %u: %s", self->host, key, sl_err_name(err));
    all->removes++;
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
        call_failed(self, "remove", key, err);
    }
    all->keys[self->host][key].doubt = err != SL_OK && err != SL_ERR_NOT_FOUND;
}

/* ---- get ---- */

/* Another host has had it for long, and still has it. */
static bool elsewhere(const struct worker *self, uint32_t key)
{
    for (uint32_t host = 0; host < self->all->host_count; host++) {
        const struct far_key *there = &self->all->keys[host][key];
        if (host != self->host && there->present && there->since_ns + KNOWN_NS < self->started_ns) {
            return true;
        }
    }
    return false;
}

static void get_missed(struct worker *self, uint32_t key, const struct far_key *before,
                       bool there_before)
{
    struct far *all = self->all;
    const struct far_key *now = &all->keys[self->host][key];
    all->missed++;
    SIM_CHECK(!before->present || now->changes != before->changes, "lost: key %u at host %u", key,
              self->host);
    /* A value that was brought in may have been removed again meanwhile. */
    bool moved = now->present || now->changes != before->changes;
    SIM_CHECK(!all->calm || !all->ample || excused(self) || before->putting || now->putting ||
                  moved || !there_before || !elsewhere(self, key),
              "key %u is at another host, nothing disturbs, yet host %u does not find it", key,
              self->host);
}

static void get_settle(struct worker *self, uint32_t key, const struct far_key *before,
                       bool there_before, sl_err code)
{
    struct far *all = self->all;
    sim_log(all->sim, "host %u: get of key %u: %s", self->host, key, sl_err_name(code));
    all->gets++;
    bool stayed = before->present && all->keys[self->host][key].changes == before->changes;
    if (code == SL_OK) {
        all->found++;
        all->here += stayed;
        if (is_manager(self, key)) { /* no other client removes it */
            know(self, key, true);
        }
    } else if (code == SL_ERR_NOT_FOUND) {
        get_missed(self, key, before, there_before);
    } else {
        all->get_failed++;
        call_failed(self, "get", key, code);
    }
    /* A value in memory here is read without asking another process, whether alive or dead. */
    SIM_CHECK(!stayed || !all->ample || excused(self) || code == SL_OK, "key %u is here, yet: %s",
              key, sl_err_name(code));
}

static uint32_t get_choose(const struct worker *self)
{
    return (uint32_t)sim_random_below(self->all->sim, FAR_KEYS);
}

static void do_get(struct worker *self)
{
    struct far *all = self->all;
    uint32_t count = sim_random_below(all->sim, 3) == 0 ? BATCH_KEYS_MAX : 1;
    uint32_t keys[BATCH_KEYS_MAX];
    struct far_key before[BATCH_KEYS_MAX];
    struct sl_object_key names[BATCH_KEYS_MAX];
    struct sl_buffer buffers[BATCH_KEYS_MAX];
    uint64_t lengths[BATCH_KEYS_MAX];
    bool there[BATCH_KEYS_MAX];
    char texts[BATCH_KEYS_MAX][16];
    sl_err codes[BATCH_KEYS_MAX];
    call_begin(self);
    bool all_here = true;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = get_choose(self);
        before[i] = all->keys[self->host][keys[i]];
        there[i] = elsewhere(self, keys[i]);
        all_here = all_here && before[i].present;
        names[i] = key_name(keys[i], texts[i]);
        buffers[i] = (struct sl_buffer){.at = self->values[i], .length_bytes = VALUE_BYTES_MAX};
    }
    sl_err err =
        sl_get_batch(self->client, names, buffers, count, lengths, codes, self->timeout_ns, NULL);
    call_ended(self, "get");
    for (uint32_t i = 0; i < count; i++) {
        all_here = all_here && before[i].changes == all->keys[self->host][keys[i]].changes;
        if (err == SL_OK && codes[i] == SL_OK) {
            value_check(self->host, keys[i], self->values[i], lengths[i]);
        }
        get_settle(self, keys[i], &before[i], there[i], err != SL_OK ? err : codes[i]);
    }
    SIM_CHECK(!all_here || !all->ample || excused(self) || self->took_ns == 0,
              "all is in memory at host %u, yet a get waited for %llu us", self->host,
              (unsigned long long)(self->took_ns / SL_NS_PER_US));
}

static void held_check(const struct worker *self, const struct held *held)
{
    value_check(self->host, held->key, held->view.at, held->view.length_bytes);
}

static void do_pin(struct worker *self)
{
    struct far *all = self->all;
    struct held *held = &self->held[sim_random_below(all->sim, HELD_MAX)];
    if (held->used) {
        held_check(self, held);
        sl_view_release(self->client, &held->view);
        held->used = false;
        return;
    }
    uint32_t key = get_choose(self);
    struct far_key before = all->keys[self->host][key];
    char text[16];
    call_begin(self);
    bool there = elsewhere(self, key);
    sl_err err =
        sl_get_pinned(self->client, key_name(key, text), &held->view, self->timeout_ns, NULL);
    call_ended(self, "pinned get");
    get_settle(self, key, &before, there, err);
    if (err == SL_OK) {
        held->used = true;
        held->key = key;
        held_check(self, held);
        all->pinned++;
    }
}

/* ---- programs ---- */

static bool worker_open(struct worker *self, struct far *all, uint32_t host, uint32_t slot)
{
    self->all = all;
    self->host = host;
    self->slot = slot;
    while (sim_client_open(all->sim, host, "client_pins_max=64", &self->client) != SL_OK) {
        all->refused++;
        if (all->quiet && slot < FAR_SLOTS) {
            return false;
        }
        sim_sleep(50 * SL_NS_PER_MS);
    }
    for (uint32_t i = 0; i < BATCH_KEYS_MAX; i++) {
        self->values[i] = malloc(VALUE_BYTES_MAX);
        SIM_CHECK(self->values[i] != NULL, "out of memory");
    }
    return true;
}

static void worker_close(struct worker *self)
{
    for (uint32_t i = 0; i < HELD_MAX; i++) {
        if (self->held[i].used) {
            held_check(self, &self->held[i]);
            sl_view_release(self->client, &self->held[i].view);
        }
    }
    for (uint32_t i = 0; i < BATCH_KEYS_MAX; i++) {
        free(self->values[i]);
    }
    sl_client_close(&self->client);
}

void far_client(void *context)
{
    const struct far_slot *slot = context;
    struct far *all = slot->all;
    struct worker self = {0};
    if (!worker_open(&self, all, slot->host, slot->number)) {
        return;
    }
    while (!all->quiet) {
        uint64_t what = sim_random_below(all->sim, 100);
        if (what < 15) {
            do_put(&self);
        } else if (what < 70) {
            do_get(&self);
        } else if (what < 84) {
            do_pin(&self);
        } else {
            do_remove(&self);
        }
        for (uint32_t i = 0; i < HELD_MAX; i++) {
            if (self.held[i].used) {
                held_check(&self, &self.held[i]);
            }
        }
        sim_sleep(sim_random_below(all->sim,
                                   sim_random_below(all->sim, 20) == 0 ? PAUSE_NS_LONG : PAUSE_NS));
    }
    worker_close(&self);
}

/* After all disturbances: the value of any host must arrive within a few attempts. */
static void verify_key(struct worker *self, uint32_t key)
{
    struct far *all = self->all;
    bool somewhere = false;
    for (uint32_t host = 0; host < all->host_count; host++) {
        somewhere = somewhere || all->keys[host][key].present;
    }
    char text[16];
    uint64_t length = 0;
    struct sl_buffer buffer = {.at = self->values[0], .length_bytes = VALUE_BYTES_MAX};
    sl_err err = SL_ERR_BUSY;
    for (uint32_t tries = 0; tries < (somewhere ? VERIFY_TRIES : 1) && err != SL_OK; tries++) {
        call_begin(self);
        self->timeout_ns = 2 * SL_NS_PER_S;
        err = sl_get(self->client, key_name(key, text), buffer, &length, self->timeout_ns, NULL);
        call_ended(self, "get");
        if (err != SL_OK) {
            sim_sleep(100 * SL_NS_PER_MS);
        }
    }
    SIM_CHECK(err == SL_OK || !somewhere, "key %u is not found at host %u although it is %s: %s",
              key, self->host, all->keys[self->host][key].present ? "here" : "at another one",
              sl_err_name(err));
    if (err == SL_OK) {
        value_check(self->host, key, self->values[0], length);
        self->slot = key % FAR_SLOTS;
        know(self, key, true);
    }
}

void far_verifier(void *context)
{
    struct far *all = context;
    struct worker self = {0};
    (void)worker_open(&self, all, all->verify_host, FAR_SLOTS);
    for (uint32_t key = 0; key < FAR_KEYS; key++) {
        verify_key(&self, key);
    }
    worker_close(&self);
    all->verified = true;
}
