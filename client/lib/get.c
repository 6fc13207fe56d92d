/* client/lib/get.c - reading: looks up, then copies and checks again, or pins. Values that are not
 * in memory here are read into it first (bring.c). */
#include "client/lib/bring.h"
#include "client/lib/deferred.h"
#include "client/lib/pieces.h"
#include "client/lib/tally.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_COUNT    32u /* lookups whose cache misses overlap */
#define TORN_TRIES_MAX 64u /* copies that changed under the reader, before it gives SL_ERR_BUSY */
#define TORN_PAUSE_NS  (100 * SL_NS_PER_US)

/* The deadline of a call. Only calls that wait read the exact clock: it costs as much as a
 * lookup. */
struct until {
    uint64_t timeout_ns;
    uint64_t deadline_ns; /* 0: not known yet */
};

static uint64_t until_ns(const struct sl_client *client, struct until *until)
{
    if (until->deadline_ns == 0) {
        until->deadline_ns = sl_client_deadline(client, until->timeout_ns);
    }
    return until->deadline_ns;
}

/* The operation on one key: a copy, or a pin. */
struct wanted {
    struct sl_object_key key;
    const struct sl_iov *pieces; /* for a copy */
    uint32_t piece_count;
    bool whole;
    bool devices; /* there may be device memory */
    uint64_t *length_bytes;
    uint64_t *got_bytes;  /* total of bytes read: added to */
    struct sl_view *view; /* for a pin, or NULL */
    /* Collects copies to device memory, which the caller executes before it checks the entry again;
     * NULL: they are executed at once. */
    struct sl_gpu_copies *later;
    const struct sl_gpu_order *order; /* for copies to devices */
};

/* A lookup that handles a replaced node, and an index that stays torn until a restarted registrar
 * repairs it. In a section, which is another one after each wait. */
static sl_err find(struct sl_client *client, struct sl_object_key key, struct until *until,
                   struct sl_reader **reader, struct sl_attachment **at, struct sl_entry *entry,
                   struct sl_error *why)
{
    if (key.at == NULL || key.length == 0 || key.length > SL_KEY_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "key: 1 to %u bytes, not %u", SL_KEY_BYTES_MAX,
                       key.length);
    }
    for (;;) {
        sl_err serves = sl_client_check_node(client, why);
        if (serves != SL_OK) {
            return serves;
        }
        *at = sl_client_attachment(client);
        sl_err err = sl_client_look(client, *at, key, entry);
        if (sl_attachment_is_cut(*at)) {
            return sl_client_fail_truncated(client, why);
        }
        if (err == SL_OK) {
            return SL_OK;
        }
        (void)sl_client_reattach(client, err == SL_ERR_BUSY, NULL);
        if (sl_client_attachment(client) != *at) {
            continue;
        }
        if (err != SL_ERR_BUSY) {
            return err == SL_ERR_NOT_FOUND ? sl_fail(why, err, "no object under this key") : err;
        }
        if (sl_clock_monotonic_ns() >= until_ns(client, until)) {
            return sl_fail(why, SL_ERR_BUSY, "the index entry kept changing");
        }
        sl_reader_leave(*reader); /* do not delay unmapping during the wait */
        sl_client_sleep(TORN_PAUSE_NS);
        *reader = sl_reader_enter();
    }
}

sl_err sl_client_find(struct sl_client *client, struct sl_object_key key, struct sl_entry *entry)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = NULL;
    struct until until = {0};
    return find(client, key, &until, &reader, &at, entry, NULL);
}

void sl_client_keys_look(const struct sl_object_key *keys, uint32_t count, struct sl_key *out)
{
    for (uint32_t i = 0; i < count; i++) {
        bool fine = keys[i].at != NULL && keys[i].length <= SL_KEY_BYTES_MAX;
        out[i] = fine ? (struct sl_key){.at = keys[i].at, .length = keys[i].length}
                      : (struct sl_key){.at = "", .length = 0};
    }
}

