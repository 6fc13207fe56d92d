/* tests/sim/sim_objects.c - see the header. */
#include "tests/sim/sim_objects.h"

#include "client/include/sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES_MAX 40000u
#define HELD_MAX        3u
#define BATCH_KEYS_MAX  5u
#define CONTEST_ONE_OF  4u /* one in this number of calls uses contested keys */
#define MARGIN_NS       (10 * SL_NS_PER_MS)
#define EXCUSE_NS       (4 * SL_NS_PER_S) /* how long a disturbance excuses failures */

struct held {
    struct sl_view view;
    uint32_t key, version;
    bool used;
};

struct worker {
    struct objects *all;
    struct sl_client *client;
    uint32_t slot;
    struct held held[HELD_MAX];
    unsigned char *values[BATCH_KEYS_MAX]; /* VALUE_BYTES_MAX each */
    struct contestant contestant;
    uint64_t started_ns, stalled_ns, timeout_ns;
};

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t value_bytes(uint32_t version)
{
    static const uint32_t sizes[] = {100, 700, 4096, 5000, 12288, VALUE_BYTES_MAX};
    return sizes[mix(version + 1u) % SL_COUNT(sizes)];
}

static void value_fill(unsigned char *out, uint32_t key, uint32_t version)
{
    uint64_t bytes = value_bytes(version);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = at == 0 ? (uint64_t)key << 32 | version
                                : mix((uint64_t)version << 32 | (uint64_t)key << 20 | at >> 3);
        memcpy(out + at, &word, SL_MIN(sizeof(word), bytes - at));
    }
}

/* The version of a value that was read under key; any other bytes end the run. */
static uint32_t value_version(const struct objects *all, uint32_t key, const void *bytes,
                              uint64_t length_bytes)
{
    static unsigned char want[VALUE_BYTES_MAX];
    uint64_t word = 0;
    memcpy(&word, bytes, sizeof(word));
    uint32_t version = (uint32_t)word;
    SIM_CHECK(word >> 32 == key && version > 0 && version < all->version_count &&
                  all->versions[version].key == key && length_bytes == value_bytes(version),
              "wrong bytes: key %u gives %llu bytes that begin with %016llx", key,
              (unsigned long long)length_bytes, (unsigned long long)word);
    value_fill(want, key, version);
    SIM_CHECK(memcmp(bytes, want, length_bytes) == 0,
              "wrong bytes: key %u, version %u: torn or overwritten", key, version);
    return version;
}

static uint32_t version_new(struct objects *all, uint32_t key)
{
    SIM_CHECK(all->version_count < OBJECTS_VERSIONS, "more values than the oracle remembers");
    all->versions[all->version_count] = (struct version){.key = key, .dead_ns = SL_NEVER_NS};
    return all->version_count++;
}

static bool key_is_shared(uint32_t key)
{
    return key >= OBJECTS_SLOTS * OBJECTS_OWN;
}

static struct sl_object_key key_name(uint32_t key, char text[24])
{
    int length = snprintf(text, 24, "%s.%u", key_is_shared(key) ? "shared" : "own", key);
    return (struct sl_object_key){.at = text, .length = (uint32_t)length};
}

/* ---- the oracle ---- */

void objects_init(struct objects *objects, struct sim *sim)
{
    objects->sim = sim;
    objects->version_count = 1;
    contest_init(&objects->contest, sim, &objects->warming);
    objects->contest.loses = !objects->nothing_is_lost;
    for (uint32_t i = 0; i < OBJECTS_SLOTS; i++) {
        objects->slots[i] = (struct objects_slot){objects, i};
    }
}

/* Values put under this key until now must not be found any more, except this one (0: none). */
static void versions_die(struct objects *all, uint32_t key, uint32_t but)
{
    for (uint32_t i = 1; i < all->version_count; i++) {
        if (i != but && all->versions[i].key == key && all->versions[i].dead_ns == SL_NEVER_NS) {
            all->versions[i].dead_ns = sim_now_ns(all->sim);
        }
    }
}

