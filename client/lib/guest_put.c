/* client/lib/guest_put.c - puts of a guest: values go into slots of the window, as many into one as it
 * holds, and several slots are on their way. What is larger than a slot is a draft of the stand-in. */
#include "client/lib/guest.h"
#include "client/lib/guest_internal.h"
#include "runtime/sl_backoff.h"

#include <string.h>

/* Values begin where copies are quick. */
#define ALIGN_BYTES 64u
/* Of one slot of a large value. */
#define FILL_ITEMS_MAX  64u
#define FILL_FROM_BYTES 4096u
#define AGAIN_NS_MIN    (1 * SL_NS_PER_MS)
#define AGAIN_NS_MAX    (50 * SL_NS_PER_MS)

_Static_assert(FILL_ITEMS_MAX * sizeof(struct sl_gate_item) <= FILL_FROM_BYTES, "items lie before");

/* A slot that was asked about, of items [first, end) of the put. */
struct asked {
    uint32_t slot, first, end;
};
struct pass {
    struct put *put;
    struct guest_lines *lines;
    struct guest_line *line;
    struct asked asked[SL_GATE_SLOTS]; /* the oldest first */
    uint32_t asked_count;
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static uint64_t slot_need(const struct put *put, uint32_t source)
{
    return sizeof(struct sl_gate_item) + put_key(put, source).length + ALIGN_BYTES +
           aligned(put_length(put, source));
}

static bool is_open(const struct put *put, uint32_t source)
{
    return put->codes[source] == SL_ERR_INCOMPLETE;
}

/* ---- answers ---- */

/* The oldest slot's. Errors: those after which nothing more is to be expected. */
static sl_err asked_collect(struct pass *pass)
{
    const struct asked asked = pass->asked[0];
    struct put *put = pass->put;
    const unsigned char *at = guest_slot_at(pass->line, asked.slot);
    memmove(pass->asked, &pass->asked[1], --pass->asked_count * sizeof *pass->asked);
    sl_err err = guest_slot_wait(pass->lines, pass->line, asked.slot, put->deadline_ns, put->why);
    for (uint32_t i = asked.first, item = 0; err == SL_OK && i < asked.end; i++) {
        struct sl_gate_item told;
        if (is_open(put, i)) {
            memcpy(&told, at + item++ * sizeof told, sizeof told);
            put->codes[i] = sl_err_received(told.code);
        }
    }
    guest_slot_free(pass->lines, pass->line, asked.slot);
    return err;
}

static sl_err asked_collect_all(struct pass *pass)
{
    sl_err result = SL_OK;
    while (pass->asked_count > 0) {
        sl_err err = asked_collect(pass);
        result = result == SL_OK ? err : result;
    }
    return result;
}

/* A slot to fill. Who waits for one has none on its way: so somebody's answer always comes. */
static sl_err slot_take(struct pass *pass, enum sl_gate_question what, uint32_t *slot)
{
    for (;;) {
        sl_err err = guest_slot_take(pass->lines, pass->line, what, pass->asked_count == 0,
                                     pass->put->deadline_ns, slot, pass->put->why);
        if (err == SL_ERR_BUSY) {
            err = asked_collect(pass);
            if (err == SL_OK) {
                continue;
            }
        }
        return err;
    }
}

static sl_err slot_ask(struct pass *pass, const struct asked *asked,
                       const struct guest_question *question)
{
    sl_err err = guest_slot_ask(pass->lines, pass->line, asked->slot, question, pass->put->why);
    if (err == SL_OK) {
        pass->asked[pass->asked_count++] = *asked;
    }
    return err;
}

/* ---- values that fit into a slot ---- */

static void value_copy(unsigned char *to, const struct sl_piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].length_bytes > 0) {
            memcpy(to + pieces[i].offset_bytes, pieces[i].at, pieces[i].length_bytes);
        }
    }
}