/* If copies from this value did not end in time, pins it until they have. */
static void lend(struct sl_client *client, struct sl_attachment *at, const struct sl_entry *entry,
                 const struct sl_gpu_copies *copies)
{
    struct sl_client_deferral lending = {
        .at = at, .gpu = copies->unfinished_gpu, .unfinished_count = copies->unfinished_count};
    if (copies->unfinished && at->pins != NULL &&
        sl_pins_take(at->pins, at->view, entry, &lending.pin) == SL_OK) {
        sl_client_extent_defer(client, &lending);
    } else if (copies->unfinished) {
        sl_attachment_hold(at); /* permanently: the GPU may still read it */
    }
}

/* Copies into pieces of which some are in device memory. */
static sl_err scatter_on_device(struct sl_client *client, struct sl_attachment *at,
                                const struct sl_entry *entry, const struct wanted *want,
                                unsigned char *from, struct sl_error *why)
{
    const struct sl_arena *arena = sl_client_arena(at, entry->extent.arena);
    uint64_t length_bytes = entry->extent.length_bytes;
    struct sl_gpu_copies now = {0};
    struct sl_gpu_copies *copies = want->later != NULL ? want->later : &now;
    uint32_t before = copies->count;
    sl_err err =
        sl_pieces_scatter_later(want->pieces, want->piece_count, from, arena, length_bytes, copies);
    if (err != SL_OK) {
        copies->count = before;
        err = sl_fail(why, err, "get: %u pieces", want->piece_count);
    } else if (copies == &now) {
        err = sl_gpu_copies_run(copies, want->order, why);
        lend(client, at, entry, copies);
    }
    sl_gpu_copies_free(&now);
    return err;
}