static void know(struct objects *all, uint32_t key, enum object_state state, uint32_t version)
{
    all->keys[key] =
        (struct object){.state = state, .version = version, .since_ns = sim_now_ns(all->sim)};
}

void objects_power_cut(struct objects *objects)
{
    contest_crash(&objects->contest);
    memset(objects->leased, 0, sizeof(objects->leased));
    for (uint32_t key = 0; key < OBJECTS_KEYS; key++) {
        if (objects->keys[key].state == OBJECT_PRESENT && !objects->keys[key].durable) {
            objects->keys[key].state = OBJECT_UNKNOWN;
        }
        if (key_is_shared(key)) { /* a put before the disk has reported its values may win */
            objects->keys[key].version = 0;
        }
    }
}

static void flush_ok(struct objects *all, uint64_t started_ns)
{
    for (uint32_t key = 0; key < OBJECTS_KEYS; key++) {
        struct object *object = &all->keys[key];
        object->durable |= object->state == OBJECT_PRESENT && object->since_ns < started_ns;
    }
    if (all->flushed != NULL) {
        all->flushed(all->context, started_ns);
    }
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
    uint64_t stalled_ns = sim_stalled_ns() - self->stalled_ns;
    took_ns -= SL_MIN(stalled_ns, took_ns);
    self->all->slowest_ns = SL_MAX(self->all->slowest_ns, took_ns);
    SIM_CHECK(took_ns <= self->timeout_ns + MARGIN_NS, "a %s with %llu ms took %llu ms", what,
              (unsigned long long)(self->timeout_ns / SL_NS_PER_MS),
              (unsigned long long)(took_ns / SL_NS_PER_MS));
}

static bool excused(const struct worker *self)
{
    return !self->all->strict || self->timeout_ns < 100 * SL_NS_PER_MS ||
           sim_disturbed_ns(self->all->sim) + EXCUSE_NS >= self->started_ns ||
           sim_stalled_ns() != self->stalled_ns;
}

static void call_failed(const struct worker *self, const char *what, uint32_t key, sl_err code)
{
    SIM_CHECK(excused(self), "%s of key %u failed although nothing was disturbed: %s", what, key,
              sl_err_name(code));
}

/* ---- leases ---- */

static void lease_note(struct worker *self, uint32_t key, uint64_t end_ns)
{
    struct leased *leased = &self->all->leased[key];
    uint64_t now_ns = sim_now_ns(self->all->sim);
    if (end_ns == 0 || self->started_ns < leased->forced_ns) {
        return; /* not leased, or a removal by force may have happened after it */
    }
    self->all->leases_taken++;
    leased->since_ns = leased->end_ns >= self->started_ns ? leased->since_ns : now_ns;
    leased->end_ns = SL_MAX(leased->end_ns, end_ns);
}

/* Whether it was leased from before this call until now. */
static bool lease_stood(const struct worker *self, uint32_t key)
{
    const struct leased *leased = &self->all->leased[key];
    return leased->since_ns < self->started_ns && leased->end_ns > sim_now_ns(self->all->sim);
}

/* A removal that ignores leases ends all leases of the key. Leases also do not count until the
 * removal has ended, or can no longer take effect late. */
static void lease_force(struct worker *self, uint32_t key, uint64_t until_ns)
{
    self->all->leased[key] = (struct leased){.forced_ns = until_ns};
}

/* ---- put ---- */