/* As many items from first on as the slot holds. */
static sl_err batch_send(struct pass *pass, uint32_t first, uint32_t count, uint32_t *end)
{
    const struct put *put = pass->put;
    struct asked asked = {.first = first, .end = first};
    uint64_t bytes = 0;
    uint32_t items = 0, item = 0;
    sl_err err = slot_take(pass, SL_GATE_PUT, &asked.slot);
    if (err != SL_OK) {
        return err;
    }
    for (; asked.end < count && items < SL_GATE_ITEMS_MAX; asked.end++) {
        uint64_t need = is_open(put, asked.end) ? slot_need(put, asked.end) : 0;
        if (bytes + need > pass->line->slot_bytes) {
            break;
        }
        bytes += need;
        items += need > 0;
    }
    unsigned char *slot = guest_slot_at(pass->line, asked.slot);
    uint64_t at = items * sizeof(struct sl_gate_item);
    for (uint32_t i = first; i < asked.end; i++) {
        struct sl_piece one;
        uint32_t piece_count = 0;
        if (!is_open(put, i)) {
            continue;
        }
        const struct sl_piece *pieces = sl_put_pieces_of(put, i, &one, &piece_count);
        struct sl_object_key key = put_key(put, i);
        struct sl_gate_item told = {.key_at = at,
                                    .key_length = key.length,
                                    .value_at = aligned(at + key.length),
                                    .length_bytes = put_length(put, i)};
        memcpy(slot + at, key.at, key.length);
        value_copy(slot + told.value_at, pieces, piece_count);
        memcpy(slot + item++ * sizeof told, &told, sizeof told);
        at = told.value_at + told.length_bytes;
    }
    const struct guest_question question = {.question = SL_GATE_PUT,
                                            .count = items,
                                            .at_once = put->at_once,
                                            .deadline_ns = put->deadline_ns};
    *end = asked.end;
    return slot_ask(pass, &asked, &question);
}

/* ---- larger ones ---- */

/* A question of one item, and its answer. Errors: also the item's own code. */
static sl_err one_ask(struct pass *pass, enum sl_gate_question what, struct sl_gate_item *item,
                      struct sl_object_key key)
{
    const struct put *put = pass->put;
    uint32_t slot = 0;
    const struct guest_question question = {
        .question = what, .count = 1, .at_once = put->at_once, .deadline_ns = put->deadline_ns};
    sl_err err =
        guest_slot_take(pass->lines, pass->line, what, true, put->deadline_ns, &slot, put->why);
    if (err != SL_OK) {
        return err;
    }
    unsigned char *at = guest_slot_at(pass->line, slot);
    item->key_at = sizeof *item;
    item->key_length = key.length;
    memcpy(at, item, sizeof *item);
    if (key.length > 0) {
        memcpy(at + sizeof *item, key.at, key.length);
    }
    err = guest_slot_ask(pass->lines, pass->line, slot, &question, put->why);
    if (err == SL_OK) {
        err = guest_slot_wait(pass->lines, pass->line, slot, put->deadline_ns, put->why);
        if (err == SL_OK) {
            memcpy(item, at, sizeof *item);
            err = sl_err_received(item->code);
        }
        guest_slot_free(pass->lines, pass->line, slot);
    }
    return err;
}

/* Where a large value's pieces are. */
struct filling {
    const struct sl_piece *pieces;
    uint32_t count, at;
    uint64_t done_bytes; /* of pieces[at] */
    uint32_t number;     /* of the draft */
};

/* Cut where a chunk of the digest ends, so that the stand-in hashes it as it comes. */
static uint64_t cut(uint64_t place, uint64_t left_bytes, uint64_t room_bytes)
{
    uint64_t end = (place + room_bytes) / SL_DIGEST_CHUNK_BYTES * SL_DIGEST_CHUNK_BYTES;
    return left_bytes <= room_bytes ? left_bytes : end > place ? end - place : room_bytes;
}