static sl_err copy_out(struct sl_client *client, struct sl_attachment *at,
                       const struct sl_entry *entry, const struct wanted *want,
                       struct sl_error *why)
{
    uint64_t length_bytes = entry->extent.length_bytes;
    if (want->length_bytes != NULL) {
        *want->length_bytes = length_bytes;
    }
    sl_err err = sl_pieces_fit(want->pieces, want->piece_count, want->whole, length_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    void *from =
        sl_client_bytes(client, at, entry->extent.arena, entry->extent.offset_bytes, length_bytes);
    if (from != NULL && want->devices && sl_pieces_on_device(want->pieces, want->piece_count)) {
        err = scatter_on_device(client, at, entry, want, from, why);
    } else if (from != NULL) {
        sl_pieces_scatter(want->pieces, want->piece_count, from, length_bytes);
    }
    bool stands = sl_index_unchanged(at->view, entry);
    if (sl_attachment_is_cut(at)) { /* copied bytes may be zeros */
        return sl_client_fail_truncated(client, why);
    }
    if (!stands) {
        return SL_ERR_STALE;
    }
    if (err == SL_OK && sl_client_lease_over(entry)) {
        return sl_fail(why, SL_ERR_LEASE_OVER,
                       "the lease ended while %" PRIu64 " bytes were copied", length_bytes);
    }
    return from != NULL ? err
                        : sl_fail(why, SL_ERR_CORRUPT, "the index names a place outside the arena");
}

static sl_err pin_out(struct sl_client *client, struct sl_attachment *at,
                      const struct sl_entry *entry, const struct wanted *want, struct sl_error *why)
{
    sl_pin pin = 0;
    sl_err err = sl_pins_take(at->pins, at->view, entry, &pin);
    if (err == SL_ERR_LIMIT) {
        return sl_fail(why, err, "pins: %" PRIu64 " bytes are pinned by this client",
                       sl_pins_pinned_bytes(at->pins));
    }
    if (err != SL_OK) {
        return SL_ERR_STALE; /* changed since it was found: look again */
    }
    if (sl_attachment_is_cut(at)) { /* the registrar may not see the pin */
        sl_pins_release(at->pins, pin);
        return sl_client_fail_truncated(client, why);
    }
    const void *bytes = sl_client_bytes(client, at, entry->extent.arena, entry->extent.offset_bytes,
                                        entry->extent.length_bytes);
    if (bytes == NULL) {
        sl_pins_release(at->pins, pin);
        return sl_fail(why, SL_ERR_CORRUPT, "the index names a place outside the arena");
    }
    *want->view = (struct sl_view){.at = bytes,
                                   .length_bytes = entry->extent.length_bytes,
                                   .private_pin = ((uint64_t)at->number << 32) | pin};
    return SL_OK;
}

/* Recorded before the copy: after it, the atomic would wait for the copy's stores. */
static void note_access(const struct sl_attachment *at, const struct sl_entry *entry)
{
    if (at->pins != NULL && entry->extent.generation != 0) {
        sl_pins_note_access(at->pins, entry->ref, entry->extent.generation);
    }
}

/* Processes an entry that was found: SL_OK, a final code, SL_ERR_INCOMPLETE if the value is only on
 * disk, SL_ERR_STALE if it changed meanwhile. */
static sl_err read_found(struct sl_client *client, struct sl_attachment *at,
                         const struct wanted *want, const struct sl_entry *entry,
                         struct sl_error *why)
{
    if (entry->extent.generation == 0) {
        if (want->length_bytes != NULL) {
            *want->length_bytes = entry->extent.length_bytes;
        }
        sl_err err = want->view != NULL
                         ? SL_OK
                         : sl_pieces_fit(want->pieces, want->piece_count, want->whole,
                                         entry->extent.length_bytes, why);
        return err != SL_OK ? err : SL_ERR_INCOMPLETE;
    }
    sl_err err = want->view != NULL ? pin_out(client, at, entry, want, why)
                                    : copy_out(client, at, entry, want, why);
    *want->got_bytes += err == SL_OK ? entry->extent.length_bytes : 0;
    return err;
}

/* One try without waiting: SL_OK, a final code, or SL_ERR_INCOMPLETE (only on disk). */
static sl_err read_now(struct sl_client *client, const struct wanted *want, struct until *until,
                       struct sl_entry *entry, struct sl_error *why)
{
    for (uint32_t tries = 0; tries < TORN_TRIES_MAX; tries++) {
        SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
        struct sl_attachment *at = NULL;
        sl_err err = find(client, want->key, until, &reader, &at, entry, why);
        if (err == SL_OK) {
            note_access(at, entry);
            err = read_found(client, at, want, entry, why);
        }
        if (err != SL_ERR_STALE || at == NULL) {
            return err;
        }
    }
    return sl_fail(why, SL_ERR_BUSY, "the value kept changing while it was read");
}

struct reading {
    struct sl_client *client;
    struct until *until;
    struct sl_error *why;
    sl_err *codes; /* SL_ERR_INCOMPLETE: only on disk */
    uint32_t count;
    /* Either keys, with one buffer or view each, or items. */
    const struct sl_object_key *keys;
    const struct sl_buffer *buffers;
    struct sl_view *views;
    const struct sl_iov_list *items;
    bool whole;
    bool devices;              /* there may be device memory */
    uint64_t *lengths;         /* may be NULL */
    struct sl_gpu_order order; /* for copies to devices */
    struct left *left;         /* copies of all groups; NULL: there is no device */
    uint64_t *got_bytes;       /* bytes read */
};

static struct sl_object_key key_of(const struct reading *reading, uint32_t item)
{
    return reading->items != NULL ? reading->items[item].key : reading->keys[item];
}

/* Fills the operation for one item. *one is storage for a buffer. Filled in place, since a returned
 * struct is a copy that waits for earlier stores. */
static void want_init(const struct reading *reading, uint32_t item, struct sl_iov *one,
                      struct wanted *want)
{
    *want =
        (struct wanted){.key = key_of(reading, item),
                        .devices = reading->devices,
                        .order = &reading->order,
                        .got_bytes = reading->got_bytes,
                        .length_bytes = reading->lengths == NULL ? NULL : &reading->lengths[item]};
    if (reading->items != NULL) {
        want->pieces = reading->items[item].at;
        want->piece_count = reading->items[item].count;
        want->whole = reading->whole;
    } else if (reading->views != NULL) {
        want->view = &reading->views[item];
    } else {
        *one = (struct sl_iov){.at = reading->buffers[item].at,
                               .length_bytes = reading->buffers[item].length_bytes};
        want->pieces = one;
        want->piece_count = 1;
        want->whole = true;
    }
}

/* Reads one item, looking it up again as often as needed. */
static sl_err reading_read(const struct reading *reading, uint32_t item, struct sl_entry *entry)
{
    struct sl_iov one;
    struct wanted want;
    want_init(reading, item, &one, &want);
    return read_now(reading->client, &want, reading->until, entry, reading->why);
}

/* An item whose copies to a device are executed together with those of other items. */
struct left_item {
    uint32_t item;
    struct sl_attachment *at;
    struct sl_entry entry;
};
struct left {
    struct sl_gpu_copies copies;
    struct left_item *items;
    uint32_t count, room;
};

/* Executes all of them together; then an item counts if its entry still exists unchanged. */
static void left_finish(const struct reading *reading, const struct left *left, sl_err err)
{
    for (uint32_t i = 0; i < left->count; i++) {
        const struct left_item *it = &left->items[i];
        struct sl_entry entry = it->entry;
        lend(reading->client, it->at, &entry, &left->copies);
        bool stands = sl_index_unchanged(it->at->view, &entry);
        if (sl_attachment_is_cut(it->at)) {
            reading->codes[it->item] = sl_client_fail_truncated(reading->client, reading->why);
        } else if (!stands) {
            reading->codes[it->item] = reading_read(reading, it->item, &entry);
        } else {
            reading->codes[it->item] =
                err == SL_OK && sl_client_lease_over(&entry) ? SL_ERR_LEASE_OVER : err;
        }
    }
}

/* Looks up several keys at once, so that their cache misses overlap; then copies. Items with any
 * complication are looked up again one by one. */
static void reading_group(const struct reading *reading, uint32_t first, uint32_t share)
{
    struct sl_key keys[GROUP_COUNT];
    struct sl_entry entries[GROUP_COUNT];
    sl_err found[GROUP_COUNT];
    struct left *left = reading->left;
    struct sl_gpu_copies *later = left == NULL ? NULL : &left->copies;
    if (!sl_client_check_node_batch(reading->client, &reading->codes[first], share, reading->why)) {
        return;
    }
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(reading->client);
    for (uint32_t i = 0; i < share; i++) {
        struct sl_object_key key = key_of(reading, first + i);
        sl_client_keys_look(&key, 1, &keys[i]);
    }
    sl_client_look_batch(reading->client, at, keys, share, entries, found);
    for (uint32_t i = 0; i < share; i++) {
        if (found[i] == SL_OK) {
            note_access(at, &entries[i]);
        }
    }
    for (uint32_t i = 0; i < share; i++) {
        struct sl_iov one;
        struct wanted want;
        want_init(reading, first + i, &one, &want);
        uint32_t before = later == NULL ? 0 : later->count;
        if (later != NULL && SL_ARRAY_ROOM(left->items, left->room, left->count + 1)) {
            want.later = later;
        }
        sl_err err = found[i] == SL_OK
                         ? read_found(reading->client, at, &want, &entries[i], reading->why)
                         : SL_ERR_STALE;
        if (err == SL_OK && later != NULL && later->count > before) {
            left->items[left->count++] =
                (struct left_item){.item = first + i, .at = at, .entry = entries[i]};
        } else if (later != NULL) {
            later->count = before;
        }
        if (err == SL_ERR_STALE) {
            want.later = NULL;
            err = read_now(reading->client, &want, reading->until, &entries[i], reading->why);
        }
        reading->codes[first + i] = err;
    }
}

static struct sl_object_key reading_key(const void *reading, uint32_t item)
{
    return key_of(reading, item);
}

static sl_err reading_again(const void *reading, uint32_t item)
{
    struct sl_entry entry;
    return reading_read(reading, item, &entry);
}

/* Reads all items that are in memory here. */
static void reading_here(struct reading *reading)
{
    for (uint32_t first = 0; first < reading->count; first += GROUP_COUNT) {
        uint32_t share = SL_MIN(reading->count - first, GROUP_COUNT);
        if (share == 1) {
            struct sl_entry entry;
            reading->codes[first] = reading_read(reading, first, &entry);
        } else {
            reading_group(reading, first, share);
        }
    }
}

/* The same with devices: their copies are executed after all lookups. */
static void reading_here_to_devices(struct reading *reading)
{
    /* One section over all groups: the copies read what they found. */
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct left left = {0};
    reading->left = &left;
    reading_here(reading);
    if (left.count > 0) {
        left_finish(reading, &left, sl_gpu_copies_run(&left.copies, &reading->order, reading->why));
    }
    sl_gpu_copies_free(&left.copies);
    free(left.items);
    reading->left = NULL;
}

static uint32_t codes_count(const struct reading *reading, sl_err code)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < reading->count; i++) {
        count += reading->codes[i] == code;
    }
    return count;
}