/* Chooses absent keys of its own, and shared ones. */
static uint32_t put_choose(struct worker *self, uint32_t keys[BATCH_KEYS_MAX])
{
    struct sim *sim = self->all->sim;
    uint32_t count = 0;
    uint32_t wish = sim_random_below(sim, 3) == 0 ? BATCH_KEYS_MAX : 1;
    for (uint32_t tries = 0; tries < 12 && count < wish; tries++) {
        bool shared = sim_random_below(sim, 3) == 0;
        uint32_t key =
            shared ? OBJECTS_SLOTS * OBJECTS_OWN + (uint32_t)sim_random_below(sim, OBJECTS_SHARED)
                   : self->slot * OBJECTS_OWN + (uint32_t)sim_random_below(sim, OBJECTS_OWN);
        bool twice = false;
        for (uint32_t i = 0; i < count; i++) {
            twice = twice || keys[i] == key;
        }
        const struct object *object = &self->all->keys[key];
        bool may = shared || object->state == OBJECT_ABSENT ||
                   (object->state == OBJECT_PRESENT && self->all->nothing_is_lost);
        if (may && (!twice || sim_random_below(sim, 8) == 0)) {
            keys[count++] = key;
        }
    }
    return count;
}

static void put_settle(struct worker *self, const struct object *before, uint32_t key,
                       uint32_t version, bool twice, sl_err code)
{
    struct objects *all = self->all;
    all->puts++;
    if (code != SL_OK) {
        all->put_failed++;
        if (code != SL_ERR_BUSY || !key_is_shared(key)) { /* another writer may be slow */
            call_failed(self, "put", key, code);
        }
        if (key_is_shared(key)) {
            return; /* as if the call had not been made: it may exist */
        }
        all->keys[key].state = before->state == OBJECT_PRESENT ? OBJECT_PRESENT : OBJECT_UNKNOWN;
        all->keys[key].version = before->version;
        return;
    }
    if (key_is_shared(key)) { /* this value or another client's, which a read will show */
        if (all->keys[key].state != OBJECT_PRESENT) {
            know(all, key, OBJECT_PRESENT, 0);
        }
    } else if (before->state == OBJECT_PRESENT) {
        all->keys[key] = *before;
        all->keys[key].version = all->warming ? 0 : before->version;
        all->keys[key].durable = !all->warming && before->durable;
    } else {
        know(all, key, OBJECT_PRESENT, twice ? 0 : version);
    }
}