static uint32_t slot_fill(const struct guest_line *line, uint32_t slot, struct filling *filling)
{
    unsigned char *to = guest_slot_at(line, slot);
    uint64_t at = FILL_FROM_BYTES;
    uint32_t items = 0;
    while (filling->at < filling->count && items < FILL_ITEMS_MAX && at < line->slot_bytes) {
        const struct sl_piece *piece = &filling->pieces[filling->at];
        uint64_t place = piece->offset_bytes + filling->done_bytes;
        uint64_t take =
            cut(place, piece->length_bytes - filling->done_bytes, line->slot_bytes - at);
        if (take > 0) {
            const struct sl_gate_item item = {
                .number = filling->number, .value_at = at, .length_bytes = take, .place = place};
            memcpy(to + at, (const unsigned char *)piece->at + filling->done_bytes, take);
            memcpy(to + items++ * sizeof item, &item, sizeof item);
        }
        at = aligned(at + take);
        filling->done_bytes += take;
        if (filling->done_bytes == piece->length_bytes) {
            filling->done_bytes = 0;
            filling->at++;
        }
    }
    return items;
}

static sl_err value_fill(struct pass *pass, struct filling *filling)
{
    sl_err err = SL_OK;
    while (err == SL_OK && filling->at < filling->count) {
        struct asked asked = {0};
        err = slot_take(pass, SL_GATE_FILL, &asked.slot);
        if (err != SL_OK) {
            break;
        }
        const struct guest_question question = {.question = SL_GATE_FILL,
                                                .count = slot_fill(pass->line, asked.slot, filling),
                                                .deadline_ns = pass->put->deadline_ns};
        if (question.count > 0) { /* else the last pieces were empty */
            err = slot_ask(pass, &asked, &question);
        } else {
            guest_slot_free(pass->lines, pass->line, asked.slot);
        }
    }
    sl_err rest = asked_collect_all(pass);
    return err == SL_OK ? rest : err;
}

static sl_err large_try(struct pass *pass, uint32_t source)
{
    struct put *put = pass->put;
    struct sl_piece one;
    struct sl_gate_item item = {
        .length_bytes = put_length(put, source),
        .place = SL_MIN(sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns),
                        SL_GATE_WAIT_NS_MAX) /* that it lives */
    };
    struct filling filling = {0};
    sl_err err = one_ask(pass, SL_GATE_DRAFT, &item, put_key(put, source));
    if (err != SL_OK) {
        return err;
    }
    filling.number = item.number;
    filling.pieces = sl_put_pieces_of(put, source, &one, &filling.count);
    err = value_fill(pass, &filling);
    struct sl_gate_item end = {.number = filling.number};
    if (err == SL_OK) {
        err = one_ask(pass, SL_GATE_COMMIT, &end, (struct sl_object_key){0});
    }
    if (err != SL_OK) { /* no other draft has its number, should it be over */
        guest_line_drop(pass->lines, pass->line, filling.number);
    }
    return err;
}

/* Waits where drafts are too many. Errors: SL_ERR_UNREACHABLE; all others are the item's code. */
static sl_err large_put(struct pass *pass, uint32_t source)
{
    struct put *put = pass->put;
    uint64_t wait_ns = AGAIN_NS_MIN;
    for (;;) {
        sl_err err = large_try(pass, source);
        bool again = err == SL_ERR_STALE || err == SL_ERR_LIMIT;
        if (err == SL_ERR_UNREACHABLE) {
            return err;
        }
        if (!again || sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns) <= wait_ns) {
            put->codes[source] = err == SL_ERR_EXISTS  ? SL_OK
                                 : err == SL_ERR_STALE ? SL_ERR_BUSY
                                                       : err;
            return SL_OK;
        }
        sl_client_sleep(sl_backoff_next(&wait_ns, AGAIN_NS_MAX));
    }
}

/* ---- all ---- */

static sl_err pass_run(struct pass *pass, uint32_t count)
{
    const struct put *put = pass->put;
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < count && err == SL_OK;) {
        if (!is_open(put, i)) {
            i++;
        } else if (slot_need(put, i) <= pass->line->slot_bytes) {
            err = batch_send(pass, i, count, &i);
        } else {
            err = asked_collect_all(pass);
            err = err == SL_OK ? large_put(pass, i++) : err;
        }
    }
    sl_err rest = asked_collect_all(pass);
    return err == SL_OK ? rest : err;
}