/* Reads values that are not in memory here from other nodes and from disk. */
static sl_err reading_wait(struct reading *reading, struct tally *tally)
{
    bool nodes = codes_count(reading, SL_ERR_NOT_FOUND) > 0 && sl_client_has_peers(reading->client);
    if (!nodes && codes_count(reading, SL_ERR_INCOMPLETE) == 0) {
        return SL_OK;
    }
    const struct sl_bring bring = {.client = reading->client,
                                   .deadline_ns = until_ns(reading->client, reading->until),
                                   .why = reading->why,
                                   .codes = reading->codes,
                                   .count = reading->count,
                                   .key = reading_key,
                                   .read = reading_again,
                                   .items = reading};
    sl_err err = SL_OK;
    if (nodes) {
        sl_tally_wait(tally);
        sl_bring_from_nodes(&bring);
        sl_tally_tier(tally, SL_TIER_REMOTE, *reading->got_bytes);
    }
    if (codes_count(reading, SL_ERR_INCOMPLETE) > 0) {
        sl_tally_wait(tally);
        err = sl_bring_from_disk(&bring);
        sl_tally_tier(tally, SL_TIER_DISK, *reading->got_bytes);
    }
    return err;
}

/* Counts missing keys that were stored earlier. Hits do not get here. */
static void __attribute__((noinline)) seen_count(const struct reading *reading)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_client *client = reading->client;
    const struct sl_attachment *at = sl_client_attachment(client);
    const struct sl_seen *seen = atomic_load_explicit(&at->seen, memory_order_acquire);
    uint32_t count = 0;
    for (uint32_t i = 0; i < reading->count; i++) {
        if (reading->codes[i] == SL_ERR_NOT_FOUND) {
            struct sl_object_key key = key_of(reading, i);
            count += sl_seen_has(seen, sl_key_hash(key.at, key.length));
        }
    }
    sl_count(sl_client_counts(at, reader), SL_COUNT_GET_SEEN, count);
    if (client->has_tenant) {
        struct sl_labels *labels = sl_client_labels(at);
        sl_label_add(labels, sl_client_tenant_label(client, labels), reader->number, SL_LABEL_SEEN,
                     count);
    }
}