static void do_put(struct worker *self)
{
    struct objects *all = self->all;
    uint32_t keys[BATCH_KEYS_MAX], versions[BATCH_KEYS_MAX];
    struct object before[BATCH_KEYS_MAX];
    struct sl_object_key names[BATCH_KEYS_MAX];
    struct sl_buffer buffers[BATCH_KEYS_MAX];
    char texts[BATCH_KEYS_MAX][24];
    sl_err codes[BATCH_KEYS_MAX];
    bool twice[BATCH_KEYS_MAX] = {false};
    uint32_t count = put_choose(self, keys);
    if (count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        before[i] = all->keys[keys[i]];
        versions[i] = version_new(all, keys[i]);
        value_fill(self->values[i], keys[i], versions[i]);
        names[i] = key_name(keys[i], texts[i]);
        buffers[i] =
            (struct sl_buffer){.at = self->values[i], .length_bytes = value_bytes(versions[i])};
        for (uint32_t k = 0; k < i; k++) {
            twice[k] = twice[k] || keys[k] == keys[i];
            twice[i] = twice[i] || keys[k] == keys[i];
            before[i] = keys[k] == keys[i] ? before[k] : before[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) { /* in case this client is killed during the call */
        if (!key_is_shared(keys[i]) && before[i].state == OBJECT_ABSENT) {
            all->keys[keys[i]].state = OBJECT_UNKNOWN;
        } else if (!key_is_shared(keys[i]) &&
                   all->warming) {     /* the present value is not known yet: */
            before[i].version = 0;     /* ours may count, acknowledged or */
            before[i].durable = false; /* not, or the one on the disk */
            all->keys[keys[i]] = before[i];
        }
    }
    call_begin(self);
    sl_err err = sl_put_batch(self->client, names, buffers, count, codes, self->timeout_ns, NULL);
    call_ended(self, "put");
    for (uint32_t i = 0; i < count; i++) {
        put_settle(self, &before[i], keys[i], versions[i], twice[i], err != SL_OK ? err : codes[i]);
    }
    for (uint32_t i = 0; i < count; i++) { /* of two puts of a key, one may have been refused */
        struct object *object = &all->keys[keys[i]];
        if (twice[i] && !key_is_shared(keys[i]) && before[i].state != OBJECT_PRESENT) {
            object->state = err == SL_OK && codes[i] == SL_OK ? OBJECT_PRESENT : object->state;
            object->version = 0;
        }
    }
}

/* ---- replace ---- */

/* Old or new value until it is acknowledged, then the new one. Only this client writes its keys. */
static void replace_settle(struct worker *self, const struct object *before, uint32_t key,
                           uint32_t version, sl_err code)
{
    struct objects *all = self->all;
    all->puts++;
    if (code == SL_OK) {
        all->replaces++;
        versions_die(all, key, version);
        know(all, key, OBJECT_PRESENT, version);
        return;
    }
    all->put_failed++;
    call_failed(self, "replace", key, code);
    if (before->state == OBJECT_PRESENT) {
        know(all, key, OBJECT_PRESENT, 0);
    }
    all->keys[key].open = code != SL_ERR_BUSY && code != SL_ERR_NO_SPACE;
}

static void do_replace(struct worker *self)
{
    struct objects *all = self->all;
    const struct sl_put_options terms = {.replace = true};
    uint32_t count = sim_random_below(all->sim, 3) == 0 ? 3 : 1;
    uint32_t first = (uint32_t)sim_random_below(all->sim, OBJECTS_OWN);
    uint32_t keys[3], versions[3];
    struct object before[3];
    struct sl_iov pieces[3];
    struct sl_iov_list items[3];
    char texts[3][24];
    sl_err codes[3];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = self->slot * OBJECTS_OWN + (first + i) % OBJECTS_OWN;
        before[i] = all->keys[keys[i]];
        versions[i] = version_new(all, keys[i]);
        value_fill(self->values[i], keys[i], versions[i]);
        pieces[i] =
            (struct sl_iov){.at = self->values[i], .length_bytes = value_bytes(versions[i])};
        items[i] =
            (struct sl_iov_list){.key = key_name(keys[i], texts[i]), .at = &pieces[i], .count = 1};
        /* in case this client is killed during the call */
        know(all, keys[i], before[i].state == OBJECT_PRESENT ? OBJECT_PRESENT : OBJECT_UNKNOWN, 0);
        all->keys[keys[i]].open = true;
    }
    call_begin(self);
    sl_err err = sl_putv(self->client, items, count, &terms, codes, self->timeout_ns, NULL);
    call_ended(self, "replace");
    for (uint32_t i = 0; i < count; i++) {
        replace_settle(self, &before[i], keys[i], versions[i], err != SL_OK ? err : codes[i]);
    }
}

/* ---- get ---- */

static void get_found(struct worker *self, uint32_t key, uint32_t version)
{
    struct objects *all = self->all;
    struct object *object = &all->keys[key];
    bool mine = key_is_shared(key) || key / OBJECTS_OWN == self->slot;
    all->found++;
    SIM_CHECK(all->versions[version].dead_ns > self->started_ns,
              "key %u: version %u came back: it was removed at %.6f s", key, version,
              (double)all->versions[version].dead_ns / 1e9);
    if (!mine) {
        return;
    }
    SIM_CHECK(object->state != OBJECT_ABSENT || key_is_shared(key), "key %u was removed", key);
    if (object->state != OBJECT_PRESENT || !all->nothing_is_lost) {
        if (key_is_shared(key) && all->nothing_is_lost) {
            know(all, key, OBJECT_PRESENT, version);
        }
        return;
    }
    if (object->open) {
        return; /* now this value, later perhaps the other one */
    }
    SIM_CHECK(object->version == 0 || object->version == version,
              "key %u holds version %u, it was version %u", key, version, object->version);
    object->version = version;
}

static void get_missed(struct worker *self, uint32_t key, const struct object *before)
{
    bool mine = key_is_shared(key) || key / OBJECTS_OWN == self->slot;
    self->all->missed++;
    SIM_CHECK(!lease_stood(self, key), "key %u is gone, leased until %.6f s", key,
              (double)self->all->leased[key].end_ns / 1e9);
    SIM_CHECK(!mine || !self->all->nothing_is_lost || before->state != OBJECT_PRESENT ||
                  self->all->warming,
              "lost: key %u, version %u", key, before->version);
}

static uint32_t get_choose(struct worker *self)
{
    struct sim *sim = self->all->sim;
    return sim_random_below(sim, 2) == 0
               ? self->slot * OBJECTS_OWN + (uint32_t)sim_random_below(sim, OBJECTS_OWN)
               : (uint32_t)sim_random_below(sim, OBJECTS_KEYS);
}

static void get_settle(struct worker *self, uint32_t key, const struct object *before,
                       const void *bytes, uint64_t length_bytes, sl_err code)
{
    self->all->gets++;
    if (code == SL_OK) {
        get_found(self, key, value_version(self->all, key, bytes, length_bytes));
    } else if (code == SL_ERR_NOT_FOUND) {
        get_missed(self, key, before);
    } else {
        self->all->get_failed++;
        call_failed(self, "get", key, code);
    }
}

static void do_get(struct worker *self)
{
    struct objects *all = self->all;
    uint32_t count = sim_random_below(all->sim, 3) == 0 ? BATCH_KEYS_MAX : 1;
    uint32_t keys[BATCH_KEYS_MAX];
    struct object before[BATCH_KEYS_MAX];
    struct sl_object_key names[BATCH_KEYS_MAX];
    struct sl_buffer buffers[BATCH_KEYS_MAX];
    uint64_t lengths[BATCH_KEYS_MAX];
    char texts[BATCH_KEYS_MAX][24];
    sl_err codes[BATCH_KEYS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = get_choose(self);
        before[i] = all->keys[keys[i]];
        names[i] = key_name(keys[i], texts[i]);
        buffers[i] = (struct sl_buffer){.at = self->values[i], .length_bytes = VALUE_BYTES_MAX};
    }
    call_begin(self);
    sl_err err =
        sl_get_batch(self->client, names, buffers, count, lengths, codes, self->timeout_ns, NULL);
    call_ended(self, "get");
    for (uint32_t i = 0; i < count; i++) {
        get_settle(self, keys[i], &before[i], self->values[i], lengths[i],
                   err != SL_OK ? err : codes[i]);
    }
}

static void held_check(const struct worker *self, const struct held *held)
{
    uint32_t version = value_version(self->all, held->key, held->view.at, held->view.length_bytes);
    SIM_CHECK(version == held->version,
              "pinned bytes changed: key %u, version %u is version %u now", held->key,
              held->version, version);
}

static void do_pin(struct worker *self)
{
    struct objects *all = self->all;
    struct held *held = &self->held[sim_random_below(all->sim, HELD_MAX)];
    if (held->used) {
        held_check(self, held);
        sl_view_release(self->client, &held->view);
        held->used = false;
        return;
    }
    uint32_t key = get_choose(self);
    struct object before = all->keys[key];
    char text[24];
    call_begin(self);
    sl_err err =
        sl_get_pinned(self->client, key_name(key, text), &held->view, self->timeout_ns, NULL);
    call_ended(self, "pinned get");
    get_settle(self, key, &before, held->view.at, held->view.length_bytes, err);
    if (err == SL_OK) {
        held->used = true;
        held->key = key;
        held->version = value_version(all, key, held->view.at, held->view.length_bytes);
        all->pinned++;
    }
}

/* Its answer is checked like an exists call's; other calls read the values it brings in. */
static void do_prefetch(struct worker *self)
{
    struct objects *all = self->all;
    uint32_t keys[BATCH_KEYS_MAX];
    struct object before[BATCH_KEYS_MAX];
    struct sl_object_key names[BATCH_KEYS_MAX];
    char texts[BATCH_KEYS_MAX][24];
    sl_err codes[BATCH_KEYS_MAX];
    uint32_t count = 1 + (uint32_t)sim_random_below(all->sim, BATCH_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = get_choose(self);
        before[i] = all->keys[keys[i]];
        names[i] = key_name(keys[i], texts[i]);
    }
    call_begin(self);
    sl_err err = sl_prefetch_batch(self->client, names, count, codes, self->timeout_ns, NULL);
    call_ended(self, "prefetch");
    for (uint32_t i = 0; i < count; i++) {
        sl_err code = err != SL_OK ? err : codes[i];
        bool mine = !key_is_shared(keys[i]) && keys[i] / OBJECTS_OWN == self->slot;
        bool there = code == SL_OK || code == SL_ERR_EXISTS;
        all->prefetched += code == SL_OK;
        SIM_CHECK(!there || !mine || before[i].state != OBJECT_ABSENT,
                  "key %u was removed, yet it was prefetched", keys[i]);
        if (code == SL_ERR_NOT_FOUND) {
            get_missed(self, keys[i], &before[i]);
        } else if (!there && code != SL_ERR_NO_SPACE) {
            call_failed(self, "prefetch", keys[i], code);
        }
    }
}

static void do_exists(struct worker *self)
{
    uint32_t key = get_choose(self);
    struct object before = self->all->keys[key];
    char text[24];
    call_begin(self);
    self->timeout_ns = 2 * SL_NS_PER_S;
    sl_err err = sl_exists(self->client, key_name(key, text));
    call_ended(self, "exists");
    if (err == SL_ERR_NOT_FOUND) {
        get_missed(self, key, &before);
    } else if (err == SL_OK) {
        bool mine = !key_is_shared(key) && key / OBJECTS_OWN == self->slot;
        SIM_CHECK(!mine || before.state != OBJECT_ABSENT, "key %u was removed, yet exists", key);
    } else {
        call_failed(self, "exists", key, err);
    }
}

static void do_stat(struct worker *self)
{
    uint32_t keys[BATCH_KEYS_MAX];
    struct object before[BATCH_KEYS_MAX];
    struct sl_object_key names[BATCH_KEYS_MAX];
    struct sl_stat stats[BATCH_KEYS_MAX];
    char texts[BATCH_KEYS_MAX][24];
    sl_err codes[BATCH_KEYS_MAX];
    uint32_t count = 1 + (uint32_t)sim_random_below(self->all->sim, BATCH_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = get_choose(self);
        before[i] = self->all->keys[keys[i]];
        names[i] = key_name(keys[i], texts[i]);
    }
    call_begin(self);
    self->timeout_ns = 2 * SL_NS_PER_S;
    sl_err err = sl_stat_batch(self->client, names, count, stats, codes);
    call_ended(self, "stat");
    SIM_CHECK(err == SL_OK, "stat: %s", sl_err_name(err));
    for (uint32_t i = 0; i < count; i++) {
        if (codes[i] == SL_ERR_NOT_FOUND) {
            get_missed(self, keys[i], &before[i]);
        } else if (codes[i] == SL_OK) {
            SIM_CHECK(stats[i].in_memory || stats[i].on_disk, "key %u is nowhere", keys[i]);
            lease_note(self, keys[i], stats[i].lease_end_ns);
        } else {
            call_failed(self, "stat", keys[i], codes[i]);
        }
    }
}

/* ---- remove, flush ---- */

static void do_remove(struct worker *self)
{
    struct objects *all = self->all;
    uint32_t count = sim_random_below(all->sim, 4) == 0 ? 3 : 1;
    uint32_t keys[3];
    struct object before[3];
    struct sl_object_key names[3];
    char texts[3][24];
    sl_err codes[3];
    uint32_t first = (uint32_t)sim_random_below(all->sim, OBJECTS_OWN);
    bool heeds = all->leases && sim_random_below(all->sim, 2) == 0;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = self->slot * OBJECTS_OWN + (first + i) % OBJECTS_OWN;
        before[i] = all->keys[keys[i]];
        names[i] = key_name(keys[i], texts[i]);
        all->keys[keys[i]].state = OBJECT_UNKNOWN;
        if (!heeds) {
            lease_force(self, keys[i], SL_NEVER_NS);
        }
    }
    call_begin(self);
    const struct sl_remove_options options = {.respect_leases = true, .report_busy = true};
    sl_err err = sl_remove_batch(self->client, names, count, heeds ? &options : NULL, codes,
                                 self->timeout_ns, NULL);
    call_ended(self, "remove");
    for (uint32_t i = 0; i < count; i++) {
        sl_err code = err != SL_OK ? err : codes[i];
        bool ended = code == SL_OK || code == SL_ERR_NOT_FOUND;
        all->removes++;
        if (!heeds) {
            lease_force(self, keys[i],
                        sim_now_ns(all->sim) + (ended ? 0 : self->timeout_ns + EXCUSE_NS));
        }
        SIM_CHECK(!heeds || code != SL_OK || !lease_stood(self, keys[i]),
                  "key %u was removed, leased until %.6f s", keys[i],
                  (double)all->leased[keys[i]].end_ns / 1e9);
        if (code == SL_ERR_LEASED) {
            SIM_CHECK(heeds, "a removal by force heeds a lease");
            all->leases_heeded++;
            all->keys[keys[i]] = before[i];
            continue;
        }
        if (code != SL_OK && code != SL_ERR_NOT_FOUND) {
            call_failed(self, "remove", keys[i], code);
            continue;
        }
        SIM_CHECK(code == SL_OK || before[i].state != OBJECT_PRESENT || excused(self) ||
                      all->warming,
                  "lost: key %u was not there to be removed", keys[i]);
        versions_die(all, keys[i], 0);
        know(all, keys[i], OBJECT_ABSENT, 0);
    }
}