/* What can be asked of a stand-in; what is there already is done. */
static void items_open(struct put *put, uint32_t count)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(put->client);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_piece one;
        struct sl_entry entry;
        uint32_t piece_count = 0;
        if (put->codes[i] != SL_ERR_BUSY) {
            continue;
        }
        struct sl_object_key key = put_key(put, i);
        const struct sl_piece *pieces = sl_put_pieces_of(put, i, &one, &piece_count);
        if (put_bundle(put, i).length > 0) {
            put->codes[i] = sl_fail(put->why, SL_ERR_PERMISSION,
                                    "a client of another user puts without bundles");
        } else if (put->devices && sl_pieces_on_device(pieces, piece_count)) {
            put->codes[i] = sl_fail(put->why, SL_ERR_UNSUPPORTED,
                                    "a client of another user puts from host memory alone");
        } else {
            bool there = sl_index_find(at->view, key.at, key.length, &entry) == SL_OK;
            put->codes[i] = there ? SL_OK : SL_ERR_INCOMPLETE;
        }
    }
}

/* Whether the stand-in is asked again about this: where a client of the node's user would go on, too. */
static bool goes_on(const struct put *put, sl_err code, uint64_t begun_ns)
{
    return !put->at_once && (code == SL_ERR_BUSY || guest_is_cut(code, begun_ns));
}

static bool any_goes_on(const struct put *put, uint32_t count, uint64_t begun_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++) {
        any = goes_on(put, put->codes[i], begun_ns);
    }
    return any;
}

/* Sleeps before all that goes on is asked again. False: there is no time for that, or nothing goes on. */
static bool put_again(struct put *put, uint32_t count, sl_err err, uint64_t begun_ns,
                      uint64_t *wait_ns)
{
    uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns);
    if (err != SL_ERR_UNREACHABLE) {
        bool asked = err == SL_OK || goes_on(put, err, begun_ns);
        if (!asked || left_ns <= 2 * GUEST_MARGIN_NS || /* the question had all but its margin */
            (err == SL_OK && !any_goes_on(put, count, begun_ns))) {
            return false;
        }
    }
    if (left_ns <= *wait_ns) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) { /* to be opened again */
        put->codes[i] = goes_on(put, put->codes[i], begun_ns) ? SL_ERR_BUSY : put->codes[i];
    }
    sl_client_sleep(sl_backoff_next(wait_ns, AGAIN_NS_MAX));
    return true;
}

sl_err sl_guest_put(struct put *put, uint32_t count)
{
    struct sl_guest *guest = put->client->guest;
    uint64_t wait_ns = AGAIN_NS_MIN;
    if (put->terms != NULL) {
        return sl_fail(
            put->why, SL_ERR_PERMISSION,
            "a client of another user puts without terms: pins, replacing, contributions");
    }
    sl_err err = SL_OK;
    for (bool again = true; again;) {
        struct pass pass = {.put = put, .lines = &guest->lines};
        uint64_t begun_ns = sl_clock_monotonic_ns();
        err = sl_client_serves(put->client, put->why);
        if (err == SL_OK) {
            items_open(put, count);
            err = guest_line_enter(&guest->lines, put->deadline_ns, &pass.line, put->why);
        }
        if (err == SL_OK) {
            err = pass_run(&pass, count);
            guest_line_leave(&guest->lines, pass.line);
        }
        again = put_again(put, count, err, begun_ns, &wait_ns);
    }
    for (uint32_t i = 0; i < count; i++) {
        put->codes[i] = is_open(put, i) || (err != SL_OK && put->codes[i] == SL_ERR_BUSY)
                            ? (err == SL_OK ? SL_ERR_PROTOCOL : err)
                            : put->codes[i];
    }
    return err;
}