static sl_err reading_carry_out(struct reading *reading)
{
    if (reading->count > SL_BATCH_MAX) {
        return sl_fail(reading->why, SL_ERR_INVALID, "get: %u keys, at most %d", reading->count,
                       SL_BATCH_MAX);
    }
    struct tally tally;
    sl_tally_begin(&tally, reading->codes, reading->count);
    if (reading->count > 1) { /* copies of many values may take a while */
        (void)until_ns(reading->client, reading->until);
    }
    reading->devices = reading->views == NULL && sl_gpu_present();
    if (reading->devices) {
        reading->order.deadline_ns = until_ns(reading->client, reading->until);
        reading_here_to_devices(reading);
    } else {
        reading_here(reading);
    }
    sl_tally_tier(&tally, SL_TIER_MEMORY, *reading->got_bytes);
    sl_err err = tally.found < reading->count ? reading_wait(reading, &tally) : SL_OK;
    sl_tally_end(&tally, reading->client);
    if (tally.found < reading->count) {
        seen_count(reading);
    }
    return err;
}

sl_err sl_get_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *buffers, uint32_t count, uint64_t *lengths,
                    sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    uint64_t got_bytes = 0;
    struct until until = {.timeout_ns = timeout_ns};
    struct reading reading = {.client = client,
                              .until = &until,
                              .got_bytes = &got_bytes,
                              .why = why,
                              .codes = codes,
                              .count = count,
                              .keys = keys,
                              .buffers = buffers,
                              .lengths = lengths};
    return reading_carry_out(&reading);
}