static void do_flush(struct worker *self)
{
    call_begin(self);
    sl_err err = sl_flush(self->client, self->timeout_ns, NULL);
    call_ended(self, "flush");
    if (!self->all->disk) {
        SIM_CHECK(err != SL_OK, "a flush without a disk");
        return;
    }
    self->all->flushes += err == SL_OK;
    if (err == SL_OK) {
        flush_ok(self->all, self->started_ns);
    } else {
        call_failed(self, "flush", 0, err);
    }
}

struct prey {
    struct sim *sim;
    char key[SL_KEY_BYTES_MAX + 1];
    uint32_t length, seen;
};

static bool prey_take(void *context, const struct sl_object_info *info)
{
    struct prey *prey = context;
    if (sim_random_below(prey->sim, ++prey->seen) == 0) {
        memcpy(prey->key, info->key.at, info->key.length);
        prey->length = info->key.length;
    }
    return prey->seen < 20;
}

/* Removing the key of a part removes its whole block. */
static void do_remove_block(struct worker *self)
{
    struct prey prey = {.sim = self->all->sim};
    if (sl_list(self->client, "0123456789", prey_take, &prey, NULL) == SL_OK && prey.seen > 0) {
        call_begin(self);
        (void)sl_remove(self->client, (struct sl_object_key){.at = prey.key, .length = prey.length},
                        self->timeout_ns, NULL);
        call_ended(self, "remove of a block");
    }
}

/* ---- programs ---- */

static bool worker_open(struct worker *self, struct objects *all, uint32_t slot)
{
    self->all = all;
    self->slot = slot;
    while (sim_client_open_leasing(all->sim, 0, "client_pins_max=64", all->leases, &self->client) !=
           SL_OK) {
        all->refused++;
        if (all->quiet && slot < OBJECTS_SLOTS) {
            return false;
        }
        sim_sleep(50 * SL_NS_PER_MS);
    }
    for (uint32_t i = 0; i < BATCH_KEYS_MAX; i++) {
        self->values[i] = malloc(VALUE_BYTES_MAX);
        SIM_CHECK(self->values[i] != NULL, "out of memory");
    }
    contestant_init(&self->contestant, &all->contest, self->client, slot);
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
    contestant_fini(&self->contestant);
    sl_client_close(&self->client);
}

void objects_client(void *context)
{
    const struct objects_slot *slot = context;
    struct objects *all = slot->all;
    struct worker self = {0};
    if (!worker_open(&self, all, slot->number)) {
        return;
    }
    while (!all->quiet) {
        uint64_t what = sim_random_below(all->sim, 100);
        if (!all->uncontested && sim_random_below(all->sim, CONTEST_ONE_OF) == 0) {
            contest_steps(&self.contestant);
        } else if (what < 22) {
            do_put(&self);
        } else if (what < 30) {
            do_replace(&self);
        } else if (what < 52) {
            do_get(&self);
        } else if (what < 57) {
            do_prefetch(&self);
        } else if (what < 66 && all->leases) {
            do_stat(&self);
        } else if (what < 72) {
            do_pin(&self);
        } else if (what < 77 && all->leases) {
            do_stat(&self);
        } else if (what < 77) {
            do_exists(&self);
        } else if (what < 92) {
            do_remove(&self);
        } else if (what < 96) {
            do_flush(&self);
        } else if (all->hostile_to_blocks) {
            do_remove_block(&self);
        }
        for (uint32_t i = 0; i < HELD_MAX; i++) {
            if (self.held[i].used) {
                held_check(&self, &self.held[i]);
            }
        }
        sim_sleep(sim_random_below(
            all->sim, sim_random_below(all->sim, 20) == 0 ? 100 * SL_NS_PER_MS : 3 * SL_NS_PER_MS));
    }
    worker_close(&self);
}