sl_err sl_getv_after_event(struct sl_client *client, const struct sl_iov_list *items,
                           uint32_t count, bool whole, void *event, uint64_t *lengths,
                           sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    if (items == NULL && count > 0) {
        return sl_fail(why, SL_ERR_INVALID, "get: %u items at address NULL", count);
    }
    uint64_t got_bytes = 0;
    struct until until = {.timeout_ns = timeout_ns};
    struct reading reading = {.client = client,
                              .until = &until,
                              .got_bytes = &got_bytes,
                              .why = why,
                              .codes = codes,
                              .count = count,
                              .items = items,
                              .whole = whole,
                              .order = {.event = event},
                              .lengths = lengths};
    return reading_carry_out(&reading);
}

sl_err sl_getv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
               bool whole, uint64_t *lengths, sl_err *codes, uint64_t timeout_ns,
               struct sl_error *why)
{
    return sl_getv_after_event(client, items, count, whole, NULL, lengths, codes, timeout_ns, why);
}

sl_err sl_get_pinned_batch(struct sl_client *client, const struct sl_object_key *keys,
                           struct sl_view *views, uint32_t count, sl_err *codes,
                           uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why); /* a read-only client has no pins */
    if (err != SL_OK) {
        return err;
    }
    if (count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "get: %u keys, at most %d", count, SL_BATCH_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        views[i] = (struct sl_view){0};
    }
    /* The registrar must know our pin file before a pin counts. */
    if (sl_client_life(client) !=
        atomic_load_explicit(&client->greeted_attachment, memory_order_relaxed)) {
        err = sl_client_hello(client, sl_client_deadline(client, timeout_ns), why);
        if (err != SL_OK) {
            return err;
        }
    }
    uint64_t got_bytes = 0;
    struct until until = {.timeout_ns = timeout_ns};
    struct reading reading = {.client = client,
                              .until = &until,
                              .got_bytes = &got_bytes,
                              .why = why,
                              .codes = codes,
                              .count = count,
                              .keys = keys,
                              .views = views};
    return reading_carry_out(&reading);
}

/* One item's code with its message; the text of the code if there is none. */
static sl_err settled(sl_err err, sl_err code, const struct sl_error *reason, struct sl_error *why)
{
    err = err != SL_OK ? err : code;
    if (err != SL_OK && reason->code != err) {
        return sl_fail(why, err, "get: %s", sl_err_text(err));
    }
    if (err != SL_OK && why != NULL) {
        *why = *reason;
    }
    return err;
}

sl_err sl_get(struct sl_client *client, struct sl_object_key key, struct sl_buffer buffer,
              uint64_t *length_bytes, uint64_t timeout_ns, struct sl_error *why)
{
    sl_err code = SL_OK;
    struct sl_error reason = {0};
    sl_err err = sl_get_batch(client, &key, &buffer, 1, length_bytes, &code, timeout_ns, &reason);
    return settled(err, code, &reason, why);
}

sl_err sl_get_pinned(struct sl_client *client, struct sl_object_key key, struct sl_view *out,
                     uint64_t timeout_ns, struct sl_error *why)
{
    sl_err code = SL_OK;
    struct sl_error reason = {0};
    sl_err err = sl_get_pinned_batch(client, &key, out, 1, &code, timeout_ns, &reason);
    return settled(err, code, &reason, why);
}