/* After all disturbances: the answer must be right, within a few attempts where space is short. */
static void verify_key(struct worker *self, uint32_t key)
{
    struct objects *all = self->all;
    struct object before = all->keys[key];
    char text[24];
    uint64_t length = 0;
    sl_err err = SL_ERR_BUSY;
    struct sl_buffer buffer = {.at = self->values[0], .length_bytes = VALUE_BYTES_MAX};
    for (uint32_t tries = 0; tries < 20 && err != SL_OK && err != SL_ERR_NOT_FOUND; tries++) {
        call_begin(self);
        self->timeout_ns = 2 * SL_NS_PER_S;
        err = sl_get(self->client, key_name(key, text), buffer, &length, self->timeout_ns, NULL);
        call_ended(self, "get");
        if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
            sim_sleep(20 * SL_NS_PER_MS);
        }
    }
    SIM_CHECK(err == SL_OK || err == SL_ERR_NOT_FOUND, "key %u cannot be read: %s", key,
              sl_err_name(err));
    self->slot = key / OBJECTS_OWN; /* the client that owns the key */
    get_settle(self, key, &before, self->values[0], length, err);
}

void objects_verifier(void *context)
{
    struct objects *all = context;
    struct worker self = {0};
    (void)worker_open(&self, all, OBJECTS_SLOTS);
    for (uint32_t key = 0; key < OBJECTS_KEYS; key++) {
        verify_key(&self, key);
    }
    contest_read_all(&self.contestant);
    worker_close(&self);
    all->verified = true;
}

void objects_remover(void *context)
{
    struct objects *all = context;
    struct worker self = {0};
    (void)worker_open(&self, all, OBJECTS_SLOTS);
    sl_err err = SL_ERR_BUSY;
    uint64_t from_ns = sim_now_ns(all->sim);
    for (uint32_t tries = 0; tries < 5 && err != SL_OK; tries++) {
        err = sl_remove_all(self.client, 2 * SL_NS_PER_S, NULL);
    }
    SIM_CHECK(err == SL_OK, "nothing disturbs, yet not all can be removed: %s", sl_err_name(err));
    contest_removed_all(&all->contest, from_ns, sim_now_ns(all->sim));
    contest_read_all(&self.contestant);
    memset(all->leased, 0, sizeof(all->leased));
    for (uint32_t key = 0; key < OBJECTS_KEYS; key++) {
        versions_die(all, key, 0);
        know(all, key, OBJECT_ABSENT, 0);
    }
    worker_close(&self);
    all->verified = true;
}
